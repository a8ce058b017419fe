"""`Producer.health()`: a read-only view of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioproducer.errors import KafkaError, NotConnectedError

if TYPE_CHECKING:
    from aioproducer.runtime.engine import ProducerEngine


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """One broker as the producer sees it; `last_error` is the last failure to reach it."""

    node_id: int
    host: str
    port: int
    state: str
    in_flight: int
    last_error: str | None


@dataclass(frozen=True, slots=True)
class Health:
    """A snapshot for readiness probes; memory in bytes.

    Attributes:
        ready: True while the producer is running, at least one broker is connected, or was until
            its connection was closed for being idle, and the last request for a producer id did not
            fail.
        error: why it is not ready, while it is running or connecting, and why it has failed; names
            brokers.
        state: "connecting" while a producer that was started with `wait=False` has not reached the
            cluster, with the cause in `error`; else the lifecycle state or "failed".
        waiting_for_memory: number of `send()` calls that wait for memory.
        waiting_for: cause of the wait of the oldest record without an outcome, or of a call of a
            transaction, with the last error.
    """

    ready: bool
    state: str
    error: str | None = None
    nodes: Mapping[int, NodeHealth] = field(default_factory=dict)
    buffer_available: int = 0
    buffer_total: int = 0
    waiting_for_memory: int = 0
    batches_pending: int = 0
    waiting_for: str | None = None


def health(engine: ProducerEngine | None, state: str) -> Health:
    """Return the health of a producer in lifecycle state `state`."""
    if engine is None:
        return Health(ready=False, state=state)
    nodes = {}
    for node in engine.metadata.cluster.nodes.values():
        failure = engine.client.connection_failures(node.id)
        nodes[node.id] = NodeHealth(
            node.id,
            node.host,
            node.port,
            engine.client.state(node.id).name.lower(),
            engine.client.in_flight(node.id),
            None if failure is None else str(failure),
        )
    failure = engine.failure
    reason = failure or engine.obstacle
    if reason is None and state == "running":
        reason = _disconnection(engine)
    batches = [*engine.accumulator.incomplete()]
    oldest = min(batches, key=lambda each: each.created_at, default=None)
    waiting_for = None if oldest is None else str(engine.sender.wait_of(oldest))
    if waiting_for is None and engine.transactions is not None:
        waiting_for = engine.transactions.waiting_for
    return Health(
        ready=state == "running" and reason is None,
        state=state if failure is None else "failed",
        error=None if reason is None else str(reason),
        nodes=nodes,
        buffer_available=engine.pool.available,
        buffer_total=engine.pool.total,
        waiting_for_memory=engine.appender.waiting,
        batches_pending=len(batches),
        waiting_for=waiting_for,
    )


def without_brokers(engine: ProducerEngine) -> NotConnectedError | None:
    """Return why no broker can be reached; None if one can."""
    if engine.client.any_ready():
        return None
    why = engine.metadata.explain_failures()
    text = f"no broker is connected: {why.text or 'the connections were lost'}"
    return NotConnectedError(text, advice=why.advice)


def _disconnection(engine: ProducerEngine) -> KafkaError | None:
    """Return why a running producer cannot send now; None if it can."""
    obstacle = without_brokers(engine)
    if obstacle is not None:
        return obstacle
    producer_id = engine.sender.producer_id
    if producer_id.failures:
        missing = NotConnectedError("there is no producer id yet")
        why_none = producer_id.last_error or KafkaError("no broker has answered")
        return missing.because_of(why_none)
    return None
