"""CPU by interpreter: the table, and which interpreters there are."""

from __future__ import annotations

import platform
import sys

import pytest

from bench import interpreters
from bench.cells import Cell
from bench.pythons import table


def test_the_table_has_the_newest_interpreter_first() -> None:
    each, dropped = Cell("aioproducer", "each"), Cell("confluent", "dropped")
    found = {("3.9", each): [1.0, 3.0, 2.0], ("3.13", each): [4.0], ("3.13", dropped): [5.0]}
    head, *lines = table(found).splitlines()[1:]
    assert head.split() == ["CPython", "3.13", "CPython", "3.9"]
    assert [line.split() for line in lines] == [
        ["each", "aioproducer", "4.00", "2.00"],
        ["dropped", "confluent", "5.00", "-"],
    ]


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
