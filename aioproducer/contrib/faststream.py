"""FastStream's `KafkaBroker`, publishing by this package's producer.

    from aioproducer.contrib.faststream import KafkaBroker  # was: from faststream.kafka import ...

    broker = KafkaBroker("localhost:9092")

Subscribers, routers, middlewares and the test broker are FastStream's own. `publish`,
`publish_batch`, publishers and replies go through an `aioproducer.Producer`, without aiokafka's
producer or the drop-in for it. Results are aiokafka's `RecordMetadata`, errors aiokafka's with ours
as their `__cause__`. It needs the extra `aioproducer[faststream]`; it is tested with FastStream
0.7.4 to 0.7.8.

Invariant: without middlewares, `publish` of a `KafkaBroker` and of its publishers makes no
`KafkaPublishCommand`; record, result and errors are those of a command with the same arguments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from os import urandom
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aioproducer._checks.extras import required
from aioproducer._util.secrets import hides_arguments
from aioproducer.client.producer import Producer
from aioproducer.compat.aiokafka import AIOKafkaProducer
from aioproducer.compat.aiokafka._batch import BatchBuilder, serialized
from aioproducer.compat.aiokafka._connection import Connection
from aioproducer.compat.aiokafka._outcomes import RecordFutures
from aioproducer.compat.aiokafka._translation import record_metadata, translated, translating
from aioproducer.config import ProducerConfig
from aioproducer.errors import KafkaError, ProducerClosedError

with required(__name__, "faststream"):
    from faststream import kafka
    from faststream._internal.parser import DefaultCodec
    from faststream.kafka.publisher.producer import AioKafkaFastProducerImpl
    from faststream.kafka.publisher.state import ProducerState
    from faststream.kafka.publisher.usecase import DefaultPublisher
    from faststream.message.utils import encode_message, gen_cor_id
    from faststream.response import Response

if TYPE_CHECKING:
    from faststream.kafka.response import KafkaPublishCommand

    from aioproducer.compat.aiokafka._structs import RecordMetadata

__all__ = ["KafkaBroker", "publish_natively"]

AnyBroker = TypeVar("AnyBroker", bound=kafka.KafkaBroker)
_VARIANTS: Final = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
"""Digit 16 of a UUID by a random digit: its two upper bits are those of RFC 9562."""

Given = Producer | ProducerConfig | Mapping[str, Any] | None


class KafkaBroker(kafka.KafkaBroker):
    """FastStream's broker with its arguments, and `producer`; see `publish_natively`."""

    @hides_arguments
    def __init__(
        self,
        bootstrap_servers: Any = "localhost",
        *arguments: Any,
        producer: Given = None,
        **options: Any,
    ) -> None:
        super().__init__(bootstrap_servers, *arguments, **options)
        publish_natively(self, producer)

    if not TYPE_CHECKING:  # type checkers see FastStream's overloads

        async def publish(
            self,
            message: Any,
            topic: str = "",
            *,
            key: Any = None,
            partition: int | None = None,
            timestamp_ms: int | None = None,
            headers: dict[str, str] | None = None,
            correlation_id: str | None = None,
            reply_to: str = "",
            no_confirm: bool = False,
        ) -> Any:
            """Publish a message; see `faststream.kafka.KafkaBroker.publish`."""
            config = self.config
            native = _direct_producer(config, message)
            if native is not None:
                correlation_id = correlation_id or _new_id(config)
            publish = super().publish if native is None else native.publish_message
            return await publish(
                message,
                topic,
                key=key,
                partition=partition,
                timestamp_ms=timestamp_ms,
                headers=headers,
                correlation_id=correlation_id,
                reply_to=reply_to,
                no_confirm=no_confirm,
            )

        def publisher(self, *arguments: Any, autoflush: bool = False, **options: Any) -> Any:
            """Make a publisher; see `faststream.kafka.KafkaBroker.publisher`."""
            made = super().publisher(*arguments, autoflush=autoflush, **options)
            if type(made) is DefaultPublisher and not autoflush:
                made.__class__ = _Publisher
            return made


