"""Rows out of Arrow's record batches, and pyarrow itself, imported when used (the extra `arrow`).

Owns: how columns become rows, what is said without pyarrow. Must not know: files, Kafka.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from typing import Any

from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats import Chunk, too_few_rows


def fields_of(batch: Any) -> list[tuple[Any, ...]]:
    """The rows of a `pyarrow.RecordBatch`, as Python's own values."""
    values = (column.to_pylist() for column in batch.columns)
    return list(zip(*values, strict=True)) if batch.num_columns else [()] * batch.num_rows


def chunks_behind(skip: int, batches: Iterable[Any], first_row: int = 1) -> Iterator[Chunk]:
    """The rows of record batches behind the first `skip` ones.

    Args:
        skip: how many rows are left out.
        batches: record batches, none of them larger than one wants in memory as Python's values.
        first_row: the number of the first row they have.
    """
    for batch in batches:
        wanted = batch.slice(max(0, min(batch.num_rows, skip - first_row + 1)))
        if wanted.num_rows:
            start = first_row + batch.num_rows - wanted.num_rows
            yield Chunk(start, fields_of(wanted), tuple(batch.schema.names))
        first_row += batch.num_rows
    if first_row <= skip:
        raise too_few_rows(first_row - 1, skip)


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
