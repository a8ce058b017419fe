"""Log lines of an application that are limited, and what was left out written at its end."""

from __future__ import annotations

import time
import weakref
from typing import Final

from aioproducer._util import log

_log = log.get("starlette")
_lines: Final[dict[int, dict[int, log.RateLimitedLog]]] = {}
"""By the identity of the owner, which may have no hash, then by level."""


def write(
    owner: object, level: int, about: str | None, cause: str, msg: str, *args: object
) -> None:
    """Write a line unless one of the same owner, subject and cause was written a short time ago."""
    lines = _lines.get(id(owner))
    if lines is None:
        lines = _lines[id(owner)] = {}
        weakref.finalize(owner, _lines.pop, id(owner), None).atexit = False
    limited = lines.get(level)
    if limited is None:
        limited = lines[level] = log.RateLimitedLog(_log, level)
    limited.warning(time.monotonic(), about, cause, msg, *args)


def flush(*owners: object) -> None:
    """Write how many lines of these were left out."""
    for owner in owners:
        for limited in _lines.pop(id(owner), {}).values():
            limited.flush(time.monotonic())
