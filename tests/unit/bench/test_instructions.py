"""The figures without noise: what is printed beside what was recorded."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from bench.instructions import recorded, table


def keep(path: Path, python: str) -> Path:
    path.write_text(json.dumps({"versions": {"CPython": python}, "instructions": {"each": 4_000}}))
    return path


def test_the_table_shows_the_change_and_leaves_out_what_was_not_recorded() -> None:
    lines = table({"each": 4_400.0, "many": 100.0}, {"each": 4_000.0}).splitlines()
    assert lines[1].endswith("recorded    4,000   +10.0%")
    assert "recorded" not in lines[2]


@pytest.mark.parametrize(
    ("python", "expected"), [(platform.python_version(), {"each": 4_000}), ("2.7.18", {})]
)
def test_figures_of_another_python_are_not_compared(
    tmp_path: Path, python: str, expected: dict[str, float]
) -> None:
    assert recorded(keep(tmp_path / "instructions.json", python)) == expected


def test_nothing_recorded_is_nothing_to_compare(tmp_path: Path) -> None:
    assert recorded(tmp_path / "none.json") == {}
