"""The pure-Python fallback of the native core: same names, same bytes, no compiler needed.

It encodes records in format v2 (KIP-98).

How it stays quick: varints below 8192 come from a table; consecutive records of one millisecond
share their encoded timestamp; a record is one `bytes.join`; records reach the buffer in `body()`,
all in one copy, because a slice assignment per record costs as much as encoding it.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

from aioproducer._util.arguments import is_of_type
from aioproducer._util.varints import varint, zigzag
from aioproducer.records._validation import (
    MAX_TIMESTAMP_MS,
    Payload,
    buffer_error,
    header_name_error,
    headers_error,
    moving_error,
    payload_bytes,
    released_error,
    timestamp_error,
)
from aioproducer.records.batch import encode_batch
from aioproducer.types import HeaderPairs

# Java: DefaultRecord.MAX_RECORD_OVERHEAD = length (5) + attributes (1) + timestamp (10) +
# offset (5).
_MAX_RECORD_OVERHEAD = 21
# A batch's length field is an int32 and counts the header too.
_MOST_RECORDS = 2**31 - 1
_MAX_BODY_SIZE = 2**31 - 1 - 61

_INT32 = Struct(">i")
_NULL = b"\x01"  # the varint of -1: a length that says "null"
_NO_HEADERS = b"\x00"


def _encode_varint(value: int) -> bytes:
    """Encode an integer as Kafka's zigzag varint."""
    return varint(zigzag(value))


# All the non-negative integers that take one or two bytes. Zigzag doubles them.
_TABLE_SIZE = 8192
_UNSIGNED_VARINTS = tuple(map(varint, range(2 * _TABLE_SIZE)))
_VARINTS = _UNSIGNED_VARINTS[::2]


def _varint(value: int) -> bytes:
    return _VARINTS[value] if 0 <= value < _TABLE_SIZE else _encode_varint(value)


@lru_cache(maxsize=256)
def _encode_header_name(name: str) -> bytes:
    """Encode a header's name after its length; programs use few names, each very often."""
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise header_name_error(name) from None
    return _varint(len(encoded)) + encoded


def _encode_headers(headers: object) -> bytes:
    """Encode the header count and the headers; raise before anything is written."""
    if not is_of_type(headers, tuple):
        raise headers_error(headers)
    parts = [_varint(len(headers))]
    for header in headers:
        if not is_of_type(header, tuple) or len(header) != 2:
            raise headers_error(headers)
        name, value = header
        if not is_of_type(name, str):
            raise headers_error(headers)
        if value is None:
            parts += (_encode_header_name(name), _NULL)
        elif is_of_type(value, bytes):
            parts += (_encode_header_name(name), _varint(len(value)), value)
        else:
            raise headers_error(headers)
    return b"".join(parts)


class RecordBatchBuilder:
    """Encodes records, one after the other, into the body of a RecordBatch v2 (KIP-98).

    `buffer` is pinned while the builder exists: it is never resized, and never written beyond
    `size`. `owner` is whatever the open builder's user wants to find again with it; None once
    closed, so that a builder kept somewhere keeps nothing else alive. `most` is how many records it
    takes. Timestamps are in ms, -1 while the batch is empty; `largest` is the size of the largest
    record in bytes.
    """

    __slots__ = (
        "_attributes_and_time",
        "_capacity",
        "_flushed",
        "_pending",
        "_time",
        "_view",
        "base_timestamp",
        "count",
        "largest",
        "max_timestamp",
        "most",
        "owner",
        "size",
    )

    def __init__(self, buffer: bytearray) -> None:
        if not isinstance(buffer, bytearray):
            raise buffer_error(buffer)
        # The view pins the buffer, so that it cannot be resized while we write.
        self._view: memoryview | None = memoryview(buffer)
        self._capacity = min(len(buffer), _MAX_BODY_SIZE)
        self._pending: list[bytes] = []
        self._flushed = 0
        self._time: int | None = None
        self._attributes_and_time = b""
        self.count: int = 0
        self.largest: int = 0
        self.size: int = 0
        self.base_timestamp: int = -1
        self.max_timestamp: int = -1
        self.most: int = _MOST_RECORDS
        self.owner: object = None

    def try_append(
        self, timestamp_ms: int, key: Payload | None, value: Payload | None, headers: HeaderPairs, /
    ) -> int:
        """Append one record and return its index in the batch, -1 when the buffer is full.

        Raise `TypeError` or `ValueError` for a value that cannot be encoded; nothing is written.
        """
        count = self.count
        if timestamp_ms == self._time and count and type(timestamp_ms) is int:
            prefix = self._attributes_and_time
        else:
            prefix = self._encode_time(timestamp_ms)
        if key is None:
            key_length = _NULL
            key = b""
        else:
            if type(key) is not bytes:
                key = payload_bytes("key", key)
            length = len(key)
            key_length = _VARINTS[length] if length < _TABLE_SIZE else _encode_varint(length)
        if value is None:
            value_length = _NULL
            value = b""
        else:
            if type(value) is not bytes:
                value = payload_bytes("value", value)
            length = len(value)
            value_length = _VARINTS[length] if length < _TABLE_SIZE else _encode_varint(length)
        record = b"".join(
            (
                prefix,
                _VARINTS[count] if count < _TABLE_SIZE else _encode_varint(count),
                key_length,
                key,
                value_length,
                value,
                _NO_HEADERS if headers == () else _encode_headers(headers),
            )
        )
        length = len(record)
        record_length = _VARINTS[length] if length < _TABLE_SIZE else _encode_varint(length)
        size = self.size + len(record_length) + length
        if size > self._capacity or count >= self.most:
            return -1
        self._pending += (record_length, record)
        self.largest = max(self.largest, size - self.size)
        self.size = size
        self.count = count + 1
        if timestamp_ms != self._time or not count:
            self._remember_time(timestamp_ms, prefix)
        return count

    def _encode_time(self, timestamp_ms: object) -> bytes:
        """Encode the record's attributes (always 0) and its time since the batch's first record."""
        if not isinstance(timestamp_ms, int) or not 0 <= timestamp_ms <= MAX_TIMESTAMP_MS:
            raise timestamp_error(timestamp_ms)
        return b"\x00" + _varint(timestamp_ms - self.base_timestamp if self.count else 0)

    def _remember_time(self, timestamp_ms: int, encoded: bytes) -> None:
        if self.count == 1:
            self.base_timestamp = timestamp_ms
        self.max_timestamp = max(self.max_timestamp, timestamp_ms)
        self._time = timestamp_ms
        self._attributes_and_time = encoded

    def close(self) -> None:
        """Take no more records, and let go of `owner`."""
        self._capacity = 0
        self.owner = None

    def release(self) -> None:
        """Let go of the buffer too; the records are gone."""
        self.close()
        self._pending.clear()
        self._view = None
        self.size = 0

    def move_to(self, buffer: bytearray) -> None:
        """Go on in a larger buffer, with the records so far copied; let go of the old one."""
        if not isinstance(buffer, bytearray):
            raise buffer_error(buffer)
        if self._view is None or len(buffer) < self._capacity or not self._capacity:
            raise moving_error()
        body = self.body()
        before = self._view
        self._view = memoryview(buffer)
        self._view[: self.size] = body
        self._capacity = min(len(buffer), _MAX_BODY_SIZE)
        body.release()
        before.release()

    def body(self) -> memoryview:
        """Return the bytes of the records appended so far, a view of the buffer."""
        if self._view is None:
            raise released_error()
        if self._pending:
            self._view[self._flushed : self.size] = b"".join(self._pending)
            self._pending.clear()
            self._flushed = self.size
        return self._view[: self.size]


