"""Keys and values by a schema registry, made of columns: `value.format` and the like."""

from __future__ import annotations

import io
import json
import threading
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from support.registry_server import serve_registry
from support.spark import EmbeddedKafka, embedded_kafka
from unit.spark.protobuf_files import COMMON, ORDERS, descriptor_set, serialized

from aioproducer.errors import ConfigError, SerializationError
from aioproducer.spark.columns import encoding
from aioproducer.spark.columns.encoding import ENCODERS, EncoderPool
from aioproducer.spark.options import SourceOptions
from aioproducer.spark.plan import JOB, SinkPlan, TaskPlace
from aioproducer.spark.pool import POOL
from aioproducer.spark.rows import RowError
from aioproducer.spark.task import write_task
from aioproducer.testing.schema_registry import StubSchemaRegistry

fastavro: Any = pytest.importorskip("fastavro", reason="needs the extra `schema-registry`")
pytest.importorskip("httpx", reason="needs the extra `schema-registry`")

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "tags", "type": {"type": "map", "values": "string"}},
    ],
}
ORDER_TIMES = [
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
]
AT = datetime(2026, 1, 2, tzinfo=UTC)
ROW = {"id": 1, "note": "n", "at": AT, "price": Decimal("1.50"), "tags": {"a": "b"}}
STRUCT = pa.struct(
    [
        ("id", pa.int64()),
        ("note", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(9, 2)),
        ("tags", pa.map_(pa.string(), pa.string())),
    ]
)
KINDS = "struct<id:bigint,note:string,at:timestamp,price:decimal(9,2),tags:map<string,string>>"
FIELDS = [
    ("id", "bigint"),
    ("note", "string"),
    ("at", "timestamp"),
    ("price", "decimal(9,2)"),
    ("tags", "map<string,string>"),
]


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with embedded_kafka() as kafka:
        yield kafka
        POOL.close()


@pytest.fixture
def stub() -> StubSchemaRegistry:
    return StubSchemaRegistry()


@pytest.fixture
def url(stub: StubSchemaRegistry) -> Iterator[str]:
    with serve_registry(stub) as url:
        yield url
    ENCODERS.close()


def write(
    kafka: EmbeddedKafka,
    fields: list[tuple[str, str]],
    batches: list[pa.RecordBatch],
    **options: str,
) -> None:
    named = {name.replace("__", "."): value for name, value in options.items()}
    given = {"kafka.bootstrap.servers": kafka.servers, **named}
    plan = SinkPlan.of_batch(given, fields, overwrite=False).begun()
    report = write_task(plan, TaskPlace(3, 0), JOB, iter(batches))
    if plan.exactly_once is not None and report.result is not None:
        plan.driver().commit(0, [report.result])


def avro(content: bytes) -> Any:
    assert content[0] == 0
    return fastavro.schemaless_reader(io.BytesIO(content[5:]), ORDER)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("packed", [True, False])
def test_columns_become_avro(
    kafka: EmbeddedKafka, stub: StubSchemaRegistry, url: str, packed: bool, guarantee: str
) -> None:
    topic = kafka.topic(1)
    number = stub.register("orders", ORDER)
    rows = [ROW, ROW | {"id": 2, "note": None}]
    if packed:
        fields = [("key", "string"), *FIELDS]
        batch = pa.RecordBatch.from_struct_array(pa.array(rows, STRUCT))
        batch = batch.append_column("key", pa.array(["a", "b"]))
    else:
        fields = [("key", "string"), ("value", KINDS)]
        values = pa.array([*rows, None], STRUCT)
        batch = pa.RecordBatch.from_arrays([pa.array(["a", "b", "c"]), values], ["key", "value"])
    options = {"value__format": "avro", "value__subject": "orders", "schema__registry__url": url}
    write(kafka, fields, [batch], topic=topic, delivery__guarantee=guarantee, **options)
    found = kafka.read(topic)[0]
    assert [avro(each.value) for each in found if each.value is not None] == rows
    assert [each.key for each in found] == [b"a", b"b", b"c"][: batch.num_rows]
    assert packed or found[2].value is None
    assert int.from_bytes((found[0].value or b"")[1:5], "big") == number


