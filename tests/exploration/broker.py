"""Brokers' handling of Produce requests: a log per partition that checks epochs and sequences.

Source: Kafka's `ProducerAppendInfo` and `ProducerStateEntry`; five batches are remembered.
"""

from __future__ import annotations

from typing import NamedTuple

from exploration.records import Encoded

REMEMBERED = 5
LAST_SEQUENCE = 2**31 - 1
LAST_EPOCH = 2**15 - 1
NOT_LEADER = 6
OUT_OF_ORDER = 45
INVALID_EPOCH = 47
UNKNOWN_TOPIC_ID = 100


class Written(NamedTuple):
    """One batch of a log."""

    offset: int
    ids: tuple[int, ...]
    producer: tuple[int, int]
    """Producer id and epoch."""
    marker: str = ""
    """"commit" or "abort" for a control batch."""


class Known(NamedTuple):
    """A log's state of a producer: its epoch, first and last sequence and offset of batches."""

    epoch: int
    batches: tuple[tuple[int, int, int], ...]


class Log:
    """One partition while its topic exists."""

    def __init__(self, leader: int, remembered: int) -> None:
        self.leader = leader
        self._remembered = remembered
        self.leader_epoch = 1
        self.end = 0
        self.start = 0
        self.appended_at = 0.0
        """Loop time."""
        self.entries: tuple[Written, ...] = ()
        self.producers: dict[int, Known] = {}

    def append(self, batch: Encoded) -> tuple[int, int]:
        """Error code and base offset."""
        if batch.sequence < 0:
            return 0, self._write(batch)
        first, last = batch.sequence, _after(batch.sequence, batch.count - 1)
        known = self.producers.get(batch.producer_id)
        if known is not None:
            if batch.epoch < known.epoch:
                return INVALID_EPOCH, -1
            if batch.epoch == known.epoch:
                for before in known.batches:
                    if before[:2] == (first, last):
                        return 0, before[2]
            is_next = batch.epoch == known.epoch and bool(known.batches)
            if first != (_after(known.batches[-1][1], 1) if is_next else 0):
                return OUT_OF_ORDER, -1
        offset = self._write(batch)
        earlier = known.batches if known is not None and known.epoch == batch.epoch else ()
        batches = (*earlier, (first, last, offset))[-self._remembered :]
        self.producers[batch.producer_id] = Known(batch.epoch, batches)
        return 0, offset

    def mark(self, producer_id: int, epoch: int, marker: str) -> None:
        """Write a control batch."""
        self.entries = (*self.entries, Written(self.end, (), (producer_id, epoch), marker))
        self.end += 1
        known = self.producers.get(producer_id)
        if known is None or known.epoch < epoch:
            self.producers[producer_id] = Known(epoch, ())

    def lose_producer(self) -> None:
        """Retention deletes all records, and with them the state of their producers."""
        self.start, self.entries = self.end, ()
        self.producers.clear()

    @property
    def ids(self) -> list[int]:
        """The records in the order of the log."""
        return [each for written in self.entries for each in written.ids]

    def at(self, offset: int) -> int | None:
        """The record at an offset."""
        for written in self.entries:
            if written.ids and written.offset <= offset < written.offset + len(written.ids):
                return written.ids[offset - written.offset]
        return None

    def _write(self, batch: Encoded) -> int:
        offset = self.end
        ids = batch.ids
        self.entries = (*self.entries, Written(offset, ids, (batch.producer_id, batch.epoch)))
        self.end += len(ids)
        return offset


def _after(sequence: int, count: int) -> int:
    """Return the sequence so many records later: 0 follows the last one."""
    return (sequence + count) % (LAST_SEQUENCE + 1)
