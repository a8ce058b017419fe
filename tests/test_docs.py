"""Names in documents and docstrings exist: targets, commands, files, functions, arguments."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.pages import DOCS

from aioproducer.cli.app import run

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "aioproducer" / "ARCHITECTURE.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "aioproducer"


def test_make_targets_named_in_the_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    guides = [path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md"))]
    named = set(re.findall(r"`make ([a-z][a-z-]+)\b", "\n".join((README, contributing, *guides))))
    assert {"demo", "test", "bench"} <= named
    for target in named:
        assert re.search(rf"^{target}\b.*:", makefile, flags=re.MULTILINE), target


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_change_of_each_native_source_makes_a_new_environment() -> None:
    command = ["make", "--print-data-base", "--question", "help"]
    rules = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    (sources,) = re.findall(r"^\.venv/\.stamp: (.*)$", rules, flags=re.MULTILINE)
    native = [path for path in PACKAGE.rglob("*.p[yx][xdi]") if path.suffix != ".pyi"]
    assert len(native) > 8
    assert {path.relative_to(ROOT).as_posix() for path in native} <= set(sources.split())


@pytest.mark.parametrize(
    ("page", "records"),
    [
        (README, ["PYTHONS", "RELIABILITY"]),
        ((DOCS / "performance.md").read_text(encoding="utf-8"), ["RESULTS", "PYTHONS", "NOTES"]),
        ((DOCS / "spark_comparison.md").read_text(encoding="utf-8"), ["SPARK"]),
    ],
    ids=["readme", "performance", "spark"],
)
def test_figures_of_a_page_are_those_recorded_last(page: str, records: list[str]) -> None:
    recorded = "".join(
        (ROOT / "bench" / f"{name}.md").read_text(encoding="utf-8") for name in records
    )
    table_rows = [
        line for line in page.splitlines() if line.startswith("|") and "make " not in line
    ]
    figures = set(re.findall(r"\b\d+\.\d\d\b|\b\d,\d{3},\d{3}\b", "\n".join(table_rows)))
    assert len(figures) > 5
    assert [each for each in sorted(figures) if not re.search(rf"\b{each}\b", recorded)] == []


def test_test_files_named_in_the_makefile_and_the_guides_exist() -> None:
    pages = [
        ROOT / "Makefile",
        ROOT / "CONTRIBUTING.md",
        *DOCS.glob("*.md"),
        *PACKAGE.rglob("*.md"),
    ]
    named = {
        (page.name, path)
        for page in pages
        for path in re.findall(r"(?<![\w/])tests/[\w/]+\.py\b", page.read_text(encoding="utf-8"))
    }
    assert ("spark_sizing.md", "tests/unit/spark/exactly_once/test_two_phase_scale.py") in named
    assert any(page == "Makefile" for page, _ in named)
    assert [each for each in sorted(named) if not (ROOT / each[1]).exists()] == []


def test_commands_named_in_the_readme_exist(capsys: pytest.CaptureFixture[str]) -> None:
    commands = set(re.findall(r"aioproducer (cluster|produce|load|topics|perf)\b", README))
    assert {"cluster", "load"} <= commands
    for command in commands:
        assert run([command, "--help"]) == 0
        help_text = capsys.readouterr().out
        for line in README.splitlines():
            if f"aioproducer {command} " in line and line.startswith("$"):
                for option in re.findall(r"(--[a-z-]+)", line):
                    assert option in help_text, f"{command} {option}"


def test_architecture_names_files_and_functions_that_exist() -> None:
    table, _, rest = ARCHITECTURE.partition("## Layers")
    paths = re.findall(r"`([a-z_/]+(?:/|\.[a-z]+))`", table)
    assert len(paths) > 80
    for path in paths:
        assert ((ROOT if path.startswith("tests/") else PACKAGE) / path).exists(), path
    for path in re.findall(r"`([\w/]+\.(?:pyx?|txt|md))`", rest):
        assert (ROOT / path).exists() or any(PACKAGE.rglob(path)), path
    files = [path for path in PACKAGE.rglob("*.py*") if path.suffix != ".pyc"]
    sources = "\n".join(path.read_text(encoding="utf-8") for path in files)
    for owner, name in re.findall(r"`([A-Z]\w+)\.(\w+)`", ARCHITECTURE):
        assert f"class {owner}" in sources, owner
        assert re.search(rf"\b(def {name}\(|{name}\b.*[:=]|\"{name}\")", sources), name
    for name in re.findall(r"`([A-Z]\w+)`", ARCHITECTURE):
        assert re.search(rf"\b{name}\b", sources), name


def documented(text: str) -> list[str]:
    """Return the names in the section `Args` of a docstring."""
    section = re.search(r"^Args:\n((?: {4}.*\n?|\n)+)", text, re.MULTILINE)
    entries = re.findall(r"^ {4}(\S[^:\n]*):", section[1], re.MULTILINE) if section else []
    return re.findall(r"\w+", " ".join(entries))


def parameters(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names of a function's parameters, or of those that make an object."""
    if isinstance(node, ast.ClassDef):
        made = [each for each in node.body if getattr(each, "name", "") == "__init__"]
        if not made:
            annotated = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
            return {ast.unparse(field) for field in annotated}
        assert isinstance(made[-1], ast.FunctionDef)
        node = made[-1]
    return {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}


def unknown_arguments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line of a class or function, and a documented argument that it does not have."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for name in {*documented(ast.get_docstring(node) or "")} - parameters(node):
                yield node.lineno, name


def test_arguments_in_docstrings_exist() -> None:
    found = [
        f"{path}:{line}: {name}"
        for path in PACKAGE.rglob("*.py")
        for line, name in unknown_arguments(path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_arguments_that_do_not_exist_are_found() -> None:
    source = (
        'def f(a, *b):\n    """Do.\n\n    Args:\n        a, c: one.\n        *b: two.\n    """\n'
    )
    assert list(unknown_arguments(source)) == [(1, "c")]
