"""Record batches of a task into one producer, through the encoder of `send_arrow`.

Invariants
- Rows are appended in the order of the batches.
- A batch is kept until its rows have their outcome, to name those that fail.
- Without dead letters, the first failed row ends the reading.
- With dead letters, a batch is kept until its rows are acknowledged, so that refused rows can be
  read. An error that a new attempt may avoid still fails the task.
- In a transaction, a row that this producer refuses fails alone. A row that a broker refuses fails
  the transaction: the caller aborts it and sends the other rows in another one (`replay.py`).
- When the call returns, every row is acknowledged, or is a dead letter that is written.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aioproducer.errors import (
    InvalidTopicError,
    KafkaError,
    MetadataTimeoutError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from aioproducer.loader.window import ROW_ERRORS
from aioproducer.records.arrow import ArrowColumns, ArrowSource
from aioproducer.runtime.bulk.result import FailedRecord, SendManyResult
from aioproducer.runtime.bulk.run import BulkRun
from aioproducer.runtime.send.validation import LAST_PARTITION
from aioproducer.spark.dead_letter_files import DeadLetterPart
from aioproducer.spark.dead_letters import DeadLetter, dead_letter
from aioproducer.spark.replay import Items, Refusal, Refused, RowsRefusedError
from aioproducer.spark.rows import KEPT_BYTES, RefusedRow, RowError, RowWindow, row_error
from aioproducer.spark.topics import wait_for_partition, wait_for_topic

if TYPE_CHECKING:
    import pyarrow as pa

    from aioproducer.client.producer import Producer
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.runtime.delivery import Delivery
    from aioproducer.spark.options import SourceOptions

_ROWS_AT_ONCE: Final = 32_768
_ADVICE_AMONG_OTHERS: Final = (
    "create it, or correct the rows that name it. Rows for other topics may have been written; "
    "with exactly-once they are not committed. If it is about to be created, raise topic.timeout.ms"
)
_THE_ROWS_OWN: Final = (*ROW_ERRORS, InvalidTopicError)
"""Failures that the row would meet again however often it is sent."""


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of a task's rows.

    Attributes:
        options: those of the write.
        columns: what makes up a record.
        spark_partition: named in errors as their origin.
        refused: rows that brokers have refused before.
        dead_letter_file: of rows that are refused, with `dead.letter.path`.
    """

    options: SourceOptions
    columns: ArrowColumns
    spark_partition: int
    refused: Refused
    dead_letter_file: DeadLetterPart | None


@dataclass(slots=True)
class Sent:
    """The counts of a task's rows.

    `bytes` are those of the Arrow columns; `dead_letters` counts by the error's name.
    """

    rows: int = 0
    bytes: int = 0
    dead_letters: Counter[str] = field(default_factory=Counter)


def topics_of(batch: pa.RecordBatch, target: Target) -> list[str]:
    """Return the topics that rows of a batch name, or the one for all."""
    if target.options.topic is not None:
        return [target.options.topic]
    if target.columns.topic is None or target.columns.topic not in batch.schema.names:
        return []
    import pyarrow as pa

    column = batch.column(target.columns.topic)
    try:
        names = column.unique().to_pylist()
    except pa.ArrowNotImplementedError:  # such as of string views
        names = list(dict.fromkeys(column.to_pylist()))
    return [name for name in names if isinstance(name, str)]


def _missing_partitions(
    batch: pa.RecordBatch, target: Target, metadata: Metadata
) -> dict[str, tuple[int, int]]:
    """Return the highest partition that rows name and a topic does not have, and its row."""
    if target.columns.partition is None:
        return {}
    import pyarrow.compute as pc

    def is_missing(topic: str, partition: int) -> bool:
        known = metadata.topic(topic)
        return known is not None and partition >= len(known.partitions)

    column = batch.column(target.columns.partition)
    highest = pc.max(column).as_py()
    if highest is None or not any(is_missing(each, highest) for each in topics_of(batch, target)):
        return {}
    topics: list[str | None] = [target.options.topic] * batch.num_rows
    if target.options.topic is None and target.columns.topic is not None:
        topics = batch.column(target.columns.topic).to_pylist()
    found: dict[str, tuple[int, int]] = {}
    for row, (topic, partition) in enumerate(zip(topics, column.to_pylist(), strict=True)):
        if topic is None or partition is None or partition > LAST_PARTITION:
            continue
        if is_missing(topic, partition) and partition > found.get(topic, (-1, 0))[0]:
            found[topic] = (partition, row)
    return found


