"""Interface between the decisions (`core.driver`) and the tasks in `runtime`.

`NodeView` is the core's view of the connections; the actions are requests to the runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.core.transactions.requests import TransactionalRequest
    from aioproducer.errors import KafkaError


class NodeView(Protocol):
    """State of the connections, as the core sees it."""

    def is_ready(self, node_id: int, now: float) -> bool:
        """Return whether a Produce request may be sent to the node now."""

    def can_ask(self, node_id: int, now: float) -> bool:
        """Return whether any other request may be sent to the node now."""

    def ready_at(self, node_id: int, now: float) -> float:
        """Return the loop time of the next check; inf if an event will trigger it."""

    def least_loaded_node(self, now: float) -> int | None:
        """Return the node for a request that any broker can answer.

        It is ready, being dialed, to be dialed, or busy; None while every node backs off.
        """

    def next_chance_at(self, now: float) -> float:
        """Return the loop time at which the next backoff or throttle ends, inf without one.

        The result of `least_loaded_node` can change then, or after an event: the end of a dial, the
        response to a request in flight.
        """

    def connection_failures(self, node_id: int) -> KafkaError | None:
        """Return why the node cannot be reached; None without a failure."""


class Connect(NamedTuple):
    """Open a connection to a node for which a request is due."""

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
    """Metadata is due and no broker is ready: report why, and connect to this node, if any."""

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

RECHECK_S = 1.0
"""Longest time in seconds before a broker is chosen again while none is ready."""


def recheck_at(nodes: NodeView, now: float) -> float:
    """Return the loop time at which to choose a broker again if none is ready now.

    Always finite, so that the request has a timer during a slow dial or while a node is busy.
    """
    return min(nodes.next_chance_at(now), now + RECHECK_S)
