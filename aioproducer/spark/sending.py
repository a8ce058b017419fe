"""Record batches of a task into one producer, through the encoder of `send_arrow`.

Owns: when a task gives up, where refused rows go. Not here: PySpark, transactions, how the
batches are read.

Invariants
- Rows are appended in the order of the batches.
- A batch is kept until its rows have their outcome, to name those that fail.
- Without a topic for refused rows the first failed row ends the reading.
- With one, rows are waited for before their batches are let go, so that each refused row is at
  hand; a failure that another attempt might not meet fails the task all the same.
- When the call returns, every row is acknowledged, by its topic or by that of the refused ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aioproducer.errors import (
    InvalidPartitionError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    RecordListTooLargeError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from aioproducer.records.arrow import ArrowColumns, ArrowSource
from aioproducer.runtime.bulk_run import BulkRun
from aioproducer.spark.dead_letters import dead_letter
from aioproducer.spark.rows import KEPT_BYTES, RowWindow, row_error
from aioproducer.spark.topics import wait_for_topic

if TYPE_CHECKING:
    import pyarrow as pa

    from aioproducer.client.producer import Producer
    from aioproducer.runtime.bulk_result import SendManyResult
    from aioproducer.spark.prefetch import PrefetchIterator
    from aioproducer.types import TopicPartition

_ROWS_AT_ONCE: Final = 32_768
_ADVICE_AMONG_OTHERS: Final = (
    "create it, or correct the rows that name it. Rows for other topics may have been written; "
    "with exactly-once they are not committed. If it is about to be created, raise topic.timeout.ms"
)
_THE_ROWS_OWN: Final = (
    InvalidPartitionError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    RecordListTooLargeError,
    RecordTooLargeError,
    SerializationError,
)
"""Failures that the row would meet again however often it is sent."""


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of a task's rows.

    Attributes:
        topic: of rows that name none.
        columns: what makes up a record.
        dead_letter_topic: of rows that are refused; None to fail.
        spark_partition: named in errors as their origin.
        topic_timeout_s: how long a topic is waited for while it does not exist.
    """

    topic: str | None
    columns: ArrowColumns
    dead_letter_topic: str | None
    spark_partition: int
    topic_timeout_s: float = 10.0


@dataclass(slots=True)
class Sent:
    """The counts of a task's rows.

    `bytes` are those of the Arrow columns; `offsets` the lowest and highest per partition.
    """

    rows: int = 0
    bytes: int = 0
    dead_letters: int = 0
    offsets: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)


async def send_batches(
    producer: Producer, batches: PrefetchIterator[pa.RecordBatch], target: Target
) -> Sent:
    """Send all rows and wait for their outcomes; in the loop of the producer.

    Raises:
        RowError: rows were not delivered.
        SendManyInterruptedError: the producer failed or was closed.
        Exception: what the iterator raised.
    """
    return await _Sending(producer, batches, target).run()


def topics_of(batch: pa.RecordBatch, target: Target) -> list[str]:
    """Return the topics that rows of a batch name, or the one for all."""
    if target.topic is not None:
        return [target.topic]
    if target.columns.topic is None or target.columns.topic not in batch.schema.names:
        return []
    import pyarrow as pa

    column = batch.column(target.columns.topic)
    try:
        names = column.unique().to_pylist()
    except pa.ArrowNotImplementedError:  # such as of string views
        names = list(dict.fromkeys(column.to_pylist()))
    return [name for name in names if isinstance(name, str)]


class _StoppedError(Exception):
    """Enough rows have failed."""


