"""Protocols that the slow path of `send()` depends on: metadata, transactions, serialization."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from aioproducer.errors import KafkaError
    from aioproducer.types import TopicMetadata

T_co = TypeVar("T_co", covariant=True)


class MetadataWaits(Protocol):
    """Part of the metadata task that the appender uses."""

    async def wait_for_topic(self, topic: str, deadline: float) -> TopicMetadata:
        """Return once the topic has metadata."""

    async def wait_for_partition(
        self, topic: str, partition: int, deadline: float
    ) -> TopicMetadata:
        """Return once the topic has that partition."""


class TransactionGate(Protocol):
    """Checks of a transactional producer before a record is accepted."""

    def check_send(self) -> int:
        """Return the number of the open transaction; raise if none accepts records."""

    def refuse_unless_open(self) -> None:
        """Raise as `check_send` does; for the fast path, which needs no number."""

    def on_send_refused(self, number: int, error: KafkaError) -> None:
        """Handle a record of that transaction that was not accepted."""


class PendingSerialization(Protocol[T_co]):
    """One or more records with a serializer that has not finished."""

    def __await__(self) -> Generator[Any, None, T_co]:
        """Wait for the serializers; return their results."""

    def close(self) -> None:
        """Give it up before it was awaited."""
