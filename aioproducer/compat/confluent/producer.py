"""`Producer`: confluent-kafka's calls on this producer."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from functools import partial
from math import ldexp
from typing import Any, Final, NoReturn, Self, TypeVar

from aioproducer._util.clock import Deadline, SystemClock
from aioproducer._util.secrets import hides_arguments
from aioproducer.blocking.fork_safe_lock import ForkSafeLock
from aioproducer.blocking.loop_thread import LoopThread, stall_timeout
from aioproducer.blocking.started import Started
from aioproducer.compat.confluent import _errors as errors
from aioproducer.compat.confluent._cluster import (
    ClusterMetadata,
    asking,
    check_topic_asked_for,
    known_cluster_id,
)
from aioproducer.compat.confluent._errors import KafkaError
from aioproducer.compat.confluent._loop_side import LoopSide
from aioproducer.compat.confluent._reports import Record, Reports
from aioproducer.compat.confluent._settings import settings_of
from aioproducer.compat.confluent._statistics import Clock
from aioproducer.compat.confluent._transactions import (
    TransactionalCalls,
    check_produce,
    refused_by_produce,
)
from aioproducer.compat.confluent._translation import translated, translating
from aioproducer.compat.confluent.message import Headers
from aioproducer.errors import InvalidPartitionError
from aioproducer.records import record_size_bound

Callback = Callable[[Any, Any], object]
T = TypeVar("T")

_OVERHEAD: Final = 32
"""The most bytes that a record without headers has besides its key and value."""
_new: Final = tuple.__new__
_NOW: Final = (0, -1)
"""Timestamps that are none; a consumer gives -1 for a message without a timestamp."""

_EXIT_TIMEOUT_S: Final = 10.0
_SLICE_S: Final = 0.05
_CHECK_S: Final = 1.0


class _Started(Started[LoopSide]):
    """A producer's thread, whose queue is dropped after a fork as well."""

    def after_fork_in_child(self) -> None:
        super().after_fork_in_child()
        self.loop_side.after_fork_in_child()


