"""In which order Spark's cases are written."""

from __future__ import annotations

from bench.spark_cases import Case, cases, in_turns


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