class _Publisher(DefaultPublisher):
    """A publisher of a `KafkaBroker`."""

    __slots__ = ()

    if not TYPE_CHECKING:

        async def publish(
            self,
            message: Any,
            topic: str = "",
            *,
            key: Any = None,
            partition: int | None = None,
            timestamp_ms: int | None = None,
            headers: dict[str, str] | None = None,
            correlation_id: str | None = None,
            reply_to: str = "",
            no_confirm: bool = False,
        ) -> Any:
            """Publish a message, with the publisher's values where none is given."""
            config = self._outer_config
            native = _direct_producer(config, message)
            if native is not None:
                topic, key = topic or self.topic, key or self.key
                reply_to = reply_to or self.reply_to
                partition = self.partition if partition is None else partition
                headers = self.headers | (headers or {})
                correlation_id = correlation_id or _new_id(config)
            publish = super().publish if native is None else native.publish_message
            return await publish(
                message,
                topic,
                key=key,
                partition=partition,
                timestamp_ms=timestamp_ms,
                headers=headers,
                correlation_id=correlation_id,
                reply_to=reply_to,
                no_confirm=no_confirm,
            )


def _direct_producer(config: Any, message: Any) -> _NativeProducer | None:
    """Return the producer of a broker if a message needs no command."""
    producer = config.producer  # another one in FastStream's test broker
    if (
        type(producer) is not _NativeProducer
        or config.broker_middlewares
        or isinstance(message, Response)
    ):
        return None
    return producer


@hides_arguments
def publish_natively(broker: AnyBroker, producer: Given = None) -> AnyBroker:
    """Let a broker of FastStream publish by this package's producer.

    Call it before the broker starts; for a broker that another class makes, such as that of
    `faststream.kafka.fastapi.KafkaRouter`.

    Args:
        broker: A `faststream.kafka.KafkaBroker`.
        producer: Options of a producer that starts and stops with the broker: a `ProducerConfig`,
            or a mapping as `Producer` takes it, whose defaults are this package's (`acks="all"`
            with idempotence). Or a `Producer` that you start and close. Left out, the broker's own
            options count, with FastStream's defaults (`acks=1`).

    Returns:
        The same broker.

    Raises:
        ConfigError: An option is unknown or has a wrong value.
    """
    config = broker.config.broker_config
    if producer is not None and not isinstance(producer, Producer | ProducerConfig):
        producer = Producer(producer).config
    native = _NativeProducer(config.broker_parser, config.broker_decoder, broker, producer)
    config.producer = native
    return broker


class _NativeProducer(AioKafkaFastProducerImpl):
    """The producer of a FastStream broker."""

    def __init__(self, parser: Any, decoder: Any, broker: kafka.KafkaBroker, given: Given) -> None:
        super().__init__(parser=parser, decoder=decoder)
        self._broker = broker
        self._given = given

    async def connect(self, producer: Any, serializer: Any, codec: Any = None) -> None:
        """Start a producer; aiokafka's, which the broker has made, is not started."""
        await producer.stop()
        self.serializer = serializer
        if codec is not None:
            self.codec = codec
        native = self._new()
        with translating():
            await native.start()
        self._producer = native

    async def publish(
        self, cmd: KafkaPublishCommand
    ) -> asyncio.Future[Any] | RecordMetadata | None:
        """Publish the message of a command."""
        return await self.publish_message(
            cmd.body,
            cmd.destination,
            key=cmd.key,
            partition=cmd.partition,
            timestamp_ms=cmd.timestamp_ms,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
            reply_to=cmd.reply_to,
            no_confirm=cmd.no_confirm,
        )

    async def publish_message(
        self,
        body: Any,
        topic: str,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        no_confirm: bool = False,
    ) -> asyncio.Future[Any] | RecordMetadata | None:
        """Publish a message; with `no_confirm` return a future as soon as it is accepted."""
        native: _Native = self._producer.producer
        content_type: str | None = None
        if body is None and key is not None:
            value = None  # a tombstone
        elif type(self.codec) is DefaultCodec:
            value, content_type = encode_message(body, self.serializer)
        else:
            value, content_type = await self.codec.encode(body, self.serializer)
        if native.serializes:
            value = serialized(native.value_serializer, value)
            key = serialized(native.key_serializer, key)
        try:
            delivery = await native.own.send(
                topic,
                value,
                key,
                headers=_headers(content_type, correlation_id, reply_to, headers),
                partition=partition,
                timestamp_ms=timestamp_ms,
            )
            if no_confirm:
                return native.futures.of(delivery)
            await delivery
        except KafkaError as error:
            raise translated(error) from error
        return record_metadata(delivery) if native.acknowledges else None

    # -- private ---------------------------------------------------------------------------------

    @hides_arguments
    def _new(self) -> _Native:
        given = self._given
        if isinstance(given, Producer):
            return _Native(given, is_own=False)
        if given is not None:
            return _Native(Producer(given))
        options = self._broker._connection_kwargs
        drop_in = AIOKafkaProducer(**options)
        drop_in._closed = True  # its constructor has read the options; it is not started
        native = _Native(Producer(drop_in._own_config))
        native.use(options.get("key_serializer"), options.get("value_serializer"))
        return native


