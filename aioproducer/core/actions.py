"""What the sender sees of the network, and what it wants done there.

Owns: the vocabulary between deciding (`core.sender`) and doing (`runtime.sender_task`). Must not
know: how either works.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.errors import KafkaError


class NodeView(Protocol):
    """What the sender may ask about connections."""

    def is_ready(self, node_id: int, now: float) -> bool:
        """Whether a request may be sent to the node now."""

    def ready_at(self, node_id: int, now: float) -> float:
        """Loop time at which asking again makes sense; inf when an event will tell."""

    def connection_failures(self, node_id: int) -> KafkaError | None:
        """Why the node cannot be reached; None while nothing is wrong."""


class Connect(NamedTuple):
    """Open a connection to a node that has something to get."""

    node_id: int


class Dispatch(NamedTuple):
    """Send these batches, at most one per partition, to the node in one request."""

    node_id: int
    batches: list[ProducerBatch]


@dataclass(frozen=True, slots=True)
class RequestIdentity:
    """Ask any broker for a producer id (InitProducerId)."""


Action = Connect | Dispatch | RequestIdentity
