"""From the arguments of `send()` to a record in a batch: the general lane.

Owns: the order of checks and waits (metadata, partition, size, memory), `max_block_ms`, the fast
lane beside it (`lane.py`), which it shows every batch it opens. Must not know: what happens to the
batch afterwards.

Invariants
- A call that needs no wait suspends nowhere, except once per `_RECORDS_PER_TURN` and once per
  `_BYTES_PER_TURN` of batches.
- Whoever has to wait for memory stands in one line (`BufferMemory.lock`) and is counted
  (`waiting`); while somebody stands there, nobody appends past him, not even to a batch that has
  room.
- Metadata and memory share one bound, `max_block_ms`, unless memory has its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from aioproducer.core.accumulator import RecordAccumulator
from aioproducer.core.outgoing import OutgoingRecord
from aioproducer.core.partitioners import BuiltInPartitioner, NodeLatencies
from aioproducer.core.producer_batch import ProducerBatch
from aioproducer.core.stats import ProducerStats
from aioproducer.errors import (
    AuthorizationError,
    BufferExhaustedError,
    BufferFullError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    SerializationError,
)
from aioproducer.records.batch import HEADER_SIZE
from aioproducer.runtime.delivery import Delivery
from aioproducer.runtime.lane import FastLane, LaneSettings
from aioproducer.runtime.memory import BufferMemory
from aioproducer.runtime.record_check import ChoosePartition, RecordCheck, partition_index
from aioproducer.runtime.stickiness import Stickiness
from aioproducer.types import HeaderPairs

if TYPE_CHECKING:
    from aioproducer.core.cluster import TopicMetadata
    from aioproducer.core.metadata import Metadata
    from aioproducer.runtime.appender_needs import Admission, MetadataWaits, Unfinished
    from aioproducer.runtime.sender_task import SenderTask

_RECORDS_PER_TURN = 1000
"""Some ms of work: what a loop of sends that finds room everywhere may do in one go."""
_BYTES_PER_TURN = 256 * 1024
"""Of batches that are opened in one turn of the loop, beyond the first one."""

T = TypeVar("T")

LOSSES = (AuthorizationError, InvalidTopicError, KafkaTimeoutError, RecordTooLargeError)
"""Refusals after which a transaction cannot be committed (Java: the ApiExceptions of `doSend`)."""


@dataclass(frozen=True, slots=True)
class AppenderSettings:
    """Options the lane obeys; times in seconds, sizes in bytes.

    Attributes:
        enqueue_ms: the bound of waits for memory: 0 forbids them, -1 gives them none, None leaves
            them what metadata left of `max_block`.
    """

    max_block: float
    max_request_size: int
    enqueue_ms: int | None = None
    hashes_keys: bool = True
    sticks: bool = True


class RecordAppender:
    """Appends records for `Producer.send` and its kin.

    Attributes:
        lane: takes the records that need nothing of what this class does.
        wall_ms: the timestamp of records that bring none.
    """

    def __init__(
        self,
        settings: AppenderSettings,
        *,
        accumulator: RecordAccumulator,
        memory: BufferMemory,
        metadata: Metadata,
        waits: MetadataWaits,
        sender_task: SenderTask,
        choose_partition: ChoosePartition,
        make_sticky: Callable[[str], BuiltInPartitioner],
        latencies: NodeLatencies,
        loop: asyncio.AbstractEventLoop,
        wall_ms: Callable[[], int],
        stats: ProducerStats,
    ) -> None:
        self._settings = settings
        self._accumulator = accumulator
        self._memory = memory
        self._metadata = metadata
        self._waits = waits
        self._sender_task = sender_task
        self._check = RecordCheck(settings.max_request_size, memory.pool, choose_partition, wall_ms)
        self._stickiness = Stickiness(make_sticky, accumulator, latencies)
        self._admission: Admission | None = None
        self._lingers = accumulator.settings.linger > 0
        self._opened_this_turn = 0
        self._turn_is_counted = False
        self._loop = loop
        self._stats = stats
        self.wall_ms: Callable[[], int] = wall_ms
        self.lane: FastLane = FastLane(
            LaneSettings(
                records_per_turn=_RECORDS_PER_TURN,
                size_limit=min(settings.max_request_size, memory.pool.total),
                hashes_keys=settings.hashes_keys,
                sticks=settings.sticks,
            ),
            metadata=metadata,
            loop=loop,
            wall_ms=wall_ms,
            on_full_turn=self._count_till_next_turn,
            open_batch=self._append_checked,
        )
        stats.count_appended = lambda: self.lane.appended
        self._on_ceiling(memory.pool.ceiling)
        memory.pool.on_ceiling = self._on_ceiling

    def _on_ceiling(self, ceiling: int) -> None:
        self.lane.ceiling = ceiling

    @property
    def waiting(self) -> int:
        """How many calls queue for memory.

        Not `lock.locked()`: that is False between a release and the next one's turn.
        """
        return self.lane.waiting

    @property
    def takes_headers(self) -> bool:
        """Whether the brokers can store headers (since 0.11).

        If not, no record takes the fast lane, which would not look.
        """
        return self._check.takes_headers

    @takes_headers.setter
    def takes_headers(self, takes: bool) -> None:
        self._check.takes_headers = takes

    def admit_by(self, admission: Admission) -> None:
        """Every record belongs to a transaction from now on."""
        self._admission = admission
        self.open_gate(False)

    def open_gate(self, is_open: bool) -> None:
        """Whether the fast lane may take records without asking."""
        if self._admission is not None:
            self.lane.check_admission = None if is_open else self._admission.refuse_unless_open

    def close(self) -> None:
        """No record is taken any more; the pool's error tells the callers why."""
        self.lane.close()

    async def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery:
        """Appends, waiting at most `max_block_ms` for metadata and memory together."""
        ticket = self._ticket()
        try:
            return await self._append(topic, key, value, headers, partition, timestamp_ms, ticket)
        except (*LOSSES, IllegalStateError) as error:
            self._on_refused(ticket, error)
            raise

    async def _append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs,
        partition: int | None,
        timestamp_ms: int | None,
        ticket: int,
    ) -> Delivery:
        meta = self._metadata.topic(topic)
        if partition is not None:
            partition = partition_index(partition, topic)
        deadline = None
        if meta is None or (partition is not None and partition >= len(meta.partitions)):
            deadline = self._loop.time() + self._settings.max_block
            meta = await self._wait_for_metadata(topic, partition, deadline)
            self._check_open(ticket)
        record = self._check.record(meta, key, value, headers, partition, timestamp_ms)
        if self._may_append:
            worn = self.lane.records_this_turn >= _RECORDS_PER_TURN
            batch = None if worn else self._try_append(record)
            if batch is None and (worn or not self._may_open(record)):
                # A loop of sends that never suspends would hold everybody up, and fill the memory
                # before the first byte leaves: so much per turn of the loop.
                await asyncio.sleep(0)
                self._check_open(ticket)
                if not self._may_append:
                    return await self._append_in_line(record, deadline, ticket)
                batch = self._try_append(record)
            if batch is None:
                batch = self._try_new_batch(record)
            if batch is not None:
                return self._delivery(record, batch)
        return await self._append_in_line(record, deadline, ticket)

    def _append_checked(
        self,
        meta: TopicMetadata,
        partition: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs,
        size: int,
    ) -> Delivery | None:
        """See `lane.OpenBatch`: for a record that the fast lane has checked."""
        if not self._check.takes_headers:
            return None
        record = OutgoingRecord(meta, partition, timestamp_ms, key, value, headers, size)
        batch = self._try_append(record)
        if batch is None and self._may_open(record):
            batch = self._try_new_batch(record)
        return None if batch is None else self._delivery(record, batch)

    def append_nowait(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery:
        """Appends without waiting.

        Raises:
            BufferFullError: metadata or memory would have to be waited for.
        """
        ticket = self._ticket()
        if partition is not None:
            partition = partition_index(partition, topic)
        try:
            meta = self._metadata_nowait(topic, partition)
            record = self._check.record(meta, key, value, headers, partition, timestamp_ms)
        except LOSSES as error:
            self._on_refused(ticket, error)
            raise
        if self._may_append:
            batch = self._try_append(record) or self._try_new_batch(record)
            if batch is not None:
                return self._delivery(record, batch)
        raise BufferFullError(
            self._shortage,
            topic=topic,
            advice=f"send less at a time, raise {self._scarce}, or use send() which waits",
        )

    async def finished(self, pending: Unfinished[T]) -> T:
        """What the serializers make of a record, waiting at most `max_block_ms`.

        The record belongs to the transaction that was open before the wait, or to none.

        Raises:
            KafkaTimeoutError: the serializer takes longer.
        """
        try:
            ticket = self._ticket()
        except KafkaError:
            pending.close()
            raise
        try:
            try:
                async with asyncio.timeout(self._settings.max_block):
                    made = await pending
            except TimeoutError as error:
                raise KafkaTimeoutError(
                    "the record's serializer took longer than "
                    f"max_block_ms={round(self._settings.max_block * 1000)}"
                ) from error
            self._check_open(ticket)
        except (*LOSSES, IllegalStateError) as error:
            self._on_refused(ticket, error)
            raise
        return made

    @property
    def _may_append(self) -> bool:
        """Whether nobody has to be waited for, and one more record may be buffered."""
        return not self.lane.waiting and self.lane.appended < self.lane.ceiling

    @property
    def _scarce(self) -> str:
        return "buffer_memory" if self.lane.appended < self.lane.ceiling else "buffer_max_records"

    @property
    def _shortage(self) -> str:
        return f"{self._scarce} is used up"

    # -- steps -----------------------------------------------------------------------------------

    def _ticket(self) -> int:
        """The number of the transaction the record belongs to."""
        return 0 if self._admission is None else self._admission.check_send()

    def _check_open(self, ticket: int) -> None:
        """What was true before a wait may not be any more."""
        self._memory.pool.check_open()
        if self._ticket() != ticket:
            raise IllegalStateError("the record's transaction ended while send() waited")

    def _check_still_open(self, ticket: int, buffer: bytearray, size: int) -> None:
        try:
            self._check_open(ticket)
        except KafkaError:
            self._memory.pool.deallocate(buffer, size)
            raise

    def _on_refused(self, ticket: int, error: KafkaError) -> None:
        if self._admission is not None:
            self._admission.on_send_refused(ticket, error)

    def _metadata_nowait(self, topic: str, partition: int | None) -> TopicMetadata:
        meta = self._metadata.topic(topic)
        if meta is not None and (partition is None or partition < len(meta.partitions)):
            return meta
        failure = self._metadata.topic_failure(topic)
        self._metadata.request_topic(topic, self._loop.time())
        if failure is not None:
            raise failure.with_context()
        raise BufferFullError(
            "the topic's metadata is not known yet",
            topic=topic,
            partition=partition,
            advice="await producer.warm_up([topic]) first, or use send()",
        )

    async def _wait_for_metadata(
        self, topic: str, partition: int | None, deadline: float
    ) -> TopicMetadata:
        began = self._loop.time()
        try:
            if partition is None:
                return await self._waits.wait_for_topic(topic, deadline)
            return await self._waits.wait_for_partition(topic, partition, deadline)
        finally:
            self._stats.metadata_wait_time += self._loop.time() - began

    def _try_append(self, record: OutgoingRecord) -> ProducerBatch | None:
        if record.partition is None:
            batch = self._try_append_stickily(record)
        else:
            batch = self._append_to(record, record.partition)
        if batch is not None:
            self._tell_sender()
        return batch

    def _try_append_stickily(self, record: OutgoingRecord) -> ProducerBatch | None:
        sticky = self.sticky_of(record.meta.name)
        partition = sticky.peek(record.meta)
        batch = self._append_to(record, partition)
        if batch is None:
            queue = self._accumulator.queue(record.meta.name, partition)
            if queue is not None and queue.is_full_up():
                # The switch may have been put off while the batch had room (KIP-794).
                sticky.update(partition, 0, record.meta, enable_switch=True)
                other = sticky.peek(record.meta)
                if other != partition:
                    partition = other
                    batch = self._append_to(record, partition)
        if batch is not None:
            sticky.update(
                partition, record.size - HEADER_SIZE, record.meta, enable_switch=batch.full
            )
        return batch

    def _count_till_next_turn(self) -> None:
        if not self._turn_is_counted:
            self._turn_is_counted = True
            self._loop.call_soon(self._on_turn)

    def _on_turn(self) -> None:
        self._turn_is_counted = False
        self._opened_this_turn = 0
        self.lane.records_this_turn = 0

    def _append_to(self, record: OutgoingRecord, partition: int) -> ProducerBatch | None:
        try:
            return self._accumulator.try_append(record, partition)
        except (TypeError, ValueError) as error:
            raise SerializationError(str(error), topic=record.meta.name) from error

    def _batch_bytes(self, record: OutgoingRecord) -> int:
        return self._accumulator.settings.first_size(record.size)

    def _may_open(self, record: OutgoingRecord) -> bool:
        """Whether this turn of the loop may see another new batch."""
        opened = self._opened_this_turn
        return not opened or opened + self._batch_bytes(record) <= _BYTES_PER_TURN

    def _try_new_batch(self, record: OutgoingRecord) -> ProducerBatch | None:
        size = self._batch_bytes(record)
        buffer = self._memory.pool.try_allocate(size)
        return None if buffer is None else self._open_batch(record, buffer, size)

    def _open_batch(self, record: OutgoingRecord, buffer: bytearray, size: int) -> ProducerBatch:
        """Right behind a `_try_append` that found no room: the sticky account is settled.

        A batch that leaves here and now is none of those that fill the memory in this turn.
        """
        meta = record.meta
        sticky = None
        partition = record.partition
        if partition is None:
            sticky = self._stickiness.of(meta.name)
            partition = sticky.peek(meta)
        now = self._loop.time()
        accumulator = self._accumulator
        try:
            batch = accumulator.append_in_new_batch(
                record, partition, now, buffer=buffer, size=size
            )
        except (TypeError, ValueError) as error:
            self._memory.pool.deallocate(buffer, size)
            raise SerializationError(str(error), topic=meta.name) from error
        # Its partition may wait for a broker: then nothing else would wake the sender in time.
        self._sender_task.advance(now + accumulator.settings.delivery_timeout)
        is_full = batch.full
        # Now, as the record waits for nothing that follows.
        if not self._tell_sender():
            self._opened_this_turn += size
            self._count_till_next_turn()
        if sticky is not None:
            self._stickiness.weigh(sticky, meta, now)
            sticky.update(partition, record.size, meta, enable_switch=is_full)
        return batch

    def _tell_sender(self) -> bool:
        """A record was appended: wakes the sender if a batch is due; True if one left at once."""
        if self._accumulator.readiness.next_at >= self._sender_task.sleeping_until:
            return False
        if self._lingers:
            self._sender_task.wake()  # and others may join until it has its turn
            return False
        return self._sender_task.hurry()

    async def _append_in_line(
        self, record: OutgoingRecord, deadline: float | None, ticket: int
    ) -> Delivery:
        started = self._loop.time()
        bound, deadline = self._patience(started, deadline, record.meta.name)
        size = self._batch_bytes(record)
        self.lane.waiting += 1
        try:
            async with asyncio.timeout_at(deadline), self._memory.lock:
                await self._memory.wait_for_place(self.lane.appended)
                self._check_open(ticket)
                batch = self._try_append(record)
                if batch is None:
                    buffer = await self._memory.allocate(size)
                    self._check_still_open(ticket, buffer, size)
                    # Second try: a retried batch cannot have made room, but a sticky switch may.
                    batch = self._try_append(record)
                    if batch is None:
                        batch = self._open_batch(record, buffer, size)
                    else:
                        self._memory.pool.deallocate(buffer, size)
                return self._delivery(record, batch)
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            self._stats.buffer_exhausted += 1
            raise BufferExhaustedError(
                f"no memory for the record within {bound}: {self._shortage} and "
                f"{self._memory.pool.queued} request(s) wait for it",
                topic=record.meta.name,
                elapsed_ms=round((self._loop.time() - started) * 1000),
                advice=f"the cluster takes less than is offered: slow down or raise {self._scarce}",
            ) from None
        finally:
            self.lane.waiting -= 1

    def _patience(self, now: float, deadline: float | None, topic: str) -> tuple[str, float | None]:
        """How long the record may stand in line: the option's words, and the loop time.

        Raises:
            BufferFullError: not at all.
        """
        allowed = self._settings.enqueue_ms
        if allowed == 0:
            raise BufferFullError(
                self._shortage,
                topic=topic,
                advice=f"send slower, or raise {self._scarce} or enqueue_timeout_ms",
            )
        if allowed is not None:
            return f"enqueue_timeout_ms={allowed}", None if allowed < 0 else now + allowed / 1000
        block = self._settings.max_block
        return f"max_block_ms={round(block * 1000)}", now + block if deadline is None else deadline

    def _delivery(self, record: OutgoingRecord, batch: ProducerBatch) -> Delivery:
        lane = self.lane
        lane.appended += 1
        lane.records_this_turn += 1
        if lane.records_this_turn == _RECORDS_PER_TURN:
            self._count_till_next_turn()
        index = batch.count - 1
        if self._check.takes_headers:
            sticky = None
            if record.partition is None and not batch.full:
                sticky = self._stickiness.of(record.meta.name)
            lane.adopt(record.meta, batch, sticky)
        key, value = record.key, record.value
        return Delivery(
            batch,
            index,
            record.timestamp_ms,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
        )

    def forget_topics(self) -> None:
        """Drops what is kept per topic for those that expired from the metadata."""
        self.lane.retain(self._metadata.cluster.topics)
        self._stickiness.forget_topics(self._metadata)

    def sticky_of(self, topic: str) -> BuiltInPartitioner:
        """The topic's built-in partitioner, with its account settled; the lane has it no more."""
        self.lane.settle(topic)
        return self._stickiness.of(topic)
