"""The producers that run through the faults, each with the same interface.

Owns: how each client is configured and how its answers become outcomes. Not here: scenarios.

All run idempotent with acks=all, without compression, and with the same request and delivery
timeouts, where they have them: aiokafka has no delivery timeout and retries idempotent batches for
ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, ClassVar, Protocol

from aioproducer import Producer
from aioproducer.errors import KafkaError
from aioproducer.types import Persistence
from support.faults.ledger import Ledger

_POLL_S = 0.02
_LINGER_MS = 5


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings that all clients get."""

    bootstrap_servers: str
    topic: str
    request_timeout_ms: int = 5_000
    delivery_timeout_ms: int = 120_000


class LoadClient(Protocol):
    """A producer that writes down what becomes of each record."""

    name: ClassVar[str]

    def __init__(self, settings: ClientSettings, ledger: Ledger) -> None: ...

    async def start(self) -> None:
        """Connect."""

    async def send(self, number: int, value: bytes, partition: int) -> None:
        """Offer one record; its outcome goes to the ledger, now or later."""

    def retries(self) -> int | None:
        """Return how many records were sent again so far, or None where they are not counted."""

    async def close(self) -> None:
        """Give everything back; what is still unresolved stays so."""


class OurClient:
    """aioproducer."""

    name: ClassVar[str] = "aioproducer"
    options: ClassVar[Mapping[str, Any]] = {}
    """Options besides those that all clients share."""

    def __init__(self, settings: ClientSettings, ledger: Ledger) -> None:
        self._topic = settings.topic
        self._ledger = ledger
        self.producer = Producer(
            bootstrap_servers=settings.bootstrap_servers,
            request_timeout_ms=settings.request_timeout_ms,
            delivery_timeout_ms=settings.delivery_timeout_ms,
            linger_ms=_LINGER_MS,
            **self.options,
        )

    async def start(self) -> None:
        await self.producer.start()

    async def send(self, number: int, value: bytes, partition: int) -> None:
        self._ledger.offer(number)
        try:
            delivery = await self.producer.send(self._topic, value, partition=partition)
        except KafkaError as error:
            self._ledger.refuse(number, type(error).__name__)
            return
        delivery.add_done_callback(lambda done: self._record_outcome(number, done))

    def retries(self) -> int | None:
        return int(self.producer.metrics()["record_retry_total"])

    async def close(self) -> None:
        await self.producer.close(0)

    def _record_outcome(self, number: int, delivery: Any) -> None:
        error = delivery.exception()
        if error is None:
            metadata = delivery.result()
            self._ledger.acknowledge(number, metadata.partition, metadata.offset)
        else:
            self._ledger.fail(number, error.persistence, _short(error))


class AiokafkaClient:
    """aiokafka, which reports nothing about the persistence of what failed."""

    name: ClassVar[str] = "aiokafka"

    def __init__(self, settings: ClientSettings, ledger: Ledger) -> None:
        self._settings = settings
        self._ledger = ledger
        self._producer: Any = None

    async def start(self) -> None:
        from aiokafka import AIOKafkaProducer

        self._producer = AIOKafkaProducer(
            bootstrap_servers=self._settings.bootstrap_servers,
            acks="all",
            enable_idempotence=True,
            request_timeout_ms=self._settings.request_timeout_ms,
            linger_ms=_LINGER_MS,
        )
        await self._producer.start()

    async def send(self, number: int, value: bytes, partition: int) -> None:
        self._ledger.offer(number)
        try:
            future = await self._producer.send(self._settings.topic, value, partition=partition)
        except Exception as error:
            self._ledger.refuse(number, type(error).__name__)
            return
        future.add_done_callback(lambda done: self._record_outcome(number, done))

    def retries(self) -> int | None:
        return None

    async def close(self) -> None:
        await self._producer.stop()

    def _record_outcome(self, number: int, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            self._ledger.fail(number, None, "cancelled")
        elif (error := future.exception()) is not None:
            self._ledger.fail(number, None, _short(error))
        else:
            metadata = future.result()
            self._ledger.acknowledge(number, metadata.partition, metadata.offset)


class ConfluentClient:
    """confluent-kafka (librdkafka); its Python API does not show librdkafka's information about the
    persistence of what failed."""

    name: ClassVar[str] = "confluent-kafka"

    def __init__(self, settings: ClientSettings, ledger: Ledger) -> None:
        self._settings = settings
        self._ledger = ledger
        self._producer: Any = None
        self._poller: asyncio.Task[None] | None = None

    async def start(self) -> None:
        from confluent_kafka import Producer as Librdkafka

        self._producer = Librdkafka(
            {
                "bootstrap.servers": self._settings.bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "socket.timeout.ms": self._settings.request_timeout_ms,
                "request.timeout.ms": self._settings.request_timeout_ms,
                "delivery.timeout.ms": self._settings.delivery_timeout_ms,
                "linger.ms": _LINGER_MS,
                "log_level": 0,
            }
        )
        self._poller = asyncio.create_task(self._poll())

    async def send(self, number: int, value: bytes, partition: int) -> None:
        from confluent_kafka import KafkaException

        self._ledger.offer(number)
        while True:
            try:
                self._producer.produce(
                    self._settings.topic,
                    value,
                    partition=partition,
                    on_delivery=lambda error, message: self._record_outcome(number, error, message),
                )
            except BufferError:
                await asyncio.sleep(_POLL_S)
            except KafkaException as error:
                self._ledger.refuse(number, error.args[0].name())
                return
            else:
                return

    def retries(self) -> int | None:
        return None

    async def close(self) -> None:
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.gather(self._poller, return_exceptions=True)
        self._producer.purge()
        self._producer = None

    async def _poll(self) -> None:
        while True:
            self._producer.poll(0)
            await asyncio.sleep(_POLL_S)

    def _record_outcome(self, number: int, error: Any, message: Any) -> None:
        if error is None:
            self._ledger.acknowledge(number, message.partition(), message.offset())
        else:
            self._ledger.fail(number, None, error.name())


CLIENTS: tuple[type[LoadClient], ...] = (OurClient, AiokafkaClient, ConfluentClient)


def client_version(client: type[LoadClient]) -> str:
    """The version of the client's distribution."""
    return version(client.name)


def _short(error: BaseException) -> str:
    """Class, and for ours the persistence: a message names partitions and times, never the same."""
    persistence = getattr(error, "persistence", None)
    name = type(error).__name__
    return f"{name} ({persistence.value})" if isinstance(persistence, Persistence) else name
