"""The rows of a task: record batches as Spark hands them over, and single rows found again.

Invariants
- Batches of at most `KEPT_BYTES` are kept besides the current one, and with dead letters all whose
  rows have no outcome. An error about an older row has its number, but not its key.
- A row's key is in the error that fails its task, shortened, and never in a log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer import errors
from aioproducer._util.causes import root_of
from aioproducer.loader.window import CONSEQUENCES
from aioproducer.types import HeaderPairs

if TYPE_CHECKING:
    import pyarrow as pa

    from aioproducer.records.arrow import ArrowColumns
    from aioproducer.runtime.bulk.result import FailedRecord

KEPT_BYTES: Final = 64 * 1024 * 1024
_KEY_BYTES: Final = 40

_AFTER_ABORT: Final = (
    "nothing of this task is visible to read_committed consumers: start the query or job again"
)

_AFTER_TIMEOUT: Final = (
    "the task's transaction was ended before the task: by the broker, if the task takes longer "
    "than kafka.transaction.timeout.ms (raise that, or write with more partitions), or by a later "
    "attempt, query or job with the same transactional.id.prefix"
)
_ENDED_BY_OTHERS: Final = (errors.InvalidProducerEpochError, errors.ProducerFencedError)

SENDING: Final = "TASK_PUT"
"""Kafka Connect's name of the step after the converters."""


class RowError(errors.KafkaError):
    """Rows were not delivered; names the Spark partition, the first such row and its key."""


class Row(NamedTuple):
    """One row as the record to be sent; `topic` and `partition` are those of its columns."""

    topic: str | None = None
    partition: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: HeaderPairs = ()
    timestamp_ms: int | None = None


class RefusedRow(NamedTuple):
    """A row for the dead letters.

    Attributes:
        error: The reason.
        row: What is left of it as a record; empty if it cannot be read.
        stage: Kafka Connect's name of the step that failed.
        size: Its bytes, about, if it was refused before it became part of a batch.
    """

    error: errors.KafkaError
    row: Row
    stage: str = SENDING
    size: int = 0


def read_row(batch: pa.RecordBatch, number: int, columns: ArrowColumns) -> Row:
    """Return a row of a batch, without invalid headers; an empty one if there is no such row."""
    single = batch.slice(number, 1)
    try:
        return _first_row(single, columns)
    except errors.SerializationError:
        return _first_row(single, replace(columns, headers=None))


def _first_row(batch: pa.RecordBatch, columns: ArrowColumns) -> Row:
    from aioproducer.records.arrow import ArrowSource

    source = ArrowSource(batch, columns)
    try:
        chunk = source.next()
        if chunk is None or not len(chunk):
            return Row()
        topic, key, value, headers, partition, timestamp_ms = chunk.record(0)
        return Row(topic, partition, key, value, headers, timestamp_ms)
    finally:
        source.close()


class RowWindow:
    """The last batches of a task; unless `bounded`, the caller limits them."""

    def __init__(self, columns: ArrowColumns, *, bounded: bool = True) -> None:
        self.size: int = 0
        self._columns = columns
        self._bounded = bounded
        self._kept: deque[_Kept] = deque()

    def add(self, first: int, batch: pa.RecordBatch, size: int) -> None:
        """Keep a batch whose rows are counted from `first`."""
        self._kept.append(_Kept(first, batch, size))
        self.size += size
        while self._bounded and self.size > KEPT_BYTES and len(self._kept) > 1:
            self._drop_oldest()

    def mark(self, mark: int) -> None:
        """Note when the newest batch was handed over; see `drop`."""
        self._kept[-1] = self._kept[-1]._replace(mark=mark)

    def drop(self, is_complete: Callable[[int], bool]) -> None:
        """Drop the oldest batches whose marks are complete."""
        while self._kept and (mark := self._kept[0].mark) is not None and is_complete(mark):
            self._drop_oldest()

    def clear(self) -> None:
        """Drop all batches: no row will be requested any more."""
        self._kept.clear()
        self.size = 0

    def row(self, number: int) -> Row:
        """Return the row of this number; an empty one if it is not kept any more."""
        for first, batch, *_ in reversed(self._kept):
            if first <= number:
                return read_row(batch, number - first, self._columns)
        return Row()

    def _drop_oldest(self) -> None:
        self.size -= self._kept.popleft().size


class _Kept(NamedTuple):
    """A batch, the number of its first row, its bytes, when it was handed over."""

    first: int
    batch: pa.RecordBatch
    size: int
    mark: int | None = None


def row_error(spark_partition: int, failed: Sequence[FailedRecord], window: RowWindow) -> RowError:
    """Return the error a task fails with."""
    # One lost row may take its batch along, or its transaction: the others say nothing new.
    causes = [each for each in failed if not isinstance(each.error, CONSEQUENCES)]
    first = (causes or failed)[0]
    error = root_of(first.error, CONSEQUENCES, errors.KafkaError)
    name = "" if type(error) is errors.KafkaError else f"{type(error).__name__}: "
    advice = error.advice
    if isinstance(error, _ENDED_BY_OTHERS):
        advice = advice or _AFTER_TIMEOUT
    if isinstance(first.error, (errors.TransactionAbortableError, errors.TransactionAbortedError)):
        advice = advice or _AFTER_ABORT
    others = f"; {len(failed) - 1} more failed" if len(failed) > 1 else ""
    found = RowError(
        f"Spark partition {spark_partition}, row {first.index}{_key_of(window, first.index)}: "
        f"{name}{error.message or error}{others}",
        topic=first.error.topic,
        partition=first.error.partition,
        elapsed_ms=first.error.elapsed_ms,
        persistence=first.error.persistence,
        advice=advice,
    )
    found.__cause__ = first.error
    return found


def _key_of(window: RowWindow, number: int) -> str:
    try:
        key = window.row(number).key
    except errors.KafkaError:  # it cannot be read: the error says so
        return ""
    if key is None:
        return ""
    shown = repr(key[:_KEY_BYTES])
    rest = f"... of {len(key)} bytes" if len(key) > _KEY_BYTES else ""
    return f" (key {shown}{rest})"
