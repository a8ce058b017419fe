"""The comparison of the round trips finds each kind of difference; the digests see every byte."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aioproducer.types import RecordMetadata, TimestampType
from support.comparison import Acknowledged, SendingTime, differences
from support.foreign import ForeignRecord, digest_partitions
from support.records import SampleRecord

CREATE_TIME = TimestampType.CREATE_TIME
SENDING_TIME = SendingTime(900, 1100)
SAMPLE = SampleRecord(b"k", b"v", (("h", None), ("h", b"1")), 1000, None)
READ = ForeignRecord(1, 7, b"k", b"v", SAMPLE.headers, 1000, CREATE_TIME)
ACKNOWLEDGED = Acknowledged(SAMPLE, RecordMetadata("t", 1, 7, 1000, CREATE_TIME, 1, 1))


def found(read: list[ForeignRecord], sent: Acknowledged = ACKNOWLEDGED) -> str:
    return "\n".join(differences([sent], read, CREATE_TIME, SENDING_TIME))


def test_a_record_read_as_it_was_sent_does_not_differ() -> None:
    assert found([READ]) == ""


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"key": b""}, "key: sent b'k', read b''"),
        ({"value": None}, "value: sent b'v', read None"),
        ({"headers": (("h", b"1"), ("h", None))}, "headers: "),
        ({"timestamp": 1001}, "timestamp: sent 1000, read 1001"),
        ({"timestamp_type": TimestampType.LOG_APPEND_TIME}, "timestamp type: "),
    ],
)
def test_a_changed_part_is_named(change: dict[str, object], difference: str) -> None:
    assert f"(1, 7): {difference}" in found([replace(READ, **change)])


def test_a_lost_record_is_found() -> None:
    assert "(1, 7): acknowledged (or acknowledged twice) and not read" in found([])


def test_a_duplicate_in_the_log_is_found() -> None:
    assert "(1, 8): read and never acknowledged" in found([READ, replace(READ, offset=8)])


def test_a_record_read_twice_is_found() -> None:
    assert "(1, 7): read twice" in found([READ, READ])


def test_an_offset_acknowledged_for_two_records_is_found() -> None:
    twice = differences([ACKNOWLEDGED, ACKNOWLEDGED], [READ], CREATE_TIME, SENDING_TIME)
    assert twice == ["(1, 7): acknowledged (or acknowledged twice) and not read"]


def test_an_acknowledgement_without_an_offset_is_found() -> None:
    metadata = ACKNOWLEDGED.metadata._replace(offset=None)
    assert "(1, -1): acknowledged" in found([READ], Acknowledged(SAMPLE, metadata))


def test_a_wrong_partition_is_found() -> None:
    asked = Acknowledged(replace(SAMPLE, partition=0), ACKNOWLEDGED.metadata)
    assert "partition: sent 0, read 1" in found([READ], asked)


def test_a_timestamp_of_the_producer_must_be_within_the_time_of_sending() -> None:
    left_to_producer = replace(SAMPLE, timestamp_ms=None)
    late = replace(READ, timestamp=1101)
    metadata = ACKNOWLEDGED.metadata._replace(timestamp_ms=1101)
    assert found([READ], Acknowledged(left_to_producer, ACKNOWLEDGED.metadata)) == ""
    assert "within the time of sending" in found([late], Acknowledged(left_to_producer, metadata))


def test_large_values_are_shown_short() -> None:
    assert len(found([replace(READ, value=bytes(900_000))])) < 300


@pytest.mark.parametrize(
    "change",
    [
        {"offset": 8},
        {"timestamp": 1},
        {"key": None},
        {"key": b""},
        {"value": b"w"},
        {"headers": ()},
        {"headers": (("h", b""), ("h", b"1"))},
    ],
)
def test_the_digest_sees_every_change(change: dict[str, object]) -> None:
    assert digest_partitions([READ]) != digest_partitions([replace(READ, **change)])
