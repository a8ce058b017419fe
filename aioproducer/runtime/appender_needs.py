"""What the general lane asks of others: metadata to wait for, leave to send.

Owns: the two protocols. Must not know: who keeps them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aioproducer.core.cluster import TopicMetadata
    from aioproducer.errors import KafkaError


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
