"""Writes the diagram of the layers in `aioproducer/ARCHITECTURE.md`.

    PYTHONPATH=.ci python -m tools.layers

Its sources are the contract in `.importlinter`, the imports, and the first sentences of docstrings.
A test fails when the page has another diagram.
"""

from __future__ import annotations

import ast
import re
from configparser import ConfigParser
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "aioproducer"
PAGE = PACKAGE / "ARCHITECTURE.md"
MARKED = re.compile(r"<!-- layers -->\n(.*?)<!-- end -->", re.DOTALL)


def layers() -> list[list[str]]:
    """Return the packages of each layer of the contract, from the top."""
    contracts = ConfigParser()
    contracts.read(ROOT / ".importlinter", encoding="utf-8")
    lines = contracts["importlinter:contract:layers"]["layers"].split("\n")
    return [line.split(" | ") for line in lines if line]


def imports() -> dict[str, set[str]]:
    """Return the packages that each package imports."""
    graph = grimp.build_graph("aioproducer", exclude_type_checking_imports=False, cache_dir=None)
    found: dict[str, set[str]] = {}
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            importer, imported = (f"{each}.".split(".")[1] for each in (module, other))
            if importer and imported and importer != imported:
                found.setdefault(importer, set()).add(imported)
    return found


def reached(package: str, direct: dict[str, set[str]]) -> set[str]:
    """Return the packages that a package imports, also through others."""
    first = direct.get(package, set())
    return first.union(*(reached(each, direct) for each in first))


def subject(path: Path) -> str:
    """Return the first sentence of a module's docstring, up to its colon."""
    module = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return re.split(r"[.:;](?:\s|$)", docstring, maxsplit=1)[0]


def diagram() -> str:
    """Return a line for each package and each of its folders."""
    direct = imports()
    lines = []
    for layer in layers():
        for package in layer:
            names = direct.get(package, set())
            through = set[str]().union(*(reached(name, direct) for name in names))
            name = package if package == layer[0] else f"| {package}"
            lines.append(f"    {name:<19}{subject(PACKAGE / package)}\n")
            if names:
                lines.append(f"    {'':<19}-> {', '.join(sorted(names - through))}\n")
            folders = sorted(path.parent for path in (PACKAGE / package).glob("*/__init__.py"))
            lines += [f"      {folder.name:<17}{subject(folder)}\n" for folder in folders]
    return "".join(lines)


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    marked = f"<!-- layers -->\n{diagram()}<!-- end -->"
    PAGE.write_text(MARKED.sub(lambda _: marked, text), encoding="utf-8")
