"""RecordAccumulator: the batches of every partition, from their first record to their outcome.

It keeps one deque of batches per partition, their memory, order, muting and expiry.

Invariants
- A retried batch is inserted before every younger batch of its partition (`ordinal`).
- A batch releases its memory once it has its outcome and no transport holds it.
- After any exception a batch is still incomplete until its listeners were called, and pinned until
  its memory is released: `withdraw_all`, the delivery timeout and `end_all` end what is left.
- The cost of `drain` grows with the partitions that are ready or linger, not with all partitions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from aioproducer.core.batching.batch import NO_PARTITION, BatchOutcome, ProducerBatch
from aioproducer.core.batching.buffer_pool import BufferPool
from aioproducer.core.batching.readiness import PartitionQueue, Readiness
from aioproducer.core.sending.idempotence import Sequencer
from aioproducer.records.batch import HEADER_SIZE
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import OutgoingRecord
    from aioproducer.core.metadata.metadata import Metadata

_FIRST_SIZE = 4096
_ATTEMPTS_WITHOUT_PAUSE, _PAUSE_S = 3, 0.1


@dataclass(frozen=True, slots=True)
class AccumulatorSettings:
    """Options of the accumulator; times in seconds, sizes in bytes."""

    batch_size: int
    linger: float
    delivery_timeout: float
    max_request_size: int
    guarantee_order: bool
    batch_records: int | None = None
    grows: bool = False
    """True if a batch starts small and takes more memory as it fills (KIP-1332)."""

    def first_size(self, record_size: int) -> int:
        """Return the bytes for a new batch whose first record takes up to `record_size`.

        `record_size` includes the header of the batch.
        """
        size = min(self.batch_size, _FIRST_SIZE) if self.grows else self.batch_size
        return max(size, record_size)


class RecordAccumulator:
    """Collects records into batches and hands out those that are due.

    `owner` is stored in each batch for the runtime. `pinned` has the batches that a transport holds
    or is about to get.
    """

    def __init__(
        self,
        settings: AccumulatorSettings,
        pool: BufferPool,
        metadata: Metadata,
        sequencer: Sequencer,
        *,
        owner: object = None,
        on_unretrieved: Callable[[ProducerBatch], None] | None = None,
    ) -> None:
        self.settings = settings
        self.pool = pool
        self.closing = False
        self.growth_per_record = 0
        """Bytes by which a record may grow in a request in the formats of old brokers."""
        self._metadata = metadata
        self.sequencer: Sequencer = sequencer
        self._owner = owner
        self._on_unretrieved = on_unretrieved
        self._queues: dict[str, dict[int, PartitionQueue]] = {}
        self._incomplete = IncompleteBatches(settings.delivery_timeout)
        self.readiness: Readiness = Readiness(
            settings.linger, metadata.leader_of, lambda: self.expedited, self._incomplete
        )
        self._flushes = 0
        self.pinned: set[ProducerBatch] = set()
        self._ordinal = 0

    # -- appending -------------------------------------------------------------------------------

    def queue(self, topic: str, partition: int) -> PartitionQueue | None:
        """Return the queue of a partition, or None if it has had no record."""
        partitions = self._queues.get(topic)
        return None if partitions is None else partitions.get(partition)

    def queue_sizes(self, topic: str) -> dict[int, int]:
        """Return the number of queued batches per partition that has had a record."""
        partitions = self._queues.get(topic, {})
        return {partition: len(queue.batches) for partition, queue in partitions.items()}

    def try_append(self, record: OutgoingRecord, partition: int) -> ProducerBatch | None:
        """Append to the partition's open batch; return None if a new batch is needed.

        The record is the last one of the batch returned: its index is `batch.count - 1`.
        """
        partitions = self._queues.get(record.meta.name)
        queue = None if partitions is None else partitions.get(partition)
        if queue is None or not queue.batches:
            return None
        batch = queue.batches[-1]
        if batch.full:
            return None
        if self.settings.grows:
            self._make_room(batch, record)
        has_room = batch.try_append(record)
        if batch.full and batch is queue.batches[0]:
            self.readiness.replan(queue)  # only the first batch affects readiness
        return batch if has_room else None

    def _make_room(self, batch: ProducerBatch, record: OutgoingRecord) -> None:
        """Double the memory of an open batch if the record then fits and the pool has it."""
        needed = batch.wire_size + record.size - HEADER_SIZE
        largest = min(self.settings.batch_size, self.pool.total)
        if not batch.size < needed <= largest:
            return
        size = min(largest, max(2 * batch.size, needed))
        larger = self.pool.try_allocate(size)
        if larger is not None:
            buffer, before = batch.move_to(larger, size)
            if buffer is not None:
                self.pool.deallocate(buffer, before)

    def begin_batch(
        self, record: OutgoingRecord, partition: int, now: float, *, buffer: bytearray, size: int
    ) -> ProducerBatch:
        """Return a batch with this record, to be passed to `enqueue` or `try_hand_out`.

        On any error the buffer belongs to the caller again.
        """
        place = self._queue_of(record.meta.name, partition).topic_partition
        return self._begin([record], place, now, buffer, size, self.settings.batch_records)

    def begin_spare(
        self, topic_partition: TopicPartition, buffer: bytearray, size: int
    ) -> ProducerBatch:
        """Return an empty batch, to be passed to `enqueue` or `try_hand_out` with a record."""
        place = self._queue_of(*topic_partition).topic_partition
        return self._begin((), place, 0.0, buffer, size, self.settings.batch_records)

    def append_as_batch(
        self,
        records: Sequence[OutgoingRecord],
        partition: int,
        now: float,
        *,
        buffer: bytearray,
        size: int,
    ) -> ProducerBatch:
        """Enqueue one batch of exactly these records, written as a whole or not at all.

        On any error the buffer belongs to the caller again.
        """
        place = self._queue_of(records[0].meta.name, partition).topic_partition
        batch = self._begin(records, place, now, buffer, size, None)
        batch.indivisible = True
        batch.close()
        self.enqueue(batch, now)
        return batch

    def open_early(
        self, record: OutgoingRecord, now: float, *, buffer: bytearray, size: int
    ) -> ProducerBatch:
        """Open a batch with a record of a topic without metadata; it is not queued.

        On any error the buffer belongs to the caller again. See `spread`.
        """
        where = TopicPartition(record.meta.name, NO_PARTITION)
        batch = self._begin([record], where, now, buffer, size, self.settings.batch_records)
        batch.begin(self._next_ordinal(), now)
        self._incomplete.add(batch)
        return batch

    def part_of_early(
        self, where: TopicPartition, records: Sequence[OutgoingRecord], size: int, created_at: float
    ) -> ProducerBatch:
        """Return a batch of one partition for records of `open_early`.

        Its `size` bytes are not counted by the pool.
        """
        part = self._begin(records, where, created_at, bytearray(size), 0, None)
        part.begin(self._next_ordinal(), created_at)
        part.close()
        return part

    def spread(self, batch: ProducerBatch, places: Sequence[tuple[ProducerBatch, int]]) -> None:
        """Move the records of a batch of `open_early` to parts; it is done when they are."""
        batch.spread(places)
        keys = {(batch, part): part for part in batch.parts}
        on_part_done = self._when_all_are_done(batch, keys)
        for key, part in keys.items():
            self.pin(batch)
            part.add_observer(key, on_part_done)
        self._incomplete.discard(batch)

    def line_up_part(self, part: ProducerBatch) -> None:
        """Put a part of batches that were `spread` at the end of its partition's queue."""
        self._incomplete.add_part(part)
        self._put_last(part, self._queue_of(*part.topic_partition))

    def enqueue(self, batch: ProducerBatch, now: float) -> None:
        """Put a new batch at the end of its partition's queue and close the previous one."""
        queue = self._queue_of(*batch.topic_partition)
        self._enlist(batch, now)
        self._put_last(batch, queue)

    def _put_last(self, batch: ProducerBatch, queue: PartitionQueue) -> None:
        is_planned = False
        if queue.batches:
            last = queue.batches[-1]
            is_planned = last.full
            last.close()
        queue.batches.append(batch)
        if not is_planned:
            self.readiness.replan(queue)

    def try_hand_out(self, batch: ProducerBatch, now: float, leader_epoch: int) -> bool:
        """Do `enqueue`, `drain` and `pin` of a new batch; return False if it has to be queued.

        It must not overtake another batch: False while any batch is queued, the partition is muted,
        or the sequencer does not allow it.
        """
        queue = self._queue_of(*batch.topic_partition)
        if self.has_queued or queue.muted or not self.sequencer.may_drain(batch, now, leader_epoch):
            return False
        self.pin(batch)
        self._enlist(batch, now)
        self.sequencer.on_drained(batch)
        batch.on_attempt(now, leader_epoch)
        queue.muted = self.settings.guarantee_order
        return True

    def end_gathering(self, batches: Iterable[ProducerBatch]) -> None:
        """Make these batches due: the call that added records to them pauses or is done."""
        for batch in batches:
            batch.gathering = False
            queue = self.queue(*batch.topic_partition)
            if queue is not None and queue.batches and queue.batches[0] is batch:
                self.readiness.replan(queue)

    # -- what is due -----------------------------------------------------------------------------

    @property
    def expedited(self) -> bool:
        """Whether batches must not linger: a task waits for memory, a flush or the close."""
        return self._flushes > 0 or self.closing or self.pool.queued > 0

    @property
    def next_expiry_at(self) -> float:
        """Loop time at which the oldest batch expires."""
        return self._incomplete.next_expiry_at

    def drain(self, node_id: int, now: float) -> list[ProducerBatch]:
        """Take at most one batch of each ready partition of a node, for one request.

        Their total size is at most `max_request_size`, unless the first alone exceeds it.
        """
        readiness, sequencer = self.readiness, self.sequencer
        drained: list[ProducerBatch] = []
        size = 0
        for _ in range(readiness.begin_request(node_id)):
            queue = readiness.take(node_id)
            head = queue.batches[0]
            if (
                readiness.ready_at(queue) > now
                or readiness.leader_of(queue.topic_partition) != node_id
            ):
                readiness.replan(queue)
                continue
            head_size = head.wire_size
            if head.encoded is None:
                head_size += self.growth_per_record * head.count
            if drained and size + head_size > self.settings.max_request_size:
                readiness.put_back(node_id, queue)
                break
            leader_epoch = self._metadata.leader_epoch(*queue.topic_partition)
            if not sequencer.may_drain(head, now, leader_epoch):
                continue
            queue.batches.popleft()
            size += head_size
            sequencer.on_drained(head)
            head.on_attempt(now, leader_epoch)
            queue.muted = self.settings.guarantee_order
            drained.append(head)
            readiness.replan(queue)
        return drained

    def on_metadata_update(self, now: float) -> None:
        """Replan partitions with a new leader that are ready, leaderless or backing off."""
        queues: list[PartitionQueue] = []
        for topic in self._metadata.cluster.pop_changed_topics():
            queues += self._queues.get(topic, {}).values()
        self.readiness.on_leaders_changed(queues)
        for queue in queues:
            for batch in queue.batches:
                if batch.attempts and batch.retry_at > now:
                    batch.retry_at = self._retry_at(batch, now, batch.retry_at)
                    self.readiness.replan(queue)

    def drop_expired_topics(self) -> None:
        """Drop the queues of topics that expired from the metadata, but not their sequences."""
        for topic in [name for name in self._queues if self._metadata.topic(name) is None]:
            queues = self._queues[topic].values()
            if not any(queue.batches or queue.muted for queue in queues):
                for queue in queues:
                    self.readiness.discard(queue)
                del self._queues[topic]

    # -- after an attempt ------------------------------------------------------------------------

    def reenqueue(self, batch: ProducerBatch, now: float, delay: float) -> None:
        """Put a batch back in its place in the queue, ready again after a delay in seconds.

        It is ready sooner if the leader changed meanwhile: no later update would report that.
        """
        batch.retry_at = self._retry_at(batch, now, now + delay)
        queue = self._queue_of(*batch.topic_partition)
        position = 0
        for other in queue.batches:
            if other.ordinal > batch.ordinal:
                break
            position += 1
        queue.batches.insert(position, batch)
        self.readiness.replan(queue)

    def enqueue_parts(
        self, batch: ProducerBatch, parts: Sequence[ProducerBatch], now: float
    ) -> None:
        """Put the parts of a split batch in its place; it is done when they are.

        The pool does not count their memory; it counts the whole batch until then.
        """
        on_part_done = self._when_all_are_done(batch, parts)
        for part in parts:
            self.pin(batch)
            self._incomplete.add_part(part)
            part.add_observer(part, on_part_done)
            self.reenqueue(part, now, 0)
        self._incomplete.discard(batch)

    def _when_all_are_done(
        self, batch: ProducerBatch, keys: Iterable[object]
    ) -> Callable[[object], None]:
        """Return a listener for the parts of a batch; each key pins the batch once."""
        left = set(keys)

        def on_part_done(key: object) -> None:
            if key not in left:
                return  # called again after an exception
            left.discard(key)
            if not left:
                batch.complete(BatchOutcome())
            self.unpin(batch)

        return on_part_done

    def unmute(self, topic_partition: TopicPartition) -> None:
        """Unmute a partition after a response, and replan it."""
        queue = self.queue(*topic_partition)
        if queue is not None:
            queue.muted = False
            if queue.batches:
                self.readiness.replan(queue)

    def pin(self, batch: ProducerBatch) -> None:
        """Pin the batch's memory, which a transport may read from now on."""
        self.pinned.add(batch)
        batch.pins += 1

    def unpin(self, batch: ProducerBatch) -> None:
        """Unpin the batch's memory, which the transport does not need any more."""
        batch.pins -= 1
        if not batch.pins:
            if batch.done:
                self._deallocate(batch)
            self.pinned.discard(batch)

    def complete(self, batch: ProducerBatch, outcome: BatchOutcome) -> bool:
        """Set the outcome of a batch; return False if it had one."""
        first = batch.complete(outcome)
        if not batch.pins:
            self._deallocate(batch)
        # Last: after an exception above the batch is still listed, and the next call ends it.
        self._incomplete.discard(batch)
        return first

    def acknowledge(self, batch: ProducerBatch, outcome: BatchOutcome) -> None:
        """Do `complete`, `unmute` and `unpin` in one, for a batch without an outcome."""
        self.complete(batch, outcome)
        self.unmute(batch.topic_partition)
        self.unpin(batch)

    def expired(self, now: float) -> list[ProducerBatch]:
        """Return the batches past their delivery timeout."""
        return self._incomplete.expired(now)

    def withdraw(self, batches: Iterable[ProducerBatch]) -> None:
        """Remove batches that are about to be completed from their queues."""
        for batch in batches:
            queue = self.queue(*batch.topic_partition)
            if queue is not None and not batch.pins and batch in queue.batches:
                queue.batches.remove(batch)
                self.readiness.place_again(queue)

    def withdraw_all(
        self,
        *,
        in_flight: bool,
        queued: bool = True,
        only: Callable[[ProducerBatch], bool] | None = None,
    ) -> list[ProducerBatch]:
        """Remove batches without an outcome from their queues and return them."""
        batches = [batch for batch in self.incomplete() if (in_flight if batch.pins else queued)]
        if only is not None:
            batches = [batch for batch in batches if only(batch)]
        self.withdraw(batches)
        return batches

    def end_all(
        self, others: Iterable[ProducerBatch], outcome_of: Callable[[ProducerBatch], BatchOutcome]
    ) -> None:
        """End every batch, also `others` that may be missing, and drop the memory.

        For the state that an exception left, when nothing is appended or sent any more.
        """
        for batch in [*others, *self.incomplete(), *self.pinned]:
            if not batch.done:
                batch.possibly_persisted |= batch.on_wire or batch.pins > 0
            batch.complete(outcome_of(batch))
            self._incomplete.discard(batch)
            batch.abandon()
        self.pinned.clear()
        self.pool.write_off()

    # -- flush and close -------------------------------------------------------------------------

    @property
    def has_incomplete(self) -> bool:
        """Whether any batch has no outcome yet."""
        return bool(self._incomplete)

    @property
    def has_queued(self) -> bool:
        """Whether any batch is not at a transport: it is queued, or has no partition yet."""
        return any(not batch.pins for batch in self._incomplete)

    @property
    def is_idle(self) -> bool:
        """Whether every batch has its outcome and no transport holds one."""
        return not self.pinned and not self._incomplete

    @property
    def has_only_single_records(self) -> bool:
        """Whether each incomplete batch has one record."""
        return all(batch.count == 1 for batch in self._incomplete)

    def incomplete(self) -> Iterator[ProducerBatch]:
        """Iterate over the batches without an outcome."""
        return iter(self._incomplete)

    def begin_flush(self) -> None:
        """Disable linger until `end_flush`."""
        self._flushes += 1
        self.readiness.expedite()

    def end_flush(self) -> None:
        """End one `begin_flush`."""
        self._flushes -= 1

    def replan_all(self) -> None:
        """Replan every partition with batches, after an event that blocked all of them."""
        for topic_partition in {batch.topic_partition: None for batch in self.incomplete()}:
            if topic_partition.partition != NO_PARTITION:
                self.readiness.replan(self._queue_of(*topic_partition))

    def _queue_of(self, topic: str, partition: int) -> PartitionQueue:
        partitions = self._queues.setdefault(topic, {})
        queue = partitions.get(partition)
        if queue is None:
            queue = partitions[partition] = PartitionQueue(TopicPartition(topic, partition))
        return queue

    def _retry_at(self, batch: ProducerBatch, now: float, planned: float) -> float:
        """Return when to retry: sooner than planned if the leader changed meanwhile (KIP-951).

        Leaders that change with every attempt are no election: there is a pause then.
        """
        if self._metadata.leader_epoch(*batch.topic_partition) <= batch.leader_epoch:
            return planned
        pause = 0 if batch.attempts <= _ATTEMPTS_WITHOUT_PAUSE else _PAUSE_S
        return min(planned, now + pause)

    def _begin(
        self,
        records: Sequence[OutgoingRecord],
        place: TopicPartition,
        now: float,
        buffer: bytearray,
        size: int,
        most: int | None,
    ) -> ProducerBatch:
        batch = ProducerBatch(
            place,
            buffer,
            size,
            now=now,
            owner=self._owner,
            on_unretrieved=self._on_unretrieved,
            most=most,
        )
        for record in records:
            if not batch.try_append(record):
                raise ValueError(
                    f"a buffer of {len(buffer)} bytes does not hold the record it is for"
                )
        return batch

    def _next_ordinal(self) -> tuple[int, ...]:
        self._ordinal += 1
        return (self._ordinal,)

    def _enlist(self, batch: ProducerBatch, now: float) -> None:
        ordinal = self._next_ordinal()
        self._incomplete.add(batch)
        batch.begin(ordinal, now)
        self._metadata.add_topic(batch.topic_partition.topic, now)
        if self.sequencer.on_opened is not None:
            self.sequencer.on_opened(batch.topic_partition)

    def _deallocate(self, batch: ProducerBatch) -> None:
        records, buffer = batch.count, batch.take_buffer()
        if buffer is not None:
            self.pool.deallocate(buffer, batch.size)
            if batch.size:  # else it is a part of a batch that counts all its records
                self.pool.return_records(records)


