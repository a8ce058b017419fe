"""Durations: counts by length, from which percentiles are computed.

Invariants: a bucket ends a tenth above where it begins, so a percentile is at most a tenth too
high; adding is one increment, whatever was added before; counts never fall, so that two snapshots
give the percentiles of the time between them.
"""

from __future__ import annotations

from itertools import accumulate
from math import ceil, log
from typing import NamedTuple

__all__ = ["DurationCounts", "Durations"]

_SHORTEST_S = 1e-4
_GROWTH = 1.1
_BUCKETS = 170
"""The last one ends at 1,000 s and holds what is longer."""
_LOG_GROWTH = log(_GROWTH)


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
        return _SHORTEST_S * _GROWTH**bucket


class Durations:
    """Counts durations."""

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS

    def add(self, seconds: float, count: int = 1) -> None:
        """Add a number of equal durations."""
        bucket = ceil(log(seconds / _SHORTEST_S) / _LOG_GROWTH) if seconds > _SHORTEST_S else 0
        self._counts[min(bucket, _BUCKETS - 1)] += count

    def snapshot(self) -> DurationCounts:
        """Return the counts now."""
        return DurationCounts(tuple(self._counts))