def test_the_registry_is_asked_once_per_process(
    kafka: EmbeddedKafka, stub: StubSchemaRegistry, url: str
) -> None:
    topic = kafka.topic(1)
    stub.register(f"{topic}-value", ORDER)
    batch = pa.RecordBatch.from_struct_array(pa.array([ROW], STRUCT))
    for _ in range(3):
        options = {"value__format": "Avro", "schema__registry__url": url}
        write(kafka, FIELDS, [batch, batch], topic=topic, **options)
    assert len(kafka.records(topic)) == 6
    assert len(stub.requests) <= 2


def test_a_process_that_writes_many_tables_keeps_few_encoders(
    kafka: EmbeddedKafka, url: str
) -> None:
    def threads() -> int:
        return sum(each.name == "aioproducer encoder" for each in threading.enumerate())

    topic = kafka.topic(1)
    schema = json.dumps({"type": "object"})
    options = {"value__format": "json-schema", "value__schema": schema}
    options |= {"auto__register__schemas": "true", "schema__registry__url": url}
    for number in range(EncoderPool.most_idle + 4):
        name = f"column{number}"
        batch = pa.RecordBatch.from_pydict({name: [number]})
        write(kafka, [(name, "bigint")], [batch, batch], topic=topic, **options)
    assert threads() == EncoderPool.most_idle
    ENCODERS.close()
    assert threads() == 0


def test_json_by_a_schema_that_is_given_and_registered(
    kafka: EmbeddedKafka, stub: StubSchemaRegistry, url: str
) -> None:
    topic = kafka.topic(1)
    schema = {"type": "object", "properties": {"id": {"type": "integer", "maximum": 10}}}
    options = {
        "key__format": "json-schema",
        "key__schema": json.dumps(schema),
        "auto__register__schemas": "true",
        "schema__registry__url": url,
        "topic": topic,
    }
    fields = [("key", "struct<id:bigint>"), ("value", "string")]

    def batch(*ids: int) -> pa.RecordBatch:
        keys = pa.array([{"id": each} for each in ids], pa.struct([("id", pa.int64())]))
        return pa.RecordBatch.from_arrays([keys, pa.array(["v"] * len(ids))], ["key", "value"])

    write(kafka, fields, [batch(7)], **options)
    (found,) = kafka.records(topic)
    assert (found.key or b"")[0] == 0
    assert json.loads((found.key or b"")[5:]) == {"id": 7}
    assert stub.subjects() == [f"{topic}-key"]
    with pytest.raises(RowError, match=r"Spark partition 3, row 2: SerializationError: key"):
        write(kafka, fields, [batch(1, 2), batch(11)], **options)


@pytest.mark.parametrize("kind", ["avro", "json-schema"])
def test_a_given_schema_is_registered_beside_a_newest_one(
    kafka: EmbeddedKafka, stub: StubSchemaRegistry, url: str, kind: str
) -> None:
    topic = kafka.topic(1)
    text = '"string"' if kind == "avro" else '{"type": "string"}'
    known = {} if kind == "avro" else {"schemaType": "JSON"}
    stub.register(f"{topic}-key", text, **known)
    batch = pa.RecordBatch.from_arrays([pa.array(["k"]), pa.array(["v"])], ["key", "value"])
    options = {"key__format": kind, "value__format": kind, "value__schema": text}
    write(
        kafka,
        [("key", "string"), ("value", "string")],
        [batch],
        topic=topic,
        schema__registry__url=url,
        auto__register__schemas="true",
        **options,
    )
    assert stub.subjects() == [f"{topic}-key", f"{topic}-value"]
    (record,) = kafka.records(topic)
    made = {"avro": (b"\x02k", b"\x02v"), "json-schema": (b'"k"', b'"v"')}[kind]
    assert ((record.key or b"")[5:], (record.value or b"")[5:]) == made


