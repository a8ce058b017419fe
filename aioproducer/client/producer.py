"""Producer: the class that applications use."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Unpack

from aioproducer._util.arguments import is_of_type, timeout_of
from aioproducer._util.secrets import hides_arguments
from aioproducer.client.bulk import BulkSendMixin
from aioproducer.client.lifecycle import check_in_task
from aioproducer.client.monitoring import MetricsMixin
from aioproducer.client.transactions import TransactionsMixin
from aioproducer.config import ConfigInput, configured
from aioproducer.config.option_types import ProducerOptions
from aioproducer.errors import WouldBlockError
from aioproducer.runtime.delivery import Delivery
from aioproducer.serializers.calling import (
    PendingRecord,
    Prepared,
    RecordSerializers,
    header_pairs,
    is_plain,
    unchanging,
)
from aioproducer.types import HeadersInput, PartitionInfo, Record, RecordMetadata

if TYPE_CHECKING:
    from aioproducer.runtime.engine import ProducerEngine
    from aioproducer.runtime.send.fast_path import FastPath
    from aioproducer.runtime.send.pending import PendingParts


class Producer(BulkSendMixin, TransactionsMixin, MetricsMixin):
    """An asyncio-native Kafka producer.

    Constructing one needs no running loop; it binds to the loop `start()` runs in. Use it as an
    async context manager, or call `start()` and `close()`. One that is collected without `close()`
    warns (`ResourceWarning`), delivers what it has accepted and is closed then.

    Args:
        config: a ready `ProducerConfig`, or a mapping of properties in the names of any client, as
            `ProducerConfig.from_properties` takes it; options given by keyword override it.
        **options: the fields of `ProducerConfig`: Kafka's property names with underscores.

    Raises:
        ConfigError: an option is unknown, out of range or contradicts another.
        TypeError: `config` is something else.

    Examples:
        >>> async with Producer(bootstrap_servers="localhost:9092") as producer:
        ...     delivery = await producer.send("orders", b"value", key=b"key")
        ...     metadata = await delivery
    """

    __slots__ = ("_fast_path",)  # of all attributes: native code reads this one

    @hides_arguments
    def __init__(self, config: ConfigInput = None, /, **options: Unpack[ProducerOptions]) -> None:
        settings = configured(config, options)
        super().__init__(settings)
        self._fast_path: FastPath | None = None
        serializers = settings.key_serializer, settings.value_serializer
        self._serializers = None if is_plain(*serializers) else RecordSerializers(*serializers)

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if cls.send is not Producer.send and cls.send_and_wait is Producer.send_and_wait:
            cls.send_and_wait = _send_then_wait  # type: ignore[method-assign]

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
        """Append a record; return as soon as it is accepted, before it is sent.

        Awaiting `send` is the back-pressure: it waits, at most `max_block_ms`, for the topic's
        metadata (not before a cluster that `start(wait=False)` connects to has answered) and for
        space in `buffer_memory`. Await the `Delivery` for the outcome; with
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
            BufferFullError: the buffer is full, and `enqueue_timeout_ms` is 0.
            RecordTooLargeError: larger than `max_request_size` or `buffer_memory`.
            SerializationError: a serializer failed, or the types cannot be sent.
            IllegalStateError: the producer is not started, is closed, belongs to another loop, or
                was created before a `fork()`; or it is transactional and no transaction is open.
            TransactionAbortableError: the transaction has failed, see `transaction`.
        """
        if self._fast_path is not None:
            delivery: Delivery | None = self._fast_path.append(
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
        """Append a record as `send` does, or raise `WouldBlockError` where `send` would wait.

        Callbacks of the event loop may call it, such as those of `loop.add_signal_handler`. A
        handler of `signal.signal` must not: it may interrupt another call in the middle.
        """
        if self._fast_path is not None:
            delivery: Delivery | None = self._fast_path.append_nowait(
                topic, value, key, headers, partition, timestamp_ms
            )
            if delivery is not None:
                return delivery
        engine = self._usable()
        if engine.interceptor_chain.sees_records:
            record = Record(value, key, headers, timestamp_ms, partition, topic)
            return self._send_seen_nowait(engine, record)
        prepared = self._prepare(topic, key, value, headers)
        if not isinstance(prepared, tuple):
            raise _would_wait(prepared, topic)
        key, value, pairs = prepared
        if self._serializers is not None:
            engine.appender.serializing.check_free(topic)
        return engine.appender.append_nowait((topic, key, value, pairs, partition, timestamp_ms))

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
        """Call `send`, also one that a subclass overrides, and await the delivery.

        Raises:
            KafkaError: what `send` raises, or why the delivery failed.
        """
        if self._fast_path is not None:
            delivery: Delivery | None = self._fast_path.append(
                topic, value, key, headers, partition, timestamp_ms, True
            )
            if delivery is not None:
                return await delivery
        arguments = (topic, value, key, headers, partition, timestamp_ms)
        return await (await self._append(*arguments, is_awaited=True))

    async def flush(self, timeout: float | None = None, *, raise_failures: bool = False) -> int:
        """Send what was accepted so far without lingering, and wait for the outcomes.

        Records accepted after the call are not waited for, so those that callbacks send do not
        hold it up. A callback cannot wait: it starts a task that flushes (KIP-1118).

        Args:
            timeout: seconds; None or infinity waits as long as `delivery_timeout_ms` allows.
            raise_failures: whether records that have failed since the start, or since the last call
                with this argument, end it with an error. For loops that keep no deliveries.

        Returns:
            How many of these records are still pending: 0 unless the timeout ended first. It says
            nothing of how the others ended.

        Raises:
            RecordsFailedError: some have failed, and `raise_failures` is set.
            ValueError: the timeout is negative or NaN.
            IllegalStateError: called in a callback outside of a task, where it could never end; or
                the producer is not started, is closed, belongs to another loop, or was created
                before a `fork()`.
        """
        timeout = timeout_of(timeout)
        engine = self._usable()
        check_in_task("flush")
        return await engine.flush(timeout, raise_failures=raise_failures)

    def purge(self, *, queued: bool = True, in_flight: bool = False) -> int:
        """Give up records that wait: their deliveries fail with `RecordsPurgedError`.

        Args:
            queued: those not sent yet, and those that wait to be sent again.
            in_flight: those sent and not acknowledged; they may be written all the same, and
                their errors say so.

        Returns:
            How many records were given up.
        """
        return self._usable().purge(queued=queued, in_flight=in_flight)

    # -- inspection ------------------------------------------------------------------------------

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """Return the topic's partitions, waiting at most `max_block_ms` for its metadata."""
        engine = self._usable()
        await engine.metadata_task.waits.wait_for_topic(topic, self._block_deadline(engine))
        return engine.metadata.cluster.partition_infos(topic)

    async def warm_up(self, topics: Sequence[str]) -> None:
        """Fetch the topics' metadata and connect to their leaders before the first `send`.

        Raises:
            MetadataTimeoutError: within `max_block_ms` some topic was not known.
            TypeError: a single str instead of a sequence of names.
        """
        if isinstance(topics, str):
            raise TypeError(f"warm_up takes a sequence of topic names, such as [{topics!r}]")
        engine = self._usable()
        await engine.warm_up(topics, self._block_deadline(engine))

    def _refuse_unconnected(self) -> None:
        """Let calls raise `NotConnectedError` instead of waiting for `start(wait=False)`."""
        if self._engine is not None:
            self._engine.refuse_unconnected()

    async def _warm_up_later(self, topics: Sequence[str]) -> None:
        """`warm_up` once `start(wait=False)` has reached the cluster, however long that takes."""
        if self._engine is not None:
            await self._engine.warm_up_later(topics)

    def _new_engine(self, loop: asyncio.AbstractEventLoop) -> ProducerEngine:
        """Return the engine; a simulation gives it another network, clock and source of chance."""
        # Imported here, so that `import aioproducer` stays light.
        from aioproducer.runtime.engine import ProducerEngine

        return ProducerEngine(self._config, loop, registry=self._registry())

    def _opened(self, engine: ProducerEngine) -> None:
        """Let records that need neither a serializer nor a wait past everything here."""
        if self._serializers is not None or self._config.producer_type == "sync":
            return
        if engine.interceptor_chain.sees_records:
            return
        from aioproducer.runtime.send.fast_path import install_native_send  # light, as above

        self._fast_path = engine.appender.fast_path
        for name, function, waits in NATIVE_SENDS:
            install_native_send(Producer, name, function, waits)

    def _forked(self) -> None:
        super()._forked()
        if self._fast_path is not None:
            self._fast_path.close()

    async def _send_seen(
        self, engine: ProducerEngine, record: Record, is_awaited: bool
    ) -> Delivery:
        """`send` with interceptors."""
        chain, appender = engine.interceptor_chain, engine.appender
        made = chain.show(record, self._prepare)
        parts = made if isinstance(made, tuple) else made.known
        try:  # not `reporting_errors()`: this is done for each record
            if parts is not made or appender.serializing.is_queued(parts[0]):
                parts = await appender.finished(parts[0], made)
            topic, key, value, pairs, partition, timestamp_ms = parts
            delivery: Delivery | None = appender.fast_path.append(
                topic, value, key, pairs, partition, timestamp_ms, is_awaited
            )
            if delivery is None:
                delivery = await appender.append(parts)
        except BaseException as error:
            chain.refused(parts, error)
            raise
        chain.accepted(delivery, parts)
        return delivery

    def _send_seen_nowait(self, engine: ProducerEngine, record: Record) -> Delivery:
        """`send_nowait` with interceptors."""
        parts = engine.interceptor_chain.show(record, self._prepare)
        if not isinstance(parts, tuple):
            with engine.interceptor_chain.reporting_errors(parts.known):
                raise _would_wait(parts, record.topic)
        with engine.interceptor_chain.reporting_errors(parts):
            engine.appender.serializing.check_free(parts[0])
            delivery = engine.appender.append_nowait(parts)
        engine.interceptor_chain.accepted(delivery, parts)
        return delivery

    def _append(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: HeadersInput,
        partition: int | None,
        timestamp_ms: int | None,
        *,
        is_awaited: bool = False,
    ) -> Coroutine[Any, Any, Delivery]:
        engine = self._usable()
        if engine.interceptor_chain.sees_records:
            record = Record(value, key, headers, timestamp_ms, partition, topic)
            return self._send_seen(engine, record, is_awaited)
        return self._send_prepared(
            engine, topic, value, key, headers, partition, timestamp_ms, is_awaited
        )

    async def _send_prepared(
        self,
        engine: ProducerEngine,
        topic: str,
        value: Any,
        key: Any,
        headers: HeadersInput,
        partition: int | None,
        timestamp_ms: int | None,
        is_awaited: bool,
    ) -> Delivery:
        """`send` without interceptors."""
        prepared = self._prepare(topic, key, value, headers)
        if not isinstance(prepared, tuple) or (
            self._serializers is not None and engine.appender.serializing.is_queued(topic)
        ):
            prepared = await engine.appender.finished(topic, prepared)
        key, value, pairs = prepared
        if self._serializers is not None:
            # What is bytes by now may take the fast path like any other record.
            fast_path = engine.appender.fast_path
            delivery: Delivery | None = fast_path.append(
                topic, value, key, pairs, partition, timestamp_ms, is_awaited
            )
            if delivery is not None:
                return delivery
        return await engine.appender.append((topic, key, value, pairs, partition, timestamp_ms))

    def _prepare(
        self, topic: str, key: Any, value: Any, headers: HeadersInput
    ) -> Prepared | PendingRecord:
        if not is_of_type(topic, str):
            from aioproducer.core.metadata.cluster import check_topic_name  # light, as above

            check_topic_name(topic)
        if self._serializers is not None:
            return self._serializers.prepare(topic, key, value, headers)
        key, value = unchanging(topic, "key", key), unchanging(topic, "value", value)
        return key, value, header_pairs(topic, headers)


@wraps(Producer.send_and_wait)
async def _send_then_wait(self: Producer, *arguments: Any, **options: Any) -> RecordMetadata:
    """Do `Producer.send_and_wait` with the `send` of a subclass."""
    return await (await self.send(*arguments, **options))


NATIVE_SENDS: Final = (
    ("send", Producer.send, False),
    ("send_and_wait", Producer.send_and_wait, True),
)
"""Methods of `Producer` as they are written, see `runtime.send.fast_path.install_native_send`."""


def _would_wait(record: PendingRecord | PendingParts, topic: str | None) -> WouldBlockError:
    """Give a record up whose serializer waits where nothing can."""
    record.close()
    return WouldBlockError(
        f"the {record.part}_serializer has to wait", topic=topic, advice="use send(), which waits"
    )
