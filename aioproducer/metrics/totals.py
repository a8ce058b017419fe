"""Totals of a producer, and their rates, means, peaks and percentiles.

`ProducerStats` has the totals of the producer and its topics, `IOStats` those of its connections
and brokers; `Durations` counts by length. Counting is an addition to a plain attribute, paid per
batch or request. A rate or a mean also needs a copy of the totals per sample (Java: `SampledStat`,
with `metrics.num.samples` and `metrics.sample.window.ms`).

Invariants: totals never fall, and outlive their connections; `tick(now)` is called before any
counting or reading; at most `Sampling.samples` samples are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Hashable
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import accumulate
from math import ceil, inf, log
from typing import Any, ClassVar, Final, NamedTuple, cast

from aioproducer.types import TopicPartition

_SHORTEST_S = 1.0
"""A rate over less than this would jump about."""
_FIRST_BUCKET_S = 1e-4
_GROWTH = 1.1
"""A bucket ends a tenth above where it begins, so a percentile is at most a tenth too high."""
_BUCKETS = 170
"""The last one ends at 1,000 s and holds what is longer."""
_LOG_GROWTH = log(_GROWTH)
_FAILURES_KEPT = 20
_MOST_NODES: Final = 10_000
"""Limit of brokers with totals: a hostile cluster may name new brokers in each response."""


class Sampling(NamedTuple):
    """The number of samples kept, and the length of each, in seconds."""

    samples: int = 2
    window: float = 30.0


@dataclass(slots=True)
class _Sample:
    """One stretch of time: the totals at its start, the peaks within once it is over."""

    started_at: float
    totals: dict[str, float]
    peaks: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True, eq=False, kw_only=True)
class Sampled:
    """The base of a set of totals; its fields with numbers as defaults are what is sampled."""

    PEAKS: ClassVar[tuple[str, ...]] = ()
    """The fields that hold the largest value seen in the current sample."""

    sampling: Sampling = field(default=Sampling(), repr=False)
    _ends_at: float = field(default=-inf, init=False, repr=False)
    _samples: deque[_Sample] = field(default_factory=deque, init=False, repr=False)

    def tick(self, now: float) -> None:
        """Begin another sample when the current one is over."""
        if now >= self._ends_at:
            self._begin(now)

    def rate(self, total: str, now: float) -> float:
        """Return what was added to a total, per second."""
        self.tick(now)
        elapsed = max(now - self._samples[0].started_at, _SHORTEST_S)
        return self._added(total) / elapsed

    def mean(self, total: str, count: str, now: float) -> float:
        """Return what was added to one total, per unit of another; 0 without any."""
        self.tick(now)
        added = self._added(count)
        return self._added(total) / added if added else 0.0

    def peak(self, name: str, now: float) -> float:
        """Return the largest value of the samples."""
        self.tick(now)
        return max(self._value(name), *(s.peaks.get(name, 0.0) for s in self._samples))

    def _value(self, name: str) -> float:
        return float(getattr(self, name))

    def _added(self, total: str) -> float:
        return self._value(total) - self._samples[0].totals[total]

    def _begin(self, now: float) -> None:
        samples, sampling = self._samples, self.sampling
        if samples:
            samples[-1].peaks = {name: self._value(name) for name in self.PEAKS}
        for name in self.PEAKS:
            setattr(self, name, 0.0)
        totals = _numbers_of(cast("Hashable", type(self)))
        samples.append(_Sample(now, {name: self._value(name) for name in totals}))
        oldest = now - sampling.samples * sampling.window
        while len(samples) > 1 and (
            len(samples) > sampling.samples or samples[0].started_at <= oldest
        ):
            samples.popleft()
        self._ends_at = now + sampling.window


@cache
def _numbers_of(kind: Hashable) -> tuple[str, ...]:
    numbers = (each for each in fields(cast("Any", kind)) if isinstance(each.default, int | float))
    return tuple(each.name for each in numbers if not each.name.startswith("_"))


class DurationCounts(NamedTuple):
    """A snapshot of `Durations`: how many there are in each bucket."""

    counts: tuple[int, ...] = (0,) * _BUCKETS

    @property
    def total(self) -> int:
        """The number of measurements."""
        return sum(self.counts)

    def since(self, earlier: DurationCounts) -> DurationCounts:
        """Return what was added after an earlier snapshot of the same durations."""
        pairs = zip(self.counts, earlier.counts, strict=True)
        return DurationCounts(tuple(now - then for now, then in pairs))

    def percentile(self, share: float) -> float | None:
        """Return the seconds within which this share (0.99: 99%) was done; None without any."""
        if not 0 < share <= 1:
            raise ValueError(f"a share is above 0 and at most 1, not {share!r}")
        total = self.total
        if not total:
            return None
        wanted = ceil(share * total)
        reached = accumulate(self.counts)
        bucket = next(at for at, count in enumerate(reached) if count >= wanted)
        return _FIRST_BUCKET_S * _GROWTH**bucket


class Durations:
    """Counts durations."""

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS

    def add(self, seconds: float, count: int = 1) -> None:
        """Add a number of equal durations."""
        bucket = (
            ceil(log(seconds / _FIRST_BUCKET_S) / _LOG_GROWTH) if seconds > _FIRST_BUCKET_S else 0
        )
        self._counts[min(bucket, _BUCKETS - 1)] += count

    def snapshot(self) -> DurationCounts:
        """Return the counts now."""
        return DurationCounts(tuple(self._counts))


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

    def on_batch_sent(
        self,
        topic: str,
        records: int,
        *,
        size: int,
        uncompressed: int,
        largest: int,
        queued_s: float,
        is_retry: bool,
        now: float,
    ) -> None:
        """Count a batch that was sent for the first time or again, with its largest record."""
        self.tick(now)
        of_topic = self.topic(topic)
        of_topic.tick(now)
        of_topic.bytes_sent += size
        of_topic.uncompressed_bytes += uncompressed
        of_topic.records_sent += records
        self.batches_sent += 1
        self.bytes_sent += size
        self.uncompressed_bytes += uncompressed
        self.records_sent += records
        self.queue_time += queued_s
        self.batch_size_max = max(self.batch_size_max, size)
        self.record_size_max = max(self.record_size_max, largest)
        self.queue_time_max = max(self.queue_time_max, queued_s)
        if is_retry:
            self.records_retried += records
            of_topic.records_retried += records

    def on_response(self, latency_s: float, throttle_ms: int, now: float) -> None:
        """Count the response to a Produce request."""
        self.tick(now)
        self.responses += 1
        self.latency += latency_s
        self.latency_max = max(self.latency_max, latency_s)
        if throttle_ms:
            self.throttle_time += throttle_ms / 1000
            self.throttle_time_max = max(self.throttle_time_max, throttle_ms / 1000)

    def on_batch_acknowledged(self, records: int, took_s: float, now: float) -> None:
        """Count an acknowledged batch and the time since its first record was accepted."""
        self.tick(now)
        self.records_acknowledged += records
        self.delivery_times.add(took_s, records)

    def on_batch_failed(self, failed: FailedBatch, now: float | None) -> None:
        """Count a batch that failed for good; without a time, in the last sample."""
        of_topic = self.topic(failed.topic_partition.topic)
        if now is not None:
            self.tick(now)
            of_topic.tick(now)
        self.records_failed += failed.records
        of_topic.records_failed += failed.records
        self.recent_failures.append(failed)


@dataclass(slots=True, eq=False)
class NodeIOStats(Sampled):
    """Totals of one broker; bootstrap servers have negative ids and separate totals."""

    PEAKS: ClassVar[tuple[str, ...]] = ("request_size_max", "latency_max")

    requests: int = 0
    bytes_out: int = 0
    responses: int = 0
    bytes_in: int = 0
    latency: float = 0.0
    request_size_max: float = 0.0
    latency_max: float = 0.0

    def on_request(self, size: int, now: float) -> None:
        """Count a request that was handed to the transport."""
        self.tick(now)
        self.requests += 1
        self.bytes_out += size
        self.request_size_max = max(self.request_size_max, size)

    def on_response(self, size: int, latency_s: float, now: float) -> None:
        """Count a response."""
        self.tick(now)
        self.responses += 1
        self.bytes_in += size
        self.latency += latency_s
        self.latency_max = max(self.latency_max, latency_s)


@dataclass(slots=True, eq=False)
class IOStats(Sampled):
    """The totals of all brokers, of connections and of authentications."""

    PEAKS: ClassVar[tuple[str, ...]] = ("renewal_time_max",)

    connections_created: int = 0
    connections_closed: int = 0
    authentications: int = 0
    endless_authentications: int = 0
    failed_authentications: int = 0
    renewals: int = 0
    failed_renewals: int = 0
    renewal_time: float = 0.0
    renewal_time_max: float = 0.0
    nodes: dict[int, NodeIOStats] = field(default_factory=dict, repr=False)

    def of(self, node_id: int) -> NodeIOStats:
        """Return the totals of a broker."""
        known = self.nodes.get(node_id)
        if known is None:
            if len(self.nodes) >= _MOST_NODES:
                del self.nodes[next(iter(self.nodes))]
            known = self.nodes[node_id] = NodeIOStats(sampling=self.sampling)
        return known

    @property
    def open_connections(self) -> int:
        """Number of open connections."""
        return self.connections_created - self.connections_closed

    def on_connected(self, now: float) -> None:
        """Count an opened connection."""
        self.tick(now)
        self.connections_created += 1

    def on_closed(self, now: float) -> None:
        """Count a closed connection."""
        self.tick(now)
        self.connections_closed += 1

    def on_authenticated(self, now: float, *, endless: bool) -> None:
        """Count an authenticated connection; `endless` if it needs no renewal."""
        self.tick(now)
        self.authentications += 1
        self.endless_authentications += endless

    def on_renewed(self, took_s: float, now: float) -> None:
        """Count a renewed authentication (KIP-368)."""
        self.tick(now)
        self.renewals += 1
        self.renewal_time += took_s
        self.renewal_time_max = max(self.renewal_time_max, took_s)

    def on_refused(self, now: float, *, renewal: bool) -> None:
        """Count a failed authentication or renewal."""
        self.tick(now)
        if renewal:
            self.failed_renewals += 1
        else:
            self.failed_authentications += 1
