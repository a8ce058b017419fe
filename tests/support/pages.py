"""Runs what stands in the pages: their Python blocks, with `await` in them or not."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "aioproducer" / "docs"


def page(name: str) -> str:
    """The text of a page in `aioproducer/docs`."""
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def blocks(text: str, language: str = "python") -> list[str]:
    """The fenced blocks of a text in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


async def run_block(block: str, scope: dict[str, Any], servers: str) -> None:
    """Run a block as if it stood in a coroutine; what it defines, the next one knows."""
    block = block.replace("localhost:9092", servers)
    body = textwrap.indent(block, "    ") + "\n    globals().update(locals())\n"
    exec(f"async def snippet():\n{body}", scope)
    await scope["snippet"]()