def single_record_request(
    builder: RecordBatchBuilder,
    prefix: bytes,
    suffix: bytes,
    is_flexible: bool,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    /,
) -> bytes:
    """Return the Produce request of a builder's one record, not compressed and of no transaction.

    `prefix` are the bytes before the length of the batch; the first four are for the frame's size.
    The length is a compact one if `is_flexible` (KIP-482).
    """
    header, body = encode_batch(
        builder.body(),
        count=builder.count,
        base_timestamp=builder.base_timestamp,
        max_timestamp=builder.max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    ).buffers
    size = len(header) + len(body)
    if not is_flexible:
        length = _INT32.pack(size)
    elif size + 1 < len(_UNSIGNED_VARINTS):
        length = _UNSIGNED_VARINTS[size + 1]
    else:
        length = varint(size + 1)
    rest = b"".join((prefix[_INT32.size :], length, header, body, suffix))
    return _INT32.pack(len(rest)) + rest


def record_size_bound(key: Payload | None, value: Payload | None, headers: HeaderPairs, /) -> int:
    """Return the most bytes one record can take in any batch, all varints included.

    Java: `DefaultRecord.recordSizeUpperBound`.
    """
    return (
        _MAX_RECORD_OVERHEAD
        + _payload_size("key", key)
        + _payload_size("value", value)
        + (1 if headers == () else len(_encode_headers(headers)))
    )


def _payload_size(name: str, payload: Payload | None) -> int:
    if type(payload) is bytes or type(payload) is bytearray:
        length = len(payload)
    elif payload is None:
        return 1
    elif type(payload) is memoryview:
        length = payload.nbytes
    else:
        length = len(payload_bytes(name, payload))
    return length + (len(_VARINTS[length]) if length < _TABLE_SIZE else len(_encode_varint(length)))


_MURMUR_SEED = 0x9747B28C
_MURMUR_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
# Keys are short: the words of those up to 128 bytes are unpacked by a prepared Struct.
_WORDS = tuple(Struct(f"<{count}I") for count in range(33))


def murmur2(data: Payload) -> int:
    """Java's `Utils.murmur2`: a signed 32-bit hash."""
    if type(data) is not bytes:
        data = payload_bytes("key", data)
    length = len(data)
    words = length >> 2
    unpacker = _WORDS[words] if words < len(_WORDS) else Struct(f"<{words}I")
    h = _MURMUR_SEED ^ length & _MASK
    for word in unpacker.unpack_from(data):
        k = word * _MURMUR_M & _MASK
        h = (h * _MURMUR_M ^ (k ^ k >> 24) * _MURMUR_M) & _MASK
    if length & 3:
        h = (h ^ int.from_bytes(data[words << 2 :], "little")) * _MURMUR_M & _MASK
    h = (h ^ h >> 13) * _MURMUR_M & _MASK
    h ^= h >> 15
    return h - 0x100000000 if h & 0x80000000 else h


def murmur2_partition(key: Payload, partition_count: int, /) -> int:
    """Return the partition Java's default partitioner gives `key` (`BuiltInPartitioner`)."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
