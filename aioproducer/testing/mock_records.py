"""The records of a `MockProducer` that wait for what a test does with them."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from aioproducer import errors
from aioproducer.config import ProducerConfig
from aioproducer.core.batching.batch import BatchOutcome, ProducerBatch
from aioproducer.core.metadata.cluster import check_topic_name
from aioproducer.metrics.totals import ProducerStats
from aioproducer.partitioners import partition_chooser
from aioproducer.records import record_size_bound
from aioproducer.records.layout import HEADER_SIZE
from aioproducer.runtime.delivery import Delivery, WakeUps
from aioproducer.runtime.delivery.unhandled import UnretrievedFailures
from aioproducer.runtime.send.validation import (
    PartitionChoice,
    checked_timestamp,
    partition_index,
)
from aioproducer.types import HeaderPairs, PartitionMetadata, TopicMetadata, TopicPartition

_BUILDER_BYTES = 256
"""What a batch of one record takes beyond the bound of the record's size."""


@dataclass(frozen=True, slots=True)
class MockRecord:
    """A record as it would have been sent; key and value are serialized."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs
    timestamp_ms: int
    offset: int


@dataclass(slots=True)
class _Waiting:
    record: MockRecord
    batch: ProducerBatch


class WaitingRecords:
    """Records that were accepted and have no outcome yet, each in a separate batch.

    Args:
        config: the producer's.
        topics: partitions per topic; any other topic has one.
        loop: the producer's.
    """

    def __init__(
        self, config: ProducerConfig, topics: Mapping[str, int], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._config = config
        self._topics = topics
        self.failures: int = 0
        self._waiting: deque[_Waiting] = deque()
        self._offsets: Counter[TopicPartition] = Counter()
        choose = partition_chooser(
            config.partitioner, random.Random(0), ignore_keys=config.partitioner_ignore_keys
        )
        self._choose = PartitionChoice(choose)
        self.bind(loop)

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use this loop for records from now on."""
        self._wake_ups = WakeUps(loop)
        on_error = self._config.on_delivery_error
        self._unretrieved = UnretrievedFailures(loop, ProducerStats(), on_error)

    def __len__(self) -> int:
        return len(self._waiting)

    def accept(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs,
        partition: int | None,
        timestamp_ms: int | None,
        *,
        waits: bool,
    ) -> tuple[MockRecord, Delivery]:
        """Check and return one more record, of a call that `waits` for metadata or not."""
        check_topic_name(topic)
        topic = str.__str__(topic)  # as `Metadata.add_topic`
        size = self._size(topic, key, value, headers)
        where = TopicPartition(topic, self._partition(topic, key, value, partition, waits))
        if timestamp_ms is None:
            # Python's clock, not that of the native core: freezegun and time-machine replace it.
            timestamp_ms = time.time_ns() // 1_000_000
        else:
            timestamp_ms = checked_timestamp(timestamp_ms, topic)
        batch = ProducerBatch(
            where,
            bytearray(size + _BUILDER_BYTES),
            size,
            now=0.0,
            owner=self._wake_ups,
            on_unretrieved=self._unretrieved.on_unretrieved,
        )
        if batch.builder is None or batch.builder.try_append(timestamp_ms, key, value, headers) < 0:
            raise errors.SerializationError("the record cannot be written", topic=topic)
        offset = self._offsets[where]
        self._offsets[where] += 1
        record = MockRecord(*where, key, value, headers, timestamp_ms, offset)
        self._waiting.append(_Waiting(record, batch))
        sizes = [-1 if part is None else len(part) for part in (key, value)]
        return record, Delivery(batch, 0, timestamp_ms, *sizes)

    def end_next(self, error: errors.KafkaError | None) -> MockRecord:
        """Acknowledge the record that waits longest, or lets it fail."""
        waiting = self._waiting.popleft()
        self.failures += error is not None
        offset = waiting.record.offset if self._config.acks != 0 else None
        outcome = BatchOutcome(base_offset=offset) if error is None else BatchOutcome(error=error)
        waiting.batch.complete(outcome)
        waiting.batch.take_buffer()
        return waiting.record

    def end_all(self, error: errors.KafkaError | None) -> None:
        """Acknowledge all, or lets them fail."""
        while self._waiting:
            self.end_next(error)

    def _size(
        self, topic: str, key: bytes | None, value: bytes | None, headers: HeaderPairs
    ) -> int:
        try:
            size = record_size_bound(key, value, headers) + HEADER_SIZE
        except (TypeError, ValueError) as error:
            raise errors.SerializationError(str(error), topic=topic) from error
        if size > self._config.max_request_size:
            raise errors.RecordTooLargeError(
                f"the record takes up to {size} bytes, more than "
                f"max_request_size={self._config.max_request_size}",
                topic=topic,
            )
        return size

    def _partition(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int | None, waits: bool
    ) -> int:
        count = self._topics.get(topic, 1)
        is_given = partition is not None
        chosen: object = partition
        if partition is None:
            chosen = self._choose(topic, key, value, _metadata(topic, count))
        number = 0 if chosen is None else partition_index(chosen, topic)
        if number < count:
            return number
        absence = errors.InvalidPartitionError(
            f"{number} is none of {count} partitions", topic=topic
        )
        if not is_given:
            raise absence
        kind = errors.MetadataTimeoutError if waits else errors.WouldBlockError
        what = f"the partition is not present in metadata: the topic has {count} partition(s)"
        raise kind(what, topic=topic, partition=number) from absence


@lru_cache(maxsize=1000)
def _metadata(topic: str, count: int) -> TopicMetadata:
    partitions = tuple(PartitionMetadata(number, 0, 0) for number in range(count))
    return TopicMetadata(topic, UUID(int=1), partitions)
