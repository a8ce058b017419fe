"""Docstrings name arguments and attributes that exist: a rename has to reach them as well."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "aioproducer"
Function = ast.FunctionDef | ast.AsyncFunctionDef


def documented(docstring: str | None, section: str) -> list[str]:
    """Return the names that a section of a docstring explains."""
    found = re.search(rf"^{section}:\n((?:    .*\n?|\n)*)", docstring or "", re.MULTILINE)
    return re.findall(r"^    \*{0,2}(\w+):", found[1], re.MULTILINE) if found else []


def arguments(function: Function) -> set[str]:
    """Return the names of a function's arguments."""
    return {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}


def constructor(node: ast.ClassDef) -> Function | None:
    """Return the method whose arguments the class's docstring explains."""
    functions = [each for each in node.body if isinstance(each, Function)]
    return next((each for each in functions if each.name in {"__init__", "__new__"}), None)


def attributes(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> set[str]:
    """Return what a class or one of its bases defines or assigns."""
    found: set[str] = set()
    for each in ast.walk(node):
        match each:
            case ast.Attribute(ctx=ast.Store(), attr=name) | ast.Name(ctx=ast.Store(), id=name):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
    for base in map(ast.unparse, node.bases):
        parent = classes.get(base.rpartition(".")[2].partition("[")[0])
        if parent is not None and parent is not node:
            found |= attributes(parent, classes)
    return found


def unknown(tree: ast.Module, classes: Mapping[str, ast.ClassDef]) -> Iterator[tuple[int, str]]:
    """Yield line and name of each argument or attribute that only a docstring has."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef | Function):
            continue
        docstring = ast.get_docstring(node)
        function = constructor(node) if isinstance(node, ast.ClassDef) else node
        if function is not None:
            missing = {*documented(docstring, "Args")} - arguments(function)
            yield from ((node.lineno, name) for name in missing)
        if isinstance(node, ast.ClassDef):
            missing = {*documented(docstring, "Attributes")} - attributes(node, classes)
            yield from ((node.lineno, name) for name in missing)


def test_docstrings_name_what_exists() -> None:
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    classes = {
        node.name: node
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {name}"
        for path, tree in trees.items()
        for line, name in unknown(tree, classes)
    ]
    assert not found, "\n".join(["in a docstring, and nowhere else:", *found])


def test_a_name_that_only_a_docstring_has_is_found() -> None:
    source = '''
class C:
    """It sends.

    Args:
        size: in bytes.
        old: in bytes.

    Attributes:
        other: fast.
        path: fast.
    """

    def __init__(self, size: int) -> None:
        self.path = size
'''
    tree = ast.parse(source)
    assert sorted(name for _, name in unknown(tree, {})) == ["old", "other"]
