"""Cancelling a coroutine at an await point of our choice.

Owns: counting suspensions and choosing the instant. Not here: what is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from enum import Enum
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Instant(Enum):
    """The way in which the cancellation comes at the chosen suspension."""

    WHILE_WAITING = "while waiting"
    AS_IT_ENDS = "in the very turn in which the wait has ended"
    AGAIN_AND_AGAIN = "while waiting, and at every later suspension too"


class CancelledAt(Generic[T]):
    """Awaits `work` and cancels the awaiting task at the n-th suspension, counted from 1.

    Attributes:
        struck: Whether it came to the n-th one.
    """

    def __init__(self, work: Awaitable[T], n: int, instant: Instant) -> None:
        self.struck: bool = False
        self._work = work
        self._n = n
        self._instant = instant

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        error: BaseException | None = None
        for number in range(1, 1_000_000):
            try:
                waits_for = steps.send(None) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            again = self._instant is Instant.AGAIN_AND_AGAIN and number > self._n
            if number == self._n or again:
                self._strike(waits_for)
            error = None
            try:
                yield waits_for
            except BaseException as thrown:
                error = thrown
        raise AssertionError("the work suspends without end")

    def _strike(self, waits_for: object) -> None:
        self.struck = True
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("there is no task to cancel")
        if self._instant is Instant.AS_IT_ENDS and isinstance(waits_for, asyncio.Future):
            # Before the task's own callback, which is added when the future reaches it.
            waits_for.add_done_callback(lambda _: task.cancel())
        else:
            asyncio.get_running_loop().call_soon(task.cancel)


async def drive(work: Awaitable[T]) -> T:
    """An awaitable as a coroutine, for `create_task`."""
    return await work
