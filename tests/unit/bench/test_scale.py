"""The findings of the scale benchmark, from invented figures and from a small day."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.figures import slope
from bench.scale import BASE, DIMENSIONS, IDLE, Measured, Results, Size, scaled, violations
from bench.scale_day import Day, run_day
from bench.scale_load import places
from bench.scale_report import day_line, page

SMALL = Day(brokers=4, topics=10, partitions=4, active=10, producers=10, hours=1)


def results(us: tuple[float, float] = (50, 50), bytes_each: int = 300) -> Results:
    sizes = (Size(known=1_000), Size(known=100_000))
    return {
        IDLE: [
            (size.known, Measured(size, {"one by one": cost, "spread": 9.0}, 2.0, held))
            for size, cost in zip(sizes, us, strict=True)
            for held in [7_000 + bytes_each * size.known]
        ]
    }


def test_the_slope_is_that_of_the_nearest_line() -> None:
    assert slope([(0, 1), (10, 21), (20, 41)]) == pytest.approx(2)
    assert slope([(0, 1), (10, 2), (20, 1)]) == pytest.approx(0)


def test_every_dimension_changes_one_value_at_a_time() -> None:
    for sizes in DIMENSIONS.values():
        values = [value for value, _ in sizes]
        assert values == sorted(set(values))
        assert all(size.active <= size.known for _, size in sizes)
    assert max(size.known for _, size in DIMENSIONS[IDLE]) == 100_000


def test_a_share_leaves_out_sizes_that_become_equal() -> None:
    sizes = scaled(0.01)["partitions active"]
    assert [value for value, _ in sizes] == [10, 100]
    assert scaled(1) == {name: list(each) for name, each in DIMENSIONS.items()}


def test_active_partitions_are_spread_over_all_topics() -> None:
    assert places(["a", "b"], 3, 5) == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2)]
    assert len(set(places(BASE.topics, BASE.partitions, BASE.active))) == BASE.active


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (results(), []),
        (results(us=(50, 57)), []),
        (results(us=(50, 58)), ["a record costs 58.0 us one by one"]),
        (results(bytes_each=1_025), ["an idle partition keeps 1,025 bytes"]),
    ],
)
def test_bounds_that_do_not_hold_are_named(found: Results, wrong: list[str]) -> None:
    said = violations(found)
    assert len(said) == len(wrong)
    assert all(part in text for part, text in zip(wrong, said, strict=True))


def test_a_day_with_restarts_and_topics_that_come_and_go_loses_nothing() -> None:
    result = run_day(SMALL)
    assert result.wrong == []
    assert result.records == 10 * 6 * 3 + 20
    assert result.virtual_s > 3600
    text = page(results(), result, "a machine")
    assert "| an idle partition keeps at most 1,024 bytes | 300 | pass |" in text
    assert "| records | 200 |" in text
    assert "0 failed, 0 contradiction(s)" in day_line(result)


def test_records_that_fail_during_the_day_are_reported() -> None:
    day = replace(SMALL, topics=40, active=40)
    result = run_day(day, request_timeout_ms=30, delivery_timeout_ms=40)
    assert any("DeliveryTimeoutError" in each for each in result.wrong)
