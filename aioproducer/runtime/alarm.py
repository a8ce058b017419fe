"""What a task of the producer sleeps on between two turns.

Owns: the one future and its timer. Must not know: what the task does, who wakes it.

Invariant: any number of rings before the next turn begins cost one turn, and none is lost.
"""

from __future__ import annotations

import asyncio
from math import inf


class Alarm:
    """Wakes one task at a time it chooses, or when somebody rings.

    Attributes:
        until: The loop time at which the sleeper wakes by itself; -inf while it is awake.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.until: float = -inf
        self._loop = loop
        self._future: asyncio.Future[None] | None = None
        self._rung = False

    def ring(self) -> None:
        """Something changed: the task is to have a turn soon."""
        self._rung = True
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
        self.until = until
        self._future = self._loop.create_future()
        timer = None if until == inf else self._loop.call_at(until, self.ring)
        try:
            await self._future
        finally:
            self._future = None
            if timer is not None:
                timer.cancel()
