"""The columns of a DataFrame that make up a record, as for Spark's own Kafka sink.

Types come as Spark writes them, `array<struct<key:string,value:binary>>`.

Invariant: what is accepted here `send_arrow` can encode, so no task meets a wrong type.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from aioproducer.errors import SerializationError
from aioproducer.records.arrow_layout import ArrowColumns

_TEXT: Final = r"(string( collate \w+)?|varchar\(\d+\)|char\(\d+\))"
_BYTES: Final = rf"(binary|{_TEXT})"


_COLUMNS: Final = {
    "value": (_BYTES, "binary or string"),
    "key": (_BYTES, "binary or string"),
    "topic": (_TEXT, "string"),
    "partition": ("tinyint|smallint|int|bigint", "int"),
    "headers": (
        rf"(?i:array<struct<key:{_TEXT},value:{_BYTES}>>|map<{_TEXT},{_BYTES}>)",
        "array<struct<key:string,value:binary>>, or map<string,binary> or map<string,string>",
    ),
    "timestamp": ("timestamp|bigint", "timestamp, or bigint milliseconds since the epoch"),
}
"""The types that a column may have, as a pattern and as text."""

RECORD_COLUMNS: Final = frozenset(_COLUMNS)
"""Columns that are parts of a record."""
_NESTED: Final = re.compile("struct|array|map|variant")
_OF_READS: Final = ("offset", "timestampType")
"""Columns that reads have beside these: brokers give them, and writes leave them out."""


def plan_columns(fields: Sequence[tuple[str, str]], topic: str | None) -> ArrowColumns:
    """Assign the columns; types are as `DataType.simpleString()` writes them."""
    fields = [field for field in fields if field[0] not in _OF_READS]
    names = [name for name, _ in fields]
    for name, kind in fields:
        _check(name, kind, names)
    if "value" not in names:
        raise SerializationError(
            f"there is no column 'value'; the columns are: {', '.join(map(repr, names)) or 'none'}",
            advice='df.selectExpr("to_json(struct(*)) AS value") makes one of all others, as does '
            "value.format with a schema registry",
        )
    if topic is None and "topic" not in names:
        raise SerializationError(
            "neither the option topic nor a column 'topic' says where the rows go"
        )
    parts = {name: name for name in names if name != "topic" or topic is None}
    return ArrowColumns(**parts)


def _check(name: str, kind: str, names: list[str]) -> None:
    if name not in _COLUMNS:
        nearest = get_close_matches(name.lower(), _COLUMNS, n=1, cutoff=0.6)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise SerializationError(
            f"column {name!r} has no place in a record{hint}",
            advice=f"select {', '.join(_COLUMNS)} alone; to_json(struct(...)) packs others",
        )
    if Counter(names)[name] > 1:
        raise SerializationError(f"there are {Counter(names)[name]} columns {name!r}")
    pattern, wanted = _COLUMNS[name]
    if kind not in {"void", "null"} and not re.fullmatch(pattern, kind):
        # Spark casts a struct to a string such as `{1, a}`.
        is_nested = name in {"key", "value"} and _NESTED.match(kind)
        raise SerializationError(
            f"column {name!r} is {kind}; it has to be {wanted}",
            advice=f"make JSON of it: to_json({name})" if is_nested else "cast the column first",
        )
