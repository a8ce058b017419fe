"""Avro container files, as `load` reads them.

Input: the file.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import fastavro

from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats.avro import avro_rows
from fuzz.guard import Target, require

_MOST_ROWS = 2000


def run(data: bytes) -> None:
    count = 0
    try:
        for first_row, rows in avro_rows(io.BytesIO(data)):
            require(first_row == count + 1, "row {} follows row {}", first_row, count)
            count += len(rows)
            if count > _MOST_ROWS:
                return
    except (SourceError, OSError):
        return


def seeds() -> Iterator[bytes]:
    flat = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "a", "type": "long"},
            {"name": "b", "type": ["null", "string"], "default": None},
            {"name": "c", "type": {"type": "enum", "name": "E", "symbols": ["x", "y"]}},
        ],
    }
    deep = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "parts", "type": {"type": "array", "items": "long"}},
            {"name": "more", "type": {"type": "map", "values": ["null", "R"]}},
            {"name": "when", "type": {"type": "int", "logicalType": "date"}},
        ],
    }
    rows = {
        "flat": [{"a": n, "b": None if n % 2 else "text", "c": "x"} for n in range(20)],
        "deep": [{"parts": [1, 2, 3], "more": {"k": None}, "when": n} for n in range(5)],
    }
    for schema, name in ((flat, "flat"), (deep, "deep")):
        for codec in ("null", "deflate", "snappy"):
            file = io.BytesIO()
            fastavro.writer(file, schema, rows[name], codec=codec, sync_marker=b"s" * 16)
            yield file.getvalue()


# A row of a few bytes may become 4 million values.
TARGET = Target("avro", run, seeds, bytes_per_byte=4000, extra_bytes=64 << 20)
