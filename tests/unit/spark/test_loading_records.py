"""Rows of Spark's tasks as records of the loader."""

from __future__ import annotations

import gzip
import io
import json
import lzma
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from aioproducer.loader import RecordMapping, SourceError
from aioproducer.loader.sources import FORMATS
from aioproducer.spark.loading.frames import BROKEN, FILE, Input
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


def csv_rows(file: Path, *names: str) -> list[tuple[bytes | None, str | None]]:
    """Values and rejections of rows of one column, as Spark reads them of a file."""
    convert = RowsToRecords(Input("csv", FORMATS["csv"]), RecordMapping(), keeps_bad_rows=True)
    columns = {"name": list(names), BROKEN: [None] * len(names)}
    rows = pa.RecordBatch.from_pydict({**columns, FILE: [file.as_uri()] * len(names)})
    (found,) = [batch.to_pydict() for batch in convert(iter([rows]))]
    reasons = [each and each["reason"] for each in found[REJECTION]]
    return list(zip(found["value"], reasons, strict=True))


@pytest.mark.parametrize("name", ["t.csv", "100% ü.csv", "t.csv.gz"])
def test_a_csv_row_whose_bytes_spark_has_replaced_is_rejected(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    content = b"name\nM\xfcller\nok\n"
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert csv_rows(file, "M\ufffdller", "ok") == [
        (None, "not valid UTF-8"),
        (b'{"name":"ok"}', None),
    ]


@pytest.mark.parametrize("name", ["t.csv", "100% ü.csv", "t.csv.gz"])
def test_a_csv_row_with_the_replacement_character_itself_is_loaded(
    tmp_path: Path, name: str
) -> None:
    file = tmp_path / name
    content = "name\nM\ufffdller\n".encode()
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert csv_rows(file, "M\ufffdller") == [('{"name":"M\ufffdller"}'.encode(), None)]


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ('name\n"open\n2\n3\n', "open\n2\n3\n"),
        ('name\r\n"open\r\n2\r\n3', "open\n2\n3"),
        ('name\n"open\n2\n"3"\n4\n', '"open\n2\n"3"'),
        ('name\n"open\n', "open\n"),
    ],
)
def test_a_csv_row_whose_quote_is_not_closed_is_rejected(
    tmp_path: Path, content: str, value: str
) -> None:
    file = tmp_path / "t.csv"
    file.write_text(content, newline="")
    ((_, reason),) = csv_rows(file, value)
    assert reason is not None
    assert reason.startswith("not valid CSV: ")


def test_a_csv_row_of_several_lines_beside_one_whose_quote_is_not_closed_is_loaded(
    tmp_path: Path,
) -> None:
    file = tmp_path / "t.csv"
    file.write_text('name\n"a ""b""\nc"\n"open\n3')
    (good, _), (bad, _) = csv_rows(file, 'a "b"\nc', "open\n3")
    assert (good, bad) == (b'{"name":"a \\"b\\"\\nc"}', None)


def test_a_csv_row_of_several_lines_is_loaded_if_only_spark_can_read_the_file(
    tmp_path: Path,
) -> None:
    assert csv_rows(tmp_path / "missing.csv", "a\nb") == [(b'{"name":"a\\nb"}', None)]


@pytest.mark.parametrize("format_", ["lines", "ndjson"])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gzip.compress(b"{}"), "packed with gzip"),
        (lzma.compress(b"{}"), "packed with xz"),
        ("{}".encode("utf-16"), "UTF-16"),
    ],
)
def test_a_file_that_is_no_text_is_refused_and_named(
    content: bytes, reason: str, format_: str
) -> None:
    convert = RowsToRecords(Input(format_, FORMATS[format_]), RecordMapping(), keeps_bad_rows=True)
    rows = pa.RecordBatch.from_pydict({"value": [content], FILE: ["file:/x.txt"]})
    with pytest.raises(SourceError, match=f"file:/x.txt: .*{reason}"):
        list(convert(iter([rows])))


def test_columns_have_the_names_that_they_have_in_the_file() -> None:
    mapping = RecordMapping(key=("a.b",))
    convert = RowsToRecords(
        Input("parquet", FORMATS["parquet"]), mapping, columns=("a.b", "`c`", FILE)
    )
    rows = pa.RecordBatch.from_pydict({"0": ["x"], "1": [2], "2": ["file:/x"]})
    (found,) = [batch.to_pydict() for batch in convert(iter([rows]))]
    assert (found["key"], found["value"]) == ([b"x"], [b'{"a.b":"x","`c`":2}'])
