"""In which order Spark's cases are written."""

from __future__ import annotations

from bench.spark_cases import MICRO_BARS, MICRO_SINKS, Case, cases, in_turns, rotated
from bench.spark_report import micro_bars
from bench.tables import FAIL, PASS


def test_writes_of_cases_that_take_several_alternate_and_all_are_made() -> None:
    order = [(case.guarantee, case.writes) for case in in_turns(cases()) if case.writes > 1]
    assert order[:4] == [
        ("at-least-once", 10),
        ("exactly-once", 10),
        ("exactly-once", 10),
        ("at-least-once", 10),
    ]
    made = list(in_turns(cases()))
    assert all(made.count(case) == case.writes for case in cases())


def test_cases_of_one_write_keep_their_order() -> None:
    some = [Case("ours"), Case("tuned"), Case("default")]
    assert list(in_turns(some)) == some


def test_each_sink_of_micro_batches_is_first_once_in_as_many_rounds() -> None:
    names = list(MICRO_SINKS)
    orders = [rotated(names, number) for number in range(len(names))]
    assert sorted(order[0] for order in orders) == sorted(names)
    assert all(sorted(order) == sorted(names) for order in orders)


def test_micro_batches_are_held_to_a_sink_that_drops_its_rows() -> None:
    found = {"discard": [80.0, 100.0, 90.0], "at-least-once": [94.0], "exactly-once": [104.0]}
    rows = micro_bars(found)
    assert [(row[3], row[5]) for row in rows] == [("1.04", PASS), ("1.16", FAIL)]
    assert micro_bars({}) == []
    assert MICRO_BARS.keys() <= MICRO_SINKS.keys()