class _Sending:
    def __init__(
        self, producer: Producer, batches: PrefetchIterator[pa.RecordBatch], target: Target
    ) -> None:
        self._producer = producer
        self._engine = producer._usable()
        self._batches = batches
        self._target = target
        self._window = RowWindow(target.columns, bounded=target.dead_letter_topic is None)
        self._sent = Sent()
        self._run = BulkRun(self._engine)
        self._ended = False
        self._topics: set[str] = set()  # that exist

    async def run(self) -> Sent:
        while not self._ended:
            self._run = BulkRun(self._engine)
            await self._settle(await self._completed())
        return self._sent

    async def _completed(self) -> SendManyResult:
        broken: Exception | None = None

        async def feeding() -> None:
            nonlocal broken
            try:
                await self._feed()
            except _StoppedError:
                pass
            except Exception as error:
                broken = error

        result = await self._run.complete(feeding())
        if result.failed and self._target.dead_letter_topic is None:
            raise self._failure(result)
        if broken is not None:
            raise broken
        return result

    async def _feed(self) -> None:
        """Read until the end, or until as many rows wait as may be kept."""
        waiting = 0
        while waiting < KEPT_BYTES or self._target.dead_letter_topic is None:
            batch = await self._batches.next()
            if batch is None:
                self._ended = True
                return
            await self._wait_for_topics(batch)
            size = batch.nbytes
            waiting += size
            self._window.add(self._sent.rows, batch, size)
            await self._append(batch)
            self._window.mark(self._run.mark())
            if not self._run.result.failed:
                self._window.drop(self._run.is_settled)
            self._sent.rows += batch.num_rows
            self._sent.bytes += size
            if self._run.result.failed and self._target.dead_letter_topic is None:
                raise _StoppedError

    async def _wait_for_topics(self, batch: pa.RecordBatch) -> None:
        """Wait for the topics of a batch that were not written to before, each for its time."""
        for topic in topics_of(batch, self._target):
            if topic not in self._topics:
                await self._wait_for(topic)

    async def _wait_for(self, topic: str) -> None:
        try:
            await wait_for_topic(self._producer, topic, self._target.topic_timeout_s)
        except InvalidTopicError:
            pass  # a failure of its rows, which are named or go elsewhere
        except UnknownTopicOrPartitionError as error:
            if topic == self._target.topic:
                raise
            raise error.with_context(advice=_ADVICE_AMONG_OTHERS) from None
        self._topics.add(topic)

    async def _append(self, batch: pa.RecordBatch) -> None:
        source = ArrowSource(batch, self._target.columns)
        try:
            chunk = source.next()
            if chunk is None:
                return
            try:
                for start in range(0, len(chunk), _ROWS_AT_ONCE):
                    stop = min(start + _ROWS_AT_ONCE, len(chunk))
                    await self._run.feed(chunk, self._target.topic, start, stop, self._sent.rows)
            finally:
                chunk.close()
        finally:
            source.close()

    async def _settle(self, result: SendManyResult) -> None:
        """Account for rows that have their outcome, and send refused ones where they go."""
        for place, (low, high) in result.offsets.items():
            known = self._sent.offsets.get(place, (low, high))
            self._sent.offsets[place] = (min(known[0], low), max(known[1], high))
        if result.failed:
            await self._send_dead_letters(result)
        self._window.clear()

    async def _send_dead_letters(self, result: SendManyResult) -> None:
        if not all(isinstance(each.error, _THE_ROWS_OWN) for each in result.failed):
            raise self._failure(result)
        topic = self._target.dead_letter_topic or ""
        if topic not in self._topics:
            await self._wait_for(topic)
        deliveries = []
        for each in result.failed:
            row = self._window.row(each.index)
            record = dead_letter(row, each, self._target.topic, self._target.spark_partition)
            try:
                deliveries.append(await self._producer.send(topic, **record.whole))
            except RecordTooLargeError:
                deliveries.append(await self._producer.send(topic, **record.without_value))
        for delivery in deliveries:
            await delivery
        self._sent.dead_letters += len(result.failed)

    def _failure(self, result: SendManyResult) -> Exception:
        return row_error(self._target.spark_partition, result.failed, self._window, self._sent.rows)
