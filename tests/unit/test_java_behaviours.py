"""The tables of Java's behaviours: complete rows, and every test they name exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent.parent
PAGE = TESTS / "JAVA_BEHAVIOURS.md"


class Row(NamedTuple):
    """One line of the tables."""

    behaviour: str
    java: str
    state: str
    tests: list[str]


def rows() -> list[Row]:
    found = []
    for line in PAGE.read_text("utf-8").splitlines():
        if not line.startswith("| ") or line.startswith("| behaviour |"):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert len(cells) == 4, line
        found.append(Row(cells[0], cells[1], cells[2], re.findall(r"`(test_\w+)`", cells[3])))
    return found


def test_every_behaviour_has_one_row_with_its_source_and_state() -> None:
    table = rows()
    assert len(table) > 180
    assert len({row.behaviour for row in table}) == len(table)
    for row in table:
        assert row.java, row
        assert re.fullmatch(r"same|differs: .+|pending: \w+", row.state), row


def test_every_behaviour_is_shown_by_tests_unless_it_is_pending() -> None:
    for row in rows():
        assert bool(row.tests) is not row.state.startswith("pending"), row


def test_every_test_the_tables_name_exists() -> None:
    sources = "\n".join(path.read_text("utf-8") for path in TESTS.rglob("test_*.py"))
    exist = set(re.findall(r"^(?:async )?def (test_\w+)", sources, re.MULTILINE))
    assert {test for row in rows() for test in row.tests} - exist == set()
