"""No two modules import each other, directly or through others.

Imports for type checkers alone and imports in functions count. A native module is no Python file:
its `.pyx` is not read.
"""

from __future__ import annotations

import ast
from pathlib import Path

import grimp
import pytest

ROOTS = ("aioproducer", "exploration", "fuzz", "simulation", "support")


def graph_of(root: str) -> grimp.ImportGraph:
    return grimp.build_graph(root, exclude_type_checking_imports=False, cache_dir=None)


def cycles_of(graph: grimp.ImportGraph) -> set[frozenset[str]]:
    """Return the groups of modules that reach each other by imports."""
    reached = {module: graph.find_upstream_modules(module) for module in graph.modules}
    groups = {
        frozenset({module, *(other for other in others if module in reached[other])})
        for module, others in reached.items()
    }
    return {group for group in groups if len(group) > 1}


def described(graph: grimp.ImportGraph, cycle: frozenset[str]) -> str:
    """Return the imports among the modules of a cycle, one per line."""
    return "\n".join(
        f"{importer}:{detail['line_number']}: {detail['line_contents']}"
        for importer in sorted(cycle)
        for imported in sorted(graph.find_modules_directly_imported_by(importer) & cycle)
        for detail in graph.get_import_details(importer=importer, imported=imported)
    )


@pytest.mark.parametrize("root", ROOTS)
def test_no_modules_import_each_other(root: str) -> None:
    graph = graph_of(root)
    found = cycles_of(graph)
    assert not found, "import cycles:\n\n" + "\n\n".join(
        described(graph, cycle) for cycle in sorted(found, key=sorted)
    )


@pytest.mark.parametrize(
    "back",
    [
        "from loops.first import THING",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from loops import first",
        "def later():\n    import loops.first",
    ],
    ids=["at the top", "for type checkers", "in a function"],
)
def test_each_kind_of_import_closes_a_cycle(
    back: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "loops"
    package.mkdir()
    for name, text in {
        "__init__": "",
        "first": "import loops.second\nTHING = 1",
        "second": "from loops import third",
        "third": back,
        "user": "import loops.first",
    }.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))

    graph = graph_of("loops")

    (cycle,) = cycles_of(graph)
    assert cycle == {"loops.first", "loops.second", "loops.third"}
    assert "loops.third:" in described(graph, cycle)


def test_packages_of_others_are_imported_by_statements() -> None:
    """PyInstaller and its like pack no package that is imported by a call."""
    package = Path(__file__).parents[1] / "aioproducer"
    names = {
        f"{path.relative_to(package)}: {call.args[0].value}"
        for path in package.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func).rpartition(".")[2] == "import_module"
        and isinstance(call.args[0], ast.Constant)
    }
    assert not names