def test_a_topic_of_each_row_chooses_the_subject(
    kafka: EmbeddedKafka, stub: StubSchemaRegistry, url: str
) -> None:
    one, two = kafka.topic(1), kafka.topic(1)
    numbers = [stub.register(f"{one}-value", ORDER)]
    numbers.append(stub.register(f"{two}-value", ORDER | {"name": "Other"}))
    values = pa.array([ROW, ROW], STRUCT)
    batch = pa.RecordBatch.from_arrays([pa.array([one, two]), values], ["topic", "value"])
    options = {"value__format": "avro", "schema__registry__url": url, "marker__topic": one}
    fields = [("topic", "string"), ("value", KINDS)]
    write(kafka, fields, [batch], delivery__guarantee="exactly-once", **options)
    found = [kafka.records(topic)[0].value or b"" for topic in (one, two)]
    assert [int.from_bytes(each[1:5], "big") for each in found] == numbers


def test_the_login_comes_from_the_environment(
    kafka: EmbeddedKafka,
    stub: StubSchemaRegistry,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = kafka.topic(1)
    stub.register(f"{topic}-value", ORDER)
    batch = pa.RecordBatch.from_struct_array(pa.array([ROW], STRUCT))
    options = {
        "topic": topic,
        "value__format": "avro",
        "schema__registry__url": url,
        "schema__registry__user__info__env": "REGISTRY_LOGIN",
    }
    monkeypatch.setenv("AIOPRODUCER_ALLOW", "env:REGISTRY_LOGIN")
    with pytest.raises(ConfigError, match="user:password"):
        write(kafka, FIELDS, [batch], **options)
    monkeypatch.setenv("REGISTRY_LOGIN", "alice:hush")
    write(kafka, FIELDS, [batch], **options)
    assert stub.headers["authorization"].startswith("Basic ")


@pytest.mark.parametrize(
    "schema", ['"hunter2-sEcret"', "hunter2-sEcret", '{"type": "hunter2-sEcret"}']
)
@pytest.mark.parametrize("name", ["avro", "json-schema", "protobuf"])
def test_what_is_no_schema_is_refused_and_not_quoted(
    kafka: EmbeddedKafka, url: str, schema: str, name: str
) -> None:
    batch = pa.RecordBatch.from_struct_array(pa.array([ROW], STRUCT))
    options = {"value__format": name, "schema__registry__url": url, "value__schema": schema}
    with pytest.raises(ConfigError, match=r"^value\.schema: this is no ") as caught:
        write(kafka, FIELDS, [batch], topic=kafka.topic(1), **options)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


ROWS_OF_MESSAGES = [{"id": 1, "address": {"city": "Ulm"}}, {"id": 2, "address": None}]
MESSAGE = pa.struct([("id", pa.int64()), ("address", pa.struct([("city", pa.string())]))])
MESSAGE_FIELDS = [("id", "bigint"), ("address", "struct<city:string>")]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_columns_become_protobuf_by_the_schema_of_the_subject(
    kafka: EmbeddedKafka, stub: StubSchemaRegistry, url: str, packed: bool, guarantee: str
) -> None:
    topic = kafka.topic(1)
    stub.register("common", serialized(COMMON), schemaType="PROTOBUF")
    references = [{"name": "shop/common.proto", "subject": "common", "version": 1}]
    number = stub.register(
        "orders", serialized(ORDERS), schemaType="PROTOBUF", references=references
    )
    options = {"value__format": "protobuf", "value__subject": "orders", "topic": topic}
    if packed:
        batch = pa.RecordBatch.from_struct_array(pa.array(ROWS_OF_MESSAGES, MESSAGE))
        fields = MESSAGE_FIELDS
    else:
        values = pa.array([*ROWS_OF_MESSAGES, None], MESSAGE)
        batch = pa.RecordBatch.from_arrays([values], ["value"])
        fields = [("value", "struct<id:bigint,address:struct<city:string>>")]
    more = {"schema__registry__url": url, "delivery__guarantee": guarantee}
    write(kafka, fields, [batch], **options, **more)
    found = [each.value for each in kafka.read(topic)[0]]
    ulm = b"\x08\x01\x4a\x05\x0a\x03Ulm"
    expected = [b"\0" + number.to_bytes(4, "big") + b"\0" + each for each in (ulm, b"\x08\x02")]
    assert found == expected if packed else [*expected, None]
    assert "GET /subjects/orders/versions/latest?format=serialized" in stub.requests
    assert "GET /subjects/common/versions/1?format=serialized&deleted=true" in stub.requests


def test_a_nested_message_of_a_given_schema_is_registered(
    kafka: EmbeddedKafka, stub: StubSchemaRegistry, url: str
) -> None:
    topic = kafka.topic(1)
    options = {
        "value__format": "protobuf",
        "value__schema": descriptor_set(COMMON, ORDERS),
        "value__message": "shop.Refund.Item",
        "schema__registry__url": url,
        "topic": topic,
    }
    batch = pa.RecordBatch.from_arrays([pa.array([7], pa.int32())], ["id"])
    with pytest.raises(RowError, match="SchemaNotFoundError"):
        write(kafka, [("id", "int")], [batch], **options)
    write(kafka, [("id", "int")], [batch], auto__register__schemas="true", **options)
    (found,) = kafka.records(topic)
    assert found.value is not None
    assert found.value[5:] == b"\x04\x02\x00\x08\x07"  # the path [1, 0], then the message
    assert stub.subjects() == ["shop/common.proto", f"{topic}-value"]


@pytest.mark.parametrize(
    ("kind", "value", "error", "reason"),
    [
        (
            pa.string(),
            "x",
            ConfigError,
            r"^column 'small' is string, which field shop\.Order\.small",
        ),
        (pa.int64(), -1, RowError, r"partition 3, row 1: .*field small: is out of range of uint32"),
    ],
)
def test_a_refusal_names_the_column(
    kafka: EmbeddedKafka,
    url: str,
    kind: pa.DataType,
    value: Any,
    error: type[Exception],
    reason: str,
) -> None:
    options = {
        "value__format": "protobuf",
        "value__schema": descriptor_set(COMMON, ORDERS),
        "auto__register__schemas": "true",
        "schema__registry__url": url,
    }
    batch = pa.RecordBatch.from_arrays([pa.array([None, value], kind)], ["small"])
    with pytest.raises(error, match=reason):
        write(kafka, [("small", "bigint")], [batch], topic=kafka.topic(1), **options)


def test_a_schema_of_another_format_is_refused(
    kafka: EmbeddedKafka, stub: StubSchemaRegistry, url: str
) -> None:
    topic = kafka.topic(1)
    stub.register(f"{topic}-value", ORDER)
    batch = pa.RecordBatch.from_struct_array(pa.array([ROW], STRUCT))
    options = {"value__format": "protobuf", "schema__registry__url": url}
    with pytest.raises(RowError, match="the registered schema is AVRO, not PROTOBUF"):
        write(kafka, FIELDS, [batch], topic=topic, **options)


def test_headers_may_be_left_out(kafka: EmbeddedKafka) -> None:
    topic = kafka.topic(1)
    headers = pa.array([[("h", "1")]], pa.map_(pa.string(), pa.string()))
    batch = pa.RecordBatch.from_arrays([pa.array(["v"]), headers], ["value", "headers"])
    fields = [("value", "string"), ("headers", "map<string,string>")]
    for flag in ("true", "false"):
        write(kafka, fields, [batch], topic=topic, includeHeaders=flag)
    assert sorted(each.headers for each in kafka.records(topic)) == [(), (("h", b"1"),)]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"value.format": "avro"}, r"value\.format needs schema\.registry\.url"),
        (
            {"value.format": "xml", "schema.registry.url": "http://a"},
            "of avro, json-schema, protobuf",
        ),
        ({"value.message": "a.B", "value.format": "avro"}, r"with value\.format=protobuf"),
        ({"value.subject": "s"}, r"go with value\.format"),
        ({"schema.registry.url": "http://a:b@c"}, "must not hold a user, a password or a query"),
        ({"schema.registry.url": "http://c?key=1"}, "must not hold a user, a password or a query"),
        ({"auto.register.schemas": "maybe"}, "must be true or false"),
    ],
)
def test_what_cannot_be_encoded_is_refused(options: dict[str, str], reason: str) -> None:
    given = {"kafka.bootstrap.servers": "a:1", "topic": "t"}
    with pytest.raises(ConfigError, match=reason):
        SourceOptions.parse(given | options, "write")


