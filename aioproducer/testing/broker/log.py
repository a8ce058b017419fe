"""One partition's log: record batches in offset order, kept as the bytes a consumer will get.

Invariants:
- Batches are whole and contiguous: each begins at the previous one's last offset plus one.
- `start_offset <= every stored base offset`; `end_offset` grows, except by `truncate_to`.
- A stored batch never changes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from aioproducer.records.batch import read_batches
from aioproducer.records.layout import CRC_END, LENGTH_END, LOG_APPEND_TIME

_BASE_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")

_CRC_AT = CRC_END - _CRC.size
_MAX_TIMESTAMP_AT = CRC_END + 14


class StoredBatch(NamedTuple):
    """One batch at its place in the log."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    data: bytes


def stamp(
    data: bytes | memoryview, *, base_offset: int, leader_epoch: int, append_time_ms: int | None
) -> bytes:
    """Return a produced batch as stored: with offset, leader epoch and maybe timestamp.

    Offset and epoch precede the bytes that the CRC covers; a LogAppendTime stamp is among them and
    so needs a new CRC (Java: DefaultRecordBatch.setMaxTimestamp).
    """
    batch = bytearray(data)
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, LENGTH_END, leader_epoch)
    if append_time_ms is not None:
        (attributes,) = _ATTRIBUTES.unpack_from(batch, CRC_END)
        _ATTRIBUTES.pack_into(batch, CRC_END, attributes | LOG_APPEND_TIME)
        _TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_AT, append_time_ms)
        with memoryview(batch) as view:
            _CRC.pack_into(batch, _CRC_AT, crc32c(view[CRC_END:]))
    return bytes(batch)


class PartitionLog:
    """The batches of one partition."""

    __slots__ = ("_base_offsets", "_batches", "end_offset", "size_bytes", "start_offset")

    def __init__(self) -> None:
        self._batches: list[StoredBatch] = []
        self._base_offsets: list[int] = []
        self.start_offset: int = 0
        self.end_offset: int = 0
        self.size_bytes: int = 0

    @property
    def batches(self) -> tuple[StoredBatch, ...]:
        """Everything stored, in offset order."""
        return tuple(self._batches)

    def append(
        self,
        data: bytes | memoryview,
        *,
        count: int,
        max_timestamp: int,
        leader_epoch: int,
        append_time_ms: int | None = None,
    ) -> StoredBatch:
        """Store a validated batch of `count` offsets after the last one."""
        base_offset = self.end_offset
        stored = StoredBatch(
            base_offset,
            base_offset + count - 1,
            max_timestamp if append_time_ms is None else append_time_ms,
            leader_epoch,
            stamp(
                data,
                base_offset=base_offset,
                leader_epoch=leader_epoch,
                append_time_ms=append_time_ms,
            ),
        )
        self._batches.append(stored)
        self._base_offsets.append(base_offset)
        self.end_offset = stored.last_offset + 1
        self.size_bytes += len(stored.data)
        return stored

    def read(
        self, offset: int, max_bytes: int, *, at_least_one: bool, end: int | None = None
    ) -> list[StoredBatch]:
        """Return whole batches from the one with `offset` on, as many as `max_bytes` allows.

        With `at_least_one` the first batch comes whatever its size, so that a consumer with a small
        limit still gets on (KIP-74). What begins at `end` or later is left out.
        """
        if not self.start_offset <= offset < self.end_offset:
            return []
        found: list[StoredBatch] = []
        for index in range(self._index_of(offset), len(self._batches)):
            batch = self._batches[index]
            if end is not None and batch.base_offset >= end:
                break
            if len(batch.data) > max_bytes and (found or not at_least_one):
                break
            found.append(batch)
            max_bytes -= len(batch.data)
        return found

    def find_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record at or after `timestamp_ms`; None if none is."""
        for batch in self._batches:
            if batch.max_timestamp < timestamp_ms:
                continue
            for decoded in read_batches(batch.data):
                for record in decoded.records():
                    if record.timestamp_ms >= timestamp_ms and record.offset >= self.start_offset:
                        return record.offset, record.timestamp_ms
        return None

    def max_timestamp(self) -> tuple[int, int] | None:
        """Offset and timestamp of the first record carrying the log's highest timestamp."""
        if not self._batches:
            return None
        return self.find_timestamp(max(batch.max_timestamp for batch in self._batches))

    def trim_to_size(self, limit_bytes: int) -> None:
        """Delete the oldest batches until `limit_bytes` suffice; the newest one always stays."""
        drop, size = 0, self.size_bytes
        while size > limit_bytes and drop < len(self._batches) - 1:
            size -= len(self._batches[drop].data)
            drop += 1
        if drop:
            self._delete_oldest(drop, size)

    def truncate_to(self, offset: int) -> list[StoredBatch]:
        """Delete the batches from `offset` on, as a replica does that follows another leader.

        Batches are whole, so `offset` is the base offset of one, or the log's end.

        Returns:
            The deleted batches.
        """
        keep = bisect_left(self._base_offsets, offset)
        lost = self._batches[keep:]
        del self._batches[keep:], self._base_offsets[keep:]
        self.size_bytes -= sum(len(batch.data) for batch in lost)
        self.end_offset = lost[0].base_offset if lost else self.end_offset
        return lost

    def delete_before(self, offset: int) -> None:
        """Move the log's start up to `offset`, as DeleteRecords does (KIP-107)."""
        self.start_offset = max(self.start_offset, min(offset, self.end_offset))
        drop = 0
        while drop < len(self._batches) and self._batches[drop].last_offset < self.start_offset:
            drop += 1
        kept = sum(len(batch.data) for batch in self._batches[drop:])
        start = self.start_offset
        self._delete_oldest(drop, kept)
        self.start_offset = max(start, self.start_offset)

    def _delete_oldest(self, drop: int, size_left: int) -> None:
        del self._batches[:drop]
        del self._base_offsets[:drop]
        self.size_bytes = size_left
        self.start_offset = self._base_offsets[0] if self._base_offsets else self.end_offset

    def _index_of(self, offset: int) -> int:
        return bisect_right(self._base_offsets, offset) - 1