def _new_id(config: Any) -> str:
    """Return a correlation id of the broker's generator, or a UUID as FastStream's makes one."""
    generator = getattr(config, "id_generator", gen_cor_id)  # FastStream 0.7.4 has no such option
    if generator is not gen_cor_id:
        made: str = generator()
        return made
    bits = urandom(16).hex()  # `str(uuid4())` takes twice as long
    variant = _VARIANTS[bits[16]]
    return f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-{variant}{bits[17:20]}-{bits[20:]}"


def _headers(
    content_type: str | None,
    correlation_id: str | None,
    reply_to: str,
    given: Mapping[str, str] | None,
) -> list[tuple[str, bytes]]:
    """Return the headers that FastStream sends, in its order."""
    pairs = [("content-type", (content_type or "").encode())]
    if correlation_id:
        pairs.append(("correlation_id", correlation_id.encode()))
    if reply_to:
        pairs.append(("reply_to", reply_to.encode()))
    if given:  # in the place of one with the same name
        encoded = {name: (text or "").encode() for name, text in given.items()}
        return list((dict(pairs) | encoded).items())
    return pairs


class _Native(ProducerState):
    """A producer, with the calls that FastStream's batches need.

    Attributes:
        own: The producer.
        acknowledges: Whether brokers answer.
        futures: Makes the futures of its records; from `start` on.
        key_serializer: Of the broker's options; those of a `ProducerConfig` are the producer's.
        value_serializer: The same.
        serializes: Whether there is one of them.
    """

    futures: RecordFutures

    def __init__(self, producer: Producer, *, is_own: bool = True) -> None:
        self.own: Producer = producer
        self.acknowledges: bool = producer.config.acks_value != 0
        self.key_serializer: Any = None
        self.value_serializer: Any = None
        self.serializes: bool = False
        self._is_own = is_own
        self._stopped = False

    def use(self, key_serializer: Any, value_serializer: Any) -> None:
        """Serialize here, as aiokafka does with the broker's options."""
        self.key_serializer = key_serializer
        self.value_serializer = value_serializer
        self.serializes = key_serializer is not None or value_serializer is not None

    @property
    def producer(self) -> Any:
        """The object from which FastStream gets batches."""
        return self

    @property
    def closed(self) -> bool:
        """Whether it was stopped."""
        return self._stopped

    def __bool__(self) -> bool:
        return True

    async def start(self) -> None:
        """Connect, unless the program does."""
        if self._is_own:
            await self.own.start()
        self.futures = RecordFutures(asyncio.get_running_loop(), acknowledged=self.acknowledges)

    async def stop(self) -> None:
        """Deliver what was accepted, and close what `start` has started."""
        self._stopped = True
        with translating():
            if self._is_own:
                await self.own.close()
            else:
                with suppress(ProducerClosedError):  # it has delivered what was accepted
                    await self.own.flush()

    async def flush(self) -> None:
        """Send without lingering, and wait for the outcomes."""
        with translating():
            await self.own.flush()

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Any = None,
    ) -> asyncio.Future[Any]:
        """Send as aiokafka's producer does, for programs that reach for it past the broker."""
        value, key = serialized(self.value_serializer, value), serialized(self.key_serializer, key)
        with translating():
            delivery = await self.own.send(
                topic,
                value,
                key,
                headers=headers,
                partition=partition,
                timestamp_ms=timestamp_ms,
            )
        return self.futures.of(delivery)

    def create_batch(self) -> BatchBuilder:
        """Return an empty batch of at most `batch_size` bytes."""
        return BatchBuilder(
            self.own.config.batch_size,
            key_serializer=self.key_serializer,
            value_serializer=self.value_serializer,
        )

    async def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: int | None
    ) -> asyncio.Future[Any]:
        """Accept a batch, which is written as one record batch: whole or not at all."""
        with translating():
            return await Connection.send_gathered(self.own, batch, topic, partition)
