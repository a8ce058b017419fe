"""Records of fault runs add up to a table."""

from __future__ import annotations

from typing import Any

from bench.spark_faults import collected, text


def record(scenario: str, guarantee: str = "exactly-once", **more: Any) -> dict[str, Any]:
    return {
        "scenario": scenario,
        "guarantee": guarantee,
        "happened": {"kill in the middle": 2},
        "queries": {"sessions": 1, "started": 3, "killed": 1, "failed": 0},
        "batches": 4,
        "rows": 1000,
        "duplicates": 0,
        "losses": 0,
        "seconds": 60,
        "cluster": "3 brokers",
        "pyspark": "4.3.0",
        "date": "2026-11-22",
        **more,
    }


def test_runs_of_one_scenario_are_added_up() -> None:
    (found,) = collected([record("tasks"), record("tasks", happened={"raise": 1})]).values()
    assert found["happened"] == {"kill in the middle": 2, "raise": 1}
    assert found["queries"]["started"] == 6
    assert (found["rows"], found["seconds"]) == (2000, 120)


def test_controls_are_in_a_separate_table() -> None:
    found = collected([record("tasks"), record("tasks", "at-least-once", duplicates=7)])
    proof, control = text(found, "here").split("**Without the mechanism**")
    assert "| tasks | 2 x kill in the middle | 1 | 3 | 1 | 0 | 4 | 1,000 | 0 | 0 | 60 |" in proof
    assert "| tasks (at-least-once) |" in control
    assert "| 7 | 0 |" in control


def test_one_duplicate_in_one_of_many_runs_is_reported() -> None:
    found = collected([record("tasks"), record("tasks", duplicates=1), record("tasks")])
    assert "| 3,000 | 1 | 0 |" in text(found, "here")
