"""Tasks that hand their records over, as the threads of a blocking producer do.

Owns: the part of `aioproducer.blocking` that runs in the loop. Not here: threads, whose waits a
virtual clock does not see; where one would wait for space, the call is refused.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from aioproducer.blocking.handle import DeliveryHandle, Refused
from aioproducer.blocking.loop_side import LoopSideProducer
from aioproducer.blocking.loop_thread import LoopThread
from aioproducer.errors import BufferExhaustedError, BufferFullError
from aioproducer.records import record_size_bound
from aioproducer.records.batch import HEADER_SIZE
from aioproducer.runtime.bulk.result import Item, SendManyResult
from aioproducer.runtime.delivery import Delivery
from aioproducer.testing.world.producer import SimProducer
from aioproducer.types import Record
from simulation.ledger import Entry, Ledger
from simulation.workload import Style, Workload, as_tuples


class _Loop(LoopThread):
    """The thread that everything runs in."""

    is_here = True

    def post(self, callback: Callable[[], object]) -> bool:
        """Run it in the loop, soon."""
        asyncio.get_running_loop().call_soon(callback)
        return True


class _Handle(DeliveryHandle):
    """A handle whose hand-over and outcome can be awaited, otherwise than by blocking a thread."""

    def __init__(self, thread: LoopThread) -> None:
        super().__init__(thread)
        self.outcome: asyncio.Future[Delivery | Refused] = asyncio.Future()

    def __await__(self) -> Any:
        delivery: Any = self.outcome.result()
        return (yield from delivery.__await__())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.outcome.result(), name)

    def hand_over(self, delivery: Delivery | Refused) -> None:
        """Resume the task."""
        super().hand_over(delivery)
        self.outcome.set_result(delivery)


class HandingProducer:
    """The calls of a producer that tasks make, as far as records are handed over before them."""

    def __init__(self, producer: SimProducer, ledger: Ledger) -> None:
        self._producer = producer
        self._ledger = ledger
        ledger.hands_over = True
        self._thread = _Loop("simulation")
        self._loop_side = LoopSideProducer(producer, self._thread)
        self._handles: list[_Handle] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Any,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Any:
        """Hand one record over, as `blocking.Producer.send`, and wait until it is appended.

        Memory is waited for as long as for the delivery. Return the handle.
        """
        submissions, handle = self._loop_side.submissions, _Handle(self._thread)
        loop = asyncio.get_running_loop()
        began = loop.time()
        entry = (handle, topic, value, key, headers, partition, timestamp_ms)
        if (partition or 0) < submissions.topics.get(topic, 0):
            self._handles = [each for each in self._handles if not each.done()]
            submissions.put(entry, record_size_bound(key, value, headers) + HEADER_SIZE)
            self._handles.append(handle)
        else:
            await self._loop_side.in_order(lambda: self._loop_side.append(entry))
        outcome = await handle.outcome
        if isinstance(outcome, Refused):
            self._ledger.refused_later += 1
            error, waited_s = outcome.exception(), loop.time() - began
            is_full = isinstance(error, BufferExhaustedError | BufferFullError)
            if is_full and waited_s < self._producer.config.delivery_timeout_ms / 1000:
                self._ledger.false_reports.append(f"refused after {waited_s:.3f} s: {error}")
            raise error
        return handle

    async def send_many(self, *arguments: Any) -> SendManyResult:
        """Send records after those that were handed over before."""
        return await self._loop_side.in_order(lambda: self._producer.send_many(*arguments))

    async def flush(self, timeout: float | None = None, *, raise_failures: bool = False) -> int:
        """Flush; without a rest, everything that was handed over before has its outcome."""
        before = list(self._handles)
        left = await self._loop_side.flush(timeout, raise_failures=raise_failures)
        pending = sum(not handle.done() for handle in before)
        if pending and not left:
            text = f"flush() of a blocking producer returned 0 with {pending} undelivered"
            self._ledger.false_reports.append(text)
        return left

    async def end(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Take no more records once the tasks are done."""
        await asyncio.wait(tasks)
        self._loop_side.submissions.refuse_new()
        await self._loop_side.submissions.ended(None)


class HandingWorkload(Workload):
    """The styles that are possible for threads: a record that is handed over is sent."""

    def _styles(self) -> list[Style]:
        cancelling = self._hesitating, self._regretting
        return [style for style in super()._styles() if style not in cancelling]

    def send_nowait(self, entry: Entry) -> bool:
        return False

    def _source_of(self, items: list[Record]) -> list[Item]:
        return as_tuples(items)

    def _note_overtaken(self, entry: Entry) -> None:
        """Records of several threads have no order, only those of one."""

    async def send(self, entry: Entry) -> bool:
        """Send one record; it waits for memory as long as for its delivery."""
        try:
            return await super().send(entry)
        finally:
            entry.asked_at = entry.settled_at or entry.asked_at

    def _count_notices(self, entry: Entry) -> None:
        """A second callback of a handle leaves the first one alone."""
        super()._count_notices(entry)
        if entry.delivery is not None:
            entry.delivery.add_done_callback(lambda _: None)

    async def _one_by_one(self, draft: list[Entry], rng: random.Random) -> None:
        for entry in draft:
            if await self.send(entry):
                await self.watch(entry)
