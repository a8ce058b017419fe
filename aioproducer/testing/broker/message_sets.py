"""Message sets of Produce v0 to v2 (before Kafka 0.11), which the log keeps as record batches.

`aioproducer.records.message_set` describes the format. What has no timestamp is stored with 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error
from typing import NamedTuple
from zlib import crc32

from aioproducer import errors
from aioproducer.records import RecordBatchBuilder
from aioproducer.records.batch import encode_batch
from aioproducer.records.codecs import CompressionType, codec_for
from aioproducer.testing.broker.refusal import RefusedError

FIRST_VERSION_WITH_BATCHES = 3
_FIRST_VERSION_WITH_TIMESTAMPS = 2
_MOST_BYTES = 1 << 27
_CODEC_BITS, _GROWTH = 7, 40
"""A record in a batch takes up to so many bytes besides its key and value."""

_OFFSET_SIZE, _CRC, _LENGTH = Struct(">qi"), Struct(">I"), Struct(">i")
_FRONT, _TIMESTAMP = Struct(">bb"), Struct(">q")


class _Message(NamedTuple):
    offset: int
    codec: CompressionType
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def as_batch(data: bytes | memoryview, version: int) -> bytes:
    """Return the records of a message set as a record batch.

    Raises:
        RefusedError: The set is malformed, or has a format that the version does not carry.
    """
    magic = 1 if version >= _FIRST_VERSION_WITH_TIMESTAMPS else 0
    try:
        messages = list(_records(bytes(data), magic))
    except (ValueError, error, errors.ProtocolError) as malformed:
        raise RefusedError(errors.CorruptMessageError, f"message set: {malformed}") from malformed
    size = sum(_GROWTH + len(each.key or b"") + len(each.value or b"") for each in messages)
    builder = RecordBatchBuilder(bytearray(size))
    for each in messages:
        builder.try_append(each.timestamp_ms, each.key, each.value, ())
    made = encode_batch(
        builder.body(),
        count=builder.count,
        base_timestamp=builder.base_timestamp,
        max_timestamp=builder.max_timestamp,
    )
    return b"".join(bytes(each) for each in made.buffers)


def _records(data: bytes, magic: int) -> Iterator[_Message]:
    """Yield the records, whose offsets count from 0; a compressed message contains a set."""
    messages = list(_messages(data, magic))
    first = messages[0] if messages else None
    if first is not None and first.codec is not CompressionType.NONE:
        inner = codec_for(first.codec).decompress(first.value or b"", _MOST_BYTES)
        messages, is_whole = list(_messages(inner, magic)), len(messages) == 1
        if not is_whole or first.key is not None or first.offset != len(messages) - 1:
            raise ValueError("its compressed message is not that of its records")
        if first.timestamp_ms != max((each.timestamp_ms for each in messages), default=0):
            raise ValueError("its compressed message has not the highest timestamp")
    for number, message in enumerate(messages):
        if message.offset != number or message.codec is not CompressionType.NONE:
            raise ValueError(f"{message.offset} is the offset of record {number}")
    if not messages:
        raise ValueError("no records")
    yield from messages


def _messages(data: bytes, magic: int) -> Iterator[_Message]:
    at = 0
    while at < len(data):
        offset, size = _OFFSET_SIZE.unpack_from(data, at)
        at += _OFFSET_SIZE.size
        content = data[at + _CRC.size : at + size]
        at += size
        if size < 0 or at > len(data) or _CRC.unpack_from(data, at - size)[0] != crc32(content):
            raise ValueError(f"the message at offset {offset} has another size or CRC")
        found, attributes = _FRONT.unpack_from(content)
        if found != magic:
            raise ValueError(f"format {found}, expected {magic}")
        place, timestamp_ms = _FRONT.size, 0
        if magic:
            (timestamp_ms,) = _TIMESTAMP.unpack_from(content, place)
            place += _TIMESTAMP.size
        key, place = _nullable(content, place)
        value, place = _nullable(content, place)
        if place != len(content):
            raise ValueError(f"the message at offset {offset} has bytes after its value")
        codec = CompressionType(attributes & _CODEC_BITS)
        yield _Message(offset, codec, timestamp_ms, key, value)


def _nullable(content: bytes, place: int) -> tuple[bytes | None, int]:
    (size,) = _LENGTH.unpack_from(content, place)
    place += _LENGTH.size
    return (None, place) if size < 0 else (content[place : place + size], place + size)
