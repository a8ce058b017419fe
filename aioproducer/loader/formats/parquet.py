"""Parquet, read with pyarrow.

Owns: row groups and batches of a Parquet stream. Not here: files, Kafka.

Invariants
- Memory is bounded by one row group's chosen columns plus one batch of rows.
- Row groups wholly before the wanted row are not read at all.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats.arrow_rows import chunks_after, import_pyarrow, rows_at_once
from aioproducer.loader.formats.chunks import Chunk, too_few_rows
from aioproducer.loader.streams import seekable

_MAX_LIST_VALUES = 100_000_000
"""Of one column of a row group: encoded, any number of equal ones takes a few bytes."""


@dataclass(frozen=True, slots=True)
class ParquetFormat:
    """Apache Parquet files, any compression pyarrow reads."""

    def read(self, stream: io.BufferedIOBase, skip: int, stack: ExitStack) -> Iterator[Chunk]:
        """See `Format`."""
        pyarrow, parquet = import_pyarrow("parquet", "Parquet")
        try:
            file = stack.enter_context(parquet.ParquetFile(seekable(stream, stack)))
            yield from _rows(file, skip)
        except (pyarrow.ArrowException, pyarrow.ArrowInvalid) as error:
            raise SourceError(f"not readable as Parquet: {error}") from error


def _rows(file: Any, skip: int) -> Iterator[Chunk]:
    groups = file.metadata
    batch_rows = rows_at_once(groups.num_columns)
    if groups.num_rows < skip:
        raise too_few_rows(groups.num_rows, skip)
    first_row, wanted = 1, list[int]()
    for group in range(file.num_row_groups):
        rows_in_group = groups.row_group(group).num_rows
        if not wanted and first_row + rows_in_group - 1 <= skip:
            first_row += rows_in_group
        else:
            _check(file.schema, groups.row_group(group))
            wanted.append(group)
    batches = (
        batch
        for group in wanted
        for batch in file.iter_batches(batch_size=batch_rows, row_groups=[group])
    )
    yield from chunks_after(skip, batches, first_row)


def _check(schema: Any, group: Any) -> None:
    for index in range(group.num_columns):
        values = group.column(index).num_values
        if schema.column(index).max_repetition_level and values > _MAX_LIST_VALUES:
            raise SourceError(
                f"not readable as Parquet: a column of lists has {values} values in one row group, "
                f"where {_MAX_LIST_VALUES} are allowed"
            )
