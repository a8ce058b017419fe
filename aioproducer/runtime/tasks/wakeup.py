"""Wake-up of a task between its turns: `WakeupTimer`, a future with a timer.

Invariants
- Any number of `wake()` calls before the next turn cause one turn, and none is lost.
- A timer is not moved to a later time. If it fires too early, it is set again without waking the
  task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from math import inf

_NAGLE_WINDOW_S = 0.0001
"""Seconds that a few calls of `send()` take."""


class WakeupTimer:
    """Wake one task at a time it chooses, or when `wake` is called.

    Attributes:
        until: The loop time at which the task wakes; -inf while it is awake.
        is_asleep: Whether the task sleeps, and `wake` has not been called.
        time: The loop's clock; with uvloop, whose time has a resolution of one millisecond, a
            monotonic clock.
        acted_at: `time` at which the last action was completed or the last response arrived.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.until: float = -inf
        self.is_asleep: bool = False
        is_fine = isinstance(loop, asyncio.BaseEventLoop)
        self.time: Callable[[], float] = loop.time if is_fine else time.monotonic
        self.acted_at: float = -inf
        self._loop = loop
        self._future: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._on_timer = self._timer_calls()
        self._timer_at = inf
        self._woken = False

    @property
    def was_recently_active(self) -> bool:
        """Whether the last action was less than 0.1 ms ago: more records are likely to follow."""
        return self.time() - self.acted_at < _NAGLE_WINDOW_S

    def on_acted(self) -> None:
        """Set `acted_at` to the current time."""
        self.acted_at = self.time()

    def wake(self) -> None:
        """Wake the task."""
        self._woken, self.is_asleep = True, False
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def begin_turn(self) -> None:
        """Begin a turn: `wake()` from now on causes another turn."""
        self._woken = False
        self.until = -inf

    async def sleep(self, until: float) -> None:
        """Return at this loop time, or when `wake` has been called since the turn began."""
        if self._woken:
            return
        self._future = self._loop.create_future()
        self.is_asleep = True
        self._wake_at(until)
        try:
            await self._future
        finally:
            self._future, self.is_asleep = None, False

    def advance(self, until: float) -> None:
        """Wake a task that would sleep longer at this loop time."""
        if until < self.until:
            self._wake_at(until)

    def turn_at(self, at: float, now: float) -> None:
        """Have the next turn at this loop time, unless an earlier one is due."""
        if at <= now:
            self.wake()
        elif at < self.until:
            self._wake_at(at)

    def close(self) -> None:
        """Cancel the timer; the task sleeps no more."""
        self.until = -inf
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._on_timer.close()
            self._timer, self._timer_at = None, inf

    def _wake_at(self, until: float) -> None:
        self.until = until
        if until < self._timer_at:
            self._cancel_timer()
            self._on_timer = self._timer_calls()
            next(self._on_timer)
            self._timer = self._loop.call_at(until, next, self._on_timer, None)
            self._timer_at = until

    def _timer_calls(self) -> Generator[None, None, None]:
        """Return a generator that the timer resumes: so no statement is outside of the `try`."""
        try:
            yield
            self._timer, self._timer_at = None, inf
            if self._future is None:
                return  # during a turn: `sleep` sets the timer afterwards
            if self._loop.time() >= self.until:
                self.wake()
            else:
                self._wake_at(self.until)
        except GeneratorExit:
            return  # the timer was cancelled
        except BaseException:
            self._timer, self._timer_at = None, inf
            self.wake()  # a signal handler's exception: one turn too many is harmless
            raise
