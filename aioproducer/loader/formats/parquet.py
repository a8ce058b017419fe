"""Parquet, read with pyarrow.

Invariants
- Memory is bounded by one row group's chosen columns plus one batch of rows. A text that is written
  once in the file and used by many rows is not copied for each row of a batch.
- Row groups wholly before the wanted row are not read at all.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats.arrow_process import ArrowFormat
from aioproducer.loader.formats.arrow_rows import parts_after, rows_at_once
from aioproducer.loader.formats.format import imported, too_few_rows
from aioproducer.loader.formats.parquet_pages import check_pages

_MAX_LIST_VALUES = 100_000_000
"""Limit for one column of a row group: any number of equal values is encoded in a few bytes."""
_SHARING = "DELTA_BYTE_ARRAY"
_MAX_SHARED_BYTES = 64 << 20
_MAX_SHARING_ROWS = 100


@dataclass(frozen=True, slots=True)
class ParquetFormat(ArrowFormat):
    """Apache Parquet files, any compression pyarrow reads."""

    name: ClassVar[str] = "Parquet"


def read_parquet(file: io.BufferedIOBase, skip: int) -> Iterator[Any]:
    """Yield the rows after the first `skip` as record batches.

    Only for `arrow_worker`: a malformed file can end the process.
    """
    parquet = imported("pyarrow.parquet", "Parquet", "arrow")
    metadata = parquet.read_metadata(file)
    file.seek(0)
    texts = _texts(metadata)
    with parquet.ParquetFile(file, metadata=metadata, read_dictionary=texts) as opened:
        yield from _rows(opened, file, skip)


def _rows(file: Any, source: Any, skip: int) -> Iterator[Any]:
    groups = file.metadata
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
    yield from parts_after(skip, _batches(file, source, wanted), first_row)


def _batches(file: Any, source: Any, wanted: list[int]) -> Iterator[Any]:
    most = rows_at_once(file.metadata.num_columns)
    for number in wanted:
        group = file.metadata.row_group(number)
        check_pages(source, group)
        yield from file.iter_batches(
            batch_size=_rows_in_memory(group, most), row_groups=[number], use_threads=False
        )


def _texts(metadata: Any) -> list[str]:
    """Return the columns of texts and bytes, which stay dictionaries where they are in the file.

    Without those that say that their texts share beginnings: Arrow cannot read them so, and it
    refuses the others if that is not true.
    """
    columns = [metadata.schema.column(index) for index in range(metadata.num_columns)]
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [
        column.path
        for index, column in enumerate(columns)
        if column.physical_type == "BYTE_ARRAY"
        and not any(_SHARING in group.column(index).encodings for group in groups)
    ]


def _rows_in_memory(group: Any, most: int) -> int:
    """Return how many rows of a group are read together.

    Where texts share beginnings, each may be as long as the column is in the file.
    """
    columns = (group.column(index) for index in range(group.num_columns))
    sizes = [int(each.total_uncompressed_size) for each in columns if _SHARING in each.encodings]
    if not sizes:
        return most
    return max(1, min(most, _MAX_SHARING_ROWS, _MAX_SHARED_BYTES // max(1, sum(sizes))))


def _check(schema: Any, group: Any) -> None:
    for index in range(group.num_columns):
        values = group.column(index).num_values
        if schema.column(index).max_repetition_level and values > _MAX_LIST_VALUES:
            raise SourceError(
                f"not readable as Parquet: a column of lists has {values} values in one row group, "
                f"where {_MAX_LIST_VALUES} are allowed"
            )
