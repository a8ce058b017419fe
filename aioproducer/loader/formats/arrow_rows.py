"""Rows out of Arrow's record batches, and pyarrow itself, imported when used (the extra `arrow`).

Owns: how columns become rows, the error without pyarrow. Not here: files, Kafka.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from typing import Any

from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats.chunks import Chunk, too_few_rows

_MAX_ROWS = 1000
_MAX_VALUES = 4 << 20


def fields_of(batch: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a `pyarrow.RecordBatch`, as Python's own values."""
    values = (column.to_pylist() for column in batch.columns)
    return list(zip(*values, strict=True)) if batch.num_columns else [()] * batch.num_rows


def chunks_after(skip: int, batches: Iterable[Any], first_row: int = 1) -> Iterator[Chunk]:
    """Yield the rows of record batches after the first `skip`.

    Args:
        skip: how many rows are left out.
        batches: record batches, none of them larger than one wants in memory as Python's values.
        first_row: the number of the first row they have.
    """
    for batch in batches:
        wanted = batch.slice(max(0, min(batch.num_rows, skip - first_row + 1)))
        if wanted.num_rows:
            start = first_row + batch.num_rows - wanted.num_rows
            for part in _parts(wanted):
                yield Chunk(start, fields_of(part), tuple(batch.schema.names))
                start += part.num_rows
        first_row += batch.num_rows
    if first_row <= skip:
        raise too_few_rows(first_row - 1, skip)


def rows_at_once(columns: int) -> int:
    """Return how many rows of a file with so many columns are read together.

    Raises:
        SourceError: there are no columns, so that any number of rows takes no bytes.
    """
    if columns == 0:
        raise SourceError("it has no columns")
    return max(1, min(_MAX_ROWS, _MAX_VALUES // columns))


def _parts(batch: Any) -> Iterator[Any]:
    """Yield the rows of a batch in parts of a bounded number of Python values."""
    rows = batch.num_rows
    if sum(_values_in(column) for column in batch.columns) <= _MAX_VALUES:
        yield batch
    elif rows == 1:
        raise SourceError(f"a row has more than {_MAX_VALUES} values")
    else:
        yield from _parts(batch.slice(0, rows // 2))
        yield from _parts(batch.slice(rows // 2))


def _values_in(column: Any) -> int:
    """Return how many values a column has, those in its lists and structs among them."""
    inner: list[Any] = []
    if hasattr(column, "keys"):  # a map; its keys and items are those of the unsliced column
        first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
        inner = [part.slice(first, last - first) for part in (column.keys, column.items)]
    elif hasattr(column, "flatten"):
        flat = column.flatten()
        inner = flat if isinstance(flat, list) else [flat]
    return len(column) + sum(_values_in(each) for each in inner)


def import_pyarrow(module: str, what: str) -> tuple[Any, Any]:
    """Pyarrow, and one of its modules.

    Raises:
        SourceError: it is not installed.
    """
    try:
        return importlib.import_module("pyarrow"), importlib.import_module(f"pyarrow.{module}")
    except ImportError as error:
        raise SourceError(
            f"reading {what} needs pyarrow, which cannot be imported",
            advice="install it: pip install 'aioproducer[arrow]'",
        ) from error
