"""A source that is read in its own thread, seen from the event loop.

Invariants
- Reading and mapping never run on the loop; one batch is read ahead while another is being sent.
- After `close()` no thread, no open file is left; a read that waits for input is interrupted.
- Where the state has a checksum of its last row, that is read again: a difference is an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from aioproducer.loader.errors import START_OVER, SourceError, StateError
from aioproducer.loader.mapping import MappedRecord, RowMapper, row_checksum
from aioproducer.loader.rows import BadRow, RowBatch, Source
from aioproducer.loader.state import LoadState

T = TypeVar("T")
MappedBatch = tuple[RowBatch, list[MappedRecord | BadRow]]


class SourceReader:
    """The mapped batches of a source after those of a state, for one consumer."""

    def __init__(self, source: Source, mapper: RowMapper, before: LoadState) -> None:
        self._source = source
        self._mapper = mapper
        after = before.position
        self._unchecked: LoadState | None = None
        if after is not None and before.row_checksum is not None:
            self._unchecked = before
            after = after._replace(row=after.row - 1)
        self._batches: Iterator[RowBatch] = source.batches(after)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="aioproducer-loader")
        self._ahead: Future[MappedBatch | None] | None = None
        self._is_at_end = False

    async def next(self) -> MappedBatch | None:
        """Return the next batch, None at the end; raise what the source raises."""
        wanted = self._ahead or self._thread.submit(self._read)
        batch = await asyncio.wrap_future(wanted)
        self._is_at_end = batch is None
        self._ahead = None if batch is None else self._thread.submit(self._read)
        return batch

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run a blocking function in the reading thread, after the batch that is read ahead."""
        return await asyncio.wrap_future(self._thread.submit(work))

    def interrupt(self) -> None:
        """End a read that waits for input."""
        self._source.interrupt()

    async def close(self, *, interrupt: bool = True) -> None:
        """End the reading, close the source's files and the thread."""
        if interrupt and not self._is_at_end:  # another load may read the same source meanwhile
            self.interrupt()
        try:
            await self.in_thread(getattr(self._batches, "close", lambda: None))
        finally:
            self._thread.shutdown(wait=False)

    def _read(self) -> MappedBatch | None:
        try:
            batch = next(self._batches, None)
            if self._unchecked is not None:
                batch = _without_last_row(self._unchecked, batch)
                self._unchecked = None
            return None if batch is None else (batch, self._mapper.map(batch))
        except (CancelledError, asyncio.CancelledError) as error:  # it would end the load as `stop`
            name = type(error).__name__
            raise SourceError(f"cannot read {self._source.name}: it raised {name}") from error


def _without_last_row(before: LoadState, batch: RowBatch | None) -> RowBatch:
    """Return the first batch without its first row, the last one of `before`; raise for another."""
    position = before.position
    if (
        position is None
        or batch is None
        or (Path(batch.file), batch.member, batch.first_row)
        != (Path(position.file), position.member, position.row)
        or row_checksum(batch, 0) != before.row_checksum
    ):
        is_member = position is not None and position.member is not None
        others = ", or the archive's members before it are not" if is_member else ""
        raise StateError(
            f"cannot resume after {position}: the row there is not the one that was loaded{others}",
            advice=START_OVER,
        )
    lines = None if batch.lines is None else batch.lines[1:]
    return replace(batch, first_row=position.row + 1, fields=batch.fields[1:], lines=lines)
