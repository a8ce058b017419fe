"""The system's monotonic clock, also in tests that replace the functions of `time`."""

from __future__ import annotations

import asyncio
import time
from typing import Final


class SystemClock:
    """Keeps the function in a class: freezegun replaces it in the variables of modules."""

    monotonic: Final = staticmethod(time.monotonic)


class Deadline:
    """The end of a wait in a thread; that of None never comes."""

    __slots__ = ("_at",)

    def __init__(self, timeout: float | None) -> None:
        self._at = None if timeout is None else SystemClock.monotonic() + timeout

    @property
    def is_over(self) -> bool:
        """Whether the time has come."""
        return self._at is not None and SystemClock.monotonic() >= self._at

    def left(self) -> float | None:
        """Return the seconds until then, at least 0; None without a limit."""
        return None if self._at is None else max(0.0, self._at - SystemClock.monotonic())

    def within(self, seconds: float) -> float:
        """Return the seconds until then, at most `seconds`."""
        left = self.left()
        return seconds if left is None else min(left, seconds)


def use_system_clock(loop: asyncio.AbstractEventLoop) -> None:
    """Keep the timers of a thread's own loop going in tests that stop the clock of asyncio."""
    if type(loop).time is asyncio.BaseEventLoop.time:
        loop.time = SystemClock.monotonic  # type: ignore[method-assign]
