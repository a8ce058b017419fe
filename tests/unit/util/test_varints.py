"""Varints and zigzag numbers, against Protobuf's own rules."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aioproducer._util.varints import unzigzag, varint, zigzag
from aioproducer.wire.primitives import write_uvarint


@given(st.integers(0, 2**32 - 1))
def test_a_varint_is_what_kafka_writes_up_to_32_bits(number: int) -> None:
    written = bytearray()
    write_uvarint(written, number)
    assert varint(number) == written


def test_a_varint_has_no_bound() -> None:
    assert varint(2**64 - 1) == b"\xff" * 9 + b"\x01"


@given(st.integers())
def test_a_zigzag_number_is_turned_back(number: int) -> None:
    assert unzigzag(zigzag(number)) == number


def test_zigzag_numbers_are_small_near_0() -> None:
    assert [zigzag(number) for number in (0, -1, 1, -2, 2)] == [0, 1, 2, 3, 4]