def test_without_a_format_other_columns_are_refused() -> None:
    with pytest.raises(SerializationError, match="has no place"):
        given = {"kafka.bootstrap.servers": "a:1", "topic": "t"}
        SinkPlan.of_batch(given, FIELDS, overwrite=False)


AFTER_9999 = 253_402_318_800_000_000
"""9999-12-31 24:00 in New York, in microseconds."""


def unreadable_rows() -> pa.RecordBatch:
    """Return three rows, of which the one in the middle has values that Python has not."""
    names = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    inner = pa.StructArray.from_arrays([names], ["name"])
    return pa.RecordBatch.from_arrays(
        [
            pa.array([1, 2, 3]),
            pa.array([0, AFTER_9999, None], pa.timestamp("us", "America/New_York")),
            inner,
        ],
        ["id", "until", "customer"],
    )


UNREADABLE_FIELDS = [
    ("id", "bigint"),
    ("until", "timestamp"),
    ("customer", "struct<name:string>"),
]
ANY = {"value__format": "json-schema", "value__schema": "{}", "auto__register__schemas": "true"}


def test_a_row_with_a_value_that_python_has_not_is_named(kafka: EmbeddedKafka, url: str) -> None:
    reason = r"partition 3, row 1: .*value, field until: cannot be read: date value out of range"
    with pytest.raises(RowError, match=reason):
        write(
            kafka,
            UNREADABLE_FIELDS,
            [unreadable_rows()],
            topic=kafka.topic(1),
            schema__registry__url=url,
            **ANY,
        )


