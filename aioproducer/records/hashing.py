"""Partition choice by hash without native code: librdkafka's CRC32, Java's `hashCode`."""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from aioproducer.records._validation import Payload


def crc32_partition(key: Payload, partition_count: int) -> int:
    """Return the partition of `key` by librdkafka's `consistent`: CRC-32 modulo the count."""
    return crc32(key) % partition_count


def java_string_partition(key: bytes, partition_count: int) -> int:
    """Return the partition of a UTF-8 `String` by 0.8's `DefaultPartitioner`."""
    units = key.decode("utf-8", "replace").encode("utf-16-be")
    pairs = zip(units[::2], units[1::2], strict=True)
    return _magnitude(_polynomial(0, (high << 8 | low for high, low in pairs))) % partition_count


def java_bytes_partition(key: bytes, partition_count: int) -> int:
    """Return the partition of 0.8's `ByteArrayPartitioner` (`java.util.Arrays.hashCode`)."""
    return _magnitude(_polynomial(1, memoryview(key).cast("b"))) % partition_count


def _polynomial(start: int, items: Iterable[int]) -> int:
    """Java's hash of a sequence, an int of 32 bits without its sign."""
    total = start
    for item in items:
        total = (31 * total + item) & 0xFFFFFFFF
    return total


def _magnitude(number: int) -> int:
    """0.8's `Utils.abs`: the smallest int of 32 bits, which has no counterpart, becomes 0."""
    return number if number < 1 << 31 else ((1 << 32) - number) & 0x7FFFFFFF
