"""Log lines of an application that are limited, and what was left out written at its end."""

from __future__ import annotations

import time
import weakref
from typing import Final

from aioproducer._util import log

_log = log.get("starlette")
_logs: Final[dict[int, log.RateLimitedLog]] = {}
"""Logs by `id()` of the owner, which may not be hashable; all lines of an owner have one level."""


def write(
    owner: object, level: int, about: str | None, cause: str, msg: str, *args: object
) -> None:
    """Write a line unless one of the same owner, subject and cause was written a short time ago."""
    limited = _logs.get(id(owner))
    if limited is None:
        limited = _logs[id(owner)] = log.RateLimitedLog(_log, level)
        weakref.finalize(owner, _logs.pop, id(owner), None).atexit = False
    limited.warning(time.monotonic(), about, cause, msg, *args)


def flush(*owners: object) -> None:
    """Write how many lines of these were left out."""
    for owner in owners:
        if (limited := _logs.pop(id(owner), None)) is not None:
            limited.flush(time.monotonic())
