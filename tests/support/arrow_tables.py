"""Random rows, and tables of every shape that hold them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from aioproducer.records.arrow import ArrowColumns

COLUMNS = ArrowColumns("value", "key", "headers", "partition", "timestamp", "topic")

Header = tuple[str, bytes | None]


@dataclass(frozen=True)
class Row:
    """One row; a key is text, so that it fits columns of text too."""

    value: bytes | None = None
    key: str | None = None
    headers: tuple[Header, ...] | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    topic: str | None = None


def rows(max_size: int, topics: tuple[str, ...] = ("t", "u")) -> st.SearchStrategy[list[Row]]:
    """Rows, some of which no producer takes."""
    header = st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=20))
    row = st.builds(
        Row,
        st.none() | st.binary(max_size=60),
        st.none() | st.text(max_size=20),
        st.none() | st.lists(header, max_size=3).map(tuple),
        st.none() | st.integers(-1, 4),
        st.none() | st.sampled_from([-1, 0, 1, 10**12, 2**53, 2**63 - 1]),
        st.none() | st.sampled_from(topics),
    )
    return st.lists(row, max_size=max_size)


def expected_record(row: Row) -> tuple[Any, ...]:
    """The record that a reader has to make of a row."""
    return (
        row.topic,
        None if row.key is None else row.key.encode(),
        row.value,
        row.headers or (),
        row.partition,
        row.timestamp_ms,
    )


@st.composite
def table_of(draw: st.DrawFn, given: list[Row]) -> pa.Table:
    """A table of these rows: layouts, offsets and chunks are chance."""
    text = st.sampled_from([pa.string(), pa.large_string(), pa.string_view()])
    data = st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()])
    pairs = pa.struct([("key", draw(text)), ("value", draw(data))])
    headers = [None if row.headers is None else list(row.headers) for row in given]
    if draw(st.booleans()):
        header_kind = pa.map_(pa.string(), pa.binary())
    else:
        header_kind = draw(st.sampled_from([pa.list_(pairs), pa.large_list(pairs)]))
        headers = [
            row and [{"key": name, "value": value} for name, value in row] for row in headers
        ]
    columns = {
        "value": _column(draw, [row.value for row in given], draw(data)),
        "key": _column(draw, [row.key for row in given], draw(text)),
        "headers": pa.array(headers, header_kind),
        "partition": pa.array(
            [row.partition for row in given], draw(st.sampled_from([pa.int8(), pa.int64()]))
        ),
        "timestamp": pa.array([row.timestamp_ms for row in given], pa.int64()),
        "topic": _column(draw, [row.topic for row in given], draw(text)),
    }
    whole = pa.table(columns)
    # Unused rows in front: every buffer is read from an offset then.
    padded = pa.concat_tables([whole.slice(0, draw(st.integers(0, 3))), whole]).combine_chunks()
    whole = padded.slice(len(padded) - len(given))
    cuts = sorted(draw(st.lists(st.integers(0, len(given)), max_size=3)))
    edges = [0, *cuts, len(given)]
    return pa.concat_tables([whole.slice(a, b - a) for a, b in pairwise(edges)] or [whole])


def _column(draw: st.DrawFn, values: list[Any], kind: pa.DataType) -> pa.Array:
    array = pa.array(values, kind)
    views = pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)
    return array if views or draw(st.booleans()) else array.dictionary_encode()