@pytest.mark.parametrize("packed", [True, False])
def test_a_row_with_a_value_that_python_has_not_goes_to_the_dead_letters(
    kafka: EmbeddedKafka, url: str, packed: bool
) -> None:
    topic, refused = kafka.topic(1), kafka.topic(1)
    fields, batch = UNREADABLE_FIELDS, unreadable_rows()
    if not packed:
        batch = pa.RecordBatch.from_arrays([batch.to_struct_array()], ["value"])
        fields = [("value", "struct<id:bigint,until:timestamp,customer:struct<name:string>>")]
    options = ANY | {"dead__letter__topic": refused, "schema__registry__url": url}
    write(kafka, fields, [batch], topic=topic, **options)
    sent = [json.loads((each.value or b"")[5:]) for each in kafka.records(topic)]
    assert sorted(sent, key=lambda each: int(each["id"])) == [
        {"id": 1, "until": "1969-12-31T19:00:00-05:00", "customer": {"name": "a"}},
        {"id": 3, "until": None, "customer": {"name": "c"}},
    ]
    (letter,) = kafka.records(refused)
    assert json.loads(letter.value or b"") == {
        "id": 2,
        "until": "10000-01-01 05:00:00.000000Z",
        "customer": {"name": '"\ufffd"'},
    }


def test_times_in_a_zone_that_python_has_not_are_encoded_in_utc(
    kafka: EmbeddedKafka, url: str
) -> None:
    topic = kafka.topic(1)
    batch = pa.RecordBatch.from_arrays([pa.array([AT], pa.timestamp("us", "GMT+8"))], ["at"])
    options = ANY | {"schema__registry__url": url}
    write(kafka, [("at", "timestamp")], [batch], topic=topic, **options)
    (record,) = kafka.records(topic)
    assert json.loads((record.value or b"")[5:]) == {"at": "2026-01-02T00:00:00Z"}


