"""Checks of a record's size, timestamp and partition, and the choice of the partition."""

from __future__ import annotations

from uuid import UUID

import numpy
import pytest

from aioproducer.core.batching.batch import OutgoingRecord
from aioproducer.core.batching.buffer_pool import BufferPool
from aioproducer.errors import InvalidPartitionError, RecordTooLargeError, SerializationError
from aioproducer.records import record_size_bound
from aioproducer.records.batch import HEADER_SIZE
from aioproducer.runtime.send.validation import (
    ChoosePartition,
    PartitionChoice,
    RecordCheck,
    checked_timestamp,
    partition_index,
)
from aioproducer.types import PartitionMetadata, TopicMetadata

WALL_MS = 1_700_000_000_000
VALUE = b"v" * 100
SIZE = record_size_bound(None, VALUE, ()) + HEADER_SIZE


def topic_of(partitions: int) -> TopicMetadata:
    return TopicMetadata(
        "t", UUID(int=7), tuple(PartitionMetadata(index, 1, 0) for index in range(partitions))
    )


TOPIC = topic_of(3)


def check_of(
    *,
    max_request_size: int = 1_000,
    memory: int = 1_000,
    choose: ChoosePartition = lambda *_: None,
) -> RecordCheck:
    pool = BufferPool(memory, memory)
    return RecordCheck(max_request_size, pool, PartitionChoice(choose), lambda: WALL_MS)


def record_of(check: RecordCheck, *, timestamp_ms: int | None = None) -> OutgoingRecord:
    return check.record(TOPIC, None, VALUE, (), None, timestamp_ms)


class Partitioner:
    """Chooses 0, 1, 2, ..."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, *_: object) -> int:
        self.asked += 1
        return self.asked - 1


def test_a_record_has_the_size_that_it_takes_at_most_and_the_time_of_its_call() -> None:
    record = record_of(check_of())
    assert (record.size, record.timestamp_ms, record.partition) == (SIZE, WALL_MS, None)


def test_a_record_may_take_as_many_bytes_as_a_request() -> None:
    assert record_of(check_of(max_request_size=SIZE)).size == SIZE
    with pytest.raises(RecordTooLargeError, match=f"max_request_size={SIZE - 1}") as caught:
        record_of(check_of(max_request_size=SIZE - 1))
    assert caught.value.topic == "t"


def test_a_record_may_take_as_many_bytes_as_the_memory() -> None:
    assert record_of(check_of(memory=SIZE)).size == SIZE
    with pytest.raises(RecordTooLargeError, match=f"buffer_memory of {SIZE - 1} bytes") as caught:
        record_of(check_of(memory=SIZE - 1))
    assert caught.value.topic == "t"


@pytest.mark.parametrize("timestamp_ms", [0, 1, 2**63 - 1])
def test_a_timestamp_is_a_number_of_milliseconds_that_fits_63_bits(timestamp_ms: int) -> None:
    assert record_of(check_of(), timestamp_ms=timestamp_ms).timestamp_ms == timestamp_ms


def test_a_timestamp_may_be_an_integer_of_another_type() -> None:
    stamp = record_of(check_of(), timestamp_ms=numpy.int64(7)).timestamp_ms
    assert (stamp, type(stamp)) == (7, int)


@pytest.mark.parametrize(
    ("timestamp_ms", "cause"),
    [(-1, ValueError), (2**63, ValueError), (True, TypeError), (1.5, TypeError), ("1", TypeError)],
)
def test_anything_else_is_no_timestamp(timestamp_ms: object, cause: type[Exception]) -> None:
    with pytest.raises(SerializationError, match="from 0 to 2") as caught:
        checked_timestamp(timestamp_ms, "t")
    assert caught.value.topic == "t"
    assert type(caught.value.__cause__) is cause


@pytest.mark.parametrize(
    ("timestamp_ms", "is_warned_of"),
    [(10**9 - 1, False), (10**9, True), (10**10 - 1, True), (10**10, False)],
)
def test_timestamps_between_2001_and_2286_in_seconds_are_warned_of(
    timestamp_ms: int, is_warned_of: bool, caplog: pytest.LogCaptureFixture
) -> None:
    record_of(check_of(), timestamp_ms=timestamp_ms)
    assert bool(caplog.records) is is_warned_of


@pytest.mark.parametrize("partition", [-1, -(2**70), 2**31, 1.0, "1", None, True])
def test_a_partition_is_a_number_that_requests_can_have(partition: object) -> None:
    assert (partition_index(0, "t"), partition_index(2**31 - 1, "t")) == (0, 2**31 - 1)
    with pytest.raises(InvalidPartitionError, match=r"a number from 0 to 2\*\*31-1, got") as caught:
        partition_index(partition, "t")
    assert caught.value.topic == "t"


def test_a_partitioner_may_choose_any_partition_of_the_topic() -> None:
    check = check_of(choose=Partitioner())
    assert [record_of(check).partition for _ in range(3)] == [0, 1, 2]
    with pytest.raises(InvalidPartitionError, match="chose 3 of 3 partitions"):
        record_of(check)


def test_a_choice_that_was_kept_is_used_once() -> None:
    partitioner = Partitioner()
    choice = PartitionChoice(partitioner)
    choice.keep(b"k", VALUE, TOPIC, 2)
    assert choice("t", b"k", VALUE, TOPIC) == 2
    assert partitioner.asked == 0
    assert choice("t", b"k", VALUE, TOPIC) == 0


@pytest.mark.parametrize(
    ("key", "value", "meta"),
    [(None, VALUE, TOPIC), (b"k", b"other", TOPIC), (b"k", VALUE, topic_of(3))],
)
def test_a_choice_that_was_kept_is_not_used_for_another_record_nor_after_it(
    key: bytes | None, value: bytes, meta: TopicMetadata
) -> None:
    choice = PartitionChoice(Partitioner())
    choice.keep(b"k", VALUE, TOPIC, 2)
    assert choice("t", key, value, meta) == 0
    assert choice("t", b"k", VALUE, TOPIC) == 1
