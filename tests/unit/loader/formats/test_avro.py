"""Avro container files as rows."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest

from aioproducer.loader import BadRow, FileSource, Position
from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats.avro import avro_rows
from loader.fakes import rows_of

SYNC = b"s" * 16


def container(kind: Any, values: list[Any], *, codec: str = "null") -> bytes:
    """Return a file whose values are those below its logical types."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}

    def plain(each: Any) -> Any:
        if isinstance(each, list):
            return [plain(one) for one in each]
        if not isinstance(each, dict):
            return each
        return {name: plain(one) for name, one in each.items() if name != "logicalType"}

    whole, header, skipped = io.BytesIO(), io.BytesIO(), io.BytesIO()
    rows = [{"x": value} for value in values]
    fastavro.writer(whole, plain(schema), rows, codec=codec, sync_marker=SYNC)
    fastavro.writer(skipped, plain(schema), [], codec=codec, sync_marker=SYNC)
    fastavro.writer(header, schema, [], codec=codec, sync_marker=SYNC)
    return header.getvalue() + whole.getvalue()[len(skipped.getvalue()) :]


def read(data: bytes, skip: int = 0) -> list[Any]:
    return [row for _, chunk in avro_rows(io.BytesIO(data), skip) for row in chunk]


MICROS = {"type": "long", "logicalType": "timestamp-micros"}
UUID_TEXT = "00000000-0000-0000-0000-000000000001"


@pytest.mark.parametrize("codec", ["null", "deflate"])
@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (MICROS, 0, 2**60),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, 0, 9_223_372_036_825_200_000),
        (["null", MICROS], None, 2**60),
        ({"type": "array", "items": MICROS}, [0, 1], [0, 2**60]),
        ({"type": "int", "logicalType": "date"}, 0, 3_000_000),
        ({"type": "int", "logicalType": "time-millis"}, 0, 86_400_000),
        ({"type": "string", "logicalType": "uuid"}, UUID_TEXT, ""),
    ],
)
def test_a_row_with_a_value_that_its_logical_type_has_not_is_bad_and_the_others_are_read(
    kind: Any, good: Any, bad: Any, codec: str
) -> None:
    data = container(kind, [good, bad, good], codec=codec)
    first, between, last = read(data)
    assert first == last
    assert first.keys() == {"x"}
    assert isinstance(between, BadRow)
    assert between.reason.startswith("a value cannot be read: ")
    assert json.loads(between.raw) == {"x": bad}
    assert read(data, 1) == [between, last]
    assert read(data, 2) == [last]


@pytest.mark.parametrize("size", [16, 4])
def test_a_uuid_in_a_fixed_of_16_bytes_is_a_uuid(size: int) -> None:
    kind = {"type": "fixed", "name": "F", "size": size, "logicalType": "uuid"}
    content = bytes(range(size))
    expected = UUID(bytes=content) if size == 16 else content
    assert read(container(kind, [content])) == [{"x": expected}]


def test_a_file_with_such_rows_is_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "t.avro"
    file.write_bytes(container(MICROS, [0] * 1500 + [2**60] * 2 + [0]))
    found = rows_of(FileSource(str(file)))
    assert [position.row for position, _ in found] == list(range(1, 1504))
    assert [each.row for each, row in found if isinstance(row, BadRow)] == [1501, 1502]
    assert rows_of(FileSource(str(file)), Position(str(file), None, 1501)) == found[1501:]


def test_a_record_that_contains_itself_may_have_such_a_value() -> None:
    kind = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "at", "type": MICROS}, {"name": "next", "type": ["null", "Node"]}],
    }
    value = {"at": 0, "next": {"at": 2**60, "next": None}}
    (row,) = read(container(kind, [value]))
    assert isinstance(row, BadRow)
    assert json.loads(row.raw) == {"x": value}


def test_a_damaged_row_is_no_row_with_such_a_value() -> None:
    data = container({"type": "array", "items": "string"}, [["a", "\u00fc"]])
    with pytest.raises(SourceError, match="not readable as Avro: 'utf-8' codec can't decode"):
        read(data.replace("\u00fc".encode(), b"\xff\xff"))
