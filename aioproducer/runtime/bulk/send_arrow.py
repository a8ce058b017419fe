"""`send_arrow`: the rows of a table as records, one result.

Chunks of an Arrow source are read in a thread if that may block.

Invariants
- Columns are checked before the first row is read.
- A chunk is released when its rows are in batches; the source when the call ends, for any reason,
  or when the thread that reads it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from aioproducer._util.arguments import is_of_type
from aioproducer._util.threads import in_thread
from aioproducer.core.metadata.cluster import check_topic_name
from aioproducer.errors import InvalidTopicError
from aioproducer.records.arrow import ArrowChunk, ArrowColumns, ArrowSource
from aioproducer.records.bulk import UnfilledRows
from aioproducer.runtime.bulk.result import SendManyResult
from aioproducer.runtime.bulk.rows import ReadyRows
from aioproducer.runtime.bulk.run import BulkRun
from aioproducer.runtime.observability.interceptors import InterceptedRows
from aioproducer.types import HeaderPairs

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import RecordParts
    from aioproducer.runtime.engine import ProducerEngine
    from aioproducer.runtime.send.appender import RecordAppender

_ROWS_AT_ONCE = 16_384
"""Rows whose topics are read at once, and rows that are read in one call in a thread."""


async def send_arrow(
    engine: ProducerEngine,
    topic: str | None,
    data: object,
    columns: ArrowColumns,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> SendManyResult:
    """Append every row and wait for all outcomes; see `Producer.send_arrow`.

    `headers` are added to the headers of each row; then rows are not encoded natively.
    """
    check_topic(topic, columns)
    run = BulkRun(engine)
    source = ArrowSource(data, columns)
    try:
        return await run.complete(_feed(run, engine, source, topic, tuple(headers)))
    finally:
        source.close()


def check_topic(topic: str | None, columns: ArrowColumns) -> None:
    """Raise if a call has neither a topic nor a column of topics."""
    if topic is None and columns.topic is None:
        raise InvalidTopicError("neither a topic nor a column of topics is given")
    if topic is not None and not is_of_type(topic, str):
        check_topic_name(topic)


async def _feed(
    run: BulkRun,
    engine: ProducerEngine,
    source: ArrowSource,
    topic: str | None,
    headers: HeaderPairs,
) -> None:
    seen = engine.interceptor_chain
    number = 0
    failure: Exception | None = None
    chunks: list[ArrowChunk] = []
    while failure is None:
        if source.streams:
            chunks, failure = await in_thread(_read, source)
        else:
            chunks, failure = _read(source)
        if not chunks:
            break
        try:
            for chunk in chunks:
                length = len(chunk)
                ready: ReadyRows = _RowsWithHeaders(chunk, headers) if headers else chunk
                rows = InterceptedRows(ready, seen, topic) if seen.sees_records else ready
                for start in range(0, length, _ROWS_AT_ONCE):
                    stop = min(start + _ROWS_AT_ONCE, length)
                    if engine.appender.serializing:
                        await _let_pass(engine.appender, rows.topics(start, stop), topic)
                    await run.feed(rows, topic, start, stop, number)
                number += length
                chunk.close()
        finally:
            for chunk in chunks:
                chunk.close()
    if failure is not None:
        raise failure


class _RowsWithHeaders(UnfilledRows):
    """Rows with additional headers, which are in no column."""

    def __init__(self, rows: ReadyRows, headers: HeaderPairs) -> None:
        self._rows = rows
        self._headers = headers

    def topics(self, start: int, stop: int) -> list[str | None]:
        """See `Rows`."""
        return self._rows.topics(start, stop)

    def record(self, row: int) -> RecordParts:
        """Return one row, with the headers after its own."""
        topic, key, value, headers, partition, timestamp_ms = self._rows.record(row)
        return topic, key, value, (*headers, *self._headers), partition, timestamp_ms


async def _let_pass(
    appender: RecordAppender, names: Iterable[str | None], topic: str | None
) -> None:
    """Wait for the records of these topics that are being serialized for earlier calls."""
    for name in names:
        found = topic if name is None else name
        if found is not None and appender.serializing.is_queued(found):
            await appender.finished(found, ())


def _read(source: ArrowSource) -> tuple[list[ArrowChunk], Exception | None]:
    """Return some chunks, none at the end, and the error that followed them."""
    chunks: list[ArrowChunk] = []
    rows = 0
    try:
        while rows < _ROWS_AT_ONCE and (chunk := source.next()) is not None:
            rows += len(chunk)
            chunks.append(chunk)
    except Exception as error:
        return chunks, error
    return chunks, None
