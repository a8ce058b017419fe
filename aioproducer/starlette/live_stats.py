"""The figures of the live page: the difference between a producer a moment ago and now.

Time comes in as `now`, seconds of the producer's loop.

Invariants: percentiles are those of the last `WINDOW_S` seconds, rates those since the sample
before; memory is bounded by the window, the points kept and the refusals kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from heapq import nsmallest
from typing import Any, NamedTuple

from aioproducer._util.hosts import host_and_port
from aioproducer.core.batching.batch import name_of
from aioproducer.errors import KafkaError
from aioproducer.metrics.totals import DurationCounts, TopicStats
from aioproducer.runtime.observability.statistics import PartitionStatistics, Statistics

WINDOW_S = 10.0
POINTS_KEPT = 300
"""Points of a `History`: five minutes with one per second."""
TOPICS_SHOWN = 20
_FAILURES_SHOWN = 10
_ACKNOWLEDGED = "record_acknowledged_total"
_REFUSALS_KEPT = 20


@dataclass(frozen=True, slots=True)
class Failure:
    """Records that failed for one reason; `age_s` is how long ago the last of them began."""

    where: str
    records: int
    age_s: float
    error: str


class Refusals:
    """Records that were refused before they were accepted, counted by topic and reason."""

    def __init__(self) -> None:
        self.total: int = 0
        self._kept: dict[tuple[str, str], tuple[int, float, str]] = {}

    def note(self, error: BaseException, now: float) -> None:
        """Count a refusal; the oldest reason is dropped for a new one."""
        self.total += 1
        topic = (error.topic if isinstance(error, KafkaError) else None) or ""
        reason = (topic, type(error).__name__)
        count, _, _ = self._kept.pop(reason, (0, 0.0, ""))
        if len(self._kept) >= _REFUSALS_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[reason] = (count + 1, now, str(error))

    def failures(self, now: float) -> Iterator[Failure]:
        """Yield a row for each reason."""
        for (topic, _), (count, at, text) in self._kept.items():
            yield Failure(topic, count, now - at, text)


class _Point(NamedTuple):
    at: float
    per_second: float | None
    p99_ms: float | None
    buffer: float


class History:
    """Points of the last minutes, of the same producer, for all viewers."""

    def __init__(self) -> None:
        self.added: int = 0
        self._points: deque[_Point] = deque(maxlen=POINTS_KEPT)
        self._times: deque[tuple[float, DurationCounts]] = deque()
        self._before: tuple[float, int] | None = None

    def add(self, now: float, acknowledged: int, times: DurationCounts, buffer: float) -> None:
        """Add a point: totals so far, and the share of the buffer in use; the oldest is dropped."""
        at, earlier = self._before or (now, acknowledged)
        per_second = (acknowledged - earlier) / (now - at) if now > at else None
        self._before = now, acknowledged
        self._times.append((now, times))
        while len(self._times) > 2 and self._times[1][0] <= now - WINDOW_S:
            self._times.popleft()
        p99 = times.since(self._times[0][1]).percentile(0.99)
        self._points.append(_Point(now, per_second, None if p99 is None else 1000 * p99, buffer))
        self.added += 1

    def since(self, seen: int) -> dict[str, Any]:
        """Return the points after the first `seen`, as columns, and the time all points cover."""
        new = list(self._points)[max(0, len(self._points) - (self.added - seen)) :]
        return {
            "kept": POINTS_KEPT,
            "span_s": self._points[-1].at - self._points[0].at if self._points else 0.0,
            "per_second": [point.per_second for point in new],
            "p99_ms": [point.p99_ms for point in new],
            "buffer": [point.buffer for point in new],
        }


class _Sample(NamedTuple):
    at: float
    statistics: Statistics
    metrics: Mapping[str, float]
    totals: Mapping[str, tuple[int, int]]
    """Records and bytes sent, by topic."""


class LiveStats:
    """Samples of one producer, for one viewer."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()

    def take(
        self,
        statistics: Statistics,
        metrics: Mapping[str, float],
        now: float,
        refusals: Refusals | None = None,
        topics: Mapping[str, TopicStats] | None = None,
    ) -> dict[str, Any]:
        """Add a sample; return the figures that follow from it and those before."""
        refusals = refusals or Refusals()
        topics = topics or {}
        totals = {name: (each.records_sent, each.bytes_sent) for name, each in topics.items()}
        sample = _Sample(now, statistics, metrics, totals)
        acknowledged = metrics.get(_ACKNOWLEDGED, 0)
        before = self._samples[-1] if self._samples else sample
        self._samples.append(sample)
        while len(self._samples) > 2 and self._samples[1].at <= now - WINDOW_S:
            self._samples.popleft()
        return {
            "state": statistics.state,
            "client_id": statistics.client_id,
            "uptime_s": statistics.uptime_s,
            "records": {
                "per_second": None
                if now <= before.at
                else (acknowledged - before.metrics.get(_ACKNOWLEDGED, 0)) / (now - before.at),
                "acknowledged": acknowledged,
                "failed": metrics.get("record_error_total", 0),
                "retried": metrics.get("record_retry_total", 0),
                "refused": refusals.total,
            },
            "latency_ms": self._latency(sample),
            "buffer": {
                "used": statistics.buffer_total - statistics.buffer_available,
                "total": statistics.buffer_total,
                "waiting": statistics.waiting_for_memory,
                "queued": statistics.records_queued,
                "in_flight": statistics.records_in_flight,
                "oldest_s": max((p.oldest_s for p in statistics.partitions.values()), default=0.0),
            },
            "topics": list(_topics(topics, before, sample)),
            "topics_left_out": max(0, len(topics) - TOPICS_SHOWN),
            "brokers": list(_brokers(before, sample)),
            "failures": _failures(statistics, refusals.failures(now)),
        }

    def _latency(self, sample: _Sample) -> dict[str, float | None]:
        times = sample.statistics.delivery_times.since(self._samples[0].statistics.delivery_times)
        found = {name: times.percentile(share) for name, share in _SHARES}
        return {name: None if value is None else 1000 * value for name, value in found.items()}


