"""Rows as Avro, by a schema of a registry."""

from __future__ import annotations

import datetime
import io
import json
import pickle
import time
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from support.no_time import NoTime

from aioproducer.errors import ConfigError, SchemaRegistryError
from aioproducer.loader import (
    AvroValues,
    MappingError,
    NdjsonFormat,
    RecordMapping,
    avro_values,
)
from aioproducer.loader.mapping import RowMapper
from aioproducer.loader.rows import BadRow, RowBatch
from aioproducer.serializers import Schema, SchemaRegistry
from aioproducer.testing import StubSchemaRegistry

FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "share", "type": ["null", "double"], "default": None},
    {"name": "name", "type": ["null", "string"], "default": None},
    {"name": "yes", "type": "boolean", "default": False},
    {"name": "on", "type": [{"type": "int", "logicalType": "date"}, "null"], "default": 0},
    {
        "name": "sum",
        "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        "default": "",
    },
    {"name": "tags", "type": {"type": "array", "items": "int"}, "default": []},
]
SCHEMA = json.dumps({"type": "record", "name": "Row", "fields": FIELDS})
VALUES = AvroValues(7, SCHEMA)


def read(value: bytes) -> dict[str, Any]:
    assert value[:5] == b"\0\0\0\0\7"
    found = fastavro.schemaless_reader(
        io.BytesIO(value[5:]), fastavro.parse_schema(json.loads(SCHEMA)), None
    )
    assert isinstance(found, dict)
    return found


def row_of_json(text: str) -> Mapping[str, Any]:
    (row,) = NdjsonFormat().parse([text.encode()]).fields
    assert isinstance(row, Mapping)
    return row


def test_texts_become_what_the_schema_wants_and_other_columns_are_left_out() -> None:
    text = {"id": "1", "share": "", "name": "", "yes": "TRUE", "on": "2013-01-02", "sum": "1.25"}
    found = read(VALUES({**text, "other": "x"}))
    assert found == {
        "id": 1,
        "share": None,
        "name": "",
        "yes": True,
        "on": datetime.date(2013, 1, 2),
        "sum": Decimal("1.25"),
        "tags": [],
    }


def test_what_has_its_type_stays_and_defaults_hold() -> None:
    found = read(VALUES({"id": 2, "share": 0.5, "sum": Decimal(3), "tags": [1, "2"]}))
    assert (found["id"], found["share"], found["tags"], found["yes"]) == (2, 0.5, [1, 2], False)


@pytest.mark.parametrize("text", ["1_000", "\u0661"])
@pytest.mark.parametrize("field", ["id", "share", "sum"])
def test_numbers_that_only_python_reads_are_rejected(field: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"field {field}: the text is no "):
        VALUES({"id": "1", "share": "1", "sum": "1", field: text})


@pytest.mark.parametrize("kind", ["float", "double"])
def test_a_text_is_infinity_only_if_it_says_so(kind: str) -> None:
    fields = [{"name": "x", "type": kind}]
    values = AvroValues(1, json.dumps({"type": "record", "name": "R", "fields": fields}))
    assert values({"x": "-Infinity"}) == values({"x": float("-inf")})
    with pytest.raises(ValueError, match=f"the text is no {kind}"):
        values({"x": "1e400"})


@pytest.mark.parametrize("number", ["3", "1.1", "12345.60", "1234567.89", "-12e2"])
def test_a_number_of_json_becomes_a_decimal_of_the_digits_that_are_written(number: str) -> None:
    row = row_of_json(f'{{"id": 1, "sum": {number}}}')
    assert read(VALUES(row))["sum"] == Decimal(number)


def test_a_number_of_json_with_more_digits_than_a_float_keeps_them_as_a_decimal() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
    fields = [{"name": "x", "type": ["null", kind]}]
    values = AvroValues(1, json.dumps({"type": "record", "name": "R", "fields": fields}))
    row = row_of_json('{"x": 12345678901234567.89}')
    assert values(row) == values({"x": "12345678901234567.89"})


