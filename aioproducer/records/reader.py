"""Reads RecordBatch v2: what brokers answer to a Fetch, what producers send in a Produce.

Invariants:
- whatever the bytes are, nothing but `ProtocolError` is raised (and `UnsupportedCodecError` where
  a codec's library is missing);
- every length is compared with the bytes that are there before anything is copied, so memory is
  bounded by the input, and by `max_bytes` where it is compressed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from aioproducer.errors import ProtocolError
from aioproducer.records.codecs import CompressionType, codec_for
from aioproducer.records.layout import (
    CODEC_MASK,
    CONTROL,
    CRC_END,
    FRONT,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    TAIL,
    TRANSACTIONAL,
)
from aioproducer.types import HeaderPairs, TimestampType

MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024
"""What one batch may decompress to unless the caller allows more or less."""

_MOST_VALUES = 2_000_000
"""Records and headers of one batch: each takes some 70 bytes here, and none once compressed."""
# length, attributes, timestamp, offset, key length, value length and header count: a byte each.
_MIN_RECORD_SIZE = 7
_MAX_VARINT_BYTES = 10

_Data = bytes | bytearray | memoryview


class DecodedRecord(NamedTuple):
    """One record of a batch."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """One batch of a log: its header's fields, and its records when they are asked for."""

    raw: memoryview = field(repr=False, compare=False)
    """The whole batch, header included; a view of what was read."""
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LENGTH_END + self.length

    @property
    def last_offset(self) -> int:
        """The offset of the batch's last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def body(self) -> memoryview:
        """The records, compressed as `codec` says."""
        return self.raw[HEADER_SIZE:]

    @property
    def codec(self) -> CompressionType:
        """The compression of the body."""
        return CompressionType(self.attributes & CODEC_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the records' timestamps are the producer's or the broker's (KIP-32)."""
        if self.attributes & LOG_APPEND_TIME:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch is a transaction marker rather than data."""
        return bool(self.attributes & CONTROL)

    def check_crc(self) -> None:
        """Raise `ProtocolError` unless the CRC is that of the bytes it covers."""
        # Imported when needed: `import aioproducer` loads no third-party package.
        from crc32c import crc32c

        actual = crc32c(self.raw[CRC_END:])
        if actual != self.crc:
            raise ProtocolError(
                f"the batch at offset {self.base_offset} is corrupt: its CRC is {actual:#010x}, "
                f"its header says {self.crc:#010x}"
            )

    def records(self, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[DecodedRecord]:
        """Decompress and decode the records."""
        if self.codec is CompressionType.NONE:
            data = bytes(self.body)
        else:
            data = codec_for(self.codec).decompress(self.body, max_bytes)
        return _decode_records(self, data)


def parse_header(data: _Data) -> RecordBatch:
    """Read the header of the batch `data` begins with; what follows that batch is ignored."""
    view = memoryview(data)
    if len(view) < HEADER_SIZE:
        raise ProtocolError(f"{len(view)} bytes are too few for a batch header ({HEADER_SIZE})")
    base_offset, length, leader_epoch, magic, crc = FRONT.unpack_from(view)
    if magic != MAGIC:
        raise ProtocolError(f"record format version (magic) {magic} is not supported, only {MAGIC}")
    if not HEADER_SIZE <= LENGTH_END + length <= len(view):
        raise ProtocolError(f"a batch of length {length} does not fit {len(view)} bytes")
    batch = RecordBatch(
        view[: LENGTH_END + length],
        base_offset,
        length,
        leader_epoch,
        magic,
        crc,
        *TAIL.unpack_from(view, CRC_END),
    )
    if batch.count < 0 or batch.last_offset_delta < 0:
        raise ProtocolError(
            f"a batch cannot have {batch.count} records and "
            f"a last offset delta of {batch.last_offset_delta}"
        )
    if batch.attributes & CODEC_MASK > max(CompressionType):
        raise ProtocolError(f"unknown compression type {batch.attributes & CODEC_MASK}")
    return batch


def read_batches(data: _Data, *, allow_partial: bool = False) -> Iterator[RecordBatch]:
    """Read the batches of `data` one after the other; CRCs are checked by `check_crc` only.

    With `allow_partial` it ends quietly where the last batch is cut off, as brokers cut it off in a
    Fetch response at the size limit (KIP-74).
    """
    view = memoryview(data)
    while view:
        if allow_partial and _is_cut_off(view):
            return
        batch = parse_header(view)
        yield batch
        view = view[batch.size :]


def _is_cut_off(view: memoryview) -> bool:
    if len(view) < HEADER_SIZE:
        return True
    length: int = FRONT.unpack_from(view)[1]
    return LENGTH_END + length > len(view)


def _decode_records(batch: RecordBatch, data: bytes) -> list[DecodedRecord]:
    if batch.count * _MIN_RECORD_SIZE > len(data):
        raise ProtocolError(f"{len(data)} bytes cannot hold {batch.count} records")
    append_time = (
        batch.max_timestamp if batch.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    )
    records: list[DecodedRecord] = []
    position, values = 0, batch.count
    try:
        for _ in range(batch.count):
            length, start = _read_varint(data, position)
            position = start + length
            if length < 0 or position > len(data):
                raise ProtocolError("a record reaches beyond its batch")
            record = _decode_record(batch, data, start, position, append_time)
            records.append(record)
            values += len(record.headers)
            if values > _MOST_VALUES:
                raise _too_many_values()
    except IndexError:
        raise ProtocolError("the records end within a record") from None
    if position != len(data):
        raise ProtocolError(f"{len(data) - position} bytes follow the last record")
    return records


def _decode_record(
    batch: RecordBatch, data: bytes, position: int, end: int, append_time: int | None
) -> DecodedRecord:
    # The record's attributes, one byte, have no meaning yet.
    timestamp_delta, position = _read_varint(data, position + 1)
    offset_delta, position = _read_varint(data, position)
    key, position = _read_nullable_bytes(data, position, end)
    value, position = _read_nullable_bytes(data, position, end)
    headers: HeaderPairs = ()
    if position < end and data[position] == 0:
        position += 1
    else:
        headers, position = _read_headers(data, position, end)
    if position != end:
        raise ProtocolError("a record's length and contents differ")
    if not 0 <= offset_delta <= batch.last_offset_delta:
        raise ProtocolError(f"a record's offset delta {offset_delta} is outside its batch")
    return DecodedRecord(
        batch.base_offset + offset_delta,
        batch.base_timestamp + timestamp_delta if append_time is None else append_time,
        key,
        value,
        headers,
    )


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Decode a zigzag varint; IndexError where the data end."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = byte & 0x7F
    for shift in range(7, 7 * _MAX_VARINT_BYTES, 7):
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80 and value < 1 << 64:
            return (value >> 1) ^ -(value & 1), position + 1
    raise ProtocolError("a varint has more than 64 bits")


def _read_nullable_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, start = _read_varint(data, position)
    if length == -1:
        return None, start
    position = start + length
    if length < 0 or position > end:
        raise ProtocolError(f"a length of {length} does not fit its record")
    return data[start:position], position


def _read_headers(data: bytes, position: int, end: int) -> tuple[HeaderPairs, int]:
    count, position = _read_varint(data, position)
    if not 0 <= count <= end - position:
        raise ProtocolError(f"a record cannot have {count} headers")
    if count > _MOST_VALUES:
        raise _too_many_values()
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _read_nullable_bytes(data, position, end)
        value, position = _read_nullable_bytes(data, position, end)
        if name is None:
            raise ProtocolError("a header has no name")
        # Brokers take any bytes for a name; what is not UTF-8 reads as in Java.
        headers.append((name.decode(errors="replace"), value))
    return tuple(headers), position


def _too_many_values() -> ProtocolError:
    return ProtocolError(f"a batch has more than {_MOST_VALUES} records and headers")
