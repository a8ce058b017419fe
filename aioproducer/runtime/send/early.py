"""Records that are accepted before their topic has metadata: start with `EarlyRecords`.

A producer that connects in the background keeps them in batches without a partition. When metadata
of the topic arrives, their records are put into batches of its partitions, in the order in which
they were accepted and before any later record. `buffer_memory` and `delivery_timeout_ms` apply from
the start.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aioproducer.core.batching.batch import NO_PARTITION, OutgoingRecord, ProducerBatch, RecordParts
from aioproducer.core.metadata.cluster import ZERO_ID
from aioproducer.errors import InvalidPartitionError, KafkaError
from aioproducer.records import record_size_bound
from aioproducer.records.batch import HEADER_SIZE
from aioproducer.runtime.send.validation import partition_index, partitioner_error
from aioproducer.types import TopicMetadata, TopicPartition

if TYPE_CHECKING:
    from aioproducer.core.batching.accumulator import AccumulatorSettings
    from aioproducer.records.reader import DecodedRecord
    from aioproducer.runtime.delivery import Delivery
    from aioproducer.runtime.send.batch_appender import BatchAppender, SendPath
    from aioproducer.runtime.send.validation import RecordCheck

_LONGEST_SPAN_S: Final = 1.0
"""Records of one batch share a delivery timeout: later records get a new batch."""


@dataclass(slots=True, eq=False)
class _EarlyBatch:
    """Records without a partition, and the partitions that were given for them."""

    batch: ProducerBatch
    partitions: list[int | None] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Part:
    """Records for one batch of a partition; with an error, a record that cannot be sent."""

    partition: int
    created_at: float
    size: int = HEADER_SIZE
    records: list[OutgoingRecord] = field(default_factory=list)
    error: KafkaError | None = None


class EarlyRecords:
    """The records of a producer that wait for metadata of their topic."""

    def __init__(self, path: SendPath, batch_appender: BatchAppender) -> None:
        self._accumulator = path.accumulator
        self._metadata = path.metadata
        self._batch_appender = batch_appender
        self._check = path.check
        self._sender_task = path.sender_task
        self._loop = path.loop
        self._topics: dict[str, deque[_EarlyBatch]] = {}

    @property
    def topics(self) -> Collection[str]:
        """Topics that have records here; a live view."""
        return self._topics.keys()

    def takes(self, topic: str) -> bool:
        """Return whether a record of this topic belongs here.

        All do before the first metadata response; later only those after records that are here.
        """
        return topic in self._topics or not self._metadata.version

    def record(self, parts: RecordParts) -> OutgoingRecord:
        """Make a record, checked as far as possible without metadata."""
        topic, key, value, headers, partition, timestamp_ms = parts
        if partition is not None:
            partition = partition_index(partition, topic)
        if self._metadata.fatal_error is not None:
            raise self._metadata.fatal_error.with_context(topic=topic)
        self._metadata.add_topic(topic, self._loop.time())
        nothing = TopicMetadata(str.__str__(topic), ZERO_ID, ())
        record = self._check.record(nothing, key, value, headers, partition or 0, timestamp_ms)
        record.partition = partition
        return record

    def try_append(self, record: OutgoingRecord) -> Delivery | None:
        """Append to the topic's last batch; None if that has no room."""
        batches = self._topics.get(record.meta.name)
        if not batches:
            return None
        last = batches[-1]
        if self._loop.time() - last.batch.created_at > _LONGEST_SPAN_S:
            last.batch.close()
        if not last.batch.try_append(record):
            return None
        last.partitions.append(record.partition)
        return self._batch_appender.plain_delivery(record, last.batch)

    def open(self, record: OutgoingRecord, buffer: bytearray, size: int) -> Delivery:
        """Append to a new batch on this buffer."""
        try:
            return self._open(record, buffer, size)
        except BaseException as interrupt:
            self._sender_task.on_interrupt(interrupt)  # as in `BatchAppender.open`
            raise

    def _open(self, record: OutgoingRecord, buffer: bytearray, size: int) -> Delivery:
        topic, now = record.meta.name, self._loop.time()
        batch = self._accumulator.open_early(record, now, buffer=buffer, size=size)
        early = _EarlyBatch(batch, [record.partition])
        self._topics.setdefault(topic, deque()).append(early)
        batch.add_observer(early, self._discard)
        # No queue has the batch: nothing else wakes the sender when it expires.
        self._sender_task.turn_at(now + self._accumulator.settings.delivery_timeout, now)
        delivery = self._batch_appender.plain_delivery(record, batch)
        if self._metadata.fatal_error is not None:  # since `record`: the call waited for memory
            self._fail(topic, self._metadata.fatal_error)
        return delivery

    def on_metadata(self) -> None:
        """Queue the records of topics that have metadata now; fail those of refused topics."""
        for topic in list(self._topics):
            meta = self._metadata.topic(topic)
            failure = self._metadata.topic_failure(topic)
            if meta is not None:
                self._place(meta)
            elif failure is not None:
                self._fail(topic, failure)

    def fail(self, error: KafkaError) -> None:
        """Fail all records."""
        for topic in list(self._topics):
            self._fail(topic, error)

    def _fail(self, topic: str, error: KafkaError) -> None:
        for early in self._topics.pop(topic):
            self._sender_task.fail(early.batch, error)

    def _discard(self, key: object) -> None:
        """Drop a batch that has expired or was given up."""
        if isinstance(key, _EarlyBatch):
            topic = key.batch.topic_partition.topic
            batches = self._topics.get(topic)
            if batches is not None and key in batches:
                batches.remove(key)
                if not batches:
                    del self._topics[topic]

    def _place(self, meta: TopicMetadata) -> None:
        """Put a topic's records into batches of its partitions, which are due at once."""
        while batches := self._topics.get(meta.name):
            self._topics[meta.name] = deque()  # for records that a partitioner sends meanwhile
            self._place_batches(meta, batches)
        self._topics.pop(meta.name, None)

    def _place_batches(self, meta: TopicMetadata, batches: Collection[_EarlyBatch]) -> None:
        spread = _Spread(meta, self._check, self._batch_appender, self._accumulator.settings)
        given = [zip(each.batch.records(), each.partitions, strict=True) for each in batches]
        checked = [[spread.checked(*record) for record in records] for records in given]
        parts_of: dict[_EarlyBatch, list[tuple[_Part, int]]] = {}
        for early, records in zip(batches, checked, strict=True):
            if not early.batch.done:  # a partitioner may purge the records that it is asked for
                at = early.batch.created_at
                parts_of[early] = [spread.add(*record, at) for record in records]
        made = {part: self._batch_of_part(meta.name, part) for part in spread.parts}
        for early, where in parts_of.items():
            early.batch.remove_listener(early)
            self._accumulator.spread(early.batch, [(made[part], index) for part, index in where])
        for part, batch in made.items():
            if part.error is None:
                self._accumulator.line_up_part(batch)
            else:
                self._sender_task.fail(batch, part.error)

    def _batch_of_part(self, topic: str, part: _Part) -> ProducerBatch:
        where = TopicPartition(topic, part.partition)
        return self._accumulator.part_of_early(where, part.records, part.size, part.created_at)


