"""Partition choice by hash where no native code is needed: librdkafka's CRC32.

Owns: the arithmetic that keeps us compatible with librdkafka's `consistent` partitioner. Must not
know: clusters, availability of partitions, the murmur2 hash (it lives in the two cores).
"""

from __future__ import annotations

from zlib import crc32

from aioproducer.records.protocol import Payload


def crc32_partition(key: Payload, partition_count: int) -> int:
    """The partition librdkafka's `consistent` partitioner gives `key`: CRC-32 modulo the count."""
    return crc32(key) % partition_count