class Producer:
    """confluent-kafka's producer; connects in the background.

    `produce()` never waits. Callbacks are called by `poll()` and `flush()` (and the transactional
    calls that flush), in their caller's thread. Use it from any number of threads.

    Args:
        config: librdkafka's properties with confluent-kafka's callbacks, as a mapping.
        **kwargs: More of them, overriding the mapping's.

    Raises:
        KafkaException: A property is unknown or has a wrong value.
        TypeError: The configuration is not a mapping, or a callback is not callable.
    """

    _own_closed: bool = True  # until the constructor is through, and when it was never called
    _own_is_plain: bool = False
    _own_on_delivery: Any = None

    @hides_arguments
    def __init__(self, config: Mapping[str, Any] | None = None, /, **kwargs: Any) -> None:
        if not self._own_closed:
            raise RuntimeError("Producer already __init__:ialized")
        if config is not None and not isinstance(config, Mapping):
            raise TypeError("expected configuration dict")
        if config is None and not kwargs:
            raise TypeError("expected configuration dict")
        settings = settings_of({**(config or {}), **kwargs})
        self._own_settings = settings
        self._own_on_delivery = settings.on_delivery
        self._own_limit = settings.config.max_request_size
        self._own_transactional = settings.config.transactional_id is not None
        self._own_thread = LoopThread(
            f"aioproducer {settings.config.client_id}",
            stall_timeout_s=stall_timeout(settings.config),
        )
        self._own_reports = Reports(
            settings.error_cb, settings.max_records, settings.max_bytes, self._own_thread.lock
        )
        self._own_reports.only_errors = settings.only_errors
        self._own_clock = Clock(settings, self._own_reports)
        self._own_thread.warns = False  # as confluent-kafka
        with translating():
            self._own_thread.start()
        self._own_loop_side = LoopSide(settings, self._own_thread, self._own_reports)
        self._own_started = _Started(self._own_thread, self._own_loop_side, _EXIT_TIMEOUT_S)
        self._own_thread.post(self._own_loop_side.begin)
        self._own_closing = ForkSafeLock()
        self._own_calls = TransactionalCalls(self._own_transactional)
        self._own_closed = False
        self._own_is_plain = not self._own_transactional and not self._own_clock.is_on

    # -- producing -------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: Callback | None = None,
        on_delivery: Callback | None = None,
        timestamp: int = 0,
        headers: Mapping[str, Any] | list[tuple[str, Any]] | None = None,
    ) -> None:
        """Hand a record over and return at once.

        Args:
            topic: Topic name.
            value: Text (as UTF-8) or an object with a buffer, such as bytes; None is a tombstone.
            key: Text or bytes; equal keys go to the same partition.
            partition: A partition id; -1 leaves it to the partitioner.
            callback: Another name of `on_delivery`.
            on_delivery: `on_delivery(error, message)`, called by `poll()` or `flush()`.
            timestamp: Milliseconds since the epoch; 0 and -1 are now.
            headers: A mapping or pairs; values are text, bytes or None.

        Raises:
            BufferError: `queue.buffering.max.messages` or `.kbytes` is reached: call `poll()`.
            KafkaException: The record is too large, a known topic has no such partition, or no
                transaction is open.
            TypeError: A part has a type that cannot be sent.
            RuntimeError: The producer is closed.
        """
        handler = first_given(callback, on_delivery, self._own_on_delivery)
        if (
            self._own_is_plain
            and topic.__class__ is str
            and value.__class__ is bytes
            and (key is None or key.__class__ is bytes)
            and partition == -1
            and timestamp == 0
            and headers is None
        ):
            size = len(value) + _OVERHEAD + (0 if key is None else len(key))
            if size <= self._own_limit:
                since = SystemClock.monotonic()
                parts = (topic, value, key, None, None, None, size, since, handler)
                self._own_loop_side.put(_new(Record, parts))
                return
        self._own_check_open()
        record = record_of(
            topic, value, key, partition, timestamp, headers, handler, self._own_limit
        )
        if self._own_transactional:
            check_produce(self._own_loop_side.check_send)
        if record.partition is not None:
            self._own_check_partition(record.topic, record.partition)
        self._own_loop_side.put(record)

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: Callback | None = None,
        on_delivery: Callback | None = None,
    ) -> int:
        """Hand many records over, as they are: a `SerializingProducer` calls no serializer.

        Args:
            topic: Topic name.
            messages: Mappings with the arguments of `produce()`, all optional; None counts as left
                out. One that is refused gets an `_error`, a `KafkaError`.
            partition: For messages without one.
            callback: Another name of `on_delivery`.
            on_delivery: For messages without one.

        Returns:
            How many were handed over.

        Raises:
            TypeError: `messages` is not a list of mappings.
        """
        if not isinstance(messages, list):
            raise TypeError("messages must be a list")
        for index, message in enumerate(messages):
            _check_message(index, message)
        accepted = 0
        for message in messages:
            handler = first_given(message.get("callback"), message.get("on_delivery"), callback)
            own_partition = message.get("partition")
            try:
                # Not `self.produce`, as there: the arguments of a subclass may have another order.
                Producer.produce(
                    self,
                    topic,
                    message.get("value"),
                    message.get("key"),
                    partition if own_partition is None else own_partition,
                    handler,
                    on_delivery,
                    timestamp=message.get("timestamp") or 0,
                    headers=message.get("headers"),
                )
            except BufferError:
                message["_error"] = KafkaError(KafkaError._QUEUE_FULL)
            except errors.KafkaException as error:
                message["_error"] = error.args[0]
            else:
                accepted += 1
        return accepted

    # -- outcomes --------------------------------------------------------------------------------

    def poll(self, timeout: float = -1) -> int:
        """Call the callbacks that are due, waiting for the first of them.

        Args:
            timeout: Seconds; negative waits without a limit.

        Returns:
            How many outcomes and other events there were.

        Raises:
            Exception: What a callback raised; the others are called next time.
            KafkaException: A fatal error, once. Or the producer is another process's: this one was
                forked from it.
            RuntimeError: The producer is closed.
        """
        if (
            timeout == 0
            and self._own_is_plain
            and not (self._own_reports.ready or self._own_reports.silent)
        ):
            return 0  # programs poll after each `produce()`
        self._own_check_open()
        deadline = Deadline(self._own_wait_limit(timeout))
        while True:
            left = deadline.within(_CHECK_S)
            served = self._own_serve(left)
            if served or left == 0.0 or self._own_closed:
                return served
            with translating():
                self._own_thread.check_alive()

    def flush(self, timeout: float = -1) -> int:
        """Send without lingering, wait for the outcomes and call the callbacks.

        Args:
            timeout: Seconds; negative waits as long as the records' own time limits allow.

        Returns:
            The number of records whose outcome has not been reported yet.

        Raises:
            Exception: What the first callback raised that did; the others have been called.
            KafkaException: A fatal error, once.
            RuntimeError: The producer is closed.
        """
        self._own_check_open()
        return self._own_flush(self._own_wait_limit(timeout))

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Give records up; their callbacks get `_PURGE_QUEUE` or `_PURGE_INFLIGHT`.

        Args:
            in_queue: Those not sent yet.
            in_flight: Those sent and not acknowledged; they may be written all the same.
            blocking: Return when it is done.
        """
        self._own_check_open()
        if not blocking:
            self._own_submit(self._own_loop_side.purge(in_queue, in_flight))
            return
        with translating():
            self._own_thread.call(self._own_loop_side.purge(in_queue, in_flight))

    # -- inspection ------------------------------------------------------------------------------

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Ask a broker for the cluster's topics.

        Args:
            topic: The only topic to ask for; None asks for all.
            timeout: Seconds; negative waits without a limit.

        Raises:
            KafkaException: `_TRANSPORT`: no broker was connected in time; `_TIMED_OUT`: none has
                answered.
            RuntimeError: The producer is closed.
            TypeError: An argument has a type that cannot be used.
        """
        self._own_check_open("Handle")
        check_topic_asked_for(topic)
        with asking("Failed to get metadata", KafkaError._TRANSPORT) as asked:
            work = partial(self._own_loop_side.list_topics, topic, asked)
            return self._own_wait_for(work, timeout)

    def cluster_id(self, timeout: float = -1) -> str:
        """Return the id of the cluster.

        Args:
            timeout: Seconds; negative waits without a limit.

        Raises:
            KafkaException: `_TIMED_OUT`: no broker has answered in time, or they are too old.
        """
        self._own_check_open("Handle")
        with asking("Failed to retrieve cluster id", KafkaError._TIMED_OUT):
            found = self._own_wait_for(self._own_loop_side.cluster_id, timeout)
        return known_cluster_id(found)

    @hides_arguments
    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use another user name and password from the next authentication on.

        No effect unless `sasl.mechanism` is PLAIN or one of SCRAM.
        """
        self._own_check_open("Handle")
        self._own_settings.credentials.change(username, password)

    def __len__(self) -> int:
        return 0 if self._own_closed else self._own_reports.count

    def __bool__(self) -> bool:
        return True

    # -- transactions ----------------------------------------------------------------------------

    def init_transactions(self, timeout: float = -1) -> None:
        """End what an earlier producer of this `transactional.id` has left; call it once first.

        Args:
            timeout: Seconds, as for all calls here; negative waits as long as the producer's own
                time limits (`max_block_ms`) allow.

        Raises:
            KafkaException: Ask its `args[0]` for `retriable()`, `txn_requires_abort()`, `fatal()`,
                as for all calls here.
        """
        self._own_call(
            "init_transactions",
            lambda loop_side: loop_side.run(lambda producer: producer.init_transactions()),
            timeout,
        )

    def begin_transaction(self, timeout: float = -1) -> None:
        """Begin a transaction; what any thread produces until its end belongs to it."""
        self._own_call("begin_transaction", LoopSide.begin_transaction, timeout)

    def commit_transaction(self, timeout: float = -1) -> None:
        """Flush, and commit. On a timeout call it again."""
        limit = limit_of(timeout)
        deadline = Deadline(limit)
        self._own_check_open()
        with self._own_calls.making("commit_transaction"):
            if self._own_flush(limit):
                raise timed_out(timeout)
            if self._own_loop_side.lost is not None:
                lost = translated(self._own_loop_side.lost)
                raise errors.exception(lost.code(), lost.str(), txn_requires_abort=True)
            left = deadline.left()
            self._own_wait_for(
                lambda: self._own_loop_side.run(lambda producer: producer.commit_transaction()),
                -1.0 if left is None else left,
            )

    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort; records that were not sent yet fail with `_PURGE_QUEUE`."""
        self._own_call("abort_transaction", LoopSide.abort, timeout)
        self._own_reports.serve(0)

    def send_offsets_to_transaction(
        self, positions: list[Any], group_metadata: Any, timeout: float = -1
    ) -> None:
        """Make a consumer group's positions part of the transaction.

        Args:
            positions: confluent-kafka's `TopicPartition` with their offsets; those without an
                offset are left out.
            group_metadata: `Consumer.consumer_group_metadata()`, or this package's own.
            timeout: Seconds.
        """
        offsets = [position for position in positions if position.offset >= 0]
        self._own_call(
            "send_offsets_to_transaction",
            lambda loop_side: loop_side.send_offsets(offsets, group_metadata),
            timeout,
        )

    # -- life ------------------------------------------------------------------------------------

    def close(self) -> bool:
        """Flush, abort an open transaction, and release everything; safe to call again."""
        if self._own_closed:
            return True
        with self._own_closing:
            if self._own_closed:
                return True
            self._own_closed, self._own_is_plain = True, False
        try:
            if not self._own_thread.forked:
                if not self._own_transactional:
                    self._own_flush(None)
                with translating():
                    self._own_started.close()
                self._own_reports.serve(0)
        finally:
            self._own_started.close_soon()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._own_closed and not self._own_thread.forked:
            self._own_started.close_soon()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Producer has a thread and connections and cannot be copied or pickled")

    # -- private ---------------------------------------------------------------------------------

    def _own_check_open(self, what: str = "Producer") -> None:
        if self._own_closed:
            raise RuntimeError(f"{what} has been closed")
        if self._own_clock.is_on:
            self._own_clock.report_if_due(self._own_loop_side)

    def _own_check_partition(self, topic: str, partition: int) -> None:
        try:
            self._own_loop_side.check_partition(topic, partition)
        except InvalidPartitionError as error:
            raise refused_by_produce(KafkaError._UNKNOWN_PARTITION) from error

    def _own_wait_limit(self, timeout: float) -> float | None:
        """Return how long to wait: not at all in the producer's thread, as in a log handler."""
        return 0.0 if self._own_thread.is_here else limit_of(timeout)

    def _own_flush(self, timeout: float | None) -> int:
        """Flush; what the first callback raises is raised when all have been called."""
        raised: list[Exception] = []

        def serve(limit: float | None, enough: Callable[[], bool] | None = None) -> int:
            try:
                return self._own_serve(limit, enough)
            except Exception as error:
                raised.append(error)
                return 1

        left = self._own_wait_for_outcomes(timeout, serve)
        if raised:
            raise raised[0]
        return left

    def _own_wait_for_outcomes(self, timeout: float | None, serve: Callable[..., int]) -> int:
        deadline = Deadline(timeout)
        while self._own_reports.count:
            if not self._own_thread.is_alive and serve(0):
                continue  # closed at the interpreter's exit, or by the garbage collection of both
            flushed = self._own_submit(self._own_loop_side.flush())
            try:
                while self._own_reports.count and not flushed.done():
                    left = deadline.left()
                    serve(left, partial(self._own_is_flushed, flushed))
                    if left == 0.0:
                        return self._own_reports.count
            finally:
                flushed.cancel()
            # Nothing is left to wait for but callbacks, perhaps those of another thread.
            if self._own_reports.count and not serve(_SLICE_S):
                with translating():
                    self._own_thread.check_alive()
            if deadline.is_over:
                break
        return self._own_reports.count

    def _own_is_flushed(self, flushed: Future[None]) -> bool:
        return flushed.done() or not self._own_reports.count

    def _own_serve(self, limit: float | None, enough: Callable[[], bool] | None = None) -> int:
        """Call the callbacks that are due; wait for the first of them, or for statistics."""
        if not self._own_clock.is_on:
            return self._own_reports.serve(limit, enough)
        due = self._own_clock.left()
        served = self._own_reports.serve(due if limit is None else min(due, limit), enough)
        self._own_clock.report_if_due(self._own_loop_side)
        return served

    def _own_submit(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        """Run something in the loop, without waiting for it."""
        loop = self._own_thread._loop
        try:
            with translating():
                self._own_thread.check_alive()
            assert loop is not None
            future = asyncio.run_coroutine_threadsafe(work, loop)
        except BaseException:
            work.close()
            raise
        future.add_done_callback(lambda _: self._own_reports.wake())
        return future

    def _own_call(
        self, name: str, work: Callable[[LoopSide], Coroutine[Any, Any, None]], timeout: float
    ) -> None:
        """Make a transactional call."""
        self._own_check_open()
        with self._own_calls.making(name):
            self._own_wait_for(partial(work, self._own_loop_side), timeout)

    def _own_wait_for(self, work: Callable[[], Coroutine[Any, Any, T]], timeout: float) -> T:
        """Run something in the loop and wait for it."""
        limit = limit_of(timeout)
        with translating():
            return self._own_thread.call(in_time(work, limit))


def first_given(first: Any, second: Any, third: Any) -> Any:
    """Return the first callback that is not None; an object may be callable and false."""
    if first is not None:
        return first
    return third if second is None else second


def record_of(
    topic: Any,
    value: Any,
    key: Any,
    partition: Any,
    timestamp: Any,
    headers: Any,
    on_delivery: Any,
    limit: int,
) -> Record:
    """Return what was produced as a record, checked; it has at most `limit` bytes."""
    if not isinstance(topic, str):
        raise TypeError(f"argument 1 must be str, not {_type_of(topic)}")
    value_bytes, key_bytes = _bytes_of(value), _bytes_of(key)
    pairs = None if headers is None else _pairs_of(headers)
    record = Record(
        str.__str__(topic),  # of a subclass, such as an enumeration of names, as well
        value_bytes,
        key_bytes,
        pairs,
        None if partition == -1 else _partition_number(partition),
        None if timestamp in _NOW else _timestamp_number(timestamp),
        record_size_bound(key_bytes, value_bytes, tuple(pairs or ())),
        SystemClock.monotonic(),
        on_delivery,
    )
    if record.size > limit:
        raise errors.exception(
            KafkaError.MSG_SIZE_TOO_LARGE,
            "Unable to produce message: Broker: Message size too large",
        )
    return record


async def in_time(work: Callable[[], Coroutine[Any, Any, T]], limit: float | None) -> T:
    """Run a coroutine for at most `limit` seconds; raise `_TIMED_OUT` then."""
    try:
        async with asyncio.timeout(limit) as scope:
            return await work()
    except TimeoutError:
        if scope.expired():
            raise timed_out(limit) from None
        raise


def timed_out(timeout: float | None) -> errors.KafkaException:
    """Return what a call raises whose time is over."""
    return errors.exception(
        KafkaError._TIMED_OUT, f"not done within {timeout} s; call it again", retriable=True
    )


def limit_of(timeout: float) -> float | None:
    """Return a timeout of confluent-kafka, where a negative one is none; any real number is one."""
    limit = ldexp(timeout, 0)  # not float(), which takes a text
    return None if limit < 0 else limit


def _bytes_of(part: Any) -> bytes | None:
    if part is None or type(part) is bytes:
        return part
    if isinstance(part, str):
        return part.encode()
    try:
        return bytes(memoryview(part))
    except TypeError:
        kind = type(part).__name__
        raise TypeError(f"a bytes-like object is required, not {kind!r}") from None


def _check_message(index: int, message: Any) -> None:
    if not isinstance(message, dict):
        raise TypeError(f"Message at index {index} must be a dict")
    for part in ("value", "key"):
        if not isinstance(message.get(part), str | bytes | bytearray | memoryview | None):
            raise TypeError(f"Message {part} at index {index} must be bytes or str")
    if message.get("partition") is not None:
        if not isinstance(message["partition"], int):
            raise TypeError(f"Message partition at index {index} must be int")
        _partition_number(message["partition"])
    if message.get("timestamp") is not None:
        _timestamp_number(message["timestamp"])
    if message.get("headers") is not None:
        _pairs_of(message["headers"])


def _partition_number(given: Any) -> int:
    return _number(given, 31, "signed integer is greater than maximum")


def _timestamp_number(given: Any) -> int:
    return _number(given, 63, "int too big to convert")


def _number(given: Any, bits: int, text: str) -> int:
    number = operator.index(given)
    if not -(1 << bits) <= number < 1 << bits:
        raise OverflowError(text)
    return number


def _pairs_of(headers: Any) -> Headers:
    if isinstance(headers, Mapping):
        headers = headers.items()
    elif not isinstance(headers, list):
        raise TypeError(
            "expected headers to be dict or list of (key, value) tuples, "
            f"not {type(headers).__name__}"
        )
    pairs: Headers = []
    for pair in headers:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError("Headers are expected to be a list of (key, value) tuples")
        name, value = pair
        if value is not None and not isinstance(value, str | bytes):
            raise TypeError(
                "expected header value to be None, binary, or unicode string, "
                f"not {type(value).__name__}"
            )
        if not isinstance(name, str | bytes):
            raise TypeError(f"expected header name to be a string, not {_type_of(name)}")
        pairs.append((name if isinstance(name, str) else name.decode(), _bytes_of(value)))
    return pairs


def _type_of(given: object) -> str:
    return "None" if given is None else type(given).__name__
