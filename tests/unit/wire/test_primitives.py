"""Tests of `aioproducer.wire.primitives`."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import ProtocolError
from aioproducer.testing.messages.describe_cluster import DescribeClusterResponse
from aioproducer.wire import primitives as p


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, b"\x00"),
        (1, b"\x01"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (16383, b"\xff\x7f"),
        (16384, b"\x80\x80\x01"),
        (0xFFFF_FFFF, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_unsigned_varints_have_kafkas_bytes(value: int, encoded: bytes) -> None:
    out = bytearray()
    p.write_uvarint(out, value)
    assert out == encoded
    assert p.read_uvarint(encoded, 0) == (value, len(encoded))


@given(st.integers(0, 0xFFFF_FFFF), st.binary(max_size=3), st.binary(max_size=3))
def test_unsigned_varints_are_read_back_at_any_offset(
    value: int, before: bytes, after: bytes
) -> None:
    out = bytearray(before)
    p.write_uvarint(out, value)
    end = len(out)
    assert p.read_uvarint(bytes(out + after), len(before)) == (value, end)


@pytest.mark.parametrize("value", [-1, 1 << 32])
def test_a_value_beyond_32_bits_is_not_written_as_a_varint(value: int) -> None:
    with pytest.raises(struct.error):
        p.write_uvarint(bytearray(), value)


@pytest.mark.parametrize(
    "data", [b"\x80\x80\x80\x80\x80\x00", b"\xff\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x10"]
)
def test_a_varint_longer_than_five_bytes_or_32_bits_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        p.read_uvarint(data, 0)


@pytest.mark.parametrize(
    ("read", "write", "data"),
    [
        (p.read_length32, p.write_length32, b"\x00\x00\x00\x03abc"),
        (p.read_compact_length, p.write_compact_length, b"\x04abc"),
    ],
)
def test_a_length_is_believed_only_if_the_bytes_are_there(read, write, data: bytes) -> None:
    out = bytearray()
    write(out, 3)
    assert out == data[:-3]
    assert read(data, 0) == (3, len(data) - 3)
    with pytest.raises(ProtocolError):
        read(data[:-1], 0)


@pytest.mark.parametrize(
    ("read", "null"),
    [
        (p.read_length16, b"\xff\xff"),
        (p.read_length32, b"\xff\xff\xff\xff"),
        (p.read_compact_length, b"\x00"),
    ],
)
def test_the_length_of_null_is_minus_one(read, null: bytes) -> None:
    assert read(null, 0) == (-1, len(null))


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (p.read_length16, b"\xff\xfe"),
        (p.read_length32, b"\x80\x00\x00\x00"),
        (lambda data, pos: p.read_count(data, pos, 1), b"\xff\xff\xff\xfe"),
    ],
)
def test_a_negative_length_other_than_null_is_refused(read, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(data, 0)


def test_an_array_count_is_compared_with_its_smallest_possible_size() -> None:
    data = b"\x00\x00\x00\x03" + bytes(11)
    assert p.read_count(data, 0, 3) == (3, 4)
    with pytest.raises(ProtocolError):
        p.read_count(data, 0, 4)


def test_an_array_of_more_than_a_million_elements_is_refused_even_if_the_bytes_are_there() -> None:
    limit = p.MAX_ARRAY_ELEMENTS
    data = bytearray()
    p.write_compact_length(data, limit + 1)
    with pytest.raises(ProtocolError, match="over the limit"):
        p.read_compact_count(bytes(data) + bytes(limit + 1), 0, 1)
    exact = struct.pack(">i", limit) + bytes(limit)
    assert p.read_count(exact, 0, 1) == (limit, 4)


@pytest.mark.parametrize("text", ["", "a", "ключ", "x" * 300, "\0"])
def test_strings_are_length_prefixed_utf8(text: str) -> None:
    raw = text.encode()
    classic, compact, prefix = bytearray(), bytearray(), bytearray()
    p.write_string(classic, text)
    p.write_compact_string(compact, text)
    p.write_uvarint(prefix, len(raw) + 1)
    assert classic == len(raw).to_bytes(2, "big") + raw
    assert compact == prefix + raw
    assert p.read_nullable_string(bytes(classic), 0) == (text, len(classic))


def test_a_null_string_has_no_content() -> None:
    classic, compact = bytearray(), bytearray()
    p.write_nullable_string(classic, None)
    p.write_nullable_compact_string(compact, None)
    assert (classic, compact) == (b"\xff\xff", b"\x00")
    assert p.read_nullable_string(b"\xff\xff", 0) == (None, 2)


def test_a_string_longer_than_kafka_allows_is_not_written() -> None:
    for write in (p.write_string, p.write_compact_string):
        with pytest.raises(struct.error):
            write(bytearray(), "x" * (p.MAX_STRING_BYTES + 1))
        write(bytearray(), "x" * p.MAX_STRING_BYTES)


def test_a_compact_string_longer_than_kafka_allows_is_not_read() -> None:
    def response(length: int) -> bytes:
        sent = DescribeClusterResponse(cluster_id="c").encode(0)
        prefix = bytearray()
        p.write_compact_length(prefix, length)
        return sent.replace(b"\x02c", prefix + b"x" * length)

    longest = DescribeClusterResponse.decode(response(p.MAX_STRING_BYTES), 0)
    assert longest.encode(0) == response(p.MAX_STRING_BYTES)
    with pytest.raises(ProtocolError, match="a string of 32768 bytes is longer"):
        DescribeClusterResponse.decode(response(p.MAX_STRING_BYTES + 1), 0)


@given(st.lists(st.tuples(st.integers(0, 0xFFFF_FFFF), st.binary(max_size=200)), max_size=5))
def test_unknown_tagged_fields_are_skipped_whole(tags: list[tuple[int, bytes]]) -> None:
    data = bytearray()
    p.write_uvarint(data, len(tags))
    for tag, content in tags:
        p.write_tag(data, tag, content)
    assert p.skip_tags(bytes(data) + b"rest", 0, p.ElementBudget()) == len(data)


def test_more_than_ten_thousand_tags_are_refused() -> None:
    for count, fits in ((p.MAX_TAGS, True), (p.MAX_TAGS + 1, False)):
        data = bytearray()
        p.write_uvarint(data, count)
        data += b"\x05\x00" * count
        if fits:
            assert p.skip_tags(bytes(data), 0, p.ElementBudget()) == len(data)
        else:
            with pytest.raises(ProtocolError, match="over the limit"):
                p.skip_tags(bytes(data), 0, p.ElementBudget())


def test_a_tagged_field_may_not_reach_past_the_end() -> None:
    with pytest.raises(ProtocolError):
        p.skip_tags(b"\x01\x00\x05abcd", 0, p.ElementBudget())


@pytest.mark.parametrize("left", range(p.TAG_WEIGHT + 1))
def test_tagged_fields_may_use_up_the_elements_that_are_left_and_no_more(left: int) -> None:
    budget = p.ElementBudget()
    budget.left = left
    if left == p.TAG_WEIGHT:
        assert p.skip_tags(b"\x01\x05\x00", 0, budget) == 3
        assert budget.left == 0
    else:
        with pytest.raises(ProtocolError, match="tagged fields"):
            p.skip_tags(b"\x01\x05\x00", 0, budget)
