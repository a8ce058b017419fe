"""Counters of one producer and its topics, read by `Producer.metrics()`.

Invariant: nothing here is counted per record, only per batch or request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from aioproducer.metrics.durations import Durations
from aioproducer.metrics.sampling import Sampled
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch

_FAILURES_KEPT = 20


class FailedBatch(NamedTuple):
    """A batch that failed for good; its first record was accepted at `created_at`."""

    topic_partition: TopicPartition
    records: int
    created_at: float
    error: str


@dataclass(slots=True, eq=False)
class TopicStats(Sampled):
    """Totals of one topic since it was first sent to; sizes in bytes."""

    records_sent: int = 0
    records_retried: int = 0
    records_failed: int = 0
    bytes_sent: int = 0
    uncompressed_bytes: int = 0


@dataclass(slots=True, eq=False)
class ProducerStats(Sampled):
    """Totals since `start()`; times in seconds, sizes in bytes.

    `count_appended` returns `records_appended`, which is counted elsewhere.
    """

    PEAKS: ClassVar[tuple[str, ...]] = (
        "batch_size_max",
        "record_size_max",
        "queue_time_max",
        "latency_max",
        "throttle_time_max",
    )

    count_appended: Callable[[], int] = field(default=lambda: 0, repr=False)
    records_acknowledged: int = 0
    records_failed: int = 0
    records_retried: int = 0
    records_sent: int = 0
    batches_sent: int = 0
    batches_split: int = 0
    requests_sent: int = 0
    responses: int = 0
    bytes_sent: int = 0
    uncompressed_bytes: int = 0
    queue_time: float = 0.0
    latency: float = 0.0
    throttle_time: float = 0.0
    buffer_waits: int = 0
    buffer_wait_time: float = 0.0
    buffer_exhausted: int = 0
    flush_time: float = 0.0
    metadata_wait_time: float = 0.0
    unretrieved_failures: int = 0
    batch_size_max: float = 0.0
    record_size_max: float = 0.0
    queue_time_max: float = 0.0
    latency_max: float = 0.0
    throttle_time_max: float = 0.0
    topics: dict[str, TopicStats] = field(default_factory=dict, repr=False)
    delivery_times: Durations = field(default_factory=Durations, repr=False)
    recent_failures: deque[FailedBatch] = field(
        default_factory=lambda: deque(maxlen=_FAILURES_KEPT), repr=False
    )

    @property
    def records_appended(self) -> int:
        """Records accepted by `send()` and the other send methods."""
        return self.count_appended()

    def topic(self, name: str) -> TopicStats:
        """Return the totals of a topic."""
        known = self.topics.get(name)
        if known is None:
            known = self.topics[name] = TopicStats(sampling=self.sampling)
        return known

    def retain(self, topics: Container[str]) -> None:
        """Drop the totals of topics other than these."""
        for topic in [name for name in self.topics if name not in topics]:
            del self.topics[topic]

    def on_request_sent(self, batches: Sequence[ProducerBatch]) -> None:
        """Count a Produce request with these batches, sent for the first time or again."""
        self.tick(batches[0].last_attempt_at)
        self.requests_sent += 1
        for batch in batches:
            self._count_sent(batch)

    def _count_sent(self, batch: ProducerBatch) -> None:
        of_topic = self.topic(batch.topic_partition.topic)
        records, size, uncompressed = batch.count, batch.wire_size, batch.uncompressed_size
        queued_s = batch.last_attempt_at - batch.created_at
        of_topic.bytes_sent += size
        of_topic.uncompressed_bytes += uncompressed
        of_topic.records_sent += records
        self.batches_sent += 1
        self.bytes_sent += size
        self.uncompressed_bytes += uncompressed
        self.records_sent += records
        self.queue_time += queued_s
        self.batch_size_max = max(self.batch_size_max, size)
        self.record_size_max = max(self.record_size_max, batch.largest_record)
        self.queue_time_max = max(self.queue_time_max, queued_s)
        if batch.attempts > 1:
            self.records_retried += records
            of_topic.records_retried += records

    def on_response(self, batch: ProducerBatch, throttle_ms: int, now: float) -> None:
        """Count the response to the request with this batch."""
        self.tick(now)
        latency_s = now - batch.last_attempt_at
        self.responses += 1
        self.latency += latency_s
        self.latency_max = max(self.latency_max, latency_s)
        if throttle_ms:
            self.throttle_time += throttle_ms / 1000
            self.throttle_time_max = max(self.throttle_time_max, throttle_ms / 1000)

    def on_batch_acknowledged(self, batch: ProducerBatch, now: float) -> None:
        """Count an acknowledged batch and the time since its first record was accepted."""
        records = batch.count
        self.records_acknowledged += records
        self.delivery_times.add(now - batch.created_at, records)

    def on_batch_failed(self, failed: FailedBatch) -> None:
        """Count a batch that failed for good."""
        self.records_failed += failed.records
        self.topic(failed.topic_partition.topic).records_failed += failed.records
        self.recent_failures.append(failed)
