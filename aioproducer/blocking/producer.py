"""Producer for synchronous callers.

    new --start()--> starting --> running --close()--> closed

A close meanwhile ends a start.

Invariants
- `send()` costs no trip to the loop, unless the topic is new, or its partition or time unusual.
- What one thread calls takes effect in the order of its calls: whatever goes through the loop
  waits first until everything handed over before is appended.
- No wait is without a bound, not even at exit (`exit_timeout`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, Unpack
from uuid import UUID

import aioproducer.runtime.engine  # noqa: F401 - a child forked in a start has half a module, else
from aioproducer import errors
from aioproducer._util.arguments import seconds_of, timeout_of
from aioproducer._util.secrets import hides_arguments
from aioproducer.blocking.fork_safe_lock import ForkSafeLock
from aioproducer.blocking.handle import DeliveryHandle
from aioproducer.blocking.loop_side import LoopSideProducer
from aioproducer.blocking.loop_thread import LoopThread, stall_timeout
from aioproducer.blocking.reading import BlockReader
from aioproducer.blocking.started import Started, live
from aioproducer.blocking.transactions import TransactionsMixin
from aioproducer.client import producer as asynchronous
from aioproducer.client.lifecycle import State, warned_of_by_owner
from aioproducer.config import ConfigInput, ProducerConfig
from aioproducer.config.option_types import ProducerOptions
from aioproducer.metrics import ApplicationMetric, Metric
from aioproducer.records import record_size_bound
from aioproducer.records.layout import HEADER_SIZE
from aioproducer.runtime.bulk.result import Item, SendManyResult
from aioproducer.runtime.observability.health import Health
from aioproducer.runtime.observability.statistics import Statistics
from aioproducer.serializers.calling import PendingRecord, Prepared, is_plain
from aioproducer.types import HeaderPairs, HeadersInput, PartitionInfo, RecordMetadata

if TYPE_CHECKING:
    from aioproducer.blocking.submission_queue import Entry

T = TypeVar("T")

_EXIT_TIMEOUT_S = 10.0
_TIMESTAMPS = 2**63


class Producer(TransactionsMixin):
    """A Kafka producer for threads: `aioproducer.Producer` in a separate loop and thread.

    Use it from any number of threads, as a context manager or with `start()` and `close()`. One
    that is not closed is closed when it is collected (with a `ResourceWarning`), or at the
    interpreter's exit. After `fork()` the child's copy raises `ForkedError`; it cannot be pickled.
    In a thread that runs an event loop it works, but holds that loop up: a `RuntimeWarning` says so
    once.

    Args:
        config: a ready `ProducerConfig`, or a mapping of properties in the names of any client, as
            `ProducerConfig.from_properties` takes it; options given by keyword override it.
        **options: the fields of `ProducerConfig`: Kafka's property names with underscores.

    Raises:
        ConfigError: an option is unknown, out of range or contradicts another.
        TypeError: `config` is something else.
    """

    @hides_arguments
    def __init__(self, config: ConfigInput = None, /, **options: Unpack[ProducerOptions]) -> None:
        self._producer = warned_of_by_owner(asynchronous.Producer(config, **options))
        self._exit_timeout = _EXIT_TIMEOUT_S
        settings = self._producer.config
        self._plain = is_plain(settings.key_serializer, settings.value_serializer)
        self._size_limit = min(settings.max_request_size, settings.buffer_memory)
        if (
            settings.producer_type == "sync"
            or settings.buffer_max_records is not None
            or settings.enqueue_timeout_ms is not None
        ):
            # What is handed over is counted nowhere and refused later: nothing may be.
            self._size_limit = -1
        self._thread = LoopThread(
            f"aioproducer {settings.client_id}", stall_timeout_s=stall_timeout(settings)
        )
        self._state = State.NEW
        self._state_lock = ForkSafeLock()
        self._starting: Future[LoopSideProducer] | None = None
        self._is_unwanted = False
        self._started: Started[LoopSideProducer] | None = None
        self._admit: Callable[[], object] | None = None

    @property
    def config(self) -> ProducerConfig:
        """The options in force."""
        return self._producer.config

    @property
    def client_id(self) -> str:
        """The name in the brokers' logs and quotas, and in exported metrics."""
        return self.config.client_id

    @property
    def exit_timeout(self) -> float:
        """Seconds that deliveries may take at the interpreter's exit; 10 unless it is set."""
        return self._exit_timeout

    @exit_timeout.setter
    def exit_timeout(self, seconds: float) -> None:
        self._exit_timeout = seconds_of(seconds, "exit_timeout")
        if self._started is not None:
            self._started.exit_timeout = self._exit_timeout

    @property
    def event_loop(self) -> None:
        """None: metrics may be read in any thread."""

    # -- life ------------------------------------------------------------------------------------

    def start(self, *, init_transactions: bool = True, wait: bool = True) -> None:
        """Connect to the cluster; wait and raise as `aioproducer.Producer.start`.

        Raises:
            ProducerClosedError: another thread has closed it meanwhile.
        """
        self._thread.check_may_wait()
        with self._state_lock:
            if self._state is not State.NEW:
                raise errors.IllegalStateError(
                    f"a producer starts once; this one is {self._state.value}",
                    advice="create a new Producer",
                )
            self._state = State.STARTING
            try:
                self._thread.start()
                loop_side = self._begun(self._start(init_transactions, wait))
                if loop_side.engine.transactions is not None:
                    self._admit = loop_side.engine.transactions.check_send
                self._started = Started(self._thread, loop_side, self._exit_timeout)
                self._state = State.RUNNING
            except BaseException:
                self._state = State.CLOSED
                self._thread.stop()
                raise
        if self._is_unwanted:  # since the last check
            self.close(0)
            raise _closed_meanwhile()

    def close(self, timeout: float | None = None) -> None:
        """Deliver what was handed over, then release everything; safe to call again.

        An open transaction is aborted, unless it is prepared. A `send()` that waits for memory
        meanwhile, or a `start()`, raises `ProducerClosedError`.

        Args:
            timeout: seconds to wait for deliveries; what is left then fails with
                `ProducerClosedError`. None or infinity waits as long as the records' own time
                limits allow.

        Raises:
            ValueError: the timeout is negative or NaN; nothing has changed then.
            IllegalStateError: called in a callback, which would block the thread that closes.
        """
        timeout = timeout_of(timeout)
        if self._thread.forked:
            return
        if self._state is State.NEW:
            self._state = State.CLOSED
            return
        self._thread.check_may_wait()
        # No lock: a signal handler may close the producer in the thread that starts it. So `start`
        # reads this after it has set the state.
        self._is_unwanted = True
        if self._state is State.STARTING:
            if self._starting is not None:
                self._starting.cancel()
            return
        self._state = State.CLOSED
        if self._started is not None:
            self._started.close(timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _close_soon(self) -> bool:
        """Close without waiting, in any thread; return whether it was running."""
        if getattr(self, "_state", None) is not State.RUNNING or self._thread.forked:
            return False
        self._state = State.CLOSED
        if self._started is not None:
            self._started.close_soon()
        return True

    def __del__(self) -> None:
        text = repr(self)
        if self._close_soon():
            warnings.warn(
                f"unclosed {text}: call close() or use `with`; "
                "it delivers what was handed over and is closed now",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Producer has a thread and connections and cannot be pickled; "
            "pass its config on and create one in each process"
        )

    def __repr__(self) -> str:
        if not hasattr(self, "_state"):
            return "<blocking Producer, not complete>"  # in frames of its constructor
        state = (State.FORKED if self._thread.forked else self._state).value
        return f"<blocking Producer {self.config.client_id} {state}>"

    # -- sending ---------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: HeadersInput = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> DeliveryHandle:
        """Hand a record over; return before it is sent.

        Waits, at most `max_block_ms`, when `buffer_memory` is used up, and for the metadata of a
        new topic. Records of one thread keep their order per partition. The handle has the outcome;
        a failure that is not retrieved is logged and passed to `on_delivery_error`. With
        `producer_type="sync"` the outcome is waited for here.

        Args:
            topic: topic name.
            value: bytes, or what `value_serializer` takes; None is a tombstone.
            key: bytes, or what `key_serializer` takes; equal keys go to the same partition.
            headers: pairs of name and bytes (or None); copied now.
            partition: a partition id, instead of the partitioner's choice.
            timestamp_ms: milliseconds since the epoch; the time of the append when left out.

        Raises:
            MetadataTimeoutError: the topic or partition did not appear in time.
            BufferExhaustedError: no memory became free in time.
            WouldBlockError: in a callback, where nothing can wait.
            BufferFullError: the buffer is full, and `enqueue_timeout_ms` is 0.
            RecordTooLargeError: larger than `max_request_size` or `buffer_memory`.
            SerializationError: a serializer failed, or the types cannot be sent.
            IllegalStateError: not started, closed or after `fork()`; outside a transaction
                although there is a `transactional_id`.
            TransactionAbortableError: the transaction has failed, see `transaction`.
        """
        loop_side = self._usable()
        if self._admit is not None:
            self._admit()
        if loop_side.engine.interceptor_chain.sees_records:
            return self._send_seen(loop_side, (topic, value, key, headers, partition, timestamp_ms))
        pairs: HeaderPairs = ()
        if (
            headers is not None
            or not self._plain
            or (value.__class__ is not bytes and value is not None)
            or (key.__class__ is not bytes and key is not None)
        ):
            prepared = self._producer._prepare(topic, key, value, headers)
            serializing = loop_side.engine.appender.serializing
            if not isinstance(prepared, tuple) or serializing.is_queued(topic):
                return self._send_in_turn(loop_side, topic, prepared, partition, timestamp_ms)
            key, value, pairs = prepared
        try:
            size = record_size_bound(key, value, pairs) + HEADER_SIZE
        except (TypeError, ValueError) as error:
            raise errors.SerializationError(str(error), topic=topic) from error
        partitions = loop_side.submissions.topics.get(topic) if topic.__class__ is str else None
        handle = DeliveryHandle(self._thread)
        entry = (handle, topic, value, key, pairs, partition, timestamp_ms)
        if (
            partitions is None
            or size > self._size_limit
            or (partition is not None and not _is_in_range(partition, partitions))
            or (timestamp_ms is not None and not _is_in_range(timestamp_ms, _TIMESTAMPS))
        ):
            return self._send_through_loop(loop_side, entry)
        loop_side.submissions.put(entry, size)
        return handle

    def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: HeadersInput = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """`send`, then wait for the outcome.

        Raises:
            KafkaError: what `send` raises, or why the delivery failed.
        """
        self._thread.check_may_wait()
        return self.send(topic, value, key, headers, partition, timestamp_ms).result()

    def send_many(
        self, topic: str, items: Iterable[Item], *, partition: int | None = None
    ) -> SendManyResult:
        """Send many records and wait until each is acknowledged or has failed.

        As `aioproducer.Producer.send_many`; the items are read in this thread, lazily, some
        thousand ahead of the sending. Serializers run in the thread of the loop.

        Raises:
            TypeError: the items are text, bytes or a table.
            SendManyInterruptedError: the items raised, or the producer was closed or failed
                meanwhile; its `result` says what became of the items up to there.
        """
        from aioproducer.runtime.bulk.send_many import check_items, send_blocks

        loop_side = self._usable()
        check_items(items)
        reader = BlockReader(self._thread, items)

        async def sending() -> SendManyResult:
            engine, prepare = self._producer._usable(), self._producer._prepare
            return await send_blocks(engine, prepare, topic, reader.blocks(), partition)

        return self._thread.call(loop_side.in_order(sending), beside=reader.read, on_end=reader.end)

    def send_arrow(
        self,
        topic: str | None,
        data: object,
        *,
        value: str | None = "value",
        key: str | None = None,
        headers: str | None = None,
        partition: str | None = None,
        timestamp: str | None = None,
        topic_column: str | None = None,
    ) -> SendManyResult:
        """Send the rows of a table; arguments, result and errors of the asynchronous one.

        A stream (a reader of pyarrow's, say) is read in a thread beside this one.
        """
        return self.run(
            lambda: self._producer.send_arrow(
                topic,
                data,
                value=value,
                key=key,
                headers=headers,
                partition=partition,
                timestamp=timestamp,
                topic_column=topic_column,
            )
        )

    def flush(self, timeout: float | None = None, *, raise_failures: bool = False) -> int:
        """Send what was handed over so far without lingering, and wait for the outcomes.

        Args:
            timeout: seconds; None or infinity waits as long as the records' own time limits allow.
            raise_failures: see `aioproducer.Producer.flush`.

        Returns:
            How many of these records are still pending: 0 unless the timeout ended first.

        Raises:
            RecordsFailedError: some have failed, and `raise_failures` is set.
            ValueError: the timeout is negative or NaN.
        """
        timeout = timeout_of(timeout)
        if self._was_closed_by_exit:
            return 0
        return self._thread.call(self._usable().flush(timeout, raise_failures=raise_failures))

    def purge(self, *, queued: bool = True, in_flight: bool = False) -> int:
        """Give up records that wait; see `aioproducer.Producer.purge`."""
        return self._thread.call(self._usable().purge(queued=queued, in_flight=in_flight))

    # -- inspection ------------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """Return the topic's partitions, waiting at most `max_block_ms` for its metadata."""
        return self._at_once(self._producer.partitions_for(topic))

    def warm_up(self, topics: Sequence[str]) -> None:
        """Fetch the topics' metadata and connect to their leaders before the first `send`."""
        self._at_once(self._producer.warm_up(topics))

    def health(self) -> Health:
        """Return what works right now; see `aioproducer.Producer.health`."""
        return self._read(self._producer.health)

    def metrics(self) -> Mapping[str, float]:
        """Return totals and gauges by Java's metric names (with underscores)."""
        return self._read(self._producer.metrics)

    def all_metrics(self) -> Sequence[Metric]:
        """Return every metric: of the producer, its topics and brokers, and the application."""
        return self._read(self._producer.all_metrics)

    def statistics(self) -> Statistics:
        """Return queues, requests in flight and memory now, per broker and partition."""
        return self._read(self._producer.statistics)

    def register_metric(self, metric: ApplicationMetric) -> None:
        """See `aioproducer.Producer.register_metric`; the metric is read in the loop's thread."""
        self._read(lambda: self._producer.register_metric(metric))

    def unregister_metric(self, metric: ApplicationMetric) -> None:
        """Take a metric of the application away."""
        self._read(lambda: self._producer.unregister_metric(metric))

    def client_instance_id(self, timeout: float | None = None) -> UUID:
        """See `aioproducer.Producer.client_instance_id`."""
        return self._at_once(self._producer.client_instance_id(timeout))

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a call of the asynchronous producer in its loop, after what was handed over.

        For what this class does not offer; `work` must have a time limit.
        """
        return self._thread.call(self._usable().in_order(work))

    def _at_once(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a call that need not wait for what was handed over, as for memory."""
        try:
            self._usable()
        except BaseException:
            work.close()
            raise
        return self._thread.call(work)

    @property
    def _was_closed_by_exit(self) -> bool:
        """Whether the interpreter's exit has closed it; destructors may flush after that."""
        is_over = self._started is not None and self._started not in live
        return is_over and self._state is State.RUNNING and not self._thread.forked

    def _usable(self) -> LoopSideProducer:
        """Raise what a call must raise now; thread-safe, since it only reads."""
        if self._state is not State.RUNNING or self._started is None:
            self._refuse()
        loop_side = self._started.loop_side
        if self._thread.forked:
            self._thread.check_alive()
        if loop_side.engine.failure is not None:
            loop_side.engine.check_usable()
        return loop_side

    def _begun(self, work: Coroutine[Any, Any, LoopSideProducer]) -> LoopSideProducer:
        """Wait for the start, which `close` may cancel."""
        starting = self._starting = self._thread.begin(work)
        try:
            if self._is_unwanted:
                raise _closed_meanwhile()
            return self._thread.outcome_of(starting)
        except CancelledError:
            raise _closed_meanwhile() from None
        finally:
            starting.cancel()

    async def _start(self, init_transactions: bool, wait: bool) -> LoopSideProducer:
        await self._producer.start(init_transactions=init_transactions, wait=wait)
        return LoopSideProducer(self._producer, self._thread)

    def _refuse(self) -> NoReturn:
        if self._thread.forked:
            self._thread.check_alive()
        if self._state in {State.NEW, State.STARTING}:
            raise errors.IllegalStateError(
                "the producer is not started", advice="call start() first, or use `with`"
            )
        raise errors.ProducerClosedError

    def _read(self, at: Callable[[], T]) -> T:
        if self._thread.is_here:
            return at()
        if self._state is not State.RUNNING and not self._thread.is_alive:
            return at()

        async def looking() -> T:
            return at()

        try:
            return self._thread.call(looking())
        except errors.ProducerClosedError:
            if self._state is State.RUNNING:
                raise
        return at()  # the loop has ended meanwhile

    def _send_in_turn(
        self,
        loop_side: LoopSideProducer,
        topic: str,
        made: Prepared | PendingRecord,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> DeliveryHandle:
        """Send a record whose serializer waits, or that comes after such a one of its topic."""
        serializing = loop_side.engine.appender.serializing
        if self._thread.is_here:
            if isinstance(made, tuple):
                serializing.check_free(topic)
            else:
                made.close()
                raise errors.WouldBlockError(
                    f"the {made.part}_serializer has to wait, and a callback cannot",
                    topic=topic,
                    advice="send in another thread",
                )
        handle = DeliveryHandle(self._thread)
        place = serializing.enter(topic)
        try:
            self._thread.call(
                loop_side.append_in_turn(place, made, handle, partition, timestamp_ms)
            )
        except BaseException:
            self._thread.post(place.leave)  # a call that was cancelled at once has not begun
            raise
        if self.config.producer_type == "sync":
            handle.result()
        return handle

    def _send_seen(self, loop_side: LoopSideProducer, record: tuple[Any, ...]) -> DeliveryHandle:
        """Send a record that interceptors see: in the loop, where they run, one by one."""
        if self._thread.is_here:
            raise errors.WouldBlockError("a callback cannot wait for the interceptors")
        handle = DeliveryHandle(self._thread)
        return self._thread.call(loop_side.in_order(lambda: loop_side.send(handle, *record)))

    def _send_through_loop(self, loop_side: LoopSideProducer, entry: Entry) -> DeliveryHandle:
        """Append before it returns, so that whatever is wrong is raised here."""
        if self._thread.is_here:
            raise errors.WouldBlockError(
                "the record's topic or partition is new, and a callback cannot wait for it",
                topic=entry[1],
                advice="call warm_up([topic]) and send one record first",
            )
        handle = self._thread.call(loop_side.in_order(lambda: loop_side.append(entry)))
        if self.config.producer_type == "sync":
            handle.result()
        return handle


def _is_in_range(number: object, limit: int) -> bool:
    return number.__class__ is int and 0 <= number < limit


def _closed_meanwhile() -> errors.ProducerClosedError:
    return errors.ProducerClosedError("the producer was closed while it started")
