import struct

import pytest

from aioproducer.errors import ProtocolError
from aioproducer.records.batch import HEADER_SIZE, encode_batch, parse_header, read_batches
from aioproducer.records.codecs import CompressionType
from aioproducer.types import TimestampType

from .helpers import built, joined

T = 1_700_000_000_000
ROWS = [(T, b"k", b"v", ()), (T + 5, None, b"w" * 50, (("h", None),))]


def test_header_fields_are_read_back():
    batch = parse_header(
        joined(
            built(
                ROWS,
                producer_id=9,
                producer_epoch=2,
                base_sequence=77,
                transactional=True,
            )
        )
    )
    assert (batch.base_offset, batch.last_offset, batch.count, batch.magic) == (0, 1, 2, 2)
    assert (batch.base_timestamp, batch.max_timestamp) == (T, T + 5)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 2, 77)
    assert batch.is_transactional
    assert not batch.is_control
    assert batch.leader_epoch == -1
    assert batch.timestamp_type is TimestampType.CREATE_TIME


def test_batch_without_idempotence_says_so_with_minus_one():
    batch = parse_header(joined(built(ROWS)))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert batch.leader_epoch == -1
    assert not batch.is_transactional


def test_body_is_passed_on_without_a_copy():
    body = memoryview(bytearray(b"anything"))
    batch = encode_batch(body, count=1, base_timestamp=T, max_timestamp=T)
    assert batch.buffers[1] is body
    assert len(batch.buffers[0]) == HEADER_SIZE
    assert batch.size == HEADER_SIZE + len(body)


def test_restamped_batch_equals_one_built_with_the_new_identity():
    before = built(ROWS, codec="gzip", producer_id=1, producer_epoch=2, base_sequence=3)
    after = before.restamped(10, 0, 20)
    expected = built(ROWS, codec="gzip", producer_id=10, producer_epoch=0, base_sequence=20)
    assert joined(after) == joined(expected)
    assert after.body is before.body
    assert (after.count, after.codec) == (before.count, before.codec)


def test_restamping_keeps_the_transactional_bit():
    after = built(ROWS, transactional=True).restamped(1, 1, 1)
    batch = parse_header(joined(after))
    batch.check_crc()
    assert batch.is_transactional


def test_empty_batch_cannot_be_encoded():
    with pytest.raises(ValueError, match="at least one record"):
        encode_batch(b"", count=0, base_timestamp=T, max_timestamp=T)


def test_batches_are_read_one_after_the_other_and_lazily():
    data = joined(built(ROWS)) + joined(built(ROWS[:1])) + b"garbage"
    batches = read_batches(data)
    assert next(batches).count == 2
    assert next(batches).count == 1
    with pytest.raises(ProtocolError):
        next(batches)


def test_nothing_is_read_from_nothing():
    assert list(read_batches(b"")) == []


def test_batch_cut_off_at_the_end_is_malformed_unless_it_is_expected():
    whole = joined(built(ROWS))
    for cut in range(1, len(whole)):
        data = whole + whole[:cut]
        with pytest.raises(ProtocolError):
            list(read_batches(data))
        assert [batch.count for batch in read_batches(data, allow_partial=True)] == [2]


def test_offsets_count_from_the_base_offset_and_the_crc_does_not_cover_it():
    data = bytearray(joined(built(ROWS)))
    struct.pack_into(">q", data, 0, 1 << 40)
    batch = parse_header(data)
    batch.check_crc()
    assert [record.offset for record in batch.records()] == [1 << 40, (1 << 40) + 1]


def test_log_append_time_overrides_the_records_timestamps():
    data = bytearray(joined(built(ROWS)))
    struct.pack_into(">h", data, 21, 0x08)
    struct.pack_into(">q", data, 35, T + 99)
    batch = parse_header(data)
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp_ms for record in batch.records()] == [T + 99, T + 99]


def test_compacted_batch_may_have_fewer_records_than_offsets():
    data = bytearray(joined(built(ROWS[:1])))
    struct.pack_into(">i", data, 23, 5)
    batch = parse_header(data)
    assert batch.last_offset == 5
    assert [record.offset for record in batch.records()] == [0]


def test_incompressible_body_leaves_the_codec_out_of_the_header():
    batch = built([(T, None, b"x", ())], codec="gzip")
    assert batch.codec is CompressionType.NONE
    assert parse_header(joined(batch)).codec is CompressionType.NONE


def test_each_flipped_bit_after_the_crc_is_noticed():
    whole = joined(built(ROWS))
    for position in range(17, len(whole)):
        data = bytearray(whole)
        data[position] ^= 1
        with pytest.raises(ProtocolError):
            parse_header(data).check_crc()


@pytest.mark.parametrize("allow_partial", [False, True])
def test_a_batch_that_compaction_has_left_without_records_is_read(allow_partial):
    header = bytearray(encode_batch(b"", count=1, base_timestamp=T, max_timestamp=T).header)
    struct.pack_into(">i", header, 57, 0)
    assert len(header) == HEADER_SIZE
    [batch] = read_batches(header, allow_partial=allow_partial)
    assert (batch.count, batch.size, batch.records()) == (0, HEADER_SIZE, [])
