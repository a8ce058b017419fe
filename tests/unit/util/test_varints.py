"""Varints and zigzag numbers, against Protobuf's own rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._util.varints import read_varint, unzigzag, varint, zigzag
from aioproducer.wire.primitives import write_uvarint


@given(st.integers(0, 2**32 - 1))
def test_a_varint_is_what_kafka_writes_up_to_32_bits(number: int) -> None:
    written = bytearray()
    write_uvarint(written, number)
    assert varint(number) == written


def test_a_varint_has_no_bound() -> None:
    assert varint(2**64 - 1) == b"\xff" * 9 + b"\x01"


@given(st.integers(0, 2**64 - 1), st.binary(), st.binary())
def test_a_varint_is_read_where_it_is(number: int, before: bytes, after: bytes) -> None:
    data = before + varint(number) + after
    assert read_varint(data, len(before)) == (number, len(data) - len(after))


def test_a_varint_that_is_cut_off_or_has_no_end_is_refused() -> None:
    with pytest.raises(IndexError):
        read_varint(b"\x80", 0)
    with pytest.raises(ValueError, match="too long"):
        read_varint(b"\x80" * 100, 0)


@given(st.integers())
def test_a_zigzag_number_is_turned_back(number: int) -> None:
    assert unzigzag(zigzag(number)) == number


def test_zigzag_numbers_are_small_near_0() -> None:
    assert [zigzag(number) for number in (0, -1, 1, -2, 2)] == [0, 1, 2, 3, 4]