_SHARES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))


def _topics(
    topics: Mapping[str, TopicStats], before: _Sample, sample: _Sample
) -> Iterator[dict[str, Any]]:
    """Yield a row for each topic, sorted by name; of many, for the busiest ones."""
    elapsed = sample.at - before.at
    pending: dict[str, list[PartitionStatistics]] = {}
    for (topic, _), partition in sample.statistics.partitions.items():
        pending.setdefault(topic, []).append(partition)
    new: dict[str, int] = {
        name: each.records_sent - before.totals.get(name, (0, 0))[0]
        for name, each in topics.items()
    }
    busiest = nsmallest(TOPICS_SHOWN, new, key=lambda name: (name not in pending, -new[name], name))
    for name in sorted(busiest):
        now, partitions = topics[name], pending.get(name, [])
        size = now.bytes_sent - before.totals.get(name, (0, 0))[1]
        yield {
            "name": name,
            "per_second": max(0, new[name]) / elapsed if elapsed > 0 else None,
            "bytes_per_second": max(0, size) / elapsed if elapsed > 0 else None,
            "queued": sum(each.queued_records for each in partitions),
            "in_flight": sum(each.in_flight_records for each in partitions),
            "oldest_s": max((each.oldest_s for each in partitions), default=0.0),
            "retried": now.records_retried,
            "failed": now.records_failed,
        }


def _brokers(before: _Sample, sample: _Sample) -> Iterator[dict[str, Any]]:
    elapsed = sample.at - before.at
    for node_id, broker in sorted(sample.statistics.brokers.items()):
        earlier = before.statistics.brokers.get(node_id)
        yield {
            "id": node_id,
            "address": host_and_port(broker.host, broker.port),
            "state": broker.state,
            "in_flight": broker.in_flight,
            "latency_avg_ms": broker.latency_avg_ms,
            "latency_max_ms": broker.latency_max_ms,
            "bytes_per_second": 0.0
            if earlier is None or elapsed <= 0
            else max(0, broker.bytes_out - earlier.bytes_out) / elapsed,
        }


def _failures(statistics: Statistics, refused: Iterable[Failure]) -> list[dict[str, Any]]:
    lost = (
        Failure(name_of(each.topic_partition), each.records, each.age_s, each.error)
        for each in statistics.recent_failures
    )
    newest_first = sorted([*lost, *refused], key=lambda failure: failure.age_s)
    return [asdict(failure) for failure in newest_first[:_FAILURES_SHOWN]]
