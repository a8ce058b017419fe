"""What the core sees of the network, and what it wants done there.

Owns: the vocabulary between deciding (`core.driver`) and doing (the tasks in `runtime`). Must not
know: how either works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.core.transactions.requests import TransactionalRequest
    from aioproducer.errors import KafkaError


class NodeView(Protocol):
    """What the core may ask about connections."""

    def is_ready(self, node_id: int, now: float) -> bool:
        """Whether a Produce request may be sent to the node now."""

    def can_ask(self, node_id: int, now: float) -> bool:
        """Return whether any other request may be sent to the node now."""

    def ready_at(self, node_id: int, now: float) -> float:
        """Loop time at which asking again makes sense; inf when an event will tell."""

    def least_loaded_node(self, now: float) -> int | None:
        """The node for a request that any broker answers.

        It is ready, being dialed, to be dialed, or busy; None while every node backs off.
        """

    def next_chance_at(self, now: float) -> float:
        """Loop time at which the next backoff or throttle ends, inf without one.

        Then `least_loaded_node` may have another answer; before, only after an event: the end of a
        dial, the response to a request in flight.
        """

    def connection_failures(self, node_id: int) -> KafkaError | None:
        """Why the node cannot be reached; None while nothing is wrong."""


class Connect(NamedTuple):
    """Open a connection to a node that has something to get."""

    node_id: int


class Dispatch(NamedTuple):
    """Send these batches, at most one per partition, to the node in one request."""

    node_id: int
    batches: list[ProducerBatch]


class RequestIdentity(NamedTuple):
    """Ask a broker for a producer id (InitProducerId)."""

    node_id: int


class RequestMetadata(NamedTuple):
    """Ask a broker for metadata."""

    node_id: int


class NoBrokerReady(NamedTuple):
    """Metadata are due and no broker can be asked: see why, and connect to this one, if any."""

    node_id: int | None


class Rebootstrap(NamedTuple):
    """Start over from the bootstrap servers."""

    why: str


class RequestOfCoordinator(NamedTuple):
    """Send a request of the transaction to a node."""

    node_id: int
    request: TransactionalRequest


class CoordinatorUnreachable(NamedTuple):
    """A request of the transaction cannot be sent to the coordinator that was known."""

    request: TransactionalRequest
    error: KafkaError


Action = (
    Connect
    | Dispatch
    | RequestIdentity
    | RequestMetadata
    | NoBrokerReady
    | Rebootstrap
    | RequestOfCoordinator
    | CoordinatorUnreachable
)

LOOK_AGAIN_S = 1.0
"""The longest time without a new choice of broker while none is ready."""


class Chances(Protocol):
    """What `look_again_at` may ask about connections."""

    def next_chance_at(self, now: float) -> float:
        """See `NodeView`."""


def look_again_at(nodes: Chances, now: float) -> float:
    """Loop time at which a request that any broker answers is tried again, if none is ready now.

    Always finite: a dial that drags on or a node that fills up must not leave the request without
    a timer.
    """
    return min(nodes.next_chance_at(now), now + LOOK_AGAIN_S)
