"""Reasons why a batch is not sent or acknowledged yet."""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from aioproducer.core.batching.batch import NO_PARTITION

if TYPE_CHECKING:
    from aioproducer.core.batching.accumulator import RecordAccumulator
    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.core.sending.producer_id import ProducerIdRequests
    from aioproducer.errors import KafkaError


class Obstacle(Enum):
    """The event that a batch without an outcome waits for; the value completes "the batch was"."""

    RESPONSE = "waiting for the broker's response"
    PREPARATION = "being made ready to be sent"
    PRODUCER_ID = "waiting for a producer id (InitProducerId)"
    COORDINATOR = "waiting for the transaction coordinator to add the partition"
    EARLIER_BATCH = "waiting for the outcome of an earlier batch of the partition"
    METADATA = "waiting for its topic to become known"
    LEADER = "waiting for the partition to have a leader"
    CONNECTION = "waiting for the leader to take a request"
    RETRY = "waiting to be sent again"
    TURN = "waiting to be sent"


class Wait(NamedTuple):
    """The obstacle of a batch, and the last error that prolonged it."""

    obstacle: Obstacle
    error: KafkaError | None = None

    def __str__(self) -> str:
        return self.obstacle.value if self.error is None else f"{self.obstacle.value}: {self.error}"


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
