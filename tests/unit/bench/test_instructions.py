"""The figures without noise: what is printed beside what was recorded."""

from __future__ import annotations

from pathlib import Path

from bench.instructions import record, recorded, table


def test_the_table_has_a_column_for_each_interpreter_and_shows_the_change() -> None:
    found = {"3.13": {"each": 4_400.0, "many": 100.0}, "3.11": {"each": 4_000.0}}
    lines = table(found, {"3.13": {"each": 4_000.0}, "3.12": {"each": 1.0}}).splitlines()
    assert lines[1].split() == ["CPython", "3.13", "CPython", "3.11"]
    assert lines[2].split() == ["each", "4,400", "+10.0%", "4,000"]
    assert next(line for line in lines if "many" in line).split() == ["many", "100", "-"]


def test_figures_of_one_python_replace_those_of_no_other(tmp_path: Path) -> None:
    path = tmp_path / "instructions.json"
    record({"3.11": {"each": 4_000.0}, "3.13": {"each": 5_000.0}}, path)
    record({"3.13": {"each": 4_500.04}}, path)
    assert recorded(path) == {"3.11": {"each": 4_000.0}, "3.13": {"each": 4_500.0}}


def test_nothing_recorded_is_nothing_to_compare(tmp_path: Path) -> None:
    assert recorded(tmp_path / "none.json") == {}
