"""Producer: what a user touches.

Owns: argument checks, serializers, the guards against misuse (wrong loop, fork, before start, after
close). Must not know: batches, requests, connections; `runtime` does the work.

    new --start()--> running --close()--> closed
     \\-- start() raises --> closed
"""

from __future__ import annotations

import asyncio
import os
import warnings
import weakref
from collections.abc import AsyncIterable, Iterable, Sequence
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from aioproducer import log
from aioproducer.config import ProducerConfig
from aioproducer.errors import (
    BufferFullError,
    ForkedError,
    IllegalStateError,
    InvalidTopicError,
    ProducerClosedError,
    WrongLoopError,
)
from aioproducer.measuring import MeasuringCalls
from aioproducer.serializers.calling import (
    Prepared,
    RecordSerializers,
    UnfinishedRecord,
    header_pairs,
    is_plain,
    unchanging,
)
from aioproducer.transactions import TransactionalCalls
from aioproducer.types import HeadersInput, PartitionInfo, Record, RecordMetadata

if TYPE_CHECKING:
    from aioproducer.runtime.bulk import Item, SendManyResult
    from aioproducer.runtime.delivery import Delivery
    from aioproducer.runtime.engine import ProducerEngine
    from aioproducer.runtime.lane import Lane
    from aioproducer.runtime.unfinished import UnfinishedParts

_log = log.get("producer")

_live: weakref.WeakSet[Producer] = weakref.WeakSet()


class _State(Enum):
    NEW = "not started"
    STARTING = "starting"
    RUNNING = "running"
    CLOSED = "closed"
    FORKED = "forked"


