"""Confluent's wire format, read back: what a serializer of a registry has put before a payload."""

from __future__ import annotations

from struct import Struct

_FRAME = Struct(">bI")


def split(data: bytes) -> tuple[int, bytes]:
    """Return the schema's id, and what follows it."""
    magic, schema_id = _FRAME.unpack_from(data)
    assert magic == 0
    return schema_id, data[_FRAME.size :]


def split_indexes(data: bytes) -> tuple[list[int], bytes]:
    """Return the path to the message's type, and what follows it."""
    count, rest = _read_varint(data)
    path = []
    for _ in range(count):
        number, rest = _read_varint(rest)
        path.append(number)
    return path or [0], rest


def _read_varint(data: bytes) -> tuple[int, bytes]:
    number = 0
    for place, byte in enumerate(data):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number >> 1, data[place + 1 :]
    raise AssertionError("the bytes end inside of a number")
