"""The part of the blocking producer that runs in the loop.

Invariants
- Everything here runs in the loop's thread; what other threads read is set before they may read it.
- A call takes effect after the records handed over before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from aioproducer._util.clock import Deadline
from aioproducer.blocking.submission_queue import SubmissionQueue

if TYPE_CHECKING:
    from aioproducer.blocking.handle import DeliveryHandle
    from aioproducer.blocking.loop_thread import LoopThread
    from aioproducer.blocking.submission_queue import Entry
    from aioproducer.client.producer import Producer
    from aioproducer.runtime.engine import ProducerEngine
    from aioproducer.runtime.send.serialization_queue import Place
    from aioproducer.serializers.calling import PendingRecord, Prepared
    from aioproducer.types import HeadersInput

T = TypeVar("T")

_PURGE_INTERVAL_S = 0.01


class LoopSideProducer:
    """An asynchronous producer that has started, and its submission queue."""

    def __init__(self, producer: Producer, thread: LoopThread) -> None:
        self.engine: ProducerEngine = producer._usable()
        self.submissions: SubmissionQueue = SubmissionQueue(thread, self.engine)
        self._producer = producer

    async def append(self, entry: Entry) -> DeliveryHandle:
        """Append one record as `send()` does, and keep the partition count of its topic."""
        handle, topic, value, key, pairs, partition, timestamp_ms = entry
        engine = self._producer._usable()
        delivery = await engine.appender.append((topic, key, value, pairs, partition, timestamp_ms))
        handle.hand_over(delivery)
        meta = engine.metadata.topic(topic)
        if meta is not None:
            self.submissions.topics[topic] = len(meta.partitions)
        return handle

    async def append_in_turn(
        self,
        place: Place,
        made: Prepared | PendingRecord,
        handle: DeliveryHandle,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> DeliveryHandle:
        """Append a record whose serializer waits, or that comes after such a one."""
        with place:
            await self.submissions.drained()
            key, value, pairs = await self.engine.appender.finish(place, made)
        return await self.append((handle, place.topic, value, key, pairs, partition, timestamp_ms))

    async def send(
        self,
        handle: DeliveryHandle,
        topic: str,
        value: Any,
        key: Any,
        headers: HeadersInput,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> DeliveryHandle:
        """Send one record as the asynchronous producer does, with all it does before."""
        handle.hand_over(
            await self._producer.send(
                topic, value, key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
            )
        )
        return handle

    async def in_order(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a call after all records handed over before it are appended."""
        await self.submissions.drained()
        return await work()

    async def flush(self, timeout: float | None, *, raise_failures: bool = False) -> int:
        """See `Producer.flush`."""
        deadline = Deadline(timeout, self.engine.loop.time)
        try:
            async with asyncio.timeout(timeout):
                await self.submissions.drained()
        except TimeoutError:
            # Counted first: during the flush they may get into batches that it does not count.
            undrained = self.submissions.undrained()
            return undrained + await self._producer.flush(0, raise_failures=raise_failures)
        return await self._producer.flush(deadline.left(), raise_failures=raise_failures)

    async def purge(self, *, queued: bool, in_flight: bool) -> int:
        """See `Producer.purge`; what was handed over waits for the memory of what is purged."""
        count = self._producer.purge(queued=queued, in_flight=in_flight)
        if queued:
            drained = asyncio.ensure_future(self.submissions.drained())
            while not drained.done():
                await asyncio.wait((drained,), timeout=_PURGE_INTERVAL_S)
                count += self._producer.purge(queued=queued, in_flight=in_flight)
        return count

    async def close(self, timeout: float | None) -> None:
        """See `Producer.close`."""
        deadline = Deadline(timeout, self.engine.loop.time)
        self.submissions.refuse_new()
        await self.submissions.ended(timeout)
        await self._producer.close(deadline.left())
        await self.submissions.ended(None)  # at once: a closed producer refuses the rest
        await asyncio.sleep(0)  # the last callbacks
