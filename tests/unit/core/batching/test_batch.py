"""A batch: its records, its outcome, and the batches that its records may be moved to."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from aioproducer.core.batching.batch import BatchOutcome, OutgoingRecord, ProducerBatch, outcome_at
from aioproducer.errors import (
    IllegalStateError,
    InvalidRecordError,
    KafkaError,
    NodeDisconnectedError,
)
from aioproducer.records.batch import HEADER_SIZE
from aioproducer.types import Persistence, TimestampType, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ERROR = NodeDisconnectedError("gone")


def batch_of(*values: bytes, size: int = 1000, where: TopicPartition = T0, **options: Any) -> Any:
    batch = ProducerBatch(where, bytearray(size), size, now=7.0, **options)
    for value in values:
        assert append(batch, value)
    return batch


def append(batch: ProducerBatch, value: bytes) -> bool:
    return batch.try_append(
        OutgoingRecord(None, 0, 1, None, value, (), len(value) + 20)  # type: ignore[arg-type]
    )


def values_of(batch: ProducerBatch) -> list[bytes | None]:
    return [record.value for record in batch.records()]


# -- records -----------------------------------------------------------------------------------


def test_a_new_batch_was_not_sent_and_is_open() -> None:
    batch = batch_of(ordinal=(3,))
    assert (batch.topic_partition, batch.size, batch.ordinal, batch.created_at) == (
        T0,
        1000,
        (3,),
        7.0,
    )
    assert (batch.attempts, batch.pins, batch.retrieved, batch.leader_epoch) == (0, 0, 0, -1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert (batch.last_attempt_at, batch.retry_at) == (7.0, 7.0)
    flags = ("full", "urgent", "on_wire", "possibly_persisted", "done", "has_sequence")
    assert not any(getattr(batch, name) for name in (*flags, "indivisible", "gathering"))
    assert (batch.outcome, batch.encoded, batch.last_error, batch.topic_id) == (
        None,
        None,
        None,
        UUID(int=0),
    )
    assert ProducerBatch(T0, bytearray(100), 100, now=0.0).ordinal == (0,)


def test_records_are_kept_in_order_until_there_is_no_room() -> None:
    batch = batch_of(b"1", b"22", size=HEADER_SIZE + 40)
    assert not append(batch, b"x" * 100)
    assert batch.full
    assert not append(batch, b"3")
    assert (batch.count, values_of(batch)) == (2, [b"1", b"22"])


def test_a_batch_is_full_with_its_last_record() -> None:
    batch = batch_of(b"1", most=2)
    assert not batch.full
    assert append(batch, b"2")
    assert batch.full
    assert not append(batch, b"3")
    assert values_of(batch) == [b"1", b"2"]
    assert batch_of(b"1", most=1).full


def test_sizes_are_those_of_the_records_until_the_memory_is_given_back() -> None:
    batch = batch_of(b"1", b"22")
    assert batch.uncompressed_size == HEADER_SIZE + batch.builder.size
    assert batch.wire_size == batch.uncompressed_size
    assert batch.largest_record == batch.builder.largest > 0
    buffer = batch.buffer
    assert batch.take_buffer() is buffer
    assert (batch.uncompressed_size, batch.largest_record, batch.count) == (HEADER_SIZE, 0, 2)
    assert batch.take_buffer() is None
    assert batch.count == 2
    assert batch.records() == []
    assert not append(batch, b"3")


def test_memory_that_is_abandoned_is_not_given_back() -> None:
    batch = batch_of(b"1")
    batch.abandon()
    assert (batch.buffer, batch.count, batch.take_buffer()) == (None, 1, None)


def test_an_open_batch_moves_to_more_memory_with_its_records() -> None:
    batch = batch_of(b"1", size=HEADER_SIZE + 20)
    before, larger = batch.buffer, bytearray(500)
    assert batch.move_to(larger, 500) == (before, HEADER_SIZE + 20)
    assert (batch.buffer is larger, batch.size) == (True, 500)
    assert append(batch, b"x" * 300)
    assert values_of(batch) == [b"1", b"x" * 300]
    batch.take_buffer()
    with pytest.raises(IllegalStateError, match="gave up its memory"):
        batch.move_to(bytearray(1000), 1000)


def test_the_delivery_timeout_counts_from_the_beginning() -> None:
    batch = batch_of()
    batch.begin((5,), 9.0)
    assert (batch.ordinal, batch.created_at) == ((5,), 9.0)
    assert (batch.last_attempt_at, batch.retry_at) == (9.0, 9.0)
    batch.on_attempt(11.0, 4)
    assert (batch.attempts, batch.last_attempt_at, batch.leader_epoch) == (1, 11.0, 4)
    assert batch.created_at == 9.0


def test_a_batch_that_is_sent_takes_no_more_records() -> None:
    batch = batch_of(b"1")
    batch.on_attempt(11.0, 4)
    assert not append(batch, b"2")


@pytest.mark.parametrize("number", [-1, 0, 5])
def test_a_missing_time_or_log_start_is_negative(number: int) -> None:
    known = number if number >= 0 else None
    assert outcome_at(7, number, number) == BatchOutcome(7, known, None, log_start_offset=known)


@pytest.mark.parametrize(("first", "following"), [(0, 3), (2**31 - 4, 2**31 - 1), (2**31 - 2, 1)])
def test_the_sequence_after_the_largest_int_is_0(first: int, following: int) -> None:
    batch = batch_of(b"1", b"2", b"3")
    batch.set_producer(9, 1, first)
    assert batch.next_sequence == following


@pytest.mark.parametrize(("sequence", "has_sequence"), [(-1, False), (0, True), (5, True)])
def test_a_sequence_is_one_from_0_on(sequence: int, has_sequence: bool) -> None:
    batch = batch_of(b"1")
    batch.set_producer(0, 1, sequence)
    assert batch.has_sequence is has_sequence
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (0, 1, sequence)


def test_persistence_is_not_known_after_an_attempt_that_may_have_been_written() -> None:
    batch = batch_of(b"1")
    assert batch.persistence() is Persistence.NOT_PERSISTED
    batch.possibly_persisted = True
    assert batch.persistence() is Persistence.POSSIBLY_PERSISTED


# -- the outcome -------------------------------------------------------------------------------


def test_the_first_outcome_counts_and_each_listener_is_called_once() -> None:
    batch = batch_of(b"1")
    called: list[object] = []
    for key in ("a", "b", "c"):
        batch.add_listener(key, called.append)
    assert batch.watchers == 3
    batch.remove_listener("b")
    batch.remove_listener("none")
    assert batch.complete(BatchOutcome(base_offset=5))
    assert not batch.complete(BatchOutcome(error=ERROR))
    assert called == ["a", "c"]
    assert (batch.done, batch.full, batch.watchers) == (True, True, 0)
    assert batch.outcome == BatchOutcome(base_offset=5)


def test_listeners_that_an_exception_left_out_are_called_by_the_next_call() -> None:
    batch = batch_of(b"1")
    called: list[object] = []

    def interrupted(key: object) -> None:
        called.append(key)
        if len(called) == 1:
            raise KeyboardInterrupt

    batch.add_listener("a", interrupted)
    batch.add_listener("b", called.append)
    with pytest.raises(KeyboardInterrupt):
        batch.complete(BatchOutcome(base_offset=1))
    assert batch.done
    assert not batch.complete(BatchOutcome(base_offset=1))
    assert called == ["a", "a", "b"]


@pytest.mark.parametrize(
    ("appended_at", "kind"),
    [(None, TimestampType.CREATE_TIME), (0, TimestampType.LOG_APPEND_TIME)],
)
def test_the_broker_stamps_records_with_a_log_append_time(
    appended_at: int | None, kind: TimestampType
) -> None:
    assert BatchOutcome(0, appended_at).timestamp_type is kind


def test_errors_of_single_records_come_before_that_of_the_batch() -> None:
    batch = batch_of(b"0", b"1")
    assert batch.outcome_of(1) is None
    assert batch.record_error(1) is None
    bad = InvalidRecordError("bad")
    batch.complete(BatchOutcome(error=ERROR, record_errors={1: bad}))
    assert (batch.record_error(0), batch.record_error(1)) == (ERROR, bad)
    assert batch.outcome_of(1) == (batch.outcome, 1)


def test_records_of_a_written_batch_have_no_error() -> None:
    batch = batch_of(b"0")
    batch.complete(BatchOutcome(base_offset=0))
    assert batch.record_error(0) is None
    assert batch.outcome_of(0) == (BatchOutcome(base_offset=0), 0)


@pytest.mark.parametrize(
    ("outcome", "retrieved", "reported"),
    [
        (BatchOutcome(error=ERROR), 1, True),
        (BatchOutcome(error=ERROR), 2, False),
        (BatchOutcome(base_offset=1), 0, False),
        (None, 0, False),
    ],
)
def test_errors_that_were_not_retrieved_are_reported(
    outcome: BatchOutcome | None, retrieved: int, reported: bool
) -> None:
    seen: list[KafkaError | None] = []
    batch = batch_of(b"0", b"1", on_unretrieved=lambda it: seen.append(it.outcome.error))
    for index in range(retrieved):
        batch.mark_retrieved(index)
    if outcome is not None:
        batch.complete(outcome)
    del batch
    assert bool(seen) is reported


# -- parts -------------------------------------------------------------------------------------


def test_a_split_batch_gives_its_records_to_parts_in_its_place() -> None:
    owner = object()
    batch = batch_of(b"0", b"1", b"2", ordinal=(4,), owner=owner)
    batch.possibly_persisted = True
    first, second = batch.split([[0, 2], [1]])
    assert (values_of(first), values_of(second)) == ([b"0", b"2"], [b"1"])
    assert (first.ordinal, second.ordinal) == ((4, 0), (4, 1))
    for part in (first, second):
        assert (part.topic_partition, part.size, part.created_at) == (T0, 0, 7.0)
        assert (part.full, part.possibly_persisted, part.owner) == (True, True, owner)
    assert (batch.ordinal, batch.parts) == ((4,), [first, second])


def test_the_outcome_of_a_record_is_that_of_its_part() -> None:
    batch = batch_of(b"0", b"1", b"2")
    first, second = batch.split([[0, 2], [1]])
    assert batch.outcome_of(2) is None
    bad = InvalidRecordError("bad")
    first.complete(BatchOutcome(error=ERROR, record_errors={1: bad}))
    assert (batch.record_error(0), batch.record_error(2)) == (ERROR, bad)
    assert batch.record_error(1) is None
    second.complete(BatchOutcome(base_offset=9))
    assert batch.outcome_of(1) == (BatchOutcome(base_offset=9), 0)
    batch.mark_retrieved(2)
    batch.mark_retrieved(1)
    assert (first.retrieved, second.retrieved, batch.retrieved) == (1, 1, 0)


def test_a_part_without_an_outcome_fails_with_the_whole_batch() -> None:
    batch = batch_of(b"0", b"1")
    first, _ = batch.split([[0], [1]])
    first.complete(BatchOutcome(base_offset=3))
    batch.complete(BatchOutcome(error=ERROR))
    assert batch.outcome_of(0) == (BatchOutcome(base_offset=3), 0)
    assert batch.outcome_of(1) == (batch.outcome, 1)
    assert batch.record_error(1) is ERROR


def test_a_part_without_an_outcome_waits_for_its_own() -> None:
    batch = batch_of(b"0", b"1")
    batch.split([[0], [1]])
    batch.complete(BatchOutcome(base_offset=3))
    assert batch.outcome_of(1) is None


def test_a_part_has_room_for_records_whose_times_are_far_from_its_first_one() -> None:
    times = [0, 2**63 - 1, *[0] * 400]
    batch = batch_of(size=100_000)
    for timestamp_ms in times:
        record: Any = OutgoingRecord(None, 0, timestamp_ms, None, b"v" * 50, (), 70)  # type: ignore[arg-type]
        assert batch.try_append(record)
    _, rest = batch.split([[0], range(1, len(times))])
    assert [record.timestamp_ms for record in rest.records()] == times[1:]


def test_a_batch_without_memory_cannot_be_split() -> None:
    batch = batch_of(b"0", b"1")
    batch.take_buffer()
    with pytest.raises(IllegalStateError, match="gave up its memory"):
        batch.split([[0], [1]])


def test_records_that_were_spread_are_in_the_partitions_of_their_parts() -> None:
    batch = batch_of(b"0", b"1", b"2")
    assert batch.topic_partition_of(2) == T0
    one, two = batch_of(b"1"), batch_of(b"0", b"2", where=T1)
    batch.spread([(two, 0), (one, 0), (two, 1)])
    assert batch.parts == [two, one]
    assert [batch.topic_partition_of(index) for index in range(3)] == [T1, T0, T1]
    two.complete(BatchOutcome(base_offset=4))
    assert batch.outcome_of(2) == (BatchOutcome(base_offset=4), 1)
    inner, _ = one.split([[0], []])
    assert batch.topic_partition_of(1) == inner.topic_partition
