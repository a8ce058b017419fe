"""The table of KIPs: complete, in order, and every test it names exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent.parent
TABLE = TESTS.parent / "aioproducer" / "KIPS.md"


class Row(NamedTuple):
    """One line of the table."""

    kips: list[int]
    meaning: str
    state: str
    tests: list[str]


def rows() -> list[Row]:
    lines = re.findall(
        r"^\| ([\d, ]+) \|(.+)\|(.+)\|(.*)\|$", TABLE.read_text("utf-8"), re.MULTILINE
    )
    return [
        Row(
            [int(number) for number in numbers.split(",")],
            meaning.strip(),
            state.strip(),
            re.findall(r"`(\w+)`", shown),
        )
        for numbers, meaning, state, shown in lines
    ]


def test_every_kip_has_one_row_and_rows_are_in_order() -> None:
    table = rows()
    assert len(table) > 50
    numbers = [number for row in table for number in row.kips]
    assert len(set(numbers)) == len(numbers)
    assert [row.kips[0] for row in table] == sorted(row.kips[0] for row in table)


def test_every_row_says_its_state_and_what_is_done_is_shown() -> None:
    for row in rows():
        assert re.match(r"(done|not applicable:?|not yet)\b", row.state), row
        assert bool(row.tests) or not row.state.startswith("done"), row


def test_every_test_the_table_names_exists() -> None:
    sources = "\n".join(path.read_text("utf-8") for path in TESTS.rglob("test_*.py"))
    exist = set(re.findall(r"^(?:async )?def (test_\w+)", sources, re.MULTILINE))
    assert {test for row in rows() for test in row.tests} <= exist
