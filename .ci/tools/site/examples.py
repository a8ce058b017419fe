"""The page of the programs in `examples/`, with their source; other pages link to each program."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_ROOT = Path(__file__).parents[3]
TARGET: Final = "examples.md"
FILES: Final = tuple(
    f"examples/{name}.py"
    for name in (
        "service",
        "loader",
        "orders_app",
        "test_orders_app",
        "outbox",
        "threads",
        "gateway/app",
        "observability/app",
        "aiohttp_app",
        "litestar_app",
        "faststream_app",
        "celery_worker",
        "demo",
        "spark_demo",
    )
)
INTRODUCTION: Final = """\
# Examples

Complete programs, in the folder `examples` of the repository. Each says how to run it. The tests run them.

| program | does |
|---|---|
"""


def anchor(file: str) -> str:
    """Return the anchor of a program on the page."""
    return file.removeprefix("examples/").removesuffix(".py").replace("/", "-")


def links() -> Mapping[str, str]:
    """Return the place on the site of each program, by its name; a folder means its `app.py`."""
    found = {file: f"{TARGET}#{anchor(file)}" for file in FILES}
    folders = {
        file.removesuffix("/app.py"): place
        for file, place in found.items()
        if file.endswith("/app.py")
    }
    return found | folders


def page() -> str:
    """Return the page in Markdown."""
    parts = [INTRODUCTION]
    sources = {file: (_ROOT / file).read_text(encoding="utf-8") for file in FILES}
    for file, source in sources.items():
        first = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
        parts.append(f"| [`{file}`](#{anchor(file)}) | {first.removesuffix('.')} |\n")
    for file, source in sources.items():
        parts.append(f"\n## `{file}` {{ #{anchor(file)} }}\n\n```python\n{source}```\n")
    return "".join(parts)
