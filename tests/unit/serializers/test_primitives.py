"""Plain values have the bytes that Java's serializers give them."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import ConfigError, SerializationError
from aioproducer.serializers import (
    BooleanSerializer,
    BytesSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntegerSerializer,
    LongSerializer,
    SerializationContext,
    Serializer,
    ShortSerializer,
    StringSerializer,
    UuidSerializer,
)
from aioproducer.types import Persistence

VALUE = SerializationContext("orders", "value")

# What Java 17 prints for `HexFormat.of().formatHex(new XSerializer().serialize("t", x))`.
JAVA = [
    (ShortSerializer(), -2, "fffe"),
    (IntegerSerializer(), 1, "00000001"),
    (IntegerSerializer(), -(2**31), "80000000"),
    (LongSerializer(), 2**40 + 7, "0000010000000007"),
    (FloatSerializer(), 1.5, "3fc00000"),
    (DoubleSerializer(), -0.1, "bfb999999999999a"),
    (DoubleSerializer(), float("nan"), "7ff8000000000000"),
    (BooleanSerializer(), True, "01"),
    (BooleanSerializer(), False, "00"),
    (StringSerializer(), "é€", "c3a9e282ac"),
    (StringSerializer("utf-16-be"), "A", "0041"),
    (BytesSerializer(), bytearray(b"ab"), "6162"),
    (
        UuidSerializer(),
        UUID("F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6"),
        b"f81d4fae-7dec-11d0-a765-00a0c91e6bf6".hex(),
    ),
]
EVERY = [serializer for serializer, _, _ in JAVA]


@pytest.mark.parametrize(("serializer", "data", "expected"), JAVA)
def test_bytes_are_those_of_java(serializer: Serializer, data: Any, expected: str) -> None:
    made = serializer.serialize(data, VALUE)
    assert isinstance(made, bytes)
    assert made.hex() == expected


@pytest.mark.parametrize("serializer", EVERY)
def test_none_stays_null(serializer: Serializer) -> None:
    assert serializer.serialize(None, VALUE) is None


@pytest.mark.parametrize("serializer", EVERY)
def test_another_type_is_refused_without_showing_the_content(serializer: Serializer) -> None:
    with pytest.raises(SerializationError, match=r"must be .* not list") as caught:
        serializer.serialize(["secret"], VALUE)
    error = caught.value
    assert (error.topic, error.part, error.path) == ("orders", "value", None)
    assert error.persistence is Persistence.NOT_PERSISTED
    assert "secret" not in str(error)


@pytest.mark.parametrize(
    ("serializer", "data"),
    [
        (ShortSerializer(), 2**15),
        (IntegerSerializer(), -(2**31) - 1),
        (LongSerializer(), 2**63),
        (FloatSerializer(), 1e300),
    ],
)
def test_a_number_that_does_not_fit_is_refused(serializer: Serializer, data: Any) -> None:
    with pytest.raises(SerializationError, match="out of the range"):
        serializer.serialize(data, VALUE)


def test_a_bool_is_no_number() -> None:
    with pytest.raises(SerializationError, match="must be int"):
        IntegerSerializer().serialize(True, VALUE)


def test_text_that_an_encoding_lacks_is_refused_by_its_place() -> None:
    with pytest.raises(SerializationError, match="character 2 cannot be encoded as latin-1"):
        StringSerializer("latin-1").serialize("ab€", VALUE)
    with pytest.raises(LookupError):
        StringSerializer("no such encoding")


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_long_can_be_read_back(number: int) -> None:
    made = LongSerializer().serialize(number, VALUE)
    assert made is not None
    assert struct.unpack(">q", made) == (number,)


def test_a_class_in_place_of_an_instance_is_refused_by_the_options() -> None:
    from aioproducer import ProducerConfig

    with pytest.raises(ConfigError, match="an instance of StringSerializer"):
        ProducerConfig(bootstrap_servers="x:1", key_serializer=StringSerializer)  # type: ignore[arg-type]
