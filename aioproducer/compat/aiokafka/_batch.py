"""`BatchBuilder`: records that a program gathers itself and sends in one call.

Invariants: sizes are those of Kafka's record format 2; a builder that has refused a record as it
was full, or was closed, takes no more; the first record always fits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, Final, NamedTuple

from aioproducer.types import HeaderPairs

__all__ = ["BatchBuilder", "RecordInBatch"]

BATCH_OVERHEAD: Final = 61
"""Bytes of a batch's header."""

RECORD_OVERHEAD: Final = 21
"""The most that a record's own fields take, beside key, value and headers."""


class RecordInBatch(NamedTuple):
    """Index, size in bytes and timestamp of an accepted record."""

    offset: int
    size: int
    timestamp: int

    @property
    def crc(self) -> None:
        """None: records of this format have no checksum each."""
        return None


class BatchBuilder:
    """A batch under way; `AIOKafkaProducer.create_batch()` makes one.

    Args:
        batch_size: a batch of more than one record stays below this many bytes.
        key_serializer: turns keys into bytes.
        value_serializer: turns values into bytes.
    """

    def __init__(
        self,
        batch_size: int,
        *,
        key_serializer: Callable[[Any], Any] | None = None,
        value_serializer: Callable[[Any], Any] | None = None,
    ) -> None:
        self._limit = batch_size
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._records: list[tuple[bytes | None, bytes | None, HeaderPairs, int]] = []
        self._size = BATCH_OVERHEAD
        self._closed = False

    def parts(self) -> Sequence[tuple[bytes | None, bytes | None, HeaderPairs, int]]:
        """Return the records so far, serialized: key, value, headers and timestamp of each."""
        return self._records

    def append(
        self,
        *,
        timestamp: float | None,
        key: Any,
        value: Any,
        headers: list[tuple[str, bytes | None]] | None = None,
    ) -> RecordInBatch | None:
        """Add a record.

        Args:
            timestamp: milliseconds since the epoch; now if None.
            key: bytes, or what the key serializer takes.
            value: bytes, or what the value serializer takes.
            headers: pairs of name and bytes.

        Returns:
            Its place and size; None if the batch is full or closed, which closes it.

        Raises:
            TypeError: a part has a type that cannot be sent.
            ValueError: the timestamp is negative.
        """
        if self._closed:
            return None
        key, value = (
            serialized(self._key_serializer, key),
            serialized(self._value_serializer, value),
        )
        pairs = checked_headers(headers)
        stamp = checked_timestamp(timestamp)
        when = time.time_ns() // 1_000_000 if stamp is None else stamp
        first = self._records[0][3] if self._records else when
        place = len(self._records)
        body = 1 + _varint(when - first) + _varint(place) + content_size(key, value, pairs)
        size = body + _varint(body)
        # As aiokafka's compiled builder: a record that would just fill the batch is refused too.
        if self._records and self._size + size >= self._limit:
            self._closed = True
            return None
        self._records.append((key, value, pairs, when))
        self._size += size
        return RecordInBatch(place, size, when)

    def close(self) -> None:
        """Take no more records."""
        self._closed = True

    def closed(self) -> bool:
        """Return whether it takes no more records."""
        return self._closed

    def size(self) -> int:
        """Bytes of the batch so far, uncompressed."""
        return self._size

    def record_count(self) -> int:
        """Return the number of records."""
        return len(self._records)


def serialized(serializer: Callable[[Any], Any] | None, part: Any) -> bytes | None:
    """Serialize a key or value; exceptions of the serializer are raised unchanged."""
    data = part if serializer is None else serializer(part)
    if data is None or type(data) is bytes:
        return data
    try:
        return bytes(memoryview(data))
    except TypeError:
        name = type(data).__name__
        raise TypeError(f"a bytes-like object is required, not {name!r}") from None


def checked_headers(headers: list[tuple[str, bytes | None]] | None) -> HeaderPairs:
    """Return headers as they are stored; raise TypeError or ValueError for other objects."""
    if not headers:
        return ()
    if not isinstance(headers, list):
        raise TypeError(f"Expected list, got {type(headers).__name__}")
    if all(map(_is_plain, headers)):
        return tuple(headers)
    pairs = []
    for header in headers:
        name, content = _pair(header)
        if not isinstance(name, str):
            raise TypeError(f"Expected str, got {type(name).__name__}")
        if content is not None and not isinstance(content, bytes):
            raise TypeError(f"Expected bytes, got {type(content).__name__}")
        pairs.append((name, content))
    return tuple(pairs)


def _is_plain(header: Any) -> bool:
    return (
        type(header) is tuple
        and len(header) == 2
        and type(header[0]) is str
        and type(header[1]) is bytes
    )


def _pair(header: Any) -> tuple[Any, Any]:
    if not isinstance(header, tuple):
        raise TypeError(f"Expected tuple, got {type(header).__name__}")
    if len(header) == 2:
        return header
    # As aiokafka's compiled code says it; what Python says depends on its version.
    if header[2:]:
        raise ValueError("too many values to unpack (expected 2)")
    raise ValueError(f"need more than {len(header)} value{'' if header else 's'} to unpack")


def checked_timestamp(timestamp: float | None) -> int | None:
    """Return a timestamp in whole milliseconds; raise ValueError if it is negative."""
    if timestamp is None:
        return None
    if not isinstance(timestamp, Real):
        raise TypeError("an integer is required")
    if timestamp < 0:
        raise ValueError(f"a timestamp is not negative, got {timestamp}")
    return int(timestamp)


def content_size(key: bytes | None, value: bytes | None, headers: HeaderPairs) -> int:
    """Bytes that key, value and headers take in a record."""
    size = _field(key) + _field(value) + _varint(len(headers))
    for name, content in headers:
        size += _field(name.encode()) + _field(content)
    return size


def _field(content: bytes | None) -> int:
    return 1 if content is None else _varint(len(content)) + len(content)


def _varint(number: int) -> int:
    """Bytes of a number in the zig-zag form."""
    zigzag = number * 2 if number >= 0 else -number * 2 - 1
    return max(1, (zigzag.bit_length() + 6) // 7)
