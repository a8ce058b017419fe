"""Rates, means and peaks over the last samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.metrics.sampling import Sampled, Sampling


@dataclass(slots=True, eq=False)
class Deeds(Sampled):
    PEAKS: ClassVar[tuple[str, ...]] = ("longest",)

    done: int = 0
    took: float = 0.0
    longest: float = 0.0

    def do(self, took: float, now: float) -> None:
        self.tick(now)
        self.done += 1
        self.took += took
        self.longest = max(self.longest, took)


def deeds(samples: int = 2, window: float = 30.0) -> Deeds:
    return Deeds(sampling=Sampling(samples, window))


def test_rates_and_means_are_those_of_the_samples_kept():
    it = deeds()
    for second in range(60):
        it.do(0.5, second)
    assert it.rate("done", 59) == pytest.approx(60 / 59)
    assert it.mean("took", "done", 59) == 0.5
    it.do(3.5, 61)
    assert it.rate("done", 61) == pytest.approx(31 / 31)
    assert it.mean("took", "done", 61) == pytest.approx((30 * 0.5 + 3.5) / 31)
    assert (it.done, it.took) == (61, 33.5)


def test_a_peak_is_dropped_with_its_sample():
    it = deeds()
    it.do(9, 0)
    it.do(1, 31)
    assert it.peak("longest", 59) == 9
    assert it.peak("longest", 61) == 1
    assert it.peak("longest", 200) == 0


def test_after_a_long_silence_rates_and_means_are_zero_and_totals_stay():
    it = deeds()
    it.do(2, 0)
    assert it.rate("done", 1000) == it.mean("took", "done", 1000) == 0
    assert it.done == 1


def test_the_first_second_does_not_make_a_huge_rate():
    it = deeds()
    for _ in range(10):
        it.do(0, 5.0)
    assert it.rate("done", 5.001) == 10


@given(
    gaps=st.lists(st.floats(0, 50), max_size=60),
    samples=st.integers(1, 4),
    window=st.floats(0, 40),
)
def test_samples_are_bounded_and_say_nothing_that_was_not_counted(
    gaps: list[float], samples: int, window: float
):
    it, now = deeds(samples, window), 0.0
    for gap in gaps:
        now += gap
        it.do(gap, now)
    assert len(it._samples) <= samples
    assert 0 <= it.rate("done", now) <= len(gaps)
    assert 0 <= it.mean("took", "done", now) <= max(gaps, default=0) + 1e-6
    assert it.peak("longest", now) in {0.0, *gaps}
