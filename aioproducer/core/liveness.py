"""What batches without an outcome wait for.

`unattended` checks the liveness rule, which `core.driver` states, for batches. `wait_of` names the
obstacle in a `DeliveryTimeoutError`, in `health()` and in warnings.
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
    """What the rule needs to know of the connections."""

    def in_flight(self, node_id: int) -> int:
        """Requests in flight to the node."""

    def is_dialing(self, node_id: int) -> bool:
        """Whether a dial or a handshake is in progress."""


def wait_of(
    batch: ProducerBatch, accumulator: RecordAccumulator, producer_id: ProducerIdRequests
) -> Wait:
    """What a batch without an outcome waits for."""
    error = batch.last_error
    if batch.holds:
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
) -> Iterator[tuple[ProducerBatch, Wait]]:
    """The batches that nothing brings closer to an outcome but their delivery timeout.

    Args:
        accumulator: has the batches.
        producer_id: may have a request in flight.
        preparing: nodes for which a request is being made.
        nodes: the connections.
        now: loop time.
    """
    for batch in accumulator.incomplete():
        wait = wait_of(batch, accumulator, producer_id)
        match wait.obstacle:
            case Obstacle.PRODUCER_ID:
                attended = producer_id.in_flight or producer_id.due_at(now, nodes) < inf
            case Obstacle.EARLIER_BATCH:
                attended = bool(accumulator.held)
            case Obstacle.CONNECTION:
                queue = accumulator.queue(*batch.topic_partition)
                node_id = None if queue is None else queue.node_id
                attended = node_id is not None and (
                    node_id in preparing
                    or nodes.ready_at(node_id, now) < inf
                    or nodes.is_dialing(node_id)
                    or nodes.in_flight(node_id) > 0
                )
            case _:
                # Timers, requests and fetches that the rule's other parts look after.
                attended = True
        if not attended:
            yield batch, wait