@pytest.mark.parametrize("kind", ["float", ["null", "double"], ["double", "string"]])
def test_a_number_of_json_that_would_be_infinity_rejects_its_row(kind: object) -> None:
    fields = [{"name": "x", "type": kind}]
    values = AvroValues(1, json.dumps({"type": "record", "name": "R", "fields": fields}))
    row = row_of_json('{"x": -1e400}')
    with pytest.raises(ValueError, match="field x: the number is too large"):
        values(row)


@pytest.mark.parametrize(
    "row", [{"id": "x", "sum": Decimal(0)}, {"sum": Decimal(0)}, {"id": None, "sum": Decimal(0)}]
)
def test_a_row_that_does_not_fit_is_rejected_and_its_content_not_shown(row: dict[str, Any]) -> None:
    mapper = RowMapper(RecordMapping(value_encoder=VALUES), 0)
    (found,) = mapper.map(RowBatch("f", None, 1, [row], None))
    assert isinstance(found, BadRow)
    assert "id" in found.reason


def test_lines_of_json_are_encoded_too() -> None:
    mapper = RowMapper(RecordMapping(value_encoder=VALUES), 0)
    batch = RowBatch("f", None, 1, [{"id": 1, "sum": "2"}], None, [b"{}"], lines_are_json=True)
    (found,) = mapper.map(batch)
    assert not isinstance(found, BadRow)
    assert read(found.value or b"")["sum"] == 2


def test_it_travels_to_other_processes() -> None:
    row = {"id": 1, "sum": Decimal(1)}
    assert pickle.loads(pickle.dumps(VALUES))(row) == VALUES(row)


def test_schemas_that_are_no_records_are_refused() -> None:
    for schema in ('"string"', "no JSON", '{"type": "records"}'):
        with pytest.raises(ConfigError):
            AvroValues(1, schema)
    with pytest.raises(MappingError, match="exclude"):
        RecordMapping(value="a", value_encoder=VALUES)


async def test_the_registry_is_asked_once_for_the_schema_or_the_newest_one() -> None:
    stub = StubSchemaRegistry()
    async with SchemaRegistry("http://stub", transport=stub.transport) as registry:
        with pytest.raises(SchemaRegistryError):
            await avro_values(registry, "t", SCHEMA)
        made = await avro_values(registry, "t", SCHEMA, register=True)
        assert await avro_values(registry, "t", SCHEMA) == made
        newest = await avro_values(registry, "t", None)
        assert newest.schema_id == made.schema_id
        await registry.register("j-value", Schema("{}", "JSON"))
        with pytest.raises(ConfigError, match="JSON"):
            await avro_values(registry, "j", None)


@pytest.mark.parametrize(
    ("schema", "register"), [(None, False), (SCHEMA, False), (SCHEMA, True)], ids=str
)
async def test_a_schema_with_rules_for_writers_is_refused_without_the_option(
    schema: str | None, register: bool
) -> None:
    stub = StubSchemaRegistry()
    rules = {"domainRules": [{"name": "protect", "type": "ENCRYPT", "mode": "WRITE"}]}
    stub.register("t-value", SCHEMA, ruleSet=rules)
    async with SchemaRegistry("http://registry", transport=stub.transport) as registry:
        with pytest.raises(SchemaRegistryError, match=r"'protect' \(ENCRYPT\)") as caught:
            await avro_values(registry, "t", schema, register=register)
        assert "`--ignore-schema-rules`" in str(caught.value)
        values = await avro_values(registry, "t", schema, register=register, ignore_rules=True)
        assert values.schema_id == 1


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The time zone of the process."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


INSTANT = {"type": "long", "logicalType": "timestamp-millis"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}
NAIVE = datetime.datetime(2026, 1, 2, 3, 4, 5)


