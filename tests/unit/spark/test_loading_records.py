"""Rows of Spark's tasks as records of the loader."""

from __future__ import annotations

import io
import json
from pathlib import Path

import fastavro
import pyarrow as pa

from aioproducer.loader import RecordMapping
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
