"""A bar holds, is missed, or is open; the report says which."""

from __future__ import annotations

from typing import Any

import pytest

from bench.bars import BARS, COPY, ENCODE, Bar, verdicts
from bench.cells import ESSENTIAL
from bench.report import document


def cells(ours: float | None, theirs: float | None) -> dict[str, Any]:
    found = {"ours": ours, "theirs": theirs}
    return {key: {"cpu_us": {"median": x}} for key, x in found.items() if x is not None}


@pytest.mark.parametrize(
    ("ours", "theirs", "at_least", "held"),
    [
        (1.0, 2.0, False, True),
        (1.1, 2.0, False, False),
        (1.0, 2.0, True, True),
        (0.9, 2.0, True, False),
        (None, 2.0, False, None),
        (1.0, None, True, None),
    ],
)
def test_a_bar_compares_the_quotient_with_its_limit(
    ours: float | None, theirs: float | None, at_least: bool, held: bool | None
) -> None:
    bar = Bar("half", "ours", "theirs", "cpu_us", 0.5, at_least)
    assert verdicts(cells(ours, theirs), [bar])[0].held is held


def test_every_bar_is_measured_by_the_essential_cells() -> None:
    measured = {cell.key for each in ESSENTIAL.values() for cell in each} | {ENCODE, COPY}
    assert {key for bar in BARS for key in (bar.ours, bar.theirs)} <= measured


def test_the_document_counts_bars_and_names_what_was_not_measured() -> None:
    cell = ESSENTIAL["cost"][0]
    facts = {"machine": "m", "when": "w", "minutes": 1.0, "versions": {}, "servers": {}}
    entry = {
        "cell": {name: getattr(cell, name) for name in cell.__slots__},
        "runs": [],
        "problem": "it is not installed",
    }
    text = document(facts | {"method": {"rounds": 1}, "cells": {cell.key: entry}, "encoding": {}})
    assert f"0 of {len(BARS)} bars hold, {len(BARS)} are\nnot measured" in text
    assert "it is not installed" in text
