"""Processes that a test starts: they find this tree, whatever their working directory."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(*more: Path, **own: str) -> dict[str, str]:
    """This process's variables and `own`; Python finds the tree, what tests share, and `more`."""
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    places = dict.fromkeys([*map(str, (*more, ROOT, ROOT / "tests")), *filter(None, known)])
    return os.environ | own | {"PYTHONPATH": os.pathsep.join(places)}
