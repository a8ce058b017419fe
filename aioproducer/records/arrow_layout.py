"""The Arrow columns that make up a record, and their memory layout (Arrow C data interface).

Invariant: a `Plan` names only columns that exist and only types that both readers can read, so a
wrong type is refused before the first row is read.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

from aioproducer.errors import SerializationError


@dataclass(frozen=True, slots=True)
class Field:
    """An ArrowSchema; `dictionary` is the type of the values that `format`'s indexes refer to."""

    name: str
    format: str
    children: tuple[Field, ...] = ()
    dictionary: Field | None = None


@dataclass(frozen=True, slots=True)
class ArrowColumns:
    """The names of the columns; None for parts that have none."""

    value: str | None = None
    key: str | None = None
    headers: str | None = None
    partition: str | None = None
    timestamp: str | None = None
    topic: str | None = None


class Kind(IntEnum):
    """The memory layout of a column's values; `_arrow.pyx` uses the numbers."""

    NULLS = 0
    BYTES = 1
    """Offsets of `width` bytes each, and data."""
    VIEWS = 2
    FIXED = 3
    """`width` bytes each."""
    SIGNED = 4
    UNSIGNED = 5
    LIST = 6
    """Offsets of `width` bytes each, and a child."""
    FIXED_LIST = 7
    """`width` entries each."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One column: its place among its parent's children, and how to read it.

    `dictionary` is what its numbers point into; `pair` are key and value of a headers column's
    entries; `per_second` is how many units of a timestamp make a second.
    """

    position: int
    kind: Kind
    width: int = 0
    dictionary: Layout | None = None
    pair: tuple[Layout, Layout] | None = None
    per_second: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The columns of a record by their part; None for parts without a column."""

    value: Layout | None
    key: Layout | None
    headers: Layout | None
    partition: Layout | None
    timestamp: Layout | None
    topic: Layout | None
    children: int
    """How many columns every chunk has."""


_INTEGERS = {
    "c": (Kind.SIGNED, 1),
    "C": (Kind.UNSIGNED, 1),
    "s": (Kind.SIGNED, 2),
    "S": (Kind.UNSIGNED, 2),
    "i": (Kind.SIGNED, 4),
    "I": (Kind.UNSIGNED, 4),
    "l": (Kind.SIGNED, 8),
    "L": (Kind.UNSIGNED, 8),
}
_TEXTS = {"u": (Kind.BYTES, 4), "U": (Kind.BYTES, 8), "vu": (Kind.VIEWS, 0)}
_BYTES = _TEXTS | {"z": (Kind.BYTES, 4), "Z": (Kind.BYTES, 8), "vz": (Kind.VIEWS, 0)}
_LISTS = {"+l": 4, "+L": 8, "+m": 4}
_PER_SECOND = {"tss": 1, "tsm": 1000, "tsu": 1_000_000, "tsn": 1_000_000_000}

_NAMES = {
    "n": "null",
    "b": "bool",
    "c": "int8",
    "C": "uint8",
    "s": "int16",
    "S": "uint16",
    "i": "int32",
    "I": "uint32",
    "l": "int64",
    "L": "uint64",
    "e": "float16",
    "f": "float32",
    "g": "float64",
    "z": "binary",
    "Z": "large_binary",
    "vz": "binary_view",
    "u": "string",
    "U": "large_string",
    "vu": "string_view",
    "d": "decimal",
    "w": "fixed_size_binary",
    "tdD": "date32",
    "tdm": "date64",
    "ts": "timestamp",
    "tt": "time",
    "tD": "duration",
    "ti": "interval",
    "+l": "list",
    "+L": "large_list",
    "+vl": "list_view",
    "+vL": "large_list_view",
    "+w": "fixed_size_list",
    "+s": "struct",
    "+m": "map",
    "+u": "union",
    "+r": "run_end_encoded",
}

_WANTED = {
    "value": "binary or string (large, view, fixed_size_binary and dictionaries of them too)",
    "key": "binary or string (large, view, fixed_size_binary and dictionaries of them too)",
    "headers": "map<string, binary> or list<struct<key: string, value: binary>>",
    "partition": "an integer",
    "timestamp": "a timestamp, or int64 milliseconds",
    "topic": "string (large, view and dictionaries of it too)",
}


def plan_columns(schema: Field, columns: ArrowColumns) -> Plan:
    """Find the columns."""
    if schema.format != "+s":
        raise SerializationError(
            f"Arrow data has to have columns (a table, record batch or struct), but this is "
            f"{_type_name(schema)}"
        )
    found = {part.name: _column(schema, part.name, columns) for part in fields(columns)}
    return Plan(**found, children=len(schema.children))


def taken_error() -> SerializationError:
    """Explain a capsule whose data another reader has, or had."""
    return SerializationError(
        "the Arrow data were taken out of their capsule before",
        advice="give each call an object that exports anew, such as a table",
    )


def _column(schema: Field, part: str, columns: ArrowColumns) -> Layout | None:
    name = getattr(columns, part)
    if name is None:
        return None
    positions = [at for at, child in enumerate(schema.children) if child.name == name]
    if len(positions) != 1:
        names = ", ".join(repr(child.name) for child in schema.children) or "none"
        count = "no column" if not positions else f"{len(positions)} columns"
        raise SerializationError(
            f"there is {count} {name!r} for the {part}; the columns are: {names}"
        )
    [position] = positions
    field = schema.children[position]
    layout = _layout(position, field, part)
    if layout is None:
        raise SerializationError(
            f"column {name!r} is {_type_name(field)}; a column for the {part} is {_WANTED[part]}",
            advice="cast the column first, or name another one",
        )
    return layout


def _layout(position: int, field: Field, part: str) -> Layout | None:
    # An object column of pandas without any value is of this type, also as a categorical one.
    if "n" in {field.format, field.dictionary and field.dictionary.format}:
        return Layout(position, Kind.NULLS)
    if part == "headers":
        return _headers_layout(position, field)
    if part == "partition":
        return _number_layout(position, field)
    if part == "timestamp":
        return _timestamp_layout(position, field)
    return _bytes_layout(position, field, _TEXTS if part == "topic" else _BYTES)


def _bytes_layout(position: int, field: Field, kinds: dict[str, tuple[Kind, int]]) -> Layout | None:
    if field.dictionary is not None:
        values = _bytes_layout(0, field.dictionary, kinds)
        if values is None or values.dictionary is not None or field.format not in _INTEGERS:
            return None
        return Layout(position, *_INTEGERS[field.format], dictionary=values)
    if field.format.startswith("w:") and kinds is _BYTES:
        return Layout(position, Kind.FIXED, int(field.format[2:]))
    return Layout(position, *kinds[field.format]) if field.format in kinds else None


def _number_layout(position: int, field: Field) -> Layout | None:
    if field.dictionary is not None or field.format not in _INTEGERS:
        return None
    return Layout(position, *_INTEGERS[field.format])


def _timestamp_layout(position: int, field: Field) -> Layout | None:
    unit = "tsm" if field.format == "l" else field.format[:3]
    if field.dictionary is not None or unit not in _PER_SECOND:
        return None
    return Layout(position, Kind.SIGNED, 8, per_second=_PER_SECOND[unit])


def _headers_layout(position: int, field: Field) -> Layout | None:
    if field.dictionary is not None or len(field.children) != 1:
        return None
    entry = field.children[0]
    if entry.format != "+s" or len(entry.children) != 2:
        return None
    at = {child.name: number for number, child in enumerate(entry.children)}
    first, second = (at["key"], at["value"]) if at.keys() == {"key", "value"} else (0, 1)
    key = _bytes_layout(first, entry.children[first], _TEXTS)
    value = _layout(second, entry.children[second], "value")
    if key is None or value is None:
        return None
    if field.format in _LISTS:
        return Layout(position, Kind.LIST, _LISTS[field.format], pair=(key, value))
    if field.format.startswith("+w:"):
        return Layout(position, Kind.FIXED_LIST, int(field.format[3:]), pair=(key, value))
    return None


def _type_name(field: Field) -> str:
    """Return a type as Arrow's users call it."""
    if field.dictionary is not None:
        return f"dictionary<{_type_name(field.dictionary)}>"
    code = field.format.partition(":")[0]
    for length in range(len(code), 0, -1):
        if code[:length] in _NAMES:
            name = _NAMES[code[:length]]
            break
    else:
        return f"of an unknown type ({field.format!r})"
    inner = field.children
    if name == "map" and inner:
        inner = inner[0].children
    if not inner or name == "struct":
        return name
    return f"{name}<{', '.join(_type_name(child) for child in inner)}>"
