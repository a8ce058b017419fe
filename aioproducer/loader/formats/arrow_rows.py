"""Rows out of Arrow's record batches; pyarrow (the extra `arrow`) is imported when used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from aioproducer._util.printable import printable
from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats.format import too_few_rows
from aioproducer.loader.rows import BadRow, Fields
from aioproducer.loader.values import to_json

UTC: Final = "+00:00"
"""Python reads it without a database of time zones."""
UNREADABLE: Final = (ValueError, OverflowError, KeyError, TypeError)
"""What pyarrow raises for a value that Python has not, such as a map with a key twice."""
_LONGEST_SHOWN = 200
_MAX_ROWS = 1000
_MAX_VALUES = 4 << 20
_MAX_BYTES = 64 << 20
_MAX_ROW_BYTES = 256 << 20


def fields_of(batch: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a `pyarrow.RecordBatch`, as Python's own values; maps as dicts."""
    values = (_decoded(column).to_pylist(maps_as_pydicts="strict") for column in batch.columns)
    return list(zip(*values, strict=True)) if batch.num_columns else [()] * batch.num_rows


def rows_of(batch: Any) -> list[Fields | BadRow]:
    """Return the rows of a `pyarrow.RecordBatch`; one with a value that Python has not is bad.

    Such are times after the year 9999, nanoseconds of a time of day, other nanoseconds where pandas
    is not installed, and maps with a key twice or with keys that are structs.
    """
    try:
        return list(fields_of(batch))
    except UNREADABLE:
        # Copied: a cast of a slice of lists casts the values of the other rows as well.
        return [_row(batch.take([number])) for number in range(batch.num_rows)]


def _row(row: Any) -> Fields | BadRow:
    """Return the only row of a batch."""
    names: Sequence[str] = row.schema.names
    values: list[Any] = []
    reason = ""
    for name, column in zip(names, row.columns, strict=True):
        try:
            values += _decoded(column).to_pylist(maps_as_pydicts="strict")
        except UNREADABLE as error:
            reason = reason or f"column {name!r} cannot be read: {error}"
            values.append(text_of(column))
    if not reason:
        return tuple(values)
    return BadRow(reason, to_json(dict(zip(names, values, strict=True))).encode())


def text_of(column: Any) -> str:
    """Return the text of the only value of a column, also of one that Python has not."""
    return " ".join(str(column).split()).removeprefix("[ ").removesuffix(" ]")


def with_known_zones(column: Any, *, default: str | None = None) -> Any:
    """Return a column with its times in UTC where Python does not have their zone.

    Such are Java's names `GMT+8`, `+08` and `Z`, and all names where there is no database of zones.
    Times without a zone get `default`, unless it is None. Decimals as keys of maps become texts.
    Times of day get microseconds: Python leaves out nanoseconds, and the cast raises `ValueError`.
    """
    kind = _with_known_zones(column.type, default)
    return column if kind == column.type else column.cast(kind)


@lru_cache(maxsize=1024)
def _with_known_zones(kind: Any, default: str | None) -> Any:
    """Return a type that `with_known_zones` casts to; the type itself if it stays."""
    import pyarrow

    types = pyarrow.types

    def known(inner: Any) -> Any:
        return _with_known_zones(inner, default)

    made: Any = kind
    if types.is_timestamp(kind):
        zone = default if kind.tz is None else kind.tz
        made = pyarrow.timestamp(kind.unit, zone if zone is None or _is_known(zone) else UTC)
    elif kind == pyarrow.time64("ns"):
        made = pyarrow.time64("us")
    elif types.is_struct(kind):
        made = pyarrow.struct([each.with_type(known(each.type)) for each in kind])
    elif types.is_map(kind) and not types.is_null(kind.key_type):  # else it has no entries
        item = kind.item_field.with_type(known(kind.item_type))
        # As keys of a dict, decimals of equal hashes would take quadratic time.
        is_text = types.is_decimal(kind.key_type)
        made = pyarrow.map_(pyarrow.string() if is_text else known(kind.key_type), item)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        size = [kind.list_size] if types.is_fixed_size_list(kind) else []
        make = pyarrow.large_list if types.is_large_list(kind) else pyarrow.list_
        made = make(kind.value_field.with_type(known(kind.value_type)), *size)
    return kind if made == kind else made


