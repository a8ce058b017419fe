"""Waits for memory: `BufferMemory` puts futures in front of the `BufferPool`'s queue.

A waiter that is cancelled or times out leaves no trace.

`asyncio.Condition` is not used, for two reasons. It wakes waiters that then compete with new calls.
And on Python 3.11 a wake-up is lost if its waiter is cancelled just after it. Here the memory
itself is given to the first waiter in the queue; if that is cancelled, the next one gets it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aioproducer.core.batching.buffer_pool import BufferPool, MemoryRequest
from aioproducer.errors import KafkaError
from aioproducer.metrics.totals import ProducerStats


class BufferMemory:
    """The buffer pool for coroutines.

    `lock` makes "allocate, then try again to append" one step: only the call that has it may open a
    new batch. asyncio.Lock serves its waiters in order.
    """

    def __init__(
        self,
        pool: BufferPool,
        loop: asyncio.AbstractEventLoop,
        stats: ProducerStats,
        on_wait: Callable[[], None],
    ) -> None:
        self.pool = pool
        self.lock: asyncio.Lock = asyncio.Lock()
        self._loop = loop
        self._stats = stats
        self._on_wait = on_wait

    async def allocate(self, size: int) -> bytearray:
        """Return `size` bytes of the pool, after all earlier requests."""
        buffer = self.pool.try_allocate(size)
        return await self._granted(size, 0) if buffer is None else buffer

    async def wait_for_place(self, appended: int) -> None:
        """Wait until one more than the `appended` records may be buffered."""
        if appended >= self.pool.ceiling:
            await self._granted(0, appended + 1)

    async def _granted(self, size: int, ceiling: int) -> bytearray:
        future: asyncio.Future[None] = self._loop.create_future()

        def resume(_: MemoryRequest) -> None:
            if not future.done():
                future.set_result(None)

        started = self._loop.time()
        request = self.pool.enqueue(size, resume, ceiling)
        try:
            self._on_wait()
            self._stats.buffer_waits += 1
            await future
            if isinstance(request.error, KafkaError):
                raise request.error.with_context()
            if request.error is not None:
                raise request.error
            granted = request.buffer
            if granted is None:  # pragma: no cover - settled means one of the two
                raise RuntimeError("a memory request was settled with neither buffer nor error")
            return granted
        except BaseException:
            self.pool.cancel(request)
            raise
        finally:
            self._stats.buffer_wait_time += self._loop.time() - started
