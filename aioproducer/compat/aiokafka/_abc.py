"""aiokafka's abstract classes, for annotations and subclasses in programs.

The producer calls an `AbstractTokenProvider` for its OAuth token. `abc` has these classes if
aiokafka is not installed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

from aioproducer.types import TopicPartition


class AbstractTokenProvider(ABC):
    """Source of the token for SASL/OAUTHBEARER."""

    @abstractmethod
    async def token(self) -> str:
        """Return the token to authenticate with; called for each connection."""

    def extensions(self) -> Mapping[str, str]:
        """Return SASL extensions to send with the token (KIP-342); none unless overridden."""
        return {}


class ConsumerRebalanceListener(ABC):
    """Callbacks for the partitions that a consumer loses and gets."""

    @abstractmethod
    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> Any:
        """Handle partitions that the consumer is about to lose; may be a coroutine function."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> Any:
        """Handle partitions that the consumer has got; may be a coroutine function."""
