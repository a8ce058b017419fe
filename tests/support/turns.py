"""Doing something at a turn of the event loop of our choice, or at each.

Owns: counting turns. Not here: what is done.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aioproducer.testing.world.loop import VirtualLoop


class TurnLoop(VirtualLoop):
    """A virtual loop that calls a function at one of its turns.

    Attributes:
        struck: Whether it came to that turn.
    """

    def __init__(self) -> None:
        super().__init__(random.Random(1))
        self.struck: bool = False
        self._left = 0
        self._action: Callable[[], object] = lambda: None

    def strike_at(self, turn: int, action: Callable[[], object]) -> None:
        """Calls `action` as the first thing of the given turn from now on, counted from 1."""
        self._left, self._action = turn, action

    def give_up(self) -> None:
        """Does nothing any more, if the turn has not come."""
        self._left = 0

    def _run_once(self) -> None:
        if self._left:
            self._left -= 1
            if not self._left:
                self.struck = True
                self.call_soon(self._action)
                ready = self._ready  # type: ignore[attr-defined]
                ready.appendleft(ready.pop())
        super()._run_once()  # type: ignore[misc]


@contextmanager
def each_turn(read: Callable[[], int]) -> Iterator[list[int]]:
    """Give a list that gets a value in every turn of the loop."""
    noted: list[int] = []

    async def note() -> None:
        while True:
            noted.append(read())
            await asyncio.sleep(0)

    noting = asyncio.create_task(note())
    try:
        yield noted
    finally:
        noting.cancel()
