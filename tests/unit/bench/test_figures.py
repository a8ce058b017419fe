"""Arithmetic that a wrong figure would hide in."""

from __future__ import annotations

import pytest

from bench.figures import due_times, latencies, percentile, spread


def test_a_spread_is_the_median_and_the_ends_in_any_order() -> None:
    found = spread([9.0, 1.0, 4.0])
    assert (found.median, found.lowest, found.highest, found.runs) == (4.0, 1.0, 9.0, 3)


def test_the_median_of_an_even_number_is_between_the_middle_two() -> None:
    assert spread([1.0, 2.0, 4.0, 100.0]).median == 3.0


def test_no_runs_have_no_median() -> None:
    with pytest.raises(ValueError, match="no runs"):
        spread([])


@pytest.mark.parametrize(
    ("share", "expected"), [(0, 1), (50, 50), (99, 99), (99.9, 100), (100, 100)]
)
def test_percentiles_are_samples_by_nearest_rank(share: float, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), share) == expected


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="of 0 samples"):
        percentile([], 50)


def test_due_times_do_not_move_with_the_answers() -> None:
    assert due_times(10.0, 4, 3) == [10.0, 10.25, 10.5]


def test_a_stall_makes_every_request_late_that_was_due_in_it() -> None:
    """A server that pauses for 100 ms, then answers in 1 ms: one request felt it if the next
    one is sent after the answer, a hundred if they are sent when due."""
    due = due_times(0.0, 1_000, 1_000)
    done = [max(moment, 0.1) + 0.001 for moment in due]
    found = latencies(due, done)
    assert sum(latency > 0.0015 for latency in found) == pytest.approx(100, abs=1)
    assert percentile(found, 99) > 0.08
    assert percentile(found, 50) == pytest.approx(0.001)


def test_an_answer_that_never_came_is_not_left_out() -> None:
    with pytest.raises(ValueError, match="1 of 2 requests have no answer"):
        latencies([0.0, 1.0], [0.5, None])
    with pytest.raises(ValueError, match="1 of 2 requests have no answer"):
        latencies([0.0, 1.0], [0.5])