class _Spread:
    """Sort the records of one topic into batches of its partitions; `parts` has them in order."""

    def __init__(
        self,
        meta: TopicMetadata,
        check: RecordCheck,
        batch_appender: BatchAppender,
        settings: AccumulatorSettings,
    ) -> None:
        self.parts: list[_Part] = []
        self._meta = meta
        self._check = check
        self._batch_appender = batch_appender
        self._batch_size = settings.batch_size
        self._most = settings.batch_records or sys.maxsize
        self._open: dict[int, _Part] = {}

    def checked(
        self, decoded: DecodedRecord, given: int | None
    ) -> tuple[OutgoingRecord, KafkaError | None]:
        """Return a record with the partition that was given or chosen; why it cannot be sent."""
        _, timestamp_ms, key, value, headers = decoded
        try:
            if given is not None and given >= len(self._meta.partitions):
                raise InvalidPartitionError(
                    f"the topic has {len(self._meta.partitions)} partition(s)", partition=given
                )
            record = self._check.record(self._meta, key, value, headers, given, timestamp_ms)
        except Exception as raised:
            size = record_size_bound(key, value, headers) + HEADER_SIZE
            record = OutgoingRecord(self._meta, given, timestamp_ms, key, value, headers, size)
            return record, raised if isinstance(raised, KafkaError) else partitioner_error(raised)
        return record, None

    def add(
        self, record: OutgoingRecord, error: KafkaError | None, created_at: float
    ) -> tuple[_Part, int]:
        """Add a record; return its part and its index there."""
        if error is not None:
            where = NO_PARTITION if record.partition is None else record.partition
            refused = _Part(where, created_at, record.size, [record], error)
            self.parts.append(refused)
            return refused, 0
        size = record.size - HEADER_SIZE
        sticky = None
        if record.partition is None:
            sticky = self._batch_appender.sticky_of(self._meta.name)
            record.partition = sticky.peek(self._meta)
        part = self._part(record.partition, size, created_at)
        part.records.append(record)
        part.size += size
        if sticky is not None:
            sticky.update(record.partition, size, self._meta, enable_switch=False)
        return part, len(part.records) - 1

    def _part(self, partition: int, size: int, created_at: float) -> _Part:
        """Return the last part of a partition, or a new one."""
        part = self._open.get(partition)
        if (
            part is None
            or part.size + size > self._batch_size
            or len(part.records) >= self._most
            or created_at - part.created_at > _LONGEST_SPAN_S
        ):
            part = self._open[partition] = _Part(partition, created_at)
            self.parts.append(part)
        return part
