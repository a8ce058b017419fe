"""No identifier comes back that was replaced by a standard term; `RETIRED` has those terms."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "aioproducer"
FOLDERS = ("bench", "examples", "tests", ".ci")

# A word of an identifier, and the term to use instead.
RETIRED = {
    "usurp": "steal",
    "postpone": "defer, extend",
    "hurry": "send at once, cut short",
    "lend": "expose, hand over",
    "lent": "exposed",
    "rung": "woken",
    "lane": "fast path",
    "lanes": "fast paths",
    "placing": "batch appender",
    "stickiness": "sticky partitioners",
    "weigh": "update weights",
    "overstays": "is over the limit",
    "neighbourhood": "rack preference",
    "crowd": "adaptive linger",
    "plenty": "early flush",
    "deserted": "has no live connections",
    "dialogue": "session",
    "doubtful": "unproven, unresolved",
    "blameless": "no record errors",
    "surely": "never, certainly",
    "outdate": "invalidate",
    "fate": "outcome",
    "kin": "shared",
    "adopt": "use, add",
    "settle": "complete, resolve, resume",
    "forget": "drop, discard, remove",
    "told": "reported, received",
    "farewell": "close grace period, last push",
    "patience": "timeout",
    "hung": "closed by peer",
    "lone": "single",
    "whoever": "caller, task",
    "whom": "caller, task",
    "nobody": "no caller",
    "somebody": "another process",
    "everybody": "all tasks",
    "anybody": "any task",
    "mend": "repair",
    "mended": "repaired",
    "patient": "long timeout",
    "impatient": "short timeout",
    "twin": "pure Python, copy",
    "rooms": "packages",
    "knows": "has, supports",
    "lies": "is",
    "forgets": "drops, expires",
}
WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
CYTHON = re.compile(r"^\s*(?:cdef class|class|def|cpdef|cdef [\w ]*?)\s*(\w+)\s*[(:]", re.MULTILINE)


def retired(name: str) -> list[str]:
    """Return the retired words of an identifier."""
    return [word for word in map(str.lower, WORDS.findall(name)) if word in RETIRED]


def defined(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each function, class, argument and assigned variable or attribute."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case ast.alias(asname=str(name)):
                yield node.lineno, name


def defined_in_cython(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each function and class of a Cython file."""
    for match in CYTHON.finditer(source):
        yield 1 + source.count("\n", 0, match.start(1)), match[1]


def test_no_retired_identifier_is_defined() -> None:
    found = []
    others = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    for path in sorted([*PACKAGE.rglob("*.*"), *others]):
        if path.suffix in {".py", ".pyi"}:
            names = [*defined(path.read_text(encoding="utf-8")), (1, path.stem)]
        elif path.suffix in {".pyx", ".pxd", ".pxi"}:
            names = [*defined_in_cython(path.read_text(encoding="utf-8")), (1, path.stem)]
        else:
            continue
        found += [
            f"{path.relative_to(ROOT)}:{line}: {name}: write {RETIRED[word]}"
            for line, name in names
            for word in retired(name)
        ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    ["def settle_one(): ...", "class FastLane: ...", "self._told = 1", "import\ta\tas\tkin"],
)
def test_retired_identifiers_are_found(source: str) -> None:
    assert [name for _, name in defined(source) if retired(name)]


def test_retired_identifiers_of_cython_are_found() -> None:
    source = "cdef class FastLane:\n    cdef put(self):\n    def settle(self):\n"
    assert [line for line, name in defined_in_cython(source) if retired(name)] == [1, 3]
