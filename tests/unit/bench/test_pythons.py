"""CPU by interpreter: the table, and which interpreters there are."""

from __future__ import annotations

import platform
import sys

import pytest

from bench import interpreters
from bench.cells import Cell
from bench.pythons import bars, cost_cells, document, latency_cells, summary

EACH, THEIRS = Cell("aioproducer", "each", server="sink"), Cell("confluent", "each", server="sink")


def results(*versions: str) -> dict[str, object]:
    """Figures of awaited sends alone: ours are 0.55 of confluent's on each interpreter."""
    runs = {
        (version, cell): [{"cpu_us": figure}] * 3
        for version in versions
        for cell, figure in ((EACH, 0.55), (THEIRS, 1.0))
    }
    facts = {"when": "", "machine": "", "rounds": 3, "share": 1.0, "versions": []}
    return facts | {"cells": summary(runs)}


def test_newest_interpreter_is_in_the_first_column() -> None:
    heads = next(x for x in document(results("3.9", "3.13")).splitlines() if x.startswith("| ours"))
    assert heads == "| ours beside theirs | CPython 3.13 | CPython 3.9 |"


def test_bar_of_awaited_sends_is_stricter_where_native_code_runs_the_await() -> None:
    row = next(x for x in document(results("3.11", "3.13")).splitlines() if "confluent |" in x)
    assert row == (
        "| every delivery awaited: CPU beside confluent | 0.55 (≤ 0.6) pass"
        " | 0.55 (≤ 0.5) **FAIL** |"
    )


def test_what_was_not_measured_is_open() -> None:
    text = document(results("3.13"))
    assert f"1 of {len(bars(13))} bars hold, {len(bars(13)) - 1} are not measured" in text


def test_bars_compare_cells_that_are_measured() -> None:
    measured = {cell.key for cell in (*cost_cells(), *latency_cells())}
    assert {key for bar in bars(13) for key in (bar.ours, bar.theirs)} <= measured


def test_the_same_version_is_measured_once_with_the_environment_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(interpreters.VARIABLE, sys.executable)
    minor = ".".join(platform.python_version().split(".")[:2])
    assert interpreters.interpreters() == {minor: sys.executable}


def test_an_interpreter_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(interpreters.VARIABLE, "/nowhere/python")
    with pytest.raises(interpreters.InterpreterError, match="/nowhere/python"):
        interpreters.interpreters()
