"""Batch builders and encoded batches of a few bytes, in place of the real ones.

A record is one byte of its batch's memory, so that memory which is used again too early changes
what a request contains.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aioproducer.core.batching import batch as producer_batch
from aioproducer.records.batch import HEADER_SIZE

NO_MEMORY = bytearray()


class Builder:
    """See `aioproducer.records.RecordBatchBuilder`: one byte for each record."""

    __slots__ = ("closed", "count", "memory", "most", "owner")

    def __init__(self, buffer: bytearray) -> None:
        self.memory = buffer
        self.count = 0
        self.most = 1 << 20
        self.owner: object = None
        self.closed = False

    @property
    def size(self) -> int:
        return self.count

    @property
    def largest(self) -> int:
        return 1

    def try_append(self, timestamp_ms: int, key: object, value: bytes, headers: object) -> int:
        index = self.count
        if self.closed or index >= min(self.most, len(self.memory)):
            return -1
        self.memory[index] = value[0]
        self.count += 1
        return index

    def close(self) -> None:
        self.closed = True

    def release(self) -> None:
        self.memory = NO_MEMORY


@dataclass(frozen=True, slots=True)
class Record:
    """The parts of a record that `records_of` gives."""

    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: tuple[()] = ()


@dataclass(frozen=True, slots=True)
class Encoded:
    """A batch in a request: the numbers are copied, the records are read when it is sent."""

    memory: bytearray
    count: int
    producer_id: int
    epoch: int
    sequence: int

    @property
    def size(self) -> int:
        return HEADER_SIZE + self.count

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self.memory[: self.count])

    def restamped(self, producer_id: int, epoch: int, sequence: int) -> Encoded:
        return Encoded(self.memory, self.count, producer_id, epoch, sequence)


def encode(batch: producer_batch.ProducerBatch) -> None:
    """Make what a request carries of a closed batch, once."""
    if batch.encoded is None:
        builder = batch.builder
        assert isinstance(builder, Builder)
        numbers = batch.producer_id, batch.producer_epoch, batch.base_sequence
        batch.encoded = Encoded(builder.memory, builder.count, *numbers)  # type: ignore[assignment]


def _records_of(builder: Builder) -> list[Record]:
    return [Record(0, None, bytes((each,))) for each in builder.memory[: builder.count]]


@contextmanager
def tiny_records() -> Iterator[None]:
    """Within the block, batches are made of these records."""
    before = producer_batch.RecordBatchBuilder, producer_batch.records_of
    producer_batch.RecordBatchBuilder = Builder  # type: ignore[assignment,misc]
    producer_batch.records_of = _records_of  # type: ignore[assignment]
    try:
        yield
    finally:
        producer_batch.RecordBatchBuilder, producer_batch.records_of = before  # type: ignore[misc]
