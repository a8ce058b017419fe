"""Counts by duration, and the percentiles made of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.metrics.durations import DurationCounts, Durations


@given(
    st.lists(st.floats(1e-4, 900), min_size=1, max_size=200),
    st.floats(0, 1, exclude_min=True),
)
def test_a_percentile_is_at_most_a_tenth_above_the_true_one(
    seconds: list[float], share: float
) -> None:
    durations = Durations()
    for each in seconds:
        durations.add(each)
    true = sorted(seconds)[math.ceil(share * len(seconds)) - 1]
    found = durations.snapshot().percentile(share)
    assert found is not None
    assert true * 0.999999 <= found <= true * 1.100001


def test_what_is_shorter_or_longer_than_any_bucket_is_in_the_nearest_one() -> None:
    durations = Durations()
    durations.add(0.0, 3)
    durations.add(-1.0)
    durations.add(1e9, 2)
    counts = durations.snapshot()
    assert (counts.total, counts.counts[0], counts.counts[-1]) == (6, 4, 2)
    assert counts.percentile(1) == pytest.approx(1000, rel=0.1)


def test_two_snapshots_give_the_percentiles_of_the_time_between_them() -> None:
    durations = Durations()
    durations.add(5.0, 1000)
    earlier = durations.snapshot()
    durations.add(0.01, 10)
    recent = durations.snapshot().since(earlier)
    assert recent.total == 10
    assert recent.percentile(0.99) == pytest.approx(0.01, rel=0.1)


def test_nothing_has_no_percentile() -> None:
    assert DurationCounts().percentile(0.5) is None


@pytest.mark.parametrize("share", [0, -0.1, 1.1, 99])
def test_a_share_is_no_percentage(share: float) -> None:
    with pytest.raises(ValueError, match="at most 1"):
        DurationCounts().percentile(share)