class Sending:
    """Sends the rows of a task, in the loop of the producer."""

    def __init__(
        self, producer: Producer, batches: Items[pa.RecordBatch | RefusedRow], target: Target
    ) -> None:
        self._producer = producer
        self._engine = producer._usable()
        self._batches = batches
        self._target = target
        self._options = target.options
        self._window = RowWindow(target.columns, bounded=not target.options.keeps_refused)
        self._sent = Sent()
        in_transaction = self._engine.transactions is not None
        self._spares = in_transaction and target.options.keeps_refused
        self._run = self._new_run()
        self._refused: list[FailedRecord] = []  # that are not sent, since the last outcomes
        self._unfit: dict[int, RefusedRow] = {}  # those of them that are in no batch
        self._ended = False
        self._topics: set[str] = set()  # that exist

    async def run(self) -> Sent:
        """Send all rows and wait for their outcomes.

        Raises `RowsRefusedError` if the transaction can be repeated without the refused rows.
        """
        while not self._ended:
            self._run = self._new_run()
            result = await self._completed()
            if failed := sorted([*result.failed, *self._refused], key=lambda each: each.index):
                await self._send_dead_letters(failed)
            self._refused.clear()
            self._unfit.clear()
            self._window.clear()
        return self._sent

    def _new_run(self) -> BulkRun:
        return BulkRun(self._engine, spares=_THE_ROWS_OWN if self._spares else ())

    async def _completed(self) -> SendManyResult:
        broken: Exception | None = None

        async def feeding() -> None:
            nonlocal broken
            try:
                await self._feed()
            except Exception as error:
                broken = error

        result = await self._run.complete(feeding())
        if self._spares and self._engine.transactions is not None:
            self._check_transaction(self._engine.transactions.check_send, result)
        if result.failed and not self._options.keeps_refused:
            raise self._failure(result.failed)
        if broken is not None:
            raise broken
        return result

    def _check_transaction(self, check: Callable[[], object], result: SendManyResult) -> None:
        """Raise if the transaction has failed, and say whether because of rows."""
        try:
            check()
        except KafkaError:
            if not result.failed:
                raise
        else:
            return
        own = {
            each.index: Refusal(each.error)
            for each in result.failed
            if isinstance(each.error, _THE_ROWS_OWN)
        }
        failure = self._failure(result.failed)
        if own:
            # Other failures may follow from these. If not, they come again without these rows.
            raise RowsRefusedError(own, failure)
        raise failure

    async def _feed(self) -> None:
        """Read until the end or a failure, or until as many rows wait as may be kept."""
        waiting = 0
        while waiting < KEPT_BYTES or not self._options.keeps_refused:
            batch = await self._batches.next()
            if batch is None:
                self._ended = True
                return
            if isinstance(batch, RefusedRow):
                waiting += batch.size
                self._unfit[self._sent.rows] = batch
                self._refused.append(FailedRecord(self._sent.rows, batch.error))
                self._sent.rows += 1
                continue
            for topic in topics_of(batch, self._target):
                if topic not in self._topics:
                    await self._wait_for(topic)
            size = batch.nbytes
            waiting += size
            self._window.add(self._sent.rows, batch, size)
            await self._wait_for_partitions(batch)
            await self._append(batch)
            self._window.mark(self._run.mark())
            if not (self._run.result.failed or self._refused):
                self._window.drop(self._run.is_complete)
            self._sent.rows += batch.num_rows
            self._sent.bytes += size
            if self._run.result.failed and not self._options.keeps_refused:
                return

    async def _wait_for(self, topic: str) -> None:
        try:
            await wait_for_topic(self._producer, topic, self._options.topic_timeout_s)
        except InvalidTopicError:
            pass  # a failure of its rows, which are named or go elsewhere
        except UnknownTopicOrPartitionError as error:
            if topic == self._options.topic:
                raise
            raise error.with_context(advice=_ADVICE_AMONG_OTHERS) from None
        self._topics.add(topic)

    async def _wait_for_partitions(self, batch: pa.RecordBatch) -> None:
        """Wait for partitions that rows name no longer than for a topic: each attempt waits."""
        for topic, (partition, row) in _missing_partitions(
            batch, self._target, self._engine.metadata
        ).items():
            try:
                await wait_for_partition(
                    self._producer, topic, partition, self._options.topic_timeout_s
                )
            except MetadataTimeoutError as error:
                raise self._failure([FailedRecord(self._sent.rows + row, error)]) from None

    async def _append(self, batch: pa.RecordBatch) -> None:
        source = ArrowSource(batch, self._target.columns)
        try:
            chunk = source.next()
            if chunk is None:
                return
            try:
                for start, stop in self._shares(len(chunk)):
                    await self._run.feed(chunk, self._options.topic, start, stop, self._sent.rows)
            finally:
                chunk.close()
        finally:
            source.close()

    def _shares(self, rows: int) -> Iterator[tuple[int, int]]:
        """Yield the rows of the next batch that are sent, some at a time."""
        first = self._sent.rows
        known = self._target.refused
        skipped = sorted(each - first for each in known if first <= each < first + rows)
        self._refused += [FailedRecord(first + each, known[first + each].error) for each in skipped]
        begin = 0
        for end in (*skipped, rows):
            for start in range(begin, end, _ROWS_AT_ONCE):
                yield start, min(start + _ROWS_AT_ONCE, end)
            begin = end + 1

    async def _send_dead_letters(self, failed: list[FailedRecord]) -> None:
        if not all(isinstance(each.error, _THE_ROWS_OWN) for each in failed):
            raise self._failure(failed)
        if self._target.dead_letter_file is None:
            await self._send_letters(failed)
        else:
            refused = [(each.index, self._refused_row(each)) for each in failed]
            # A mounted file system may take its time.
            await asyncio.to_thread(self._target.dead_letter_file.write, refused)
        self._sent.dead_letters.update(type(each.error).__name__ for each in failed)

    def _refused_row(self, failed: FailedRecord) -> RefusedRow:
        unfit = self._unfit.get(failed.index)
        return unfit or RefusedRow(failed.error, self._window.row(failed.index))

    async def _send_letters(self, failed: list[FailedRecord]) -> None:
        topic = self._options.dead_letter_topic or ""
        if topic not in self._topics:
            await self._wait_for(topic)
        deliveries: list[Delivery] = []
        problem: KafkaError | None = None
        for each in failed:
            try:
                deliveries.append(await self._send_letter(topic, each))
            except KafkaError as error:  # in a transaction, it may follow from a letter before
                problem = error
                break
        too_large: list[FailedRecord] = []
        for each, delivery in zip(failed, deliveries, strict=False):
            try:
                await delivery
            except RecordTooLargeError as error:
                too_large.append(FailedRecord(each.index, error))
            except KafkaError as error:
                problem = problem or error
        errors = {each.index: each.error for each in failed}
        if too_large and self._spares:
            without = {e.index: Refusal(errors[e.index], keeps_value=False) for e in too_large}
            raise RowsRefusedError(without, self._failure(too_large))
        if problem is not None:
            raise problem
        for each in too_large:
            letter = self._letter(FailedRecord(each.index, errors[each.index]))
            await (await self._producer.send(topic, **letter.without_value))

    def _letter(self, failed: FailedRecord) -> DeadLetter:
        topic, origin = self._options.topic, self._target.spark_partition
        return dead_letter(failed.index, self._refused_row(failed), topic, origin)

    async def _send_letter(self, topic: str, failed: FailedRecord) -> Delivery:
        letter, refusal = self._letter(failed), self._target.refused.get(failed.index)
        # A record that is refused as too large would fail the transaction.
        is_small = not self._spares or letter.size <= self._engine.config.max_request_size
        if is_small and (refusal is None or refusal.keeps_value):
            try:
                return await self._producer.send(topic, **letter.whole)
            except RecordTooLargeError:
                pass
        return await self._producer.send(topic, **letter.without_value)

    def _failure(self, failed: list[FailedRecord]) -> RowError:
        return row_error(self._target.spark_partition, failed, self._window)
