"""An iterator that blocks, read in a thread for a coroutine, one item ahead of it.

The thread belongs to no loop: the first item is read while the caller still prepares the loop that
will request it. Neither a loop nor the interpreter waits for its end: its source may block.

Invariants
- One item is read ahead of the one that was taken last, never two.
- The coroutine suspends for every item, also if it is there already: other tasks have their turn.
- After `stop()` nothing more is read; a read that blocks ends with its item, which is discarded.
- The loop is woken only if it waits: a wake-up per item costs more than the item.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import Generic, Self, TypeVar

_T = TypeVar("_T")


class PrefetchIterator(Generic[_T]):
    """Reads from now on, until its `with` block ends."""

    def __init__(self, items: Iterator[_T]) -> None:
        self._items = items
        self._loop: asyncio.AbstractEventLoop | None = None
        self._found: deque[_T | BaseException | None] = deque()
        self._may_go_on: SimpleQueue[bool] = SimpleQueue()
        self._waiter: asyncio.Future[None] | None = None
        threading.Thread(target=self._read, name="aioproducer-reader", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def next(self) -> _T | None:
        """Return the next item; None at the end, also when asked again."""
        await asyncio.sleep(0)
        while not self._found:
            # Set before the second check: a thread that adds an item after that check sees it, and
            # wakes. A wake-up may come late, for an item that was found without it.
            self._loop = asyncio.get_running_loop()
            self._waiter = self._loop.create_future()
            if not self._found:
                await self._waiter
            self._waiter = None
        found = self._found[0]
        if isinstance(found, BaseException):
            raise found
        if found is not None:
            self._found.popleft()
            self._may_go_on.put(True)
        return found

    def stop(self) -> None:
        """Stop reading."""
        self._may_go_on.put(False)

    # -- in the thread -----------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            for item in self._items:
                self._add(item)
                if not self._may_go_on.get():
                    return
            self._add(None)
        except BaseException as error:
            self._add(error)

    def _add(self, found: _T | BaseException | None) -> None:
        self._found.append(found)
        if self._waiter is not None and self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake)

    # -- in the loop -------------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