class Producer(TransactionalCalls, MeasuringCalls):
    """An asyncio-native Kafka producer.

    Constructing one needs no running loop; it binds to the loop `start()` runs in. Use it as an
    async context manager, or call `start()` and `close()`.

    Args:
        config: a ready `ProducerConfig`; options given by keyword then override its fields.
        **options: the fields of `ProducerConfig`: Kafka's property names with underscores.

    Raises:
        ConfigError: an option is unknown, out of range or contradicts another.

    Example:
        >>> async with Producer(bootstrap_servers="localhost:9092") as producer:
        ...     delivery = await producer.send("orders", b"value", key=b"key")
        ...     metadata = await delivery
    """

    def __init__(self, config: ProducerConfig | None = None, /, **options: Any) -> None:
        if config is None:
            self._config = ProducerConfig(**options)
        else:
            self._config = config.replace(**options) if options else config
        self._state = _State.NEW
        self._engine: ProducerEngine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lane: Lane | None = None
        plain = is_plain(self._config)
        self._serializers = None if plain else RecordSerializers(self._config)

    @property
    def config(self) -> ProducerConfig:
        """The options in force."""
        return self._config

    @property
    def client_id(self) -> str:
        """The name in the brokers' logs and quotas, and in exported metrics."""
        return self._config.client_id

    @property
    def event_loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop it lives in; None before `start()`."""
        return self._loop

    # -- life ------------------------------------------------------------------------------------

    async def start(self, *, init_transactions: bool = True) -> None:
        """Connects to the cluster; returns when a broker has answered.

        Waits at most `max_block_ms` (or `bootstrap_resolve_timeout_ms`, if that is longer), and
        as long again for the transaction coordinator if there is a `transactional_id`. When it
        raises, everything is cleaned up.

        Args:
            init_transactions: False leaves `init_transactions()` to the caller.

        Raises:
            BootstrapError: no bootstrap server answered in time, or none of their names can be
                resolved (KIP-909); the text says why, for each.
            IllegalStateError: the producer was started before.
            UnsupportedCodecError: the compression's library cannot be imported.
        """
        if self._state is not _State.NEW:
            raise IllegalStateError(
                f"a producer starts once; this one is {self._state.value}",
                advice="create a new Producer",
            )
        self._loop = asyncio.get_running_loop()
        self._engine = self._new_engine(self._loop)
        self._state = _State.STARTING
        try:
            await self._engine.start(init_transactions=init_transactions)
        except BaseException:
            self._state = _State.CLOSED
            raise
        if self._state is _State.STARTING:
            self._state = _State.RUNNING
            _live.add(self)
            self._open_lane(self._engine)
        if not self._config.effective_idempotence:
            _log.info(
                "started without idempotence: a retried batch may be written twice (client id %s)",
                self._config.client_id,
            )

    async def close(self, timeout: float | None = None) -> None:
        """Delivers what was accepted, then releases everything; safe to call again.

        An open transaction is aborted, unless it is prepared; a commit under way is waited for, at
        most `max_block_ms`.

        Args:
            timeout: seconds to wait for deliveries; what is left then fails with
                `ProducerClosedError`. None waits as long as the records' own
                `delivery_timeout_ms` allows; 0 does not wait. Of several calls the least patient
                one counts.

        Raises:
            IllegalStateError: driven by hand in a callback, or called in another loop.
        """
        if self._state is _State.FORKED:
            return
        engine = self._engine
        if engine is not None:
            self._check_loop()
            _check_in_task("close")
        self._state = _State.CLOSED
        _live.discard(self)
        if engine is not None:
            await engine.close(timeout)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if getattr(self, "_state", None) is _State.RUNNING:
            warnings.warn(
                f"unclosed {self!r}: call close() or use `async with`",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    def __repr__(self) -> str:
        return f"<Producer {self._config.client_id} {self._state.value}>"

    # -- sending ---------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: HeadersInput = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Appends a record; returns as soon as it is accepted, before it is sent.

        Awaiting `send` is the back-pressure: it waits, at most `max_block_ms`, for the topic's
        metadata and for room in `buffer_memory`. Await the `Delivery` for the outcome; with
        `producer_type="sync"` this is done here, so that a failed delivery raises.

        Args:
            topic: topic name.
            value: bytes, or what `value_serializer` takes; None is a tombstone.
            key: bytes, or what `key_serializer` takes; equal keys go to the same partition.
            headers: pairs of name and bytes (or None); copied now.
            partition: a partition id, instead of the partitioner's choice.
            timestamp_ms: milliseconds since the epoch; now when left out.

        Raises:
            MetadataTimeoutError: the topic or partition did not appear in time.
            BufferExhaustedError: no memory became free in time.
            BufferFullError: there is no room, and `enqueue_timeout_ms` is 0.
            RecordTooLargeError: larger than `max_request_size` or `buffer_memory`.
            SerializationError: a serializer failed, or the types cannot be sent.
            IllegalStateError: not started, closed, another loop's, or after `fork()`; outside a
                transaction although there is a `transactional_id`.
            TransactionAbortableError: the transaction has failed, see `transaction`.
        """
        if self._lane is not None:
            delivery: Delivery | None = self._lane.append(
                topic, value, key, headers, partition, timestamp_ms
            )
            if delivery is not None:
                return delivery
        delivery = await self._append(topic, value, key, headers, partition, timestamp_ms)
        if self._config.producer_type == "sync":
            await delivery
        return delivery

    def send_nowait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: HeadersInput = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Like `send`, but raises `BufferFullError` where `send` would wait."""
        if self._lane is not None:
            delivery: Delivery | None = self._lane.append_nowait(
                topic, value, key, headers, partition, timestamp_ms
            )
            if delivery is not None:
                return delivery
        engine = self._usable()
        if engine.interception.sees_records:
            record = Record(value, key, headers, timestamp_ms, partition, topic)
            return self._send_seen_nowait(engine, record)
        prepared = self._prepare(topic, key, value, headers)
        if not isinstance(prepared, tuple):
            raise _would_wait(prepared, topic)
        key, value, pairs = prepared
        return engine.appender.append_nowait(topic, key, value, pairs, partition, timestamp_ms)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: HeadersInput = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """`send`, then await the delivery.

        Raises:
            KafkaError: what `send` raises, or why the delivery failed.
        """
        if self._lane is not None:
            delivery: Delivery | None = self._lane.append(
                topic, value, key, headers, partition, timestamp_ms
            )
            if delivery is not None:
                return await delivery
        return await (await self._append(topic, value, key, headers, partition, timestamp_ms))

    async def send_many(
        self,
        topic: str,
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        partition: int | None = None,
    ) -> SendManyResult:
        """Sends many records and waits until each is acknowledged or has failed.

        Args:
            topic: topic of every item that names none itself.
            items: values; `(key, value)`, `(key, value, headers)`, `(…, timestamp_ms)` or
                `(…, partition)` tuples; or `Record` objects. Iterated lazily, with back-pressure.
            partition: partition of every item that names none itself.

        Returns:
            Counts, the offsets per partition, and each failed item with its error. An item that
            is refused (too large, not serializable) counts as failed; the others go on, except in
            a transaction: that cannot be committed any more.

        Raises:
            SendManyInterruptedError: the items raised, or the producer was closed or failed
                meanwhile, or the transaction ended; its `result` says what became of the items up
                to there.
        """
        from aioproducer.runtime.bulk import send_many

        engine = self._usable()
        return await send_many(engine, self._prepare, topic, items, partition)

    async def send_arrow(
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
        """Sends the rows of a table and waits until each is acknowledged or has failed.

        Rows are encoded by native code, without a Python object for each; order, back-pressure,
        partitioning and guarantees are those of `send`. Serializers are not applied.

        Args:
            topic: topic of the rows that name none; None where every row names one.
            data: anything with `__arrow_c_stream__` or `__arrow_c_array__`: a table, batch or
                reader of pyarrow, a frame of polars or pandas, a relation of DuckDB.
            value: column of the values, binary or string; None sends null values.
            key: column of the keys, binary or string.
            headers: column of the headers: map<string, binary> or a list of such pairs.
            partition: column of partition ids, integers; where null, the partitioner chooses.
            timestamp: column of timestamps, or of int64 milliseconds; where null, now.
            topic_column: column of topics, strings; where null, `topic`.

        Returns:
            As `send_many`; a failed row's `index` is its number from 0, over all chunks. A row that
            is refused (too large, a negative timestamp or partition) counts as failed; the others
            go on, except in a transaction: that cannot be committed any more.

        Raises:
            TypeError: `data` is not Arrow data.
            InvalidTopicError: no topic is given in either way.
            SerializationError: a column does not exist or has a type that cannot be sent; nothing
                was sent.
            SendManyInterruptedError: the data could not be read any further, or the producer was
                closed or failed meanwhile, or the transaction ended; its `result` says what became
                of the rows up to there.
        """
        from aioproducer.records.arrow import ArrowColumns
        from aioproducer.runtime.arrow import send_arrow

        columns = ArrowColumns(value, key, headers, partition, timestamp, topic_column)
        return await send_arrow(self._usable(), topic, data, columns)

    async def flush(self, timeout: float | None = None) -> int:
        """Sends what was accepted so far without lingering, and waits for the outcomes.

        Records accepted after the call are not waited for, so those that callbacks send do not
        hold it up. A callback cannot wait: it starts a task that flushes (KIP-1118).

        Args:
            timeout: seconds; None waits as long as `delivery_timeout_ms` allows.

        Returns:
            How many of these records are still undelivered: 0 unless the timeout ended first.

        Raises:
            IllegalStateError: driven by hand in a callback, where it could never end; or the
                producer is not started, closed, another loop's, or of before a `fork()`.
        """
        engine = self._usable()
        _check_in_task("flush")
        return await engine.flush(timeout)

    def purge(self, *, queued: bool = True, in_flight: bool = False) -> int:
        """Gives up records that wait: their deliveries fail with `RecordsPurgedError`.

        Args:
            queued: those not sent yet, and those that wait to be sent again.
            in_flight: those sent and not acknowledged; they may be written all the same, and
                their errors say so.

        Returns:
            How many records were given up.
        """
        return self._usable().purge(queued=queued, in_flight=in_flight)

    # -- looking ---------------------------------------------------------------------------------

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The topic's partitions, waiting at most `max_block_ms` for its metadata."""
        engine = self._usable()
        await engine.metadata_task.wait_for_topic(topic, self._block_deadline(engine))
        return engine.metadata.cluster.partition_infos(topic)

    async def warm_up(self, topics: Sequence[str]) -> None:
        """Fetches the topics' metadata and connects to their leaders before the first `send`.

        Raises:
            MetadataTimeoutError: within `max_block_ms` some topic was not known.
            TypeError: a single str instead of a sequence of names.
        """
        if isinstance(topics, str):
            raise TypeError(f"warm_up takes a sequence of topic names, such as [{topics!r}]")
        engine = self._usable()
        await engine.warm_up(topics, self._block_deadline(engine))

    # -- private ---------------------------------------------------------------------------------

    def _new_engine(self, loop: asyncio.AbstractEventLoop) -> ProducerEngine:
        """The machinery; a simulation gives it another network, clock and source of chance."""
        # Imported here, so that `import aioproducer` stays light.
        from aioproducer.runtime.engine import ProducerEngine

        return ProducerEngine(self._config, loop, registry=self._registry)

    def _open_lane(self, engine: ProducerEngine) -> None:
        """Lets records that need neither a serializer nor a wait past everything here."""
        if self._serializers is not None or self._config.producer_type == "sync":
            return
        if engine.interception.sees_records:
            return
        self._lane = engine.appender.lane
        for name, waits in (("send", False), ("send_and_wait", True)):
            function = getattr(Producer, name)
            if getattr(type(self), name) is function:  # else a subclass has its own
                shortcut = self._lane.method(self, function, waits)
                if shortcut is not None:
                    vars(self)[name] = shortcut

    async def _send_seen(self, engine: ProducerEngine, record: Record) -> Delivery:
        """`send` with interceptors."""
        parts = engine.interception.show(record, self._prepare)
        if not isinstance(parts, tuple):
            with engine.interception.telling(parts.known):
                parts = await engine.appender.finished(parts)
        with engine.interception.telling(parts):
            delivery = await engine.appender.append(*parts)
        engine.interception.accepted(delivery, parts)
        return delivery

    def _send_seen_nowait(self, engine: ProducerEngine, record: Record) -> Delivery:
        """`send_nowait` with interceptors."""
        parts = engine.interception.show(record, self._prepare)
        if not isinstance(parts, tuple):
            with engine.interception.telling(parts.known):
                raise _would_wait(parts, record.topic)
        with engine.interception.telling(parts):
            delivery = engine.appender.append_nowait(*parts)
        engine.interception.accepted(delivery, parts)
        return delivery

    @property
    def _lifecycle(self) -> str:
        return self._state.value

    def _block_deadline(self, engine: ProducerEngine) -> float:
        return engine.loop.time() + self._config.max_block_ms / 1000

    def _usable(self) -> ProducerEngine:
        if self._state is not _State.RUNNING or self._engine is None:
            self._refuse()
        if asyncio._get_running_loop() is not self._loop:
            self._check_loop()
        engine = self._engine
        if engine.failure is not None or engine.closing:
            engine.check_usable()
        return engine

    def _refuse(self) -> NoReturn:
        match self._state:
            case _State.NEW | _State.STARTING:
                raise IllegalStateError(
                    f"the producer is {self._state.value}",
                    advice="await producer.start() first, or use `async with`",
                )
            case _State.FORKED:
                raise ForkedError(
                    "this producer was started before fork(); its connections are the parent's",
                    advice="create a producer in each process after the fork",
                )
            case _:
                raise ProducerClosedError(
                    "the producer is closed", advice="create a new producer to send more"
                )

    def _check_loop(self) -> None:
        if asyncio._get_running_loop() is not self._loop:
            raise WrongLoopError(
                "the producer was started in another event loop than the one running here, if any",
                advice="use one producer per loop, from coroutines and callbacks of that loop",
            )

    async def _append(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: HeadersInput,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery:
        engine = self._usable()
        if engine.interception.sees_records:
            record = Record(value, key, headers, timestamp_ms, partition, topic)
            return await self._send_seen(engine, record)
        prepared = self._prepare(topic, key, value, headers)
        if not isinstance(prepared, tuple):
            prepared = await engine.appender.finished(prepared)
        key, value, pairs = prepared
        if self._serializers is not None:
            # What is bytes by now may take the fast lane like any other record.
            lane = engine.appender.lane
            delivery: Delivery | None = lane.append(
                topic, value, key, pairs, partition, timestamp_ms
            )
            if delivery is not None:
                return delivery
        return await engine.appender.append(topic, key, value, pairs, partition, timestamp_ms)

    def _prepare(
        self, topic: str, key: Any, value: Any, headers: HeadersInput
    ) -> Prepared | UnfinishedRecord:
        if not isinstance(topic, str):
            raise InvalidTopicError(f"a topic's name is a str, not {type(topic).__name__}")
        if self._serializers is not None:
            return self._serializers.prepare(topic, key, value, headers)
        return unchanging(key), unchanging(value), header_pairs(topic, headers)


def _check_in_task(what: str) -> None:
    """A coroutine that a callback drives by hand would wait for ever: nobody resumes it."""
    if asyncio.current_task() is None:
        raise IllegalStateError(
            f"{what}() can only be awaited in a task, not in a callback (KIP-1118)",
            advice=f"start a task there: asyncio.create_task(producer.{what}())",
        )


def _would_wait(record: UnfinishedRecord | UnfinishedParts, topic: str | None) -> BufferFullError:
    """Gives a record up whose serializer waits where nothing can."""
    record.close()
    return BufferFullError(
        f"the {record.part}_serializer has to wait", topic=topic, advice="use send(), which waits"
    )


def _after_fork_in_child() -> None:
    """A child shares its parent's sockets: using them would mix both processes' requests."""
    for producer in list(_live):
        producer._state = _State.FORKED
        if producer._lane is not None:
            producer._lane.close()
    _live.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
