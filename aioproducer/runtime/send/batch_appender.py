"""From a checked record to its place in a batch, without waiting for anything.

Owns: the choice between an open batch and a new one, the sticky choice of a partition, how much a
turn of the loop may open, the fast path, which is shown every batch, the word to the sender that a
batch is due. Must not know: missing metadata, waits for memory, transactions.

Invariant: the account of a topic's sticky partitioner is settled before it is looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioproducer.core.batching.accumulator import RecordAccumulator
from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.core.batching.buffer_pool import BufferPool
from aioproducer.core.batching.outgoing import OnOpened, OutgoingRecord
from aioproducer.core.batching.partitioners import BuiltInPartitioner
from aioproducer.errors import KafkaError, SerializationError
from aioproducer.records.batch import HEADER_SIZE
from aioproducer.runtime.delivery import Delivery
from aioproducer.runtime.send.fast_path import FastLane, LaneSettings
from aioproducer.runtime.send.sticky import Stickiness
from aioproducer.runtime.send.validation import RecordCheck
from aioproducer.types import HeaderPairs

if TYPE_CHECKING:
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.runtime.tasks.sender import SenderTask
    from aioproducer.types import TopicMetadata

RECORDS_PER_TURN = 1000
"""Some ms of work: what a loop of sends that finds room everywhere may do in one go."""
_BYTES_PER_TURN = 512 * 1024
"""Of batches that are opened in one turn of the loop, beyond the first one."""


class Placing:
    """Puts records into batches.

    Args:
        hashes_keys: see `LaneSettings`, as `sticks`.

    Attributes:
        lane: takes the records that need nothing of what `RecordAppender` does.
    """

    def __init__(
        self,
        *,
        accumulator: RecordAccumulator,
        pool: BufferPool,
        metadata: Metadata,
        sender_task: SenderTask,
        check: RecordCheck,
        stickiness: Stickiness,
        loop: asyncio.AbstractEventLoop,
        wall_ms: Callable[[], int],
        hashes_keys: bool,
        sticks: bool,
    ) -> None:
        self._accumulator = accumulator
        self._metadata = metadata
        self._pool = pool
        self._sender_task = sender_task
        self._check = check
        self._stickiness = stickiness
        self._loop = loop
        self._direct = sender_task.direct
        self._lingers = accumulator.settings.linger > 0
        self._opened_this_turn = 0
        self._turn_is_counted = False
        self._on_record_opens: OnOpened = None
        self.lane: FastLane = FastLane(
            LaneSettings(
                records_per_turn=RECORDS_PER_TURN,
                size_limit=min(accumulator.settings.max_request_size, pool.total),
                hashes_keys=hashes_keys,
                sticks=sticks,
            ),
            metadata=metadata,
            loop=loop,
            wall_ms=wall_ms,
            on_full_turn=self._count_till_next_turn,
            open_batch=self._append_checked,
            send_spare=self._send_spare,
        )

    @contextmanager
    def opening(self, on_opened: OnOpened) -> Iterator[None]:
        """Within the block, which does not wait, the lane's records have this `on_opened`."""
        if on_opened is not None:
            self.drop_spare()  # which is sent at once
        self._on_record_opens = on_opened
        try:
            yield
        finally:
            self._on_record_opens = None

    def may_open(self, size: int) -> bool:
        """Whether this turn of the loop may see another new batch, of so many bytes."""
        opened = self._opened_this_turn
        return not opened or opened + size <= _BYTES_PER_TURN

    def batch_bytes(self, record: OutgoingRecord) -> int:
        """Bytes of memory that a new batch for this record takes."""
        return self._accumulator.settings.first_size(record.size)

    def try_append(self, record: OutgoingRecord) -> ProducerBatch | None:
        """Appends to an open batch; None when that cannot be.

        Raises:
            SerializationError: key, value or headers are nothing that can be written.
        """
        if self._accumulator.quiet:
            return None
        if record.partition is None:
            batch = self._try_append_stickily(record)
        else:
            batch = self._append_to(record, record.partition)
        if batch is not None:
            self._tell_sender(may_hurry=record.on_opened is None)
        return batch

    def try_open(self, record: OutgoingRecord, size: int) -> ProducerBatch | None:
        """Appends to a new batch of that many `batch_bytes`; None when there is no memory now."""
        buffer = None
        try:
            buffer = self._pool.try_allocate(size)
            return None if buffer is None else self._open(record, buffer, size)
        except KafkaError:
            raise
        except BaseException as interrupt:
            if interrupt is not self._pool.out_of_memory:
                self._sender_task.on_interrupt(interrupt)  # nothing tells whose buffer it is
            raise

    def open(self, record: OutgoingRecord, buffer: bytearray, size: int) -> ProducerBatch:
        """Appends to a new batch on this buffer, right behind a `try_append` that found no room.

        Raises:
            SerializationError: as `try_append`; the buffer has been given back.
        """
        try:
            return self._open(record, buffer, size)
        except KafkaError:
            raise
        except BaseException as interrupt:
            self._sender_task.on_interrupt(interrupt)  # whose buffer it is, is not known any more
            raise

    def _open(self, record: OutgoingRecord, buffer: bytearray, size: int) -> ProducerBatch:
        meta = record.meta
        sticky = None
        partition = record.partition
        if partition is None:
            sticky = self.sticky_of(meta.name)
            partition = sticky.peek(meta)
            if sticky.overstays:
                partition = self._after_put_off_switch(sticky, partition, meta)
        now = self._loop.time()
        try:
            batch = self._accumulator.begin_batch(record, partition, now, buffer=buffer, size=size)
        except (TypeError, ValueError) as error:
            self._pool.deallocate(buffer, size)
            raise SerializationError(str(error), topic=meta.name) from error
        is_full = batch.full
        self._send(batch, now, record.on_opened)
        if sticky is not None:
            self._stickiness.weigh(sticky, meta, now)
            sticky.update(partition, record.size, meta, enable_switch=is_full)
        return batch

    def open_whole(
        self, records: Sequence[OutgoingRecord], buffer: bytearray, size: int
    ) -> ProducerBatch:
        """One batch of these records, which takes no others and is written whole or not at all.

        Raises:
            SerializationError: as `try_append`; the buffer has been given back.
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
        self.lane.appended += len(records)
        written = batch.uncompressed_size
        self._on_opened(size, now)
        if sticky is not None:
            self._stickiness.weigh(sticky, meta, now)
            sticky.update(partition, written, meta, enable_switch=True)
        return batch

    def delivery(self, record: OutgoingRecord, batch: ProducerBatch) -> Delivery:
        """The handle of a record that was just appended to this batch."""
        if self._check.takes_headers:
            sticky = None
            if record.partition is None and not batch.full:
                sticky = self._stickiness.of(record.meta.name)
            self.lane.adopt(record.meta, batch, sticky)
        at = batch.count - 1
        return self._handle(batch, at, record.timestamp_ms, record.key, record.value)

    def early_delivery(self, record: OutgoingRecord, batch: ProducerBatch) -> Delivery:
        """`delivery` for a batch that the lane must not append to."""
        at = batch.count - 1
        return self._handle(batch, at, record.timestamp_ms, record.key, record.value)

    def sticky_of(self, topic: str) -> BuiltInPartitioner:
        """The topic's built-in partitioner, with its account settled; the lane has it no more."""
        self.lane.settle(topic)
        return self._stickiness.of(topic)

    def lend_spare(self) -> None:
        """Put a spare batch into the fast lane after a record sent directly is acknowledged.

        Not while another batch is incomplete: the next record is not likely to leave directly.
        """
        direct = self._direct
        place = None if direct is None else direct.take_acknowledged()
        if direct is None or place is None or not self._accumulator.quiet:
            return
        meta = self._metadata.topic(place.topic)
        if (
            meta is None
            or place.partition >= len(meta.partitions)
            or not self._check.takes_headers
            or not self.lane.open
        ):
            return
        spare = direct.spare_for(place)
        if spare is None:
            return
        sticky = self.sticky_of(place.topic)
        sticks = sticky.current == place.partition and not sticky.overstays
        if sticks:
            self._stickiness.weigh(sticky, meta, self._loop.time())
        self.lane.adopt(meta, spare, sticky if sticks else None, True)

    def drop_spare(self) -> None:
        """Keep the next record from being sent directly by the fast lane."""
        if self._direct is not None:
            self._direct.drop_spare()

    def forget_topics(self) -> None:
        """Drops what is kept per topic for those that expired from the metadata."""
        self.drop_spare()
        self.lane.retain(self._metadata.cluster.topics)
        self._stickiness.forget_topics(self._metadata)

    # -- private ---------------------------------------------------------------------------------

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
        record = OutgoingRecord(
            meta, partition, timestamp_ms, key, value, headers, size, self._on_record_opens
        )
        batch = self.try_append(record)
        if batch is None:
            size = self.batch_bytes(record)
            if self.may_open(size):
                batch = self.try_open(record, size)
        if batch is None:
            return None
        # One without room is nothing for the lane, which knows the topic.
        if batch.full:
            return self._handle(batch, batch.count - 1, timestamp_ms, key, value)
        return self.delivery(record, batch)

    def _send(self, batch: ProducerBatch, now: float, on_opened: OnOpened = None) -> None:
        """Send a batch that no queue has yet, or put it into its queue."""
        if on_opened is None and self._direct is not None and self._direct.send(batch, now):
            return
        if on_opened is not None and not batch.full:
            batch.gathering = True
            on_opened(batch)
        self._accumulator.enqueue(batch, now)
        self._on_opened(batch.size, now, may_hurry=on_opened is None)

    def _send_spare(self) -> None:
        """The spare batch has got its record in the fast lane."""
        direct, spare = self._direct, None
        if direct is None:
            raise RuntimeError("there is no spare batch")
        try:
            spare = direct.take_spare()
            self._send(spare, self._loop.time())
        except BaseException as interrupt:
            self._sender_task.on_interrupt(interrupt, () if spare is None else (spare,))
            raise

    def _try_append_stickily(self, record: OutgoingRecord) -> ProducerBatch | None:
        sticky = self.sticky_of(record.meta.name)
        partition = sticky.peek(record.meta)
        batch = self._append_to(record, partition)
        if batch is None and sticky.overstays:
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
        """Where to go behind an overstayed partition: a switch waits for a full one (KIP-794)."""
        queue = self._accumulator.queue(meta.name, partition)
        if queue is not None and queue.is_full_up():
            sticky.update(partition, 0, meta, enable_switch=True)
            return sticky.peek(meta)
        return partition

    def _handle(
        self,
        batch: ProducerBatch,
        index: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
    ) -> Delivery:
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        return self.lane.delivery(batch, index, timestamp_ms, key_size, value_size)

    def _on_opened(self, size: int, now: float, *, may_hurry: bool = True) -> None:
        # Its partition may wait for a broker: then nothing else would wake the sender in time.
        self._sender_task.advance(now + self._accumulator.settings.delivery_timeout)
        # Now, as the record waits for nothing that follows.
        if not self._tell_sender(may_hurry=may_hurry):
            self._opened_this_turn += size
            self._count_till_next_turn()

    def _append_to(self, record: OutgoingRecord, partition: int) -> ProducerBatch | None:
        try:
            return self._accumulator.try_append(record, partition)
        except (TypeError, ValueError) as error:
            raise SerializationError(str(error), topic=record.meta.name) from error

    def _tell_sender(self, *, may_hurry: bool = True) -> bool:
        """A record was appended: wakes the sender if a batch is due; True if one left at once."""
        if self._accumulator.readiness.next_at >= self._sender_task.sleeping_until:
            return False
        if self._lingers or not may_hurry:
            self._sender_task.wake()  # and others may join until it has its turn
            return False
        return self._sender_task.hurry()

    def _count_till_next_turn(self) -> None:
        if not self._turn_is_counted:
            self._turn_is_counted = True
            self._loop.call_soon(self._on_turn)

    def _on_turn(self) -> None:
        self._turn_is_counted = False
        self._opened_this_turn = 0
        self.lane.records_this_turn = 0
