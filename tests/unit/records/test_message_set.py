"""The record formats of brokers before 0.11, checked by a client that still supports them."""

from __future__ import annotations

import struct
from random import Random

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import IllegalStateError, UnsupportedVersionError
from aioproducer.records import RecordBatchBuilder
from aioproducer.records.codecs import CompressionType, codec_for
from aioproducer.records.message_set import (
    EncodedMessageSet,
    _with_old_checksum,
    _xxh32_of_few,
    encode_message_set,
    magic_for,
    records_of,
)
from aioproducer.records.reader import DecodedRecord

NOW = 1_700_000_000_000
LARGEST_OVERHEAD = 34
"""Bytes of a message besides key and value, in the larger of the two formats."""
DATA = st.none() | st.binary(max_size=40)
ROWS = st.lists(st.tuples(st.integers(0, 2**50), DATA, DATA), min_size=1, max_size=20)


def records(rows) -> list[DecodedRecord]:
    return [DecodedRecord(offset, *row, ()) for offset, row in enumerate(rows)]


def encoded(rows, magic: int, codec: str = "none") -> EncodedMessageSet:
    return encode_message_set(records(rows), magic, codec_for(codec))


def codec_of(made: EncodedMessageSet) -> CompressionType:
    """The compression of the first message, after its offset, size, CRC and magic."""
    return CompressionType(made.body[17] & 7)


def foreign(rows, magic: int) -> bytes:
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 20)
    for offset, (timestamp, key, value) in enumerate(rows):
        builder.append(offset, timestamp=timestamp, key=key, value=value)
    return bytes(builder.build())


@pytest.mark.parametrize("magic", [0, 1])
@given(rows=ROWS)
def test_plain_sets_equal_those_of_another_client_byte_for_byte(magic, rows):
    ours = encoded(rows, magic)
    assert ours.buffers == (foreign(rows, magic),)
    assert ours.size == len(ours.body)
    assert ours.size <= sum(
        LARGEST_OVERHEAD + len(key or b"") + len(value or b"") for _, key, value in rows
    )


@pytest.mark.parametrize(
    ("magic", "codec"),
    # lz4 in magic 0 that client cannot read.
    [(0, "gzip"), (0, "snappy"), (1, "gzip"), (1, "snappy"), (1, "lz4")],
)
def test_compressed_sets_are_read_by_another_client(magic, codec):
    rows = [(NOW + 7 * i % 50, b"key-%d" % i, b"value " * 20) for i in range(100)]
    ours = encoded(rows, magic, codec)
    assert codec_of(ours).name.lower() == codec
    assert ours.size < encoded(rows, magic).size / 4
    batch = LegacyRecordBatch(ours.body, magic)
    assert batch.validate_crc()
    read = [(record.timestamp, record.key, record.value) for record in batch]
    assert read == [(time if magic else None, key, value) for time, key, value in rows]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_bears_the_last_offset_and_the_highest_timestamp(magic):
    rows = [(NOW + 5, None, b"a" * 200), (NOW + 9, None, b"a" * 200), (NOW, None, b"a" * 200)]
    body = encoded(rows, magic, "gzip").body
    offset, size, _, its_magic, attributes = struct.unpack_from(">qiIbb", body)
    assert (offset, size, its_magic, attributes) == (2, len(body) - 12, magic, 1)
    if magic:
        assert struct.unpack_from(">q", body, 18) == (NOW + 9,)


def test_inner_offsets_start_at_zero_whatever_the_records_had():
    row = DecodedRecord(17, NOW, None, b"x", ())
    assert encode_message_set([row], 1).body[:8] == bytes(8)


def test_what_does_not_shrink_stays_as_it_is():
    noise = [(NOW, None, Random(1).randbytes(300))]
    assert encoded(noise, 1, "gzip") == encoded(noise, 1)


@pytest.mark.parametrize("magic", [0, 1])
def test_headers_and_zstd_are_refused(magic):
    with pytest.raises(UnsupportedVersionError, match="headers"):
        encode_message_set([DecodedRecord(0, NOW, None, b"x", (("a", b"b"),))], magic)
    with pytest.raises(UnsupportedVersionError, match="zstd"):
        encoded([(NOW, None, b"x" * 1000)], magic, "zstd")


def test_a_set_has_no_place_for_a_sequence():
    with pytest.raises(IllegalStateError):
        encoded([(NOW, None, b"x")], 1).restamped(1, 0, 0)


@pytest.mark.parametrize(
    ("data", "hash_"),
    [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF), (b"abcd", 0xA3643705)],
)
def test_the_hash_of_few_bytes_is_xxhash(data, hash_):
    assert _xxh32_of_few(data) == hash_


def test_the_old_lz4_checksum_covers_the_magic_number_as_well():
    frame = codec_for("lz4").compress(b"a" * 1000)
    assert frame[6] == _xxh32_of_few(frame[4:6]) >> 8 & 0xFF
    old = _with_old_checksum(frame)
    assert old[6] == _xxh32_of_few(frame[:6]) >> 8 & 0xFF != frame[6]
    assert (old[:6], old[7:]) == (frame[:6], frame[7:])


def test_the_format_follows_from_the_version_of_produce():
    assert [magic_for(version) for version in range(5)] == [0, 0, 1, 2, 2]


def test_the_records_of_a_builder_come_out_as_they_went_in():
    builder = RecordBatchBuilder(bytearray(500))
    for i in range(3):
        builder.try_append(NOW - i, None, b"%d" % i, ())
    assert records_of(builder) == records([(NOW - i, None, b"%d" % i) for i in range(3)])
    assert codec_of(encode_message_set(records_of(builder), 0)) is CompressionType.NONE
