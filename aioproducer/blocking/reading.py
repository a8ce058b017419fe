"""Items that the calling thread reads and the loop sends, some at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from aioproducer._util.tasks import HOOK_ERRORS

if TYPE_CHECKING:
    from aioproducer.blocking.loop_thread import LoopThread
    from aioproducer.runtime.bulk.result import Item

_ITEMS_AT_ONCE = 2048
_BLOCKS = 2


class BlockReader:
    """Reads items in one thread; an asynchronous iterator of blocks of them in the loop."""

    def __init__(self, thread: LoopThread, items: Iterable[Item]) -> None:
        self._thread = thread
        self._items = items
        self._room: SimpleQueue[None] = SimpleQueue()  # no semaphore, see `OneTimeEvent`
        for _ in range(_BLOCKS):
            self._room.put(None)
        self._blocks: asyncio.Queue[list[Item] | BaseException | None] = asyncio.Queue()
        self._ended = False

    def read(self) -> None:
        """Read until the items or the sending end; in the caller's thread."""
        end: BaseException | None = None
        source = iter(self._items)
        while end is None and not self._ended:
            block: list[Item] = []
            try:
                block.extend(islice(source, _ITEMS_AT_ONCE))
            except HOOK_ERRORS as error:
                end = error
            if not block:
                break
            while not self._thread.wait(self._has_room, None):
                self._thread.check_alive()
            self._thread.post(partial(self._blocks.put_nowait, block))
        self._thread.post(lambda: self._blocks.put_nowait(end))

    def end(self) -> None:
        """Stop reading, as the sending has ended."""
        self._ended = True
        self._room.put(None)

    async def blocks(self) -> AsyncIterator[list[Item]]:
        """Yield the blocks; raise what the items raise."""
        while isinstance(block := await self._blocks.get(), list):
            yield block
            self._room.put(None)
        if block is not None:
            raise block

    def _has_room(self, seconds: float) -> bool:
        with suppress(Empty):
            self._room.get(timeout=seconds)
            return True
        return False
