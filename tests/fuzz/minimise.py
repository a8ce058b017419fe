"""The choice of inputs of a large corpus that are worth keeping in the tree.

Owns: a greedy cover, the shortest inputs first, of the branches that the seeds leave out. Not here:
atheris; Python's own tracing sees enough here, and is slow, which does no harm.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import aioproducer
from fuzz.guard import Target

_PACKAGE = str(Path(aioproducer.__file__).parent)

Branch = tuple[str, int, int]
"""A file, or a compiled message, and two lines run one after the other."""


def worth_keeping(target: Target, inputs: Iterable[bytes], most_bytes: int) -> list[bytes]:
    """Inputs, `most_bytes` in all, that reach branches no seed and no other of them reaches."""
    covered: set[Branch] = set()
    for seed in target.seeds():
        covered |= _branches(target, seed)
    kept = []
    for data in sorted(set(inputs), key=lambda each: (len(each), each)):
        most_bytes -= len(data)
        if most_bytes < 0:
            break
        found = _branches(target, data)
        if found <= covered:
            most_bytes += len(data)
        else:
            covered |= found
            kept.append(data)
    return kept


def _branches(target: Target, data: bytes) -> set[Branch]:
    found: set[Branch] = set()

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith((_PACKAGE, "<")):
            return None
        last = 0

        def step(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            if event == "line":
                found.add((name, last, frame.f_lineno))
                last = frame.f_lineno
            return step

        return step

    sys.settrace(enter)
    try:
        target.run(data)
    finally:
        sys.settrace(None)
    return found
