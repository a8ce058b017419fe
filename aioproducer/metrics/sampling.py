"""Totals with their past values: rates, means and peaks over the last samples.

Counting is an addition to a plain attribute, paid per batch or request; what a rate or a mean needs
beyond that is a copy of the totals per sample (Java: `SampledStat`, with `metrics.num.samples` and
`metrics.sample.window.ms`).

Invariants: totals never fall; `tick(now)` is called before any counting or reading; at most
`Sampling.samples` samples are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field, fields
from functools import cache
from math import inf
from typing import Any, ClassVar, NamedTuple, cast

_SHORTEST_S = 1.0
"""A rate over less than this would jump about."""


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
