"""Waiting for memory: futures in front of the `BufferPool`'s queue.

Owns: the asyncio.Lock around "allocate, then try once more", and what a cancelled or timed-out
waiter leaves behind (nothing). Must not know: records, partitions, the network.

Why a queue of futures and not `asyncio.Condition`: a condition wakes waiters that then compete with
newcomers, who barge in; and on Python 3.11 a waiter cancelled just after its wake-up loses it for
everybody. Here memory itself is handed to the first in line, and a cancelled one passes it on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aioproducer.core.batching.buffer_pool import BufferPool, MemoryRequest
from aioproducer.core.stats import ProducerStats
from aioproducer.errors import KafkaError


class BufferMemory:
    """The pool as coroutines see it.

    `lock` makes "allocate and second try" one step: whoever holds it is the only one that may open
    a new batch, and asyncio.Lock serves its waiters in order.
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
        """`size` bytes of the pool, after everybody who asked before.

        Raises:
            RecordTooLargeError: more than the whole pool.
            ProducerClosedError: the pool was closed meanwhile.
            MemoryError: the process has less memory than `buffer_memory` allows.
        """
        buffer = self.pool.try_allocate(size)
        return await self._granted(size, 0) if buffer is None else buffer

    async def wait_for_place(self, appended: int) -> None:
        """Returns when one more than the `appended` records may be buffered.

        Raises:
            ProducerClosedError: the pool was closed meanwhile.
        """
        if appended >= self.pool.ceiling:
            await self._granted(0, appended + 1)

    async def _granted(self, size: int, ceiling: int) -> bytearray:
        future: asyncio.Future[None] = self._loop.create_future()

        def settled(_: MemoryRequest) -> None:
            if not future.done():
                future.set_result(None)

        started = self._loop.time()
        request = self.pool.enqueue(size, settled, ceiling)
        try:
            self._on_wait()
            self._stats.buffer_waits += 1
            await future
            self._stats.buffer_wait_time += self._loop.time() - started
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