@lru_cache(maxsize=1024)
def _is_known(name: str) -> bool:
    """Return whether Python has a time zone."""
    import pyarrow

    try:
        pyarrow.scalar(0, pyarrow.timestamp("s", name)).as_py()
    except Exception:  # pyarrow's, zoneinfo's
        return False
    return True


def parts_after(skip: int, batches: Iterable[Any], first_row: int = 1) -> Iterator[Any]:
    """Yield the rows after the first `skip`, as record batches of bounded size."""
    for batch in batches:
        wanted = batch.slice(max(0, min(batch.num_rows, skip - first_row + 1)))
        if wanted.num_rows:
            yield from _parts(wanted)
        first_row += batch.num_rows
    if first_row <= skip:
        raise too_few_rows(first_row - 1, skip)


def check_names(names: Sequence[str]) -> None:
    """Refuse columns of one name, of which a row would keep the last one only."""
    if len(set(names)) < len(names):
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        shown = printable(", ".join(map(repr, twice)), _LONGEST_SHOWN)
        raise SourceError(f"it has several columns {shown}")


def rows_at_once(columns: int) -> int:
    """Return how many rows of a file with so many columns are read together."""
    if columns == 0:
        raise SourceError("it has no columns")
    return max(1, min(_MAX_ROWS, _MAX_VALUES // columns))


def _parts(batch: Any) -> Iterator[Any]:
    """Yield the rows of a batch in parts of a bounded number and size of Python's values."""
    rows = batch.num_rows
    values = sum(_values_in(column) for column in batch.columns)
    size = sum(_bytes_in(column) for column in batch.columns)
    if values <= _MAX_VALUES and size <= _MAX_BYTES:
        yield batch
    elif rows == 1 and values > _MAX_VALUES:
        raise SourceError(f"a row has more than {_MAX_VALUES} values")
    elif rows == 1 and size > _MAX_ROW_BYTES:
        raise SourceError(f"a row has more than {_MAX_ROW_BYTES} bytes")
    elif rows == 1:
        yield batch
    else:
        yield from _parts(batch.slice(0, rows // 2))
        yield from _parts(batch.slice(rows // 2))


def _values_in(column: Any) -> int:
    """Return how many values a column has, those in its lists and structs among them."""
    return len(column) + sum(map(_values_in, _inner(column)))


def _bytes_in(column: Any) -> int:
    """Return the size of a column's values, each of a dictionary as often as it is used."""
    if inner := _inner(column):
        return sum(map(_bytes_in, inner))
    dictionary = getattr(column, "dictionary", None)
    if dictionary is None:
        return int(column.nbytes)
    import pyarrow.compute

    compute = pyarrow.compute
    if not hasattr(dictionary[0] if len(dictionary) else None, "as_buffer"):
        return int(column.nbytes)
    used = compute.binary_length(dictionary).take(column.indices)
    return int(compute.sum(used).as_py() or 0)


def _inner(column: Any) -> list[Any]:
    """Return the columns that a column of lists, structs or maps consists of."""
    if hasattr(column, "keys"):  # a map; its keys and items are those of the unsliced column
        first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
        return [part.slice(first, last - first) for part in (column.keys, column.items)]
    if not hasattr(column, "flatten"):
        return []
    flat = column.flatten()
    return flat if isinstance(flat, list) else [flat]


def _decoded(column: Any) -> Any:
    """Return a column with values in place of a dictionary; those within lists stay."""
    decoded = column.dictionary_decode() if hasattr(column, "dictionary_decode") else column
    return with_known_zones(decoded)
