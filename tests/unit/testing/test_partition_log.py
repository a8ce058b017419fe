"""The log: offsets without gaps, whole batches, restamped time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aioproducer.records.batch import parse_header
from aioproducer.records.codecs import CompressionType
from aioproducer.testing.broker.log import PartitionLog
from aioproducer.types import TimestampType

from .support import NOW_MS, make_batch


def append(log: PartitionLog, count: int = 1, **stamp: int) -> None:
    data = make_batch([b"v"] * count)
    log.append(data, count=count, max_timestamp=NOW_MS, leader_epoch=0, **stamp)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.data())
def test_reading_from_any_offset_gives_every_later_record_once(
    counts: list[int], data: st.DataObject
) -> None:
    log = PartitionLog()
    for count in counts:
        append(log, count)
    assert log.end_offset == sum(counts)
    start = data.draw(st.integers(0, log.end_offset - 1))
    limit = data.draw(st.integers(1, 500))
    offset, seen = start, []
    while batches := log.read(offset, limit, at_least_one=True):
        for batch in batches:
            records = parse_header(batch.data).records()
            seen.extend(record.offset for record in records if record.offset >= offset)
            offset = batch.last_offset + 1
    assert seen == list(range(start, log.end_offset))


def test_stored_batch_carries_its_offset_and_epoch_and_keeps_a_valid_crc() -> None:
    log = PartitionLog()
    append(log, 3)
    log.append(make_batch([b"x"]), count=1, max_timestamp=NOW_MS, leader_epoch=4)
    header = parse_header(log.batches[1].data)
    header.check_crc()
    assert (header.base_offset, header.leader_epoch) == (3, 4)


def test_log_append_time_is_stamped_into_a_batch_whose_crc_is_valid_again() -> None:
    log = PartitionLog()
    data = make_batch([b"a", b"b"] * 50, codec=CompressionType.LZ4)
    log.append(data, count=100, max_timestamp=5, leader_epoch=0, append_time_ms=NOW_MS + 9)
    header = parse_header(log.batches[0].data)
    header.check_crc()
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.codec is CompressionType.LZ4
    assert {record.timestamp_ms for record in header.records()} == {NOW_MS + 9}


def test_first_batch_comes_whole_even_if_it_is_over_the_limit() -> None:
    log = PartitionLog()
    append(log)
    append(log)
    assert len(log.read(0, 1, at_least_one=True)) == 1
    assert log.read(0, 1, at_least_one=False) == []


def test_retention_by_size_moves_the_start_and_keeps_the_newest_batch() -> None:
    log = PartitionLog()
    for _ in range(5):
        append(log, 2)
    log.trim_to_size(1)
    assert (log.start_offset, log.end_offset) == (8, 10)
    assert log.size_bytes == len(log.batches[0].data)
    assert log.read(7, 1000, at_least_one=True) == []


def test_records_before_a_deleted_offset_are_gone_even_within_a_batch() -> None:
    log = PartitionLog()
    for _ in range(3):
        append(log, 4)
    log.delete_before(6)
    assert (log.start_offset, log.end_offset) == (6, 12)
    assert [batch.base_offset for batch in log.batches] == [4, 8]
    log.delete_before(2)
    assert log.start_offset == 6


def test_timestamps_find_the_first_record_at_or_after_them() -> None:
    log = PartitionLog()
    for times in ([10, 30], [20, 50, 40]):
        log.append(
            make_batch([b"v"] * len(times), timestamps=times),
            count=len(times),
            max_timestamp=max(times),
            leader_epoch=0,
        )
    assert log.find_timestamp(15) == (1, 30)
    assert log.find_timestamp(31) == (3, 50)
    assert log.find_timestamp(51) is None
    assert log.max_timestamp() == (3, 50)
    assert PartitionLog().max_timestamp() is None
