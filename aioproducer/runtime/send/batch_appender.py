"""Appending of checked records to batches, without waiting: start with `BatchAppender`.

Invariant: bytes that the fast path has counted for a topic's sticky partitioner are given to the
partitioner before it is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioproducer.core.batching.batch import OnOpened, OutgoingRecord, ProducerBatch
from aioproducer.core.batching.partitioners import BuiltInPartitioner
from aioproducer.errors import KafkaError, SerializationError
from aioproducer.records.batch import HEADER_SIZE
from aioproducer.runtime.delivery import Delivery
from aioproducer.runtime.send.fast_path import FastPath
from aioproducer.types import HeaderPairs, TopicPartition

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.core.batching.accumulator import RecordAccumulator
    from aioproducer.core.batching.partitioners import StickyPartitioners
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.metrics.totals import ProducerStats
    from aioproducer.runtime.send.memory import BufferMemory
    from aioproducer.runtime.send.validation import RecordCheck
    from aioproducer.runtime.tasks.metadata_waiters import MetadataWaiters
    from aioproducer.runtime.tasks.sender import SenderTask
    from aioproducer.types import TopicMetadata

RECORDS_PER_TURN = 1000
"""Records that a loop of sends may append before it yields to the event loop: some ms of work."""
_BYTES_PER_TURN = 512 * 1024
"""Bytes of batches that may be opened in one turn of the loop, not counting the first batch."""


@dataclass(frozen=True, slots=True, eq=False)
class SendPath:
    """The objects that the steps of a `send()` share; `wall_ms` is the clock of timestamps."""

    config: ProducerConfig
    loop: asyncio.AbstractEventLoop
    wall_ms: Callable[[], int]
    metadata: Metadata
    waits: MetadataWaiters
    check: RecordCheck
    sticky_partitioners: StickyPartitioners
    accumulator: RecordAccumulator
    memory: BufferMemory
    sender_task: SenderTask
    stats: ProducerStats


class BatchAppender:
    """Put records into batches."""

    def __init__(self, path: SendPath) -> None:
        config = path.config
        self._accumulator = path.accumulator
        self._metadata = path.metadata
        self._pool = path.memory.pool
        self._sender_task = path.sender_task
        self._check = path.check
        self._sticky_partitioners = path.sticky_partitioners
        self._loop = path.loop
        self._spare: ProducerBatch | None = None
        settings = path.accumulator.settings
        self._lingers = settings.linger > 0
        # With linger the next record may not be awaited.
        self._has_spares = not self._lingers and settings.first_size(0) == self._pool.poolable
        self._opened_this_turn = 0
        self._turn_is_counted = False
        self._on_record_opens: OnOpened = None
        self.size_limit: int = min(config.max_request_size, self._pool.total)
        self.sticks: bool = config.partitioner == "default"
        self.hashes_keys: bool = self.sticks and not config.partitioner_ignore_keys
        self.fast_path: FastPath = FastPath(
            self,
            RECORDS_PER_TURN,
            metadata=path.metadata,
            loop=path.loop,
            wall_ms=path.wall_ms,
            choice=path.check.choice,
        )

    @contextmanager
    def opening(self, on_opened: OnOpened) -> Iterator[None]:
        """Give records of the fast path this `on_opened` within a block that does not wait."""
        if on_opened is not None:
            self.drop_spare()  # which is sent at once
        self._on_record_opens = on_opened
        try:
            yield
        finally:
            self._on_record_opens = None

    def may_open(self, size: int) -> bool:
        """Return whether a new batch of `size` bytes may be opened in this turn of the loop."""
        opened = self._opened_this_turn
        return not opened or opened + size <= _BYTES_PER_TURN

    def batch_bytes(self, record: OutgoingRecord) -> int:
        """Return the bytes of memory that a new batch for this record takes."""
        return self._accumulator.settings.first_size(record.size)

    def try_append(self, record: OutgoingRecord) -> ProducerBatch | None:
        """Append to an open batch; None if no open batch has room."""
        if self._accumulator.is_idle:
            return None
        if record.partition is None:
            batch = self._try_append_stickily(record)
        else:
            batch = self._append_to(record, record.partition)
        # Also where there was no room: that has made a batch full, which is due then.
        self._notify_sender(may_send=batch is not None and record.on_opened is None)
        return batch

    def try_open(self, record: OutgoingRecord) -> ProducerBatch | None:
        """Append to a new batch; None if there is no free memory."""
        size = self.batch_bytes(record)
        try:
            buffer = self._pool.try_allocate(size)
            return None if buffer is None else self._open(record, buffer, size)
        except KafkaError:
            raise
        except BaseException as interrupt:
            if interrupt is not self._pool.out_of_memory:
                self._sender_task.on_interrupt(interrupt)  # the buffer's owner is unknown
            raise

    def open(self, record: OutgoingRecord, buffer: bytearray, size: int) -> ProducerBatch:
        """Append to a new batch on this buffer, right after `try_append` has returned None.

        After an error the buffer has been given back.
        """
        try:
            return self._open(record, buffer, size)
        except KafkaError:
            raise
        except BaseException as interrupt:
            self._sender_task.on_interrupt(interrupt)  # the buffer's owner is unknown
            raise

    def _open(self, record: OutgoingRecord, buffer: bytearray, size: int) -> ProducerBatch:
        meta = record.meta
        sticky = None
        partition = record.partition
        if partition is None:
            sticky = self.sticky_of(meta.name)
            partition = sticky.peek(meta)
            if sticky.is_over_limit:
                partition = self._after_put_off_switch(sticky, partition, meta)
        now = self._loop.time()
        try:
            batch = self._accumulator.begin_batch(record, partition, now, buffer=buffer, size=size)
        except (TypeError, ValueError) as error:
            self._pool.deallocate(buffer, size)
            raise SerializationError(str(error), topic=meta.name) from error
        is_full = batch.full
        is_gathered = record.on_opened is not None
        lingers = is_gathered or (self._lingers and not self._is_alone(record))
        if lingers or not self._sender_task.try_send_directly(batch, now):
            self._enqueue(batch, now, record.on_opened)
        if sticky is not None:
            self._sticky_partitioners.update_queue_weights(sticky, meta, now)
            sticky.update(partition, record.size, meta, enable_switch=is_full)
        return batch

    def open_whole(
        self, records: Sequence[OutgoingRecord], buffer: bytearray, size: int
    ) -> ProducerBatch:
        """Open a batch of these records, which takes no others and is written whole or not at all.

        After an error the buffer has been given back.
        """
        first = records[0]
        meta, partition, sticky = first.meta, first.partition, None
        if partition is None:
            sticky = self.sticky_of(meta.name)
            partition = sticky.peek(meta)
        now = self._loop.time()
        try:
            batch = self._accumulator.append_as_batch(
                records, partition, now, buffer=buffer, size=size
            )
        except (TypeError, ValueError) as error:
            self._pool.deallocate(buffer, size)
            raise SerializationError(str(error), topic=meta.name) from error
        self.fast_path.appended += len(records)
        written = batch.uncompressed_size
        self._on_opened(size, now)
        if sticky is not None:
            self._sticky_partitioners.update_queue_weights(sticky, meta, now)
            sticky.update(partition, written, meta, enable_switch=True)
        return batch

    def delivery(self, record: OutgoingRecord, batch: ProducerBatch) -> Delivery:
        """Return the `Delivery` of a record that was just appended to this batch."""
        meta = record.meta
        # After a wait, a record may have earlier metadata: the fast path must not return to it.
        if self._check.takes_headers and self._metadata.topic(meta.name) is meta:
            sticky = None
            if record.partition is None:
                sticky = self._sticky_partitioners.of(meta.name)
            self.fast_path.use_batch(meta, batch, sticky)
        return self.plain_delivery(record, batch)

    def plain_delivery(self, record: OutgoingRecord, batch: ProducerBatch) -> Delivery:
        """Return what `delivery` does, for a batch that the fast path must not append to."""
        key_size = -1 if record.key is None else len(record.key)
        value_size = -1 if record.value is None else len(record.value)
        at = batch.count - 1
        return self.fast_path.delivery(batch, at, record.timestamp_ms, key_size, value_size)

    def sticky_of(self, topic: str) -> BuiltInPartitioner:
        """Return the topic's built-in partitioner; the fast path uses it no more."""
        self.fast_path.count_sticky_bytes(topic)
        return self._sticky_partitioners.of(topic)

    def install_spare(self, place: TopicPartition) -> None:
        """Put a spare batch into the fast path after a record sent directly is acknowledged."""
        if self._has_spares and self._check.takes_headers and self.fast_path.open:
            spare = self._spare_for(place)
            if spare is not None:
                self.fast_path.use_spare(spare)

    def drop_spare(self) -> None:
        """Give up the spare: no record is appended to it any more."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.take_buffer()
        self._pool.return_exposed()

    def drop_expired_topics(self) -> None:
        """Drop the state of topics that have expired from the metadata."""
        self.drop_spare()
        self.fast_path.retain(self._metadata.cluster.topics)
        self._sticky_partitioners.drop_expired_topics(self._metadata)

    def append_checked(
        self,
        meta: TopicMetadata,
        partition: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs,
        size: int,
        is_awaited: bool,
    ) -> Delivery | None:
        """Append a record that the fast path has checked; see `Batches`."""
        if not self._check.takes_headers:
            return None
        record = OutgoingRecord(
            meta,
            partition,
            timestamp_ms,
            key,
            value,
            headers,
            size,
            self._on_record_opens,
            is_awaited=is_awaited,
        )
        batch = self.try_append(record)
        if batch is None and self.may_open(self.batch_bytes(record)):
            batch = self.try_open(record)
        if batch is None:
            return None
        # The fast path cannot append to a full batch, and has the topic already.
        if batch.full:
            return self.plain_delivery(record, batch)
        return self.delivery(record, batch)

    def send_spare(self) -> None:
        """Send the spare batch, to which the fast path has appended a record."""
        spare, self._spare = self._spare, None
        if spare is None:
            raise RuntimeError("a record was appended to a spare batch that was given up")
        try:
            self._pool.keep_exposed()
            now = self._loop.time()
            if not self._sender_task.try_send_directly(spare, now):
                self._enqueue(spare, now)
        except BaseException as interrupt:
            self._sender_task.on_interrupt(interrupt, (spare,))
            raise

    def count_till_next_turn(self) -> None:
        """Reset the counts of this turn of the loop at its end."""
        if not self._turn_is_counted:
            self._turn_is_counted = True
            self._loop.call_soon(self._on_turn)

    def _is_alone(self, record: OutgoingRecord) -> bool:
        """Return whether its sender awaits the record and no other task sends (adaptive linger)."""
        accumulator = self._accumulator
        return (
            record.is_awaited
            and accumulator.readiness.adaptive_linger.has_one_sender
            and accumulator.is_idle
        )

    def _enqueue(self, batch: ProducerBatch, now: float, on_opened: OnOpened = None) -> None:
        if on_opened is not None and not batch.full:
            batch.gathering = True
            on_opened(batch)
        self._accumulator.enqueue(batch, now)
        self._on_opened(batch.size, now, may_send=on_opened is None)

    def _spare_for(self, place: TopicPartition) -> ProducerBatch | None:
        """Return an empty batch for the next record of a partition; None without memory."""
        spare = self._spare
        if spare is not None:
            if spare.topic_partition == place and not spare.count:
                return spare
            self.drop_spare()
        buffer = self._pool.expose(self.drop_spare)
        if buffer is not None:
            self._spare = self._accumulator.begin_spare(place, buffer, self._pool.poolable)
        return self._spare

    def _try_append_stickily(self, record: OutgoingRecord) -> ProducerBatch | None:
        sticky = self.sticky_of(record.meta.name)
        partition = sticky.peek(record.meta)
        batch = self._append_to(record, partition)
        if batch is None and sticky.is_over_limit:
            partition = self._after_put_off_switch(sticky, partition, record.meta)
            batch = self._append_to(record, partition)
        if batch is not None:
            sticky.update(
                partition, record.size - HEADER_SIZE, record.meta, enable_switch=batch.full
            )
        return batch

    def _after_put_off_switch(
        self, sticky: BuiltInPartitioner, partition: int, meta: TopicMetadata
    ) -> int:
        """Return the partition after an overdue switch, which waits for a full batch (KIP-794)."""
        queue = self._accumulator.queue(meta.name, partition)
        if queue is not None and queue.is_full_up():
            return sticky.move_on(meta)
        return partition

    def _on_opened(self, size: int, now: float, *, may_send: bool = True) -> None:
        # If the partition has no leader, nothing else wakes the sender before the batch expires.
        self._sender_task.turn_at(now + self._accumulator.settings.delivery_timeout, now)
        if not self._notify_sender(may_send=may_send):
            self._opened_this_turn += size
            self.count_till_next_turn()

    def _append_to(self, record: OutgoingRecord, partition: int) -> ProducerBatch | None:
        try:
            return self._accumulator.try_append(record, partition)
        except (TypeError, ValueError) as error:
            raise SerializationError(str(error), topic=record.meta.name) from error

    def _notify_sender(self, *, may_send: bool = True) -> bool:
        """Wake the sender task if a batch is due; True if one was sent at once."""
        if self._accumulator.readiness.next_at >= self._sender_task.sleeping_until:
            return False
        if self._lingers or not may_send:
            self._sender_task.wake()  # more records may join until its turn
            return False
        return self._sender_task.try_send_immediately()

    def _on_turn(self) -> None:
        self._turn_is_counted = False
        self._opened_this_turn = 0
        self.fast_path.records_this_turn = 0
