"""`Producer.statistics()`: queues, requests in flight and memory, per broker and partition.

The cost grows with the number of pending batches and brokers, not with the number of topics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioproducer.metrics.totals import DurationCounts
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.runtime.engine import ProducerEngine


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """Pending batches of one partition; `oldest_s` is the age of the oldest one in seconds.

    `leader` is None while it is unknown or there is none. Batches `in_flight` were sent and have no
    response yet; those `queued` are open, wait, or back off before a retry.
    """

    leader: int | None
    queued_batches: int = 0
    queued_records: int = 0
    queued_bytes: int = 0
    in_flight_batches: int = 0
    in_flight_records: int = 0
    in_flight_bytes: int = 0
    oldest_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """Connection state and traffic of one broker; latencies are those of the last samples."""

    host: str
    port: int
    rack: str | None
    state: str
    in_flight: int
    requests: int
    responses: int
    bytes_out: int
    bytes_in: int
    latency_avg_ms: float
    latency_max_ms: float


@dataclass(frozen=True, slots=True)
class FailureStatistics:
    """A failed batch; `age_s` is the time since its first record was accepted, in seconds."""

    topic_partition: TopicPartition
    records: int
    age_s: float
    error: str


@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot; memory and sizes in bytes, `uptime_s` since `start()`.

    `delivery_times` counts the records acknowledged so far by the time from the first record of
    their batch to the acknowledgement; `recent_failures` are the last 20 batches that failed,
    newest last.
    """

    client_id: str
    state: str
    uptime_s: float = 0.0
    buffer_total: int = 0
    buffer_available: int = 0
    waiting_for_memory: int = 0
    records_queued: int = 0
    records_in_flight: int = 0
    brokers: Mapping[int, BrokerStatistics] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, PartitionStatistics] = field(default_factory=dict)
    delivery_times: DurationCounts = field(default_factory=DurationCounts)
    recent_failures: tuple[FailureStatistics, ...] = ()


def statistics(engine: ProducerEngine | None, client_id: str, state: str) -> Statistics:
    """Return the statistics of a producer in lifecycle state `state`."""
    if engine is None:
        return Statistics(client_id, state)
    now = engine.loop.time()
    partitions = _partitions(engine, now)
    return Statistics(
        client_id=client_id,
        state=state if engine.failure is None else "failed",
        uptime_s=engine.uptime(),
        buffer_total=engine.pool.total,
        buffer_available=engine.pool.available,
        waiting_for_memory=engine.appender.waiting,
        records_queued=sum(each.queued_records for each in partitions.values()),
        records_in_flight=sum(each.in_flight_records for each in partitions.values()),
        brokers={
            node_id: _broker(engine, node_id, now) for node_id in engine.metadata.cluster.nodes
        },
        partitions=partitions,
        delivery_times=engine.stats.delivery_times.snapshot(),
        recent_failures=tuple(
            FailureStatistics(each.topic_partition, each.records, now - each.created_at, each.error)
            for each in engine.stats.recent_failures
        ),
    )


def _partitions(engine: ProducerEngine, now: float) -> dict[TopicPartition, PartitionStatistics]:
    pending: dict[TopicPartition, list[ProducerBatch]] = {}
    for batch in engine.accumulator.incomplete():
        pending.setdefault(batch.topic_partition, []).append(batch)
    return {
        where: _partition(batches, engine.metadata.leader_of(where), now)
        for where, batches in pending.items()
    }


def _partition(
    batches: Sequence[ProducerBatch], leader: int | None, now: float
) -> PartitionStatistics:
    queued = [batch for batch in batches if not batch.on_wire]
    in_flight = [batch for batch in batches if batch.on_wire]
    return PartitionStatistics(
        leader,
        len(queued),
        sum(batch.count for batch in queued),
        sum(batch.wire_size for batch in queued),
        len(in_flight),
        sum(batch.count for batch in in_flight),
        sum(batch.wire_size for batch in in_flight),
        max(now - batch.created_at for batch in batches),
    )


def _broker(engine: ProducerEngine, node_id: int, now: float) -> BrokerStatistics:
    node, client = engine.metadata.cluster.nodes[node_id], engine.client
    traffic = client.io_stats.of(node_id)
    return BrokerStatistics(
        node.host,
        node.port,
        node.rack,
        client.state(node_id).name.lower(),
        client.in_flight(node_id),
        traffic.requests,
        traffic.responses,
        traffic.bytes_out,
        traffic.bytes_in,
        1000 * traffic.mean("latency", "responses", now),
        1000 * traffic.peak("latency_max", now),
    )
