"""The system's monotonic clock, also in tests that replace the functions of `time`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final


class SystemClock:
    """Keeps the function in a class: freezegun replaces it in the variables of modules."""

    monotonic: Final = staticmethod(time.monotonic)


class Deadline:
    """The end of a wait; that of None never comes.

    A wait in a thread is counted by the system's clock, one in a loop by `loop.time`.
    """

    __slots__ = ("_at", "_clock")

    def __init__(
        self, timeout: float | None, clock: Callable[[], float] = SystemClock.monotonic
    ) -> None:
        self._clock = clock
        self._at = None if timeout is None else clock() + timeout

    @property
    def is_over(self) -> bool:
        """Whether the time has come."""
        return self._at is not None and self._clock() >= self._at

    def left(self) -> float | None:
        """Return the seconds until then, at least 0; None without a limit."""
        return None if self._at is None else max(0.0, self._at - self._clock())

    def within(self, seconds: float) -> float:
        """Return the seconds until then, at most `seconds`."""
        left = self.left()
        return seconds if left is None else min(left, seconds)


def use_system_clock(loop: asyncio.AbstractEventLoop) -> None:
    """Keep the timers of a thread's own loop going in tests that stop the clock of asyncio."""
    if type(loop).time is asyncio.BaseEventLoop.time:
        loop.time = SystemClock.monotonic  # type: ignore[method-assign]
