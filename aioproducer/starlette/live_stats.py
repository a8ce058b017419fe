"""The figures of the live page: the difference between a producer a moment ago and now.

Owns: the figures and their names in the feed. Not here: how they get to the page. Time comes
in as `now`, seconds of the producer's loop.

Invariants: percentiles are those of the last `WINDOW_S` seconds, rates those since the sample
before; memory is bounded by the window and by the refusals kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from aioproducer.errors import KafkaError
from aioproducer.runtime.observability.statistics import BrokerStatistics, Statistics

WINDOW_S = 10.0
_FAILURES_SHOWN = 10
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


class _Sample(NamedTuple):
    at: float
    statistics: Statistics
    metrics: Mapping[str, float]


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
    ) -> dict[str, Any]:
        """Add a sample; the figures that follow from it and those before."""
        refusals = refusals or Refusals()
        sample = _Sample(now, statistics, metrics)
        before = self._samples[-1] if self._samples else sample
        self._samples.append(sample)
        while len(self._samples) > 2 and self._samples[1].at <= now - WINDOW_S:
            self._samples.popleft()
        return {
            "state": statistics.state,
            "client_id": statistics.client_id,
            "uptime_s": statistics.uptime_s,
            "records": {
                "per_second": _rate(before, sample, "record_acknowledged_total"),
                "acknowledged": metrics.get("record_acknowledged_total", 0),
                "failed": metrics.get("record_error_total", 0),
                "retried": metrics.get("record_retry_total", 0),
                "refused": refusals.total,
            },
            "latency_ms": self._latency(sample),
            "buffer": _buffer(statistics),
            "brokers": list(_brokers(before, sample)),
            "failures": _failures(statistics, refusals.failures(now)),
        }

    def _latency(self, sample: _Sample) -> dict[str, float | None]:
        times = sample.statistics.delivery_times.since(self._samples[0].statistics.delivery_times)
        found = {name: times.percentile(share) for name, share in _SHARES}
        return {name: None if value is None else 1000 * value for name, value in found.items()}


_SHARES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))


def _rate(before: _Sample, sample: _Sample, total: str) -> float | None:
    elapsed = sample.at - before.at
    if elapsed <= 0:
        return None
    return (sample.metrics.get(total, 0.0) - before.metrics.get(total, 0.0)) / elapsed


def _buffer(statistics: Statistics) -> dict[str, float]:
    return {
        "used": statistics.buffer_total - statistics.buffer_available,
        "total": statistics.buffer_total,
        "waiting": statistics.waiting_for_memory,
        "queued": statistics.records_queued,
        "in_flight": statistics.records_in_flight,
        "oldest_s": max((each.oldest_s for each in statistics.partitions.values()), default=0.0),
    }


def _brokers(before: _Sample, sample: _Sample) -> Iterator[dict[str, Any]]:
    elapsed = sample.at - before.at
    for node_id, broker in sorted(sample.statistics.brokers.items()):
        earlier = before.statistics.brokers.get(node_id)
        yield {
            "id": node_id,
            "address": f"{broker.host}:{broker.port}",
            "state": broker.state,
            "in_flight": broker.in_flight,
            "latency_avg_ms": broker.latency_avg_ms,
            "latency_max_ms": broker.latency_max_ms,
            "bytes_per_second": _bytes_rate(earlier, broker, elapsed),
        }


def _bytes_rate(earlier: BrokerStatistics | None, now: BrokerStatistics, elapsed: float) -> float:
    if earlier is None or elapsed <= 0:
        return 0.0
    return max(0, now.bytes_out - earlier.bytes_out) / elapsed


def _failures(statistics: Statistics, refused: Iterable[Failure]) -> list[dict[str, Any]]:
    lost = (
        Failure("{}-{}".format(*each.topic_partition), each.records, each.age_s, each.error)
        for each in statistics.recent_failures
    )
    newest_first = sorted([*lost, *refused], key=lambda failure: failure.age_s)
    return [asdict(failure) for failure in newest_first[:_FAILURES_SHOWN]]
