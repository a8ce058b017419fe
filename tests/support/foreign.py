"""Records as foreign clients read them, in one shape, to be compared with what was sent."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from aioproducer.types import HeaderPairs, TimestampType


@dataclass(frozen=True, slots=True)
class ForeignRecord:
    """One record as a foreign consumer delivered it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs
    timestamp: int
    timestamp_type: TimestampType


@dataclass(frozen=True, slots=True)
class PartitionDigest:
    """The content of one partition: counts, bytes, and a SHA-256 over all of it in offset order."""

    records: int
    key_bytes: int
    value_bytes: int
    headers: int
    sha256: str


class ReaderMissingError(RuntimeError):
    """A reader is not installed on this machine; the message says what would install it."""


def digest_partitions(records: Iterable[ForeignRecord]) -> dict[int, PartitionDigest]:
    """Digest records exactly as `java/TopicDigest.java` does, partition by partition."""
    partitions: dict[int, list[ForeignRecord]] = {}
    for record in records:
        partitions.setdefault(record.partition, []).append(record)
    return {
        partition: _digest(sorted(content, key=lambda record: record.offset))
        for partition, content in sorted(partitions.items())
    }


def _digest(records: list[ForeignRecord]) -> PartitionDigest:
    sha = hashlib.sha256()
    for record in records:
        sha.update(struct.pack(">qq", record.offset, record.timestamp))
        for part in (record.key, record.value):
            _update(sha, part)
        sha.update(struct.pack(">i", len(record.headers)))
        for name, content in record.headers:
            _update(sha, name.encode())
            _update(sha, content)
    return PartitionDigest(
        records=len(records),
        key_bytes=sum(len(record.key or b"") for record in records),
        value_bytes=sum(len(record.value or b"") for record in records),
        headers=sum(len(record.headers) for record in records),
        sha256=sha.hexdigest(),
    )


def _update(sha: hashlib._Hash, part: bytes | None) -> None:
    """Length and content; the length of None is -1."""
    sha.update(struct.pack(">i", -1 if part is None else len(part)))
    sha.update(part or b"")
