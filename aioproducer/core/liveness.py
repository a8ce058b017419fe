"""Obstacles of batches without an outcome.

`unattended` checks the liveness rule of `core.driver` for batches. `wait_of` returns the obstacle
for a `DeliveryTimeoutError`, `health()` and warnings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import inf
from typing import TYPE_CHECKING, Protocol

from aioproducer.core.batching.batch import NO_PARTITION
from aioproducer.core.sending.actions import NodeView
from aioproducer.core.sending.obstacles import Obstacle, Wait

if TYPE_CHECKING:
    from aioproducer.core.batching.accumulator import RecordAccumulator
    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.core.sending.producer_id import ProducerIdRequests


class Connections(NodeView, Protocol):
    """State of the connections that the liveness rule needs."""

    def in_flight(self, node_id: int) -> int:
        """Return the number of requests in flight to the node."""

    def is_dialing(self, node_id: int) -> bool:
        """Return whether a dial or a handshake is in progress."""

    def has_node(self, node_id: int) -> bool:
        """Return whether the node is among those that requests can be sent to."""


def wait_of(
    batch: ProducerBatch, accumulator: RecordAccumulator, producer_id: ProducerIdRequests
) -> Wait:
    """Return what a batch without an outcome waits for."""
    error = batch.last_error
    if batch.pins:
        return Wait(Obstacle.RESPONSE if batch.on_wire else Obstacle.PREPARATION, error)
    if batch.topic_partition.partition == NO_PARTITION:
        return Wait(Obstacle.METADATA, error)
    queue = accumulator.queue(*batch.topic_partition)
    if queue is None or not queue.batches or queue.ready_at < inf or batch.gathering:
        return Wait(Obstacle.RETRY if batch.attempts else Obstacle.TURN, error)
    if queue.is_leaderless:
        return Wait(Obstacle.LEADER, error)
    if queue.node_id is not None:
        return Wait(Obstacle.CONNECTION, error)
    if queue.muted:
        return Wait(Obstacle.EARLIER_BATCH, error)
    obstacle = accumulator.sequencer.obstacle(queue.batches[0])
    if obstacle is Obstacle.PRODUCER_ID:
        error = producer_id.last_error or error
    elif obstacle is Obstacle.COORDINATOR:
        error = accumulator.sequencer.coordinator_error or error
    return Wait(obstacle, error)


def unattended(
    accumulator: RecordAccumulator,
    producer_id: ProducerIdRequests,
    preparing: Collection[int],
    nodes: Connections,
    now: float,
    *,
    awaits_metadata: bool,
) -> Iterator[tuple[ProducerBatch, Wait]]:
    """Yield the batches for which only the delivery timeout is pending.

    Args:
        accumulator: the source of the batches.
        producer_id: the InitProducerId requests.
        preparing: nodes for which a request is being prepared.
        nodes: the connections.
        now: loop time in seconds.
        awaits_metadata: whether a metadata request is wanted or in flight.
    """
    for batch in accumulator.incomplete():
        wait = wait_of(batch, accumulator, producer_id)
        match wait.obstacle:
            case Obstacle.PRODUCER_ID:
                attended = producer_id.in_flight or producer_id.due_at(now, nodes) < inf
            case Obstacle.EARLIER_BATCH:
                attended = bool(accumulator.pinned)
            case Obstacle.CONNECTION:
                queue = accumulator.queue(*batch.topic_partition)
                node_id = None if queue is None else queue.node_id
                attended = node_id is not None and (
                    node_id in preparing
                    or nodes.ready_at(node_id, now) < inf
                    or nodes.is_dialing(node_id)
                    or nodes.in_flight(node_id) > 0
                    # After a rebootstrap: the next response has the brokers.
                    or (awaits_metadata and not nodes.has_node(node_id))
                )
            case _:
                # Timers, requests and fetches that `Driver.broken_rules` checks elsewhere.
                attended = True
        if not attended:
            yield batch, wait
