"""Transactions as one partition sees them: markers, what is undecided, what was aborted (KIP-98).

Invariants:
- The last stable offset is at most the high watermark and at most the first offset of every
  transaction that has not ended below the high watermark.
- A marker without data before it ends nothing and shows up in no index.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from aioproducer.records import RecordBatchBuilder
from aioproducer.records.batch import RecordBatch
from aioproducer.records.layout import (
    CONTROL,
    FRONT,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    TAIL,
    TRANSACTIONAL,
)

_KEY = Struct(">hh")
"""version, type"""
_VALUE = Struct(">hi")
"""version, coordinator epoch"""
_ABORT, _COMMIT = 0, 1
_BUFFER_BYTES = 64
_NO_SEQUENCE = -1


class Marker(NamedTuple):
    """The end of a transaction in one partition."""

    producer_id: int
    epoch: int
    is_commit: bool
    coordinator_epoch: int

    def encode(self, now_ms: int) -> bytes:
        """Return the marker as a control batch (Java: EndTransactionMarker)."""
        builder = RecordBatchBuilder(bytearray(_BUFFER_BYTES))
        key = _KEY.pack(0, _COMMIT if self.is_commit else _ABORT)
        builder.try_append(now_ms, key, _VALUE.pack(0, self.coordinator_epoch), ())
        body = bytes(builder.body())
        tail = TAIL.pack(
            TRANSACTIONAL | CONTROL,
            0,
            now_ms,
            now_ms,
            self.producer_id,
            self.epoch,
            _NO_SEQUENCE,
            1,
        )
        length = HEADER_SIZE - LENGTH_END + len(body)
        return FRONT.pack(0, length, -1, MAGIC, crc32c(body, crc32c(tail))) + tail + body

    @classmethod
    def of(cls, batch: RecordBatch) -> Marker:
        """Return the marker that a control batch is."""
        record = batch.records()[0]
        (_, kind) = _KEY.unpack(record.key or b"")
        (_, coordinator_epoch) = _VALUE.unpack(record.value or b"")
        return cls(batch.producer_id, batch.producer_epoch, kind == _COMMIT, coordinator_epoch)


class EndedTransaction(NamedTuple):
    """The offsets of one transaction: from its first to its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int


class PartitionTransactions:
    """The transactions of one partition.

    Attributes:
        aborted: The aborted ones, in the order of their markers.
    """

    __slots__ = ("_ended", "_open", "aborted")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._ended: list[EndedTransaction] = []
        self.aborted: list[EndedTransaction] = []

    @property
    def open_producers(self) -> dict[int, int]:
        """The first offset of every undecided transaction, by producer id."""
        return dict(self._open)

    def is_open(self, producer_id: int) -> bool:
        """Return whether a producer has an undecided transaction here."""
        return producer_id in self._open

    def note_data(self, producer_id: int, offset: int) -> None:
        """Note a written transactional batch; the first one opens the transaction here."""
        self._open.setdefault(producer_id, offset)

    def note_marker(self, marker: Marker, offset: int) -> None:
        """Note a written marker."""
        first_offset = self._open.pop(marker.producer_id, None)
        if first_offset is None:
            return
        ended = EndedTransaction(marker.producer_id, first_offset, offset)
        self._ended.append(ended)
        if not marker.is_commit:
            self.aborted.append(ended)

    def drop(self, producer_id: int) -> None:
        """Drop a transaction whose end leaves no trace in a log."""
        self._open.pop(producer_id, None)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset at which a committed read has to stop."""
        # An end counts once its marker is replicated (Java: ProducerStateManager.unreplicatedTxns).
        self._ended = [each for each in self._ended if each.last_offset >= high_watermark]
        undecided = [*self._open.values(), *(each.first_offset for each in self._ended)]
        return min([high_watermark, *undecided])

    def aborted_within(self, start: int, end: int) -> list[EndedTransaction]:
        """Return the aborted transactions a committed read of `[start, end)` has to leave out."""
        return [
            each for each in self.aborted if each.last_offset >= start and each.first_offset < end
        ]
