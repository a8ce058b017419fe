"""Medians, spreads, percentiles, and what a latency is when the load does not wait.

Owns: arithmetic on samples. Not here: clients, brokers, files.

**Coordinated omission.** A load generator that waits for an answer before it sends the next request
does not ask while the server is slow, and so leaves out most of the bad latencies. Here every
request has a moment at which it is due, whatever became of those before it, and its latency counts
from there: the time it spent waiting for its turn is part of it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Several runs of one measurement."""

    median: float
    lowest: float
    highest: float
    runs: int

    def as_json(self) -> dict[str, float]:
        return asdict(self)


def spread(samples: Iterable[float]) -> Spread:
    """Return the median and the spread of samples; raise ValueError without any."""
    values = sorted(samples)
    if not values:
        raise ValueError("no runs")
    return Spread(statistics.median(values), values[0], values[-1], len(values))


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that `share` percent of all are not above (nearest rank)."""
    if not samples or not 0 <= share <= 100:
        raise ValueError(f"no {share:g}th percentile of {len(samples)} samples")
    rank = max(1, math.ceil(share / 100 * len(samples)))
    return sorted(samples)[rank - 1]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the straight line nearest to the points (least squares)."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


def due_times(start: float, rate: float, count: int) -> list[float]:
    """Return when each of `count` requests is due, `rate` a second."""
    return [start + index / rate for index in range(count)]


def latencies(due: Sequence[float], done: Sequence[float | None]) -> list[float]:
    """Return the time from due to done of each request; raise ValueError if one is not done."""
    missing = len(due) - len(done) + sum(moment is None for moment in done)
    if missing:
        raise ValueError(f"{missing} of {len(due)} requests have no answer")
    return [end - begin for begin, end in zip(due, done, strict=True) if end is not None]
