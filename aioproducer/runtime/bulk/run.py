"""One bulk call, which appends rows to batches and counts their outcomes: start with `BulkRun`.

A row for which no open batch has room takes the fast or slow path of `send()`, with all checks and
waits. The following rows are then written by native code into the open batches, until a row finds
no room. So only `send()` allocates memory, opens batches and checks transactions.

Invariants
- Every row is counted once, as delivered or as failed. After an exception of a signal handler
  inside the call, rows may be uncounted, none is counted twice, and the call raises.
- Rows are written directly only while no call queues for memory, or right after a row of this call
  has got memory: a call has one place in that queue.
- All rows belong to the transaction that was open when the call began. When that accepts no more
  records, the call ends.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from aioproducer._util.arguments import is_of_type
from aioproducer._util.causes import chain_of
from aioproducer._util.printable import repr_of
from aioproducer._util.tasks import HOOK_ERRORS, is_cancellation
from aioproducer.core.metadata.cluster import missing_topic_error
from aioproducer.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    MetadataTimeoutError,
    WouldBlockError,
)
from aioproducer.records.bulk import Share
from aioproducer.runtime.bulk.result import FailedRecord, SendManyInterruptedError, SendManyResult
from aioproducer.runtime.bulk.target import BulkTarget
from aioproducer.runtime.send.appender import LOSSES
from aioproducer.runtime.send.batch_appender import RECORDS_PER_TURN
from aioproducer.runtime.send.serialization_queue import discard
from aioproducer.runtime.send.validation import refusal_of
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch, RecordParts
    from aioproducer.runtime.bulk.rows import RowSource
    from aioproducer.runtime.delivery import Delivery
    from aioproducer.runtime.engine import ProducerEngine
    from aioproducer.runtime.send.pending import PendingParts

Awaited = TypeVar("Awaited")

_TURN_BYTES = 1 << 20
_REFUSALS_PER_TURN = 100


class Gathering:
    """The batches that a call fills without linger; `add` is an `OutgoingRecord.on_opened`.

    Without linger, a record that is sent while nothing is in flight leaves at once. In a bulk call,
    that would send the first record alone. So the batches of a bulk call are due when they are
    full, or when the call waits for something or ends. Yielding to the event loop is not a wait.

    With linger nothing is added, and the other methods have no effect.
    """

    def __init__(self, engine: ProducerEngine) -> None:
        self._engine = engine
        self._open: dict[TopicPartition, ProducerBatch] = {}
        self._goes_on: bool = False
        self._is_watched = False

    def add(self, batch: ProducerBatch) -> None:
        """Add a batch that was opened for a record of the call; the one before it is full."""
        self._open[batch.topic_partition] = batch

    def resume(self) -> None:
        """Keep the batches open: the call has more records."""
        self._goes_on = True

    def pause(self) -> None:
        """Make the batches due if the call still waits in the next turn of the loop."""
        self._goes_on = False
        loop = self._engine.loop
        if self._open and not self._is_watched and not loop.is_closed():
            self._is_watched = True
            loop.call_soon(self._on_turn)

    def end(self) -> None:
        """Make the batches due: the call adds nothing more to them."""
        if self._open:
            batches, self._open = self._open, {}
            self._engine.accumulator.end_gathering(batches.values())
            self._engine.sender_task.wake()

    def _on_turn(self) -> None:
        self._is_watched = False
        if not self._goes_on:
            self.end()


class BulkRun:
    """The rows of one call.

    Errors of `spares` do not fail the transaction: the caller commits without the refused rows.
    """

    def __init__(
        self, engine: ProducerEngine, *, spares: tuple[type[KafkaError], ...] = ()
    ) -> None:
        self.result: SendManyResult = SendManyResult()
        self._engine = engine
        self._appender = engine.appender
        self._batch_appender = engine.appender.batch_appender
        self._batch_bytes = engine.accumulator.settings.first_size(0)
        self._spares = spares
        self._losses = tuple(each for each in LOSSES if each not in spares)
        self._transaction = self._open_transaction()
        self._targets: dict[str | None, BulkTarget] = {}
        self._may_wait = True
        self._serializes_late = False
        self._absent: dict[str | None, int] = {}
        """The partitions of a topic when a row timed out that waited for it or for another one."""
        self._outstanding: dict[ProducerBatch, _Tracked] = {}
        self._tracked = 0
        self._partitions: set[TopicPartition] = set()
        config = engine.config
        in_requests = (config.max_in_flight_requests_per_connection + 1) * config.max_request_size
        self._batches_per_node = in_requests / max(1, config.batch_size)
        self._caught_up: asyncio.Future[None] | None = None
        self._stalls = False
        self._all_done: asyncio.Future[None] | None = None
        self._gathering = Gathering(engine)
        self._on_opened = None if engine.accumulator.settings.linger else self._gathering.add

    async def complete(self, feeding: Awaitable[None]) -> SendManyResult:
        """Wait for `feeding`, then for all outcomes.

        Raise `SendManyInterruptedError` if `feeding` raised, or a signal handler inside the call.
        """
        broken: BaseException | None = None
        try:
            try:
                await feeding
            except HOOK_ERRORS as error:
                if is_cancellation(error):
                    raise
                broken = error
            await self._wait()
        finally:
            # A cancelled call reads no more outcomes: its failures are reported as not awaited.
            self._detach()
        result = self.result
        result.failed.sort(key=lambda failed: failed.index)
        uncounted = result.count - result.delivered - len(result.failed)
        if broken is None and uncounted:
            broken = RuntimeError(f"an exception inside the call hid {uncounted} outcome(s)")
        if broken is not None:
            raise SendManyInterruptedError(
                f"stopped after {result.count} record(s), of which {result.delivered} were "
                f"delivered: {repr_of(broken)}",
                result=result,
            ) from broken
        return result

    async def feed(
        self, rows: RowSource, topic: str | None, start: int, stop: int, number: int
    ) -> None:
        """Append rows, in order; raise only errors that concern all of them.

        `topic` is that of rows without one; `number` is the index of row 0 in the result.
        """
        self._gathering.resume()
        try:
            await self._feed(rows, topic, start, stop, number)
        finally:
            self._gathering.pause()

    async def _feed(
        self, rows: RowSource, topic: str | None, start: int, stop: int, number: int
    ) -> None:
        names = rows.topics(start, stop)
        targets = [self._target(topic if name is None else name) for name in names]
        fast_path = self._appender.fast_path
        row = start
        served = False
        while row < stop:
            self._check_going_on()
            if served or not self._appender.waiting:
                first = row
                # A whole batch may have exceeded `buffer_max_records`.
                free = max(0, fast_path.ceiling - fast_path.appended)
                last = min(stop, first + free)
                row, is_stuck = self._fill(rows, targets, first, last, number)
                is_stuck = is_stuck or row == last < stop
                self.result.count += row - first
                fast_path.appended += row - first
                if not is_stuck:
                    if row < stop:
                        served = False
                        await asyncio.sleep(0)
                    continue
            if (
                self._is_ahead
                or not self._batch_appender.may_open(self._batch_bytes)
                or (self._on_opened is not None and fast_path.records_this_turn >= RECORDS_PER_TURN)
            ):
                await self._pause()
                self._check_going_on()
            self.result.count += 1
            served = await self._append(rows, row, topic, number + row)
            row += 1

    def feed_at_once(self, rows: RowSource, topic: str, number: int) -> bool:
        """Write row 0 to an open batch; return False if it has to wait or to open one."""
        fast_path = self._appender.fast_path
        if fast_path.waiting or fast_path.appended >= fast_path.ceiling:
            return False
        self._check_going_on()
        written, _ = self._fill(rows, [self._target(topic)], 0, 1, number)
        self.result.count += written
        fast_path.appended += written
        return written == 1

    def mark(self) -> int:
        """Return the argument of `is_complete` for the rows appended so far."""
        return self._tracked

    def is_complete(self, mark: int) -> bool:
        """Return whether every row appended before this `mark()` has its outcome."""
        oldest = next(iter(self._outstanding.values()), None)
        return oldest is None or oldest.number >= mark

    async def _pause(self) -> None:
        """Wait before a row that may need a new batch: while the call is ahead, or one turn."""
        if not self._is_ahead:
            await asyncio.sleep(0)
            return
        self._caught_up = self._engine.loop.create_future()
        try:
            async with asyncio.timeout(self._engine.config.call_timeout_ms / 1000):
                await self._waiting(self._caught_up)
        except TimeoutError:
            self._stalls = True  # memory is the only bound until a batch has its outcome

    async def _waiting(self, awaited: Awaitable[Awaited]) -> Awaited:
        """Await something that may take long; gathered batches are sent meanwhile."""
        self._gathering.pause()
        result = await awaited
        self._gathering.resume()
        return result

    @property
    def _is_ahead(self) -> bool:
        """Whether enough batches are pending; the last batch of each partition may be open yet."""
        if self._stalls:
            return False
        nodes = len(self._engine.metadata.cluster.nodes) or 1
        return len(self._outstanding) - len(self._partitions) > nodes * self._batches_per_node

    # -- rows ------------------------------------------------------------------------------------

    def _fill(
        self, rows: RowSource, targets: list[BulkTarget], start: int, stop: int, number: int
    ) -> tuple[int, bool]:
        for target in targets:
            target.choose_sticky()
        try:
            return rows.fill(
                [target.batches for target in targets],
                start,
                stop,
                number,
                self._appender.wall_ms(),
                self._batch_appender.size_limit,
                _TURN_BYTES,
            )
        finally:
            for target in targets:
                target.count_sticky_bytes()

    async def _append(self, rows: RowSource, row: int, topic: str | None, number: int) -> bool:
        """Send one row as `send()` would; return whether it was accepted."""
        seen = self._engine.interceptor_chain
        outer = sys.exception()
        parts: RecordParts | None = None
        try:
            made = rows.record(row)
            parts = made if isinstance(made, tuple) else made.known
            name = topic if parts[0] is None else parts[0]
            if name is None:
                raise missing_topic_error()
            if parts is not made or self._appender.serializing.is_queued(name):
                parts = await self._finished(name, made)
            _, key, value, headers, partition, timestamp_ms = parts
            with self._batch_appender.opening(self._on_opened):
                delivery = self._appender.fast_path.append(
                    name, value, key, headers, partition, timestamp_ms
                )
            if delivery is None:
                record = (name, key, value, headers, partition, timestamp_ms)
                if self._may_wait and not self._is_absent(name, partition):
                    delivery = await self._waiting(
                        self._appender.append(
                            record, on_opened=self._on_opened, early=False, losses=self._losses
                        )
                    )
                else:
                    delivery = self._appender.append_nowait(
                        record, on_opened=self._on_opened, early=False, losses=self._losses
                    )
        except BaseException as raised:
            # What is not part of a record yet has not reached the partitioner.
            partitioner = "" if parts is None else self._engine.config.partitioner
            error = refusal_of(raised, partitioner)
            if parts is not None:
                seen.refused(parts, error or raised)
            if error is None:
                raise
            self.result.failed.append(FailedRecord(number, _without_frames(error, outer)))
            if self._engine.transactions is not None and not isinstance(error, self._spares):
                # No call raises the error: the transaction must not commit without the row.
                self._engine.transactions.on_send_refused(self._transaction, error)
            if isinstance(error, KafkaTimeoutError):
                # One row has waited `max_block_ms`; the waits of further rows must not add up.
                self._may_wait = False
                if isinstance(error, MetadataTimeoutError):
                    self._absent[error.topic] = self._partition_count(error.topic)
            self._engine.check_usable()
            if len(self.result.failed) % _REFUSALS_PER_TURN == 0:
                # A refusal does not suspend: let other tasks run in between.
                await asyncio.sleep(0)
            return False
        seen.accepted(delivery, parts)
        sticks = self._batch_appender.sticks and partition is None
        if key is not None and self._batch_appender.hashes_keys:
            sticks = False
        self._track(delivery, number, self._target(name), sticks)
        return True

    def _is_absent(self, topic: str, partition: object) -> bool:
        """Return whether a row has timed out waiting for it or another one, and none was added."""
        if topic not in self._absent or not isinstance(partition, int | None):
            return False
        count = self._partition_count(topic)
        return (partition or 0) >= count == self._absent[topic]

    def _partition_count(self, topic: str | None) -> int:
        meta = None if topic is None else self._engine.metadata.topic(topic)
        return 0 if meta is None else len(meta.partitions)

    async def _finished(self, topic: str, row: RecordParts | PendingParts) -> RecordParts:
        if self._serializes_late:
            discard(row)
            raise WouldBlockError("a serializer has to wait, and one has timed out before")
        try:
            return await self._waiting(self._appender.finished(topic, row))
        except KafkaTimeoutError:
            self._serializes_late = True
            raise

    def _target(self, topic: str | None) -> BulkTarget:
        if type(topic) is not str and not is_of_type(topic, str):
            topic = None  # no topic at all: the row is refused when it is its turn
        target = self._targets.get(topic)
        if target is None:
            target = self._targets[topic] = BulkTarget(self._engine, topic)
        return target

    def _check_going_on(self) -> None:
        self._engine.check_usable()
        try:
            if self._open_transaction() != self._transaction:
                raise IllegalStateError("the transaction of the call has ended meanwhile")
        except IllegalStateError as error:
            if self._engine.transactions is not None:
                # A commit during the call must not succeed with a part of its records.
                self._engine.transactions.on_send_refused(self._transaction, error)
            raise

    def _open_transaction(self) -> int:
        transactions = self._engine.transactions
        return 0 if transactions is None else transactions.check_send()

    # -- outcomes --------------------------------------------------------------------------------

    async def _wait(self) -> None:
        """Return when every accepted row has its outcome."""
        self._gathering.end()
        if not self._outstanding:
            return
        self._engine.accumulator.begin_flush()
        self._engine.sender_task.wake()
        self._all_done = self._engine.loop.create_future()
        try:
            await self._all_done
        finally:
            self._engine.accumulator.end_flush()

    def _detach(self) -> None:
        self._gathering.end()
        for batch, tracked in self._outstanding.items():
            batch.remove_listener(tracked)
        self._outstanding.clear()

    def _track(self, delivery: Delivery, number: int, target: BulkTarget, sticks: bool) -> None:
        batch, index = delivery.batch_and_index()
        tracked = self._outstanding.get(batch)
        if tracked is None:
            self._may_wait = True  # there was memory for a batch
            self._serializes_late = False
            builder = batch.builder
            if builder is None or batch.done:
                self._fold_one(batch, number, index)
                return
            tracked = _Tracked(self, batch, Share(builder), self._tracked)
            self._tracked += 1
            self._partitions.add(batch.topic_partition)
            batch.add_listener(tracked, _on_done)
            self._outstanding[batch] = tracked  # last: the call waits for the listener of each
        tracked.share.add(number, index)
        target.add_batch(batch.topic_partition.partition, tracked.share, sticks)

    def on_batch_done(self, batch: ProducerBatch) -> None:
        """Count the outcomes of a batch's records."""
        tracked = self._outstanding.pop(batch, None)
        if tracked is not None:  # else it is called again after an exception
            self._stalls = False
            self._fold(batch, tracked.share)
        waiter = self._caught_up
        if waiter is not None and not waiter.done() and not self._is_ahead:
            waiter.set_result(None)
        if not self._outstanding and self._all_done is not None and not self._all_done.done():
            self._all_done.set_result(None)

    def _fold(self, batch: ProducerBatch, share: Share) -> None:
        outcome = batch.outcome
        if outcome is not None and outcome.error is None and not batch.parts:
            # The usual case: only the first and the last offset are needed.
            self.result.delivered += share.records
            self._widen_offsets(batch, outcome.base_offset, share.first_index, share.last_index)
            return
        for number, index, count in share.runs():
            for step in range(count):
                self._fold_one(batch, number + step, index + step)

    def _fold_one(self, batch: ProducerBatch, number: int, index: int) -> None:
        error = batch.record_error(index)
        if error is None:
            self.result.delivered += 1
            found = batch.outcome_of(index)
            if found is not None:
                self._widen_offsets(batch, found[0].base_offset, found[1], found[1])
        else:
            batch.mark_retrieved(index)
            self.result.failed.append(FailedRecord(number, error))

    def _widen_offsets(
        self, batch: ProducerBatch, base_offset: int | None, first: int, last: int
    ) -> None:
        """Add the offsets of the records from `base_offset + first` to `base_offset + last`."""
        if base_offset is None:
            return
        begin, end = base_offset + first, base_offset + last
        low, high = self.result.offsets.get(batch.topic_partition, (begin, end))
        self.result.offsets[batch.topic_partition] = (min(low, begin), max(high, end))


@dataclass(slots=True, eq=False)
class _Tracked:
    """Key of a call's listener at a batch; the batches of a call are numbered from 0."""

    run: BulkRun
    batch: ProducerBatch
    share: Share
    number: int


def _without_frames(error: KafkaError, outer: BaseException | None) -> KafkaError:
    """Remove the tracebacks of an error that is kept: their frames would keep the whole call.

    `outer` is what the caller is handling: that keeps its traceback.
    """
    for each in chain_of(error, outer):
        each.__traceback__ = None
    return error


def _on_done(key: object) -> None:
    if isinstance(key, _Tracked):
        key.run.on_batch_done(key.batch)