def test_times_without_a_zone_are_utc_in_avro_whatever_the_zone_of_the_process(
    kafka: EmbeddedKafka, stub: StubSchemaRegistry, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic(1)
    stub.register(f"{topic}-value", {**ORDER, "fields": ORDER_TIMES})
    values = pa.array([AT.replace(tzinfo=None)], pa.timestamp("us"))
    batch = pa.RecordBatch.from_arrays([values, values], ["at", "local"])
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        write(
            kafka,
            [("at", "timestamp_ntz"), ("local", "timestamp_ntz")],
            [batch],
            topic=topic,
            value__format="avro",
            schema__registry__url=url,
        )
    time.tzset()
    (record,) = kafka.records(topic)
    schema = {**ORDER, "fields": ORDER_TIMES}
    row: Any = fastavro.schemaless_reader(io.BytesIO((record.value or b"")[5:]), schema)
    assert row == {"at": AT, "local": AT.replace(tzinfo=None)}


def test_a_map_with_keys_of_structs_fails_its_row(kafka: EmbeddedKafka, url: str) -> None:
    kind = pa.map_(pa.struct([("a", pa.int32())]), pa.int32())
    batch = pa.RecordBatch.from_arrays([pa.array([None, [({"a": 1}, 1)]], kind)], ["m"])
    with pytest.raises(RowError, match=r"row 1: .*field m: cannot be read: .*unhashable"):
        write(
            kafka,
            [("m", "map<struct<a:int>,int>")],
            [batch],
            topic=kafka.topic(1),
            schema__registry__url=url,
            **ANY,
        )


@pytest.mark.parametrize(
    ("wrong", "reason"), [(None, "has no topic, .* -> give each"), ("no topic", "is no topic name")]
)
def test_a_row_without_a_topic_is_refused_as_such(
    kafka: EmbeddedKafka, url: str, wrong: str | None, reason: str
) -> None:
    topic, letters = kafka.topic(1), kafka.topic(1)
    columns = [pa.array([topic, wrong]), pa.array([1, 2])]
    batch = pa.RecordBatch.from_arrays(columns, ["topic", "n"])
    options = {"schema__registry__url": url, **ANY}
    fields = [("topic", "string"), ("n", "bigint")]
    with pytest.raises(RowError, match=f"row 1: InvalidTopicError: .*{reason}"):
        write(kafka, fields, [batch], **options)
    write(kafka, fields, [batch], dead__letter__topic=letters, **options)
    (letter,) = kafka.records(letters)
    assert json.loads(letter.value or b"") == {"n": 2}
    assert len(kafka.records(topic)) == 1


AVRO = {
    "kafka.bootstrap.servers": "a:1",
    "topic": "t",
    "value.format": "avro",
    "schema.registry.url": "http://registry",
}


def test_columns_of_one_name_are_refused_before_any_task() -> None:
    with pytest.raises(SerializationError, match="there are several columns 'id'"):
        SinkPlan.of_batch(AVRO, [("id", "int"), ("a", "int"), ("id", "int")], overwrite=False)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([("a", "variant")], "column 'a' is variant: values of type variant cannot be encoded"),
        ([("value", "struct<v:variant,b:int>")], "of type variant cannot"),
        ([("a", "int"), ("b", "array<interval year to month>")], "of type interval year to month"),
    ],
)
def test_columns_without_a_value_in_arrow_are_refused_before_any_task(
    fields: list[tuple[str, str]], reason: str
) -> None:
    with pytest.raises(SerializationError, match=reason):
        SinkPlan.of_batch(AVRO, fields, overwrite=False)


def test_columns_with_the_names_of_such_types_are_encoded() -> None:
    fields = [("variant", "struct<variant:int,interval year:map<string,int>>")]
    plan = SinkPlan.of_batch(AVRO, fields, overwrite=False)
    assert plan.encoded[0].columns == ("variant",)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([ROW, None, ROW | {"note": None}, None], STRUCT),
        pa.array([ROW, ROW], STRUCT).slice(1),
        pa.array([{"a": {"b": 1}}, {"a": None}, None]),
        pa.array([{}, None], pa.struct([])),
        pa.array([], STRUCT),
        pa.array(["a", None]),
    ],
)
def test_rows_of_a_struct_are_those_of_arrow(column: pa.Array) -> None:
    assert encoding._rows(column) == column.to_pylist(maps_as_pydicts="strict")