class IncompleteBatches:
    """The batches without an outcome, in the order in which they expire.

    Batches are added in the order of their creation and share one timeout: the first one expires
    first. The parts of other batches, by ordinal, are older than their position. A heap has them by
    age: there can be thousands, those of early records. Its first entry is never a removed part.
    """

    def __init__(self, delivery_timeout: float) -> None:
        self._timeout = delivery_timeout
        # Not a dict: finding its first key gets slower with every deleted key before it.
        self._whole: OrderedDict[ProducerBatch, None] = OrderedDict()
        self._parts: dict[tuple[int, ...], ProducerBatch] = {}
        self._by_age: list[tuple[float, tuple[int, ...]]] = []

    def __bool__(self) -> bool:
        return bool(self._whole or self._parts)

    def __len__(self) -> int:
        return len(self._whole) + len(self._parts)

    def __contains__(self, batch: object) -> bool:
        return batch in self._whole or batch in self._parts.values()

    def __iter__(self) -> Iterator[ProducerBatch]:
        yield from self._parts.values()
        yield from self._whole

    def add(self, batch: ProducerBatch) -> None:
        """Add a new batch."""
        self._whole[batch] = None

    def add_part(self, part: ProducerBatch) -> None:
        """Add a part of other batches, which is as old as they are."""
        self._parts[part.ordinal] = part
        heappush(self._by_age, (self._expires_at(part), part.ordinal))

    def discard(self, batch: ProducerBatch) -> None:
        """Remove a batch if it is present."""
        self._whole.pop(batch, None)
        if self._parts and self._parts.pop(batch.ordinal, None) is not None:
            while self._by_age and self._by_age[0][1] not in self._parts:
                heappop(self._by_age)

    @property
    def next_expiry_at(self) -> float:
        """Loop time at which the oldest batch expires; inf without batches."""
        earliest = self._by_age[0][0] if self._by_age else inf
        for batch in self._whole:
            return min(earliest, self._expires_at(batch))
        return earliest

    def expired(self, now: float) -> list[ProducerBatch]:
        """Return the batches past their delivery timeout."""
        if self.next_expiry_at > now:
            return []
        expired = [part for part in self._parts.values() if self._expires_at(part) <= now]
        for batch in self._whole:
            if self._expires_at(batch) > now:
                break
            expired.append(batch)
        return expired

    def _expires_at(self, batch: ProducerBatch) -> float:
        # One expression for both uses, so that rounding cannot make them differ.
        return batch.created_at + self._timeout
