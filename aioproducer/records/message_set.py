"""Message sets: how brokers before 0.11 take records (magic 0 and 1).

    offset i64 | size i32 | crc u32 | magic i8 | attributes i8 | [timestamp i64 from magic 1] |
    key | value                                      (key and value: length i32, -1 for null)

`size` counts what follows it, the CRC-32 covers what follows it (Java: LegacyRecord). A compressed
set is one message without a key whose value is the compressed set (the wrapper); it bears the last
record's offset and the highest timestamp.

Invariants: offsets are relative, 0 for the first record, so that a 0.10 broker need not compress
anew (KIP-31); headers are refused, nothing is dropped in silence; producer ids and transactions
do not exist here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

from aioproducer.errors import IllegalStateError, UnsupportedVersionError
from aioproducer.records.batch import encode_batch
from aioproducer.records.codecs import Codec, CompressionType
from aioproducer.records.layout import MAGIC
from aioproducer.records.reader import DecodedRecord, parse_header

if TYPE_CHECKING:
    from aioproducer.records import RecordBatchBuilder

_FIRST_WITH_TIMESTAMPS = 2
_FIRST_WITH_BATCHES = 3

_OFFSET_SIZE = Struct(">qi")
_CRC = Struct(">I")
_LENGTH = Struct(">i")
_FRONTS = (Struct(">bb"), Struct(">bbq"))
"""magic, attributes, and from magic 1 on the timestamp."""

MESSAGE_GROWTH = 27
"""Bytes by which a record may grow: a RecordBatch adds at least 7 bytes to key and value."""


def magic_for(produce_version: int) -> int:
    """Return the record format that a version of Produce carries (KIP-32, KIP-98)."""
    if produce_version >= _FIRST_WITH_BATCHES:
        return MAGIC
    return 1 if produce_version >= _FIRST_WITH_TIMESTAMPS else 0


@dataclass(frozen=True, slots=True)
class EncodedMessageSet:
    """A batch in an old format, ready for a Produce request."""

    body: bytes
    magic: int

    @property
    def buffers(self) -> tuple[bytes]:
        """The set as buffers to write."""
        return (self.body,)

    @property
    def size(self) -> int:
        """Bytes of the whole set."""
        return len(self.body)

    def restamped(
        self, producer_id: int, producer_epoch: int, base_sequence: int
    ) -> EncodedMessageSet:
        """Raise: a set has no place for a producer id."""
        raise IllegalStateError("a batch in a format before 0.11 got a sequence number")


def records_of(builder: RecordBatchBuilder) -> list[DecodedRecord]:
    """Return the records a builder has taken, their offsets counted from 0."""
    body = bytes(builder.body())
    whole = encode_batch(
        body,
        count=builder.count,
        base_timestamp=builder.base_timestamp,
        max_timestamp=builder.max_timestamp,
    )
    return parse_header(whole.header + body).records()


def encode_message_set(
    records: Sequence[DecodedRecord], magic: int, codec: Codec | None = None
) -> EncodedMessageSet:
    """Encode records in an old format, compressed where that makes them smaller."""
    if any(record.headers for record in records):
        raise UnsupportedVersionError(
            "brokers before Kafka 0.11 cannot store record headers",
            advice="send without headers, or upgrade the brokers",
        )
    plain = _message_set(_message(r.timestamp_ms, r.key, r.value, magic, 0) for r in records)
    if codec is None or codec.type is CompressionType.NONE:
        return EncodedMessageSet(plain, magic)
    wrapper = _message(
        max(record.timestamp_ms for record in records),
        None,
        _compress(codec, plain, magic),
        magic,
        codec.type,
    )
    whole = _OFFSET_SIZE.pack(len(records) - 1, len(wrapper)) + wrapper
    return EncodedMessageSet(min(plain, whole, key=len), magic)


def _message_set(messages: Iterable[bytes]) -> bytes:
    out = bytearray()
    for offset, message in enumerate(messages):
        out += _OFFSET_SIZE.pack(offset, len(message))
        out += message
    return bytes(out)


def _message(
    timestamp_ms: int, key: bytes | None, value: bytes | None, magic: int, attributes: int
) -> bytes:
    fields = (magic, attributes, timestamp_ms)[: 2 + magic]
    content = b"".join((_FRONTS[magic].pack(*fields), *_nullable(key), *_nullable(value)))
    return _CRC.pack(crc32(content)) + content


def _nullable(data: bytes | None) -> tuple[bytes, ...]:
    return (_LENGTH.pack(-1),) if data is None else (_LENGTH.pack(len(data)), data)


def _compress(codec: Codec, data: bytes, magic: int) -> bytes:
    if codec.type is CompressionType.ZSTD:
        raise UnsupportedVersionError(
            "brokers before Kafka 2.1 do not support zstd (KIP-110)",
            advice="choose another compression_type, or upgrade the brokers",
        )
    compressed = codec.compress(data)
    if codec.type is CompressionType.LZ4 and magic == 0:
        return _with_old_checksum(compressed)
    return compressed


# -- lz4 in magic 0 ------------------------------------------------------------------------------

_LZ4_MAGIC_AND_DESCRIPTOR = 6
_PRIME_1, _PRIME_2, _PRIME_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_PRIME_4, _PRIME_5 = 0x27D4EB2F, 0x165667B1
_WORD = 0xFFFFFFFF


def _with_old_checksum(frame: bytes) -> bytes:
    """Return the frame for 0.8 and 0.9: their header checksum covers the magic number as well.

    KIP-57 calls that a defect; brokers from 0.10 on do not check it in magic 0.
    """
    head = frame[:_LZ4_MAGIC_AND_DESCRIPTOR]
    checksum = (_xxh32_of_few(head) >> 8) & 0xFF
    return b"".join((head, bytes((checksum,)), frame[_LZ4_MAGIC_AND_DESCRIPTOR + 1 :]))


def _xxh32_of_few(data: bytes) -> int:
    """xxHash-32 with seed 0, of fewer than 16 bytes."""
    value = (_PRIME_5 + len(data)) & _WORD
    words = len(data) // 4 * 4
    for start in range(0, words, 4):
        word = int.from_bytes(data[start : start + 4], "little")
        value = _rotated((value + word * _PRIME_3) & _WORD, 17) * _PRIME_4 & _WORD
    for byte in data[words:]:
        value = _rotated((value + byte * _PRIME_5) & _WORD, 11) * _PRIME_1 & _WORD
    value = (value ^ value >> 15) * _PRIME_2 & _WORD
    value = (value ^ value >> 13) * _PRIME_3 & _WORD
    return value ^ value >> 16


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _WORD
