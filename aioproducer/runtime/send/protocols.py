"""What the general lane asks of others: metadata to wait for, leave to send, finished records.

Owns: the protocols. Must not know: who keeps them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from aioproducer.errors import KafkaError
    from aioproducer.types import TopicMetadata

T_co = TypeVar("T_co", covariant=True)


class MetadataWaits(Protocol):
    """What the appender needs of the metadata task."""

    async def wait_for_topic(self, topic: str, deadline: float) -> TopicMetadata:
        """Returns once the topic is known."""

    async def wait_for_partition(
        self, topic: str, partition: int, deadline: float
    ) -> TopicMetadata:
        """Returns once the topic has that partition."""


class Admission(Protocol):
    """What the appender asks the transactions of a transactional producer."""

    def check_send(self) -> int:
        """The number of the transaction that is open; raises when none takes records."""

    def refuse_unless_open(self) -> None:
        """`check_send` for the fast lane, which keeps no number."""

    def on_send_refused(self, number: int, error: KafkaError) -> None:
        """A record of that transaction was not accepted."""


class Unfinished(Protocol[T_co]):
    """A record, or some of them, one of whose serializers waits."""

    def __await__(self) -> Generator[Any, None, T_co]:
        """What the serializers make of it."""

    def close(self) -> None:
        """Gives it up before it was awaited."""
