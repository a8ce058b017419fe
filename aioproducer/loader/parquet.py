"""Parquet, read with pyarrow (the extra `arrow`), imported when used.

Owns: row groups and batches of a Parquet stream. Must not know: files, Kafka.

Invariants
- Memory is bounded by one row group's chosen columns plus one batch of rows.
- Row groups that lie wholly before the wanted row are not read at all.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats import Chunk, too_few_rows
from aioproducer.loader.streams import seekable

_BATCH_ROWS = 1000


@dataclass(frozen=True, slots=True)
class ParquetFormat:
    """Apache Parquet files, any compression pyarrow reads."""

    def read(self, stream: io.BufferedIOBase, skip: int, stack: ExitStack) -> Iterator[Chunk]:
        """See `Format`."""
        pyarrow, parquet = _import_pyarrow()
        try:
            file = stack.enter_context(parquet.ParquetFile(seekable(stream, stack)))
            yield from _rows(file, skip)
        except (pyarrow.ArrowException, pyarrow.ArrowInvalid) as error:
            raise SourceError(f"not readable as Parquet: {error}") from error


def _rows(file: Any, skip: int) -> Iterator[Chunk]:
    groups = file.metadata
    if groups.num_rows < skip:
        raise too_few_rows(groups.num_rows, skip)
    columns = tuple(file.schema_arrow.names)
    first_row = 1
    for group in range(file.num_row_groups):
        rows_in_group = groups.row_group(group).num_rows
        if first_row + rows_in_group - 1 <= skip:
            first_row += rows_in_group
            continue
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, row_groups=[group]):
            wanted = batch.slice(max(0, min(batch.num_rows, skip - first_row + 1)))
            if wanted.num_rows:
                start = first_row + batch.num_rows - wanted.num_rows
                values = (column.to_pylist() for column in wanted.columns)
                yield Chunk(start, list(zip(*values, strict=True)), columns)
            first_row += batch.num_rows


def _import_pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise SourceError(
            "reading Parquet needs pyarrow, which cannot be imported",
            advice="install it: pip install 'aioproducer[arrow]'",
        ) from error
    return pyarrow, parquet
