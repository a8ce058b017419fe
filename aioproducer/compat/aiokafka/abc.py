"""aiokafka's abstract classes, for the annotations and subclasses programs have.

Owns: `AbstractTokenProvider`, which the producer asks for its OAuth token, and
`ConsumerRebalanceListener`, which aiokafka's consumer takes (it looks for the methods, not for the
class). Must not know: who calls them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

from aioproducer.types import TopicPartition

__all__ = ["AbstractTokenProvider", "ConsumerRebalanceListener"]


class AbstractTokenProvider(ABC):
    """Gives the token for SASL/OAUTHBEARER."""

    @abstractmethod
    async def token(self) -> str:
        """The token to authenticate with; asked for each connection."""

    def extensions(self) -> Mapping[str, str]:
        """SASL extensions to send with the token (KIP-342); none unless overridden."""
        return {}


class ConsumerRebalanceListener(ABC):
    """Hears which partitions a consumer loses and gets."""

    @abstractmethod
    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> Any:
        """The consumer is about to lose these; a function or a coroutine function."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> Any:
        """The consumer has got these; a function or a coroutine function."""
