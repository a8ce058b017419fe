"""The hand-over: records from any thread into the producer.

Invariants
- A thread's records are appended in the order of its calls; threads that wait for space are served
  first come, first served.
- One wake-up of the loop takes everything there is. At most `_MAX_RECORDS` and `_MAX_BYTES` are
  queued here, and as many again in the loop.
- Every record taken ends in a delivery or a refusal. A refusal that is not retrieved is reported.
- An exception at any point of `put`, such as KeyboardInterrupt, leaves at worst a record that is
  sent although its caller got no handle, or a wake-up too many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from aioproducer import errors
from aioproducer._util.clock import Deadline
from aioproducer._util.threads import OneTimeEvent
from aioproducer.blocking.handle import DeliveryHandle, Refused, RefusedGroup
from aioproducer.core.batching.batch import RecordParts
from aioproducer.metrics.totals import FailedBatch
from aioproducer.runtime.send.appender import LOSSES
from aioproducer.runtime.send.validation import partitioner_error
from aioproducer.types import HeaderPairs, TopicPartition

if TYPE_CHECKING:
    from aioproducer.blocking.loop_thread import LoopThread
    from aioproducer.runtime.delivery import Delivery
    from aioproducer.runtime.engine import ProducerEngine

_MAX_RECORDS = 16_384
_MAX_BYTES = 1 << 20
_PAUSE_S = 0.02
"""Between two waits for memory, since `max_block_ms` may be 0."""

Entry = tuple[DeliveryHandle, str, bytes | None, bytes | None, HeaderPairs, int | None, int | None]
"""Handle, topic, value, key, headers, partition, timestamp in ms."""


class _Waiter:
    """A thread that waits for space; `answered` when its entry was taken, or the queue closed."""

    __slots__ = ("answered", "entry", "size")

    def __init__(self, entry: Entry, size: int) -> None:
        self.entry = entry
        self.size = size
        self.answered = OneTimeEvent()


class SubmissionQueue:
    """Takes records from threads and appends them in the loop.

    Attributes:
        topics: how many partitions each topic has that a record was accepted for.
    """

    def __init__(self, thread: LoopThread, engine: ProducerEngine) -> None:
        config = engine.config
        self.topics: dict[str, int] = {}
        self._thread = thread
        self._engine = engine
        self._max_bytes = min(_MAX_BYTES, config.buffer_memory)
        self._max_block = config.max_block_ms / 1000
        self._pending: list[Entry] = []
        self._pending_bytes = 0
        self._waiters: deque[_Waiter] = deque()
        self._closed = False
        self._awake = False
        self._delivery_timeout = config.delivery_timeout_ms / 1000
        # Of the loop alone:
        self._in_hand: list[Entry] = []
        self._rounds = 0
        self._watchers: list[tuple[int, asyncio.Future[None]]] = []
        self._more: asyncio.Event = asyncio.Event()
        self._refusals: dict[TopicPartition, RefusedGroup] = {}
        self._task: asyncio.Task[None] = engine.loop.create_task(self._run())

    # -- any thread ------------------------------------------------------------------------------

    def put(self, entry: Entry, size: int) -> None:
        """Hand a record over; wait at most `max_block_ms` for space, not in the loop's thread."""
        with self._thread.lock:
            if self._closed:
                raise errors.ProducerClosedError
            if not self._waiters and self._has_room(size):
                # In this order: a wake-up that an exception prevents is made up for by the next.
                self._pending.append(entry)
                self._pending_bytes += size
                if not self._awake:
                    self._thread.post(self._more.set)
                    self._awake = bool(self._pending)  # a signal handler may have waited for all
                if self._closed and entry in self._pending:  # by a signal handler in between
                    self._pending.remove(entry)
                    raise errors.ProducerClosedError
                return
            if self._thread.is_here:
                raise errors.BufferFullError(
                    "the hand-over to the producer is full, and its own callbacks cannot wait",
                    topic=entry[1],
                    advice="send less in callbacks, or send from another thread",
                )
            waiter = _Waiter(entry, size)
            self._waiters.append(waiter)
            self._thread.post(self._more.set)  # should an interrupted call have failed to
        self._wait(waiter)

    def _has_room(self, size: int) -> bool:
        pending = len(self._pending)
        return not pending or (
            pending < _MAX_RECORDS and self._pending_bytes + size <= self._max_bytes
        )

    def _wait(self, waiter: _Waiter) -> None:
        deadline = Deadline(self._max_block)
        try:
            self._thread.check_may_wait()
            while not deadline.is_over:
                if self._thread.wait(waiter.answered.wait, deadline.left()):
                    break
                self._thread.check_alive()
        finally:
            with self._thread.lock:
                waits = waiter in self._waiters
                if waits:
                    self._waiters.remove(waiter)
        if waits and self._closed:
            raise errors.ProducerClosedError
        if waits:
            raise errors.BufferExhaustedError(
                f"no memory became free within max_block_ms={self._max_block * 1000:.0f}",
                topic=waiter.entry[1],
                elapsed_ms=int(self._max_block * 1000),
                advice="send less at a time, or raise buffer_memory or max_block_ms",
            )

    # -- the loop --------------------------------------------------------------------------------

    async def drained(self) -> None:
        """Return when every record handed over before has been appended or refused."""
        with self._thread.lock:
            rounds = bool(self._in_hand) + bool(self._pending)
        if rounds and not self._task.done():
            self._more.set()
            done: asyncio.Future[None] = self._engine.loop.create_future()
            self._watchers.append((self._rounds + rounds, done))
            await done

    def undrained(self) -> int:
        """Return how many records have been handed over and neither appended nor refused."""
        with self._thread.lock:
            return len(self._pending) + sum(not entry[0].is_handed_over for entry in self._in_hand)

    def refuse_new(self) -> None:
        """Take nothing any more; wake threads that wait."""
        with self._thread.lock:
            self._closed = True
            for waiter in self._waiters:
                waiter.answered.set()
        self._more.set()

    async def ended(self, timeout: float | None) -> None:
        """Return when everything taken has its delivery or refusal, after `refuse_new`."""
        await asyncio.wait((self._task,), timeout=timeout)

    async def _run(self) -> None:
        while True:
            self._take()
            if not self._in_hand:
                if self._closed:
                    return
                await self._more.wait()
                continue
            await self._append_all()
            self._in_hand = []
            self._refusals.clear()
            self._rounds += 1
            due = [each for each in self._watchers if each[0] <= self._rounds]
            self._watchers = [each for each in self._watchers if each[0] > self._rounds]
            for _, future in due:
                if not future.done():
                    future.set_result(None)

    def _take(self) -> None:
        """Take all there is, and let waiting threads use the freed space."""
        with self._thread.lock:
            self._more.clear()
            self._in_hand, self._pending = self._pending, []
            self._pending_bytes = 0
            while not self._closed and self._waiters and self._has_room(self._waiters[0].size):
                waiter = self._waiters[0]
                self._pending.append(waiter.entry)
                self._pending_bytes += waiter.size
                self._waiters.popleft()
                waiter.answered.set()
            self._awake = bool(self._in_hand)

    async def _append_all(self) -> None:
        append = self._engine.appender.fast_path.append
        retry_until = self._engine.loop.time() + self._delivery_timeout
        for handle, topic, value, key, headers, partition, timestamp_ms in self._in_hand:
            outcome: Delivery | Refused | None
            try:
                outcome = append(topic, value, key, headers, partition, timestamp_ms)
                if outcome is None:
                    parts = (topic, key, value, headers, partition, timestamp_ms)
                    outcome = await self._append(parts, retry_until)
            except errors.KafkaError as error:
                outcome = self._refuse(topic, partition, error)
            # Of a partitioner: it concerns one record. What ends a process ends none from here.
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                failure = partitioner_error(error).with_context(topic=topic)
                outcome = self._refuse(topic, partition, failure)
            handle.hand_over(outcome)

    async def _append(self, parts: RecordParts, retry_until: float) -> Delivery:
        engine, topic = self._engine, parts[0]
        while engine.loop.time() < retry_until and topic in self.topics:
            engine.check_usable()
            try:
                return await engine.appender.append(parts)
            except errors.BufferExhaustedError:
                await asyncio.sleep(_PAUSE_S)
            except errors.KafkaTimeoutError:
                self.topics.pop(topic, None)
                raise
        await asyncio.sleep(0)  # what waits for nothing would hold the loop up
        engine.check_usable()
        return engine.appender.append_nowait(parts)

    def _refuse(self, topic: str, partition: int | None, error: errors.KafkaError) -> Refused:
        transactions = self._engine.transactions
        if transactions is not None and not isinstance(error, (*LOSSES, errors.IllegalStateError)):
            # Those that the appender has reported; no transaction may commit without any other
            # either.
            transactions.on_send_refused(transactions.manager.number, error)
        error.__traceback__ = None  # its frames would keep everything that is in hand
        where = TopicPartition(topic, -1 if partition is None else partition)
        group = self._refusals.get(where)
        if group is None:
            group = self._refusals[where] = RefusedGroup(
                where, self._engine.unretrieved, self._thread.post
            )
        now = self._engine.loop.time()
        self._engine.stats.on_batch_failed(FailedBatch(where, 1, now, str(error)), now)
        return group.refuse(error)
