"""Rows of Spark's tasks as records of the loader."""

from __future__ import annotations

import gzip
import io
import json
import lzma
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from aioproducer.loader import RecordMapping, SourceError
from aioproducer.loader.sources import FORMATS
from aioproducer.spark.loading.frames import FILE, Input
from aioproducer.spark.loading.records import REJECTION, RowsToRecords


def test_an_avro_row_that_python_cannot_read_is_rejected_beside_its_folder_s_columns(
    tmp_path: Path,
) -> None:
    file = tmp_path / "t.avro"
    name = {"type": "string", "logicalType": "uuid"}
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": name}]}
    content = io.BytesIO()
    fastavro.writer(content, schema, [{"x": "no"}, {"x": f"{0:032x}"}])
    file.write_bytes(content.getvalue())
    convert = RowsToRecords(Input("avro", FORMATS["avro"]), RecordMapping(), keeps_bad_rows=True)
    rows = pa.RecordBatch.from_pydict({FILE: [f"file:{file}"], "day": ["monday"]})
    (found,) = [batch.to_pydict() for batch in convert(iter([rows]))]
    rejected, value = found[REJECTION][0], json.loads(found["value"][1])
    assert (rejected["raw"], found["value"][0]) == (b'{"x":"no"}', None)
    assert value == {"x": "00000000-0000-0000-0000-000000000000", "day": "monday"}


def csv_rows(*batches: dict[str, list[Any]]) -> list[tuple[str, bytes | None, str | None]]:
    """Files, values and rejections of the rows in lines of CSV files."""
    convert = RowsToRecords(Input("csv", FORMATS["csv"]), RecordMapping(), keeps_bad_rows=True)
    made = convert(iter(map(pa.RecordBatch.from_pydict, batches)))
    found = [row for batch in made for row in batch.to_pylist()]
    rejected = [row[REJECTION] or {"file": "", "reason": None} for row in found]
    return [
        (each["file"], row["value"], each["reason"])
        for row, each in zip(found, rejected, strict=True)
    ]


def lines_of(file: str, content: bytes, **folders: Any) -> dict[str, list[Any]]:
    """A batch as Spark's text reader makes it of a file."""
    lines = content.removesuffix(b"\n").split(b"\n")
    columns = {name: [value] * len(lines) for name, value in folders.items()}
    return {"value": lines, **columns, FILE: [file] * len(lines)}


def test_csv_rows_are_those_of_the_loader() -> None:
    content = b'\xef\xbb\xbfn,m\r\n\r\n"a ""b""\r\nc",1\n2\n\xff,3\r\n4, x \r\n'
    assert csv_rows(lines_of("f", content)) == [
        ("", b'{"n":"a \\"b\\"\\r\\nc","m":"1"}', None),
        ("f", None, "1 fields where the header names 2"),
        ("f", None, "not valid UTF-8"),
        ("", b'{"n":"4","m":" x "}', None),
    ]


@pytest.mark.parametrize("content", [b'n\n"open\n2\n3\n', b'n\r\n"open\r\n2\r\n3', b'n\n"open\n'])
def test_a_csv_row_whose_quote_is_not_closed_is_rejected(content: bytes) -> None:
    ((file, value, reason),) = csv_rows(lines_of("f", content))
    assert (file, value) == ("f", None)
    assert reason is not None
    assert reason.startswith("not valid CSV: ")


def test_a_csv_row_may_go_on_in_the_next_batch() -> None:
    one, other = lines_of("f", b'n,m\n1,"a'), lines_of("f", b'b",\n2,c')
    assert [value for _, value, _ in csv_rows(one, other)] == [None, b'{"n":"2","m":"c"}']
    other = lines_of("f", b'b"\n2,c')
    assert [value for _, value, _ in csv_rows(one, other)] == [
        b'{"n":"1","m":"a\\nb"}',
        b'{"n":"2","m":"c"}',
    ]


def test_each_csv_file_has_its_own_header_and_the_columns_of_its_folders() -> None:
    one = lines_of("day=1/f", b"n,m\n1,2\n", day=1)
    other = lines_of("day=2/f", b"\nm\n3\n4", day=2)
    both = {name: one[name] + other[name] for name in one}
    assert [value for _, value, _ in csv_rows(both)] == [
        b'{"n":"1","m":"2","day":1}',
        b'{"m":"3","day":2}',
        b'{"m":"4","day":2}',
    ]


def test_a_csv_header_that_cannot_be_read_is_an_error_that_names_the_file() -> None:
    with pytest.raises(SourceError, match="cannot read f: the CSV header names n more than once"):
        csv_rows(lines_of("f", b"n,n\n1,2\n"))


@pytest.mark.parametrize("format_", ["csv", "lines", "ndjson"])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gzip.compress(b"{}"), "packed with gzip"),
        (lzma.compress(b"{}"), "packed with xz"),
        ("{}".encode("utf-16"), "UTF-16"),
    ],
    ids=["gzip", "xz", "UTF-16"],  # not by the bytes: gzip writes the time
)
def test_a_file_that_is_no_text_is_refused_and_named(
    content: bytes, reason: str, format_: str
) -> None:
    convert = RowsToRecords(Input(format_, FORMATS[format_]), RecordMapping(), keeps_bad_rows=True)
    rows = pa.RecordBatch.from_pydict({"value": [content], FILE: ["file:/x.txt"]})
    with pytest.raises(SourceError, match=f"file:/x.txt: .*{reason}"):
        list(convert(iter([rows])))


def test_a_line_that_begins_as_a_packed_file_does_is_a_row() -> None:
    convert = RowsToRecords(Input("lines", FORMATS["lines"]), RecordMapping())
    lines = [b"n", b"PK\x03\x04", b"\x1f\x8b", b"\xff\xfe"]
    batch = pa.RecordBatch.from_pydict({"value": lines, FILE: ["file:/x.txt"] * 4})
    assert [row for each in convert(iter([batch])) for row in each["value"].to_pylist()] == lines


def test_columns_have_the_names_that_they_have_in_the_file() -> None:
    mapping = RecordMapping(key=("a.b",))
    convert = RowsToRecords(
        Input("parquet", FORMATS["parquet"]), mapping, columns=("a.b", "`c`", FILE)
    )
    rows = pa.RecordBatch.from_pydict({"0": ["x"], "1": [2], "2": ["file:/x"]})
    (found,) = [batch.to_pydict() for batch in convert(iter([rows]))]
    assert (found["key"], found["value"]) == ([b"x"], [b'{"a.b":"x","`c`":2}'])
