"""The broker's logic runs on any clock and loop: it imports none."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioproducer.testing import broker

FORBIDDEN = {"asyncio", "random", "selectors", "socket", "ssl", "threading", "time"}
FILES = sorted(Path(broker.__file__).parent.rglob("*.py"))


def imported(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        else:
            yield from imported(
                [
                    child
                    for child in ast.walk(node)
                    if isinstance(child, ast.Import | ast.ImportFrom)
                ]
            )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_broker_logic_has_no_clock_loop_or_random_source(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert FORBIDDEN.isdisjoint(imported(tree.body))


def test_the_check_finds_what_it_is_for() -> None:
    assert set(imported(ast.parse("def f():\n import time\nimport random").body)) == {
        "random",
        "time",
    }
