"""What a task of the producer sleeps on between two turns.

Owns: the one future and its timer. Must not know: what the task does, who wakes it.

Invariants: any number of rings before the next turn begins cost one turn, and none is lost. A timer
is not moved to a later time: it rings nobody then, and goes on to the time that is due.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from math import inf

_BURST_S = 0.0001
"""A few calls of `send()`."""


class Alarm:
    """Wakes one task at a time it chooses, or when somebody rings.

    Attributes:
        until: The loop time at which the sleeper wakes by itself; -inf while it is awake.
        is_asleep: Whether the task sleeps, and nobody has rung.
        acted_at: When the task, or who does it for it, was last done with something, or an answer
            came; seconds of a clock finer than uvloop's, which is a turn's, in whole milliseconds.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.until: float = -inf
        self.is_asleep: bool = False
        is_fine = isinstance(loop, asyncio.BaseEventLoop)
        self._clock: Callable[[], float] = loop.time if is_fine else time.monotonic
        self.acted_at: float = -inf
        self._loop = loop
        self._future: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._on_timer = self._timer_calls()
        self._timer_at = inf
        self._rung = False

    @property
    def is_burst(self) -> bool:
        """Whether what comes now comes right behind `acted_at`, and probably not alone."""
        return self._clock() - self.acted_at < _BURST_S

    def on_acted(self) -> None:
        """Something was just done, or answered: what comes right behind it is a burst."""
        self.acted_at = self._clock()

    def ring(self) -> None:
        """Something changed: the task is to have a turn soon."""
        self._rung, self.is_asleep = True, False
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def begin_turn(self) -> None:
        """Whoever rings from now on asks for another turn."""
        self._rung = False
        self.until = -inf

    async def sleep(self, until: float) -> None:
        """Returns at this loop time, or when somebody has rung since the turn began."""
        if self._rung:
            return
        self._future = self._loop.create_future()
        self.is_asleep = True
        self._wake_at(until)
        try:
            await self._future
        finally:
            self._future, self.is_asleep = None, False

    def advance(self, until: float) -> None:
        """Who sleeps longer than that wakes at this loop time."""
        if until < self.until:
            self._wake_at(until)

    def turn_at(self, at: float, now: float) -> None:
        """The next turn is at that loop time, unless an earlier one is due."""
        if at <= now:
            self.ring()
        elif at < self.until:
            self._wake_at(at)

    def close(self) -> None:
        """Nobody sleeps any more, nor will."""
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
            at = self._loop.call_at(until, next, self._on_timer, None)
            self._timer, self._timer_at = at, until

    def _timer_calls(self) -> Generator[None, None, None]:
        """What the timer calls, as a generator: no line of it comes before the `try`."""
        try:
            yield
            self._timer, self._timer_at = None, inf
            if self._future is None:
                return  # in its turn, it will say how long it sleeps
            if self._loop.time() >= self.until:
                self.ring()
            else:
                self._wake_at(self.until)
        except GeneratorExit:
            raise  # the timer was cancelled
        except BaseException:
            self._timer, self._timer_at = None, inf
            self.ring()  # a signal handler's exception: one turn too many, not none
            raise