@pytest.mark.usefixtures("new_york")
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (INSTANT, "2026-01-02T03:04:05"),
        (INSTANT, "2026-01-02T04:04:05+01:00"),
        (INSTANT, NAIVE),
        (INSTANT, NAIVE.replace(tzinfo=datetime.UTC)),
        (["null", INSTANT], "2026-01-02T03:04:05"),
        (["null", "boolean", INSTANT], NAIVE),
        (LOCAL, "2026-01-02T03:04:05"),
        (["null", LOCAL], NAIVE),
    ],
)
def test_a_time_without_an_offset_is_utc(kind: Any, value: Any) -> None:
    schema = {"type": "record", "name": "Row", "fields": [{"name": "at", "type": kind}]}
    found = AvroValues(7, json.dumps(schema))({"at": value})
    row: Any = fastavro.schemaless_reader(io.BytesIO(found[5:]), schema)  # type: ignore[arg-type]
    assert row["at"].replace(tzinfo=None) == NAIVE


@pytest.mark.parametrize("kind", ["timestamp", "local-timestamp"])
@pytest.mark.parametrize(
    ("unit", "text", "number"),
    [
        ("millis", "1712010112345", 1712010112345),
        ("millis", "1700000000000", 1700000000000),
        ("millis", "-1", -1),
        ("micros", "1712010112345678", 1712010112345678),
        ("millis", "20240131", 1706659200000),  # no other digits alone are a date
    ],
)
def test_digits_alone_are_a_number_in_the_unit_of_a_timestamp(
    kind: str, unit: str, text: str, number: int
) -> None:
    def of(type_: Any) -> dict[str, Any]:
        return {"type": "record", "name": "Row", "fields": [{"name": "at", "type": type_}]}

    values = AvroValues(1, json.dumps(of({"type": "long", "logicalType": f"{kind}-{unit}"})))
    found = fastavro.schemaless_reader(io.BytesIO(values({"at": text})[5:]), of("long"), None)
    assert found == {"at": number}


def test_no_time_is_null() -> None:
    fields = [{"name": "at", "type": ["null", INSTANT]}]
    schema = {"type": "record", "name": "Row", "fields": fields}
    found = AvroValues(7, json.dumps(schema))({"at": NoTime(2026, 1, 2)})
    row = fastavro.schemaless_reader(io.BytesIO(found[5:]), schema)  # type: ignore[arg-type]
    assert row == {"at": None}


def test_a_map_of_a_parquet_file_is_a_map() -> None:
    counts = {"type": "map", "values": ["null", "long"]}
    fields = [{"name": "counts", "type": counts}, {"name": "maybe", "type": ["null", counts]}]
    schema = {"type": "record", "name": "Row", "fields": fields}
    values = AvroValues(7, json.dumps(schema))
    kind = pa.map_(pa.string(), pa.int64())
    columns = {"counts": [[("a", 1), ("b", None)], []], "maybe": [None, [("c", 2)]]}
    table = pa.table({name: pa.array(column, kind) for name, column in columns.items()})
    parsed = fastavro.parse_schema(schema)
    found = [
        fastavro.schemaless_reader(io.BytesIO(values(row)[5:]), parsed, None)
        for row in table.to_pylist()
    ]
    assert found == [
        {"counts": {"a": 1, "b": None}, "maybe": None},
        {"counts": {}, "maybe": {"c": 2}},
    ]
    with pytest.raises(ValueError, match="counts must be map, not list"):
        values({"counts": [["a", 1]], "maybe": None})


def test_a_default_that_does_not_fit_is_refused_where_it_is_needed() -> None:
    fields = [{"name": "a", "type": "int", "default": None}]
    values = AvroValues(1, json.dumps({"type": "record", "name": "R", "fields": fields}))
    assert values({"a": 1})[5:] == b"\x02"
    with pytest.raises(ValueError, match="a is missing and has a default that must be int"):
        values({})
