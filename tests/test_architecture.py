"""The package keeps the form that ARCHITECTURE.md describes."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

import aioproducer
from aioproducer._util.implementation import ENVIRONMENT_VARIABLE

ROOT = Path(__file__).parents[1]
PACKAGE = Path(aioproducer.__file__).parent
MOST_MODULES_OF_A_FOLDER = 22
MOST_MODULES = {PACKAGE: 11}
"""Smaller limits of single folders."""
MOST_LINES_OF_A_FUNCTION = 60
"""Without signature and docstring."""


@pytest.mark.skipif(not (ROOT / ".ci").exists(), reason="not a checkout")
def test_diagram_of_the_layers_is_that_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    from tools.layers import MARKED, PAGE, diagram

    assert MARKED.findall(PAGE.read_text(encoding="utf-8")) == [diagram()]


def test_no_folder_has_too_many_modules() -> None:
    modules = Counter(path.parent for path in PACKAGE.rglob("*.py"))
    assert len(modules) > 30
    for folder, count in modules.items():
        assert count <= MOST_MODULES.get(folder, MOST_MODULES_OF_A_FOLDER), folder


def test_no_function_is_too_long() -> None:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[min(ast.get_docstring(node) is not None, len(node.body) - 1)]
                assert node.body[-1].end_lineno is not None
                lines = node.body[-1].end_lineno - first.lineno + 1
                assert lines <= MOST_LINES_OF_A_FUNCTION, f"{path}:{node.lineno}"


def native_names_in(node: ast.AST, natives: set[str]) -> set[str]:
    """Return the native modules that a part of a module imports, or names in a string."""
    found = set()
    for each in ast.walk(node):
        match each:
            case ast.ImportFrom(module=str(module), names=names):
                found |= {module, *(f"{module}.{name.name}" for name in names)}
            case ast.Constant(value=str(text)):
                found.add(text)
    return found & natives


def test_one_module_chooses_between_native_and_pure_python() -> None:
    """No other reads the variable, or tries to import a native module."""
    chooser = PACKAGE / "_util" / "implementation.py"
    modules = (path.relative_to(PACKAGE.parent).with_suffix("") for path in PACKAGE.rglob("*.pyx"))
    natives = {".".join(module.parts) for module in modules}
    assert len(natives) >= 5
    for path in PACKAGE.rglob("*.py"):
        if path == chooser:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Try):
                assert not native_names_in(node, natives), path
            elif isinstance(node, ast.Constant):
                assert node.value != ENVIRONMENT_VARIABLE, path
