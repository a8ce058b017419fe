"""Avro, JSON Schema and Protobuf with a stub registry: bytes, ids, subjects, errors."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import time
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from uuid import UUID

import fastavro
import httpx
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stage import Stage, play
from support.waiting import until
from support.wire_format import split, split_indexes

from aioproducer.errors import (
    ConfigError,
    IncompatibleSchemaError,
    SchemaNotFoundError,
    SchemaRegistryError,
    SerializationError,
    WouldBlockError,
)
from aioproducer.serializers import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    Schema,
    SchemaReference,
    SchemaRegistry,
    SerializationContext,
    Serializer,
    record_name,
    topic_record_name,
)
from aioproducer.serializers.registry.base import Encode
from aioproducer.serializers.registry.wire_format import message_indexes, prefix
from aioproducer.testing import MockProducer
from aioproducer.testing.schema_registry import StubSchemaRegistry

from .messages import Money, Order, Second

VALUE = SerializationContext("orders", "value")
KEY = SerializationContext("orders", "key")

ADDRESS = {
    "type": "record",
    "name": "shop.Address",
    "fields": [{"name": "street", "type": "string"}],
}
CUSTOMER: dict[str, Any] = {
    "type": "record",
    "name": "Customer",
    "namespace": "shop",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "age", "type": ["null", "int"], "default": None},
        {"name": "address", "type": ["null", ADDRESS], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "marks", "type": {"type": "map", "values": "int"}, "default": {}},
    ],
}
DESCRIBED: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Customer",
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0},
        "lines": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["name"],
    "additionalProperties": False,
}


@dataclass
class Customer:
    name: str
    age: int | None = None


class CustomerModel(pydantic.BaseModel):
    name: str
    age: int = 3


@pytest.fixture
def stub() -> StubSchemaRegistry:
    return StubSchemaRegistry()


@pytest.fixture
def registry(stub: StubSchemaRegistry) -> SchemaRegistry:
    return SchemaRegistry("http://registry", transport=stub.transport, retry_backoff_ms=0)


async def made(serializer: Serializer, data: Any, context: SerializationContext = VALUE) -> bytes:
    found = serializer.serialize(data, context)
    result = found if isinstance(found, bytes) or found is None else await found
    assert result is not None
    return result


def read_avro(data: bytes, schema: Any) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(schema), None)


# -- Avro ------------------------------------------------------------------------------------------


async def test_avro_is_written_after_the_id(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    stub.register("other", '"string"')
    stub.register("orders-value", CUSTOMER)
    data = {"name": "a", "age": 7, "tags": ["x"]}
    serializer = AvroSerializer(registry, CUSTOMER)
    schema_id, payload = split(await made(serializer, data))
    assert schema_id == 2
    assert read_avro(payload, CUSTOMER) == {**data, "address": None, "marks": {}}
    # From now on nothing is waited for.
    assert isinstance(serializer.serialize(data, VALUE), bytes)
    assert serializer.serialize(None, VALUE) is None
    assert len(stub.requests) == 1


async def test_avro_takes_dataclasses_models_and_functions(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    stub.register("orders-value", CUSTOMER)
    serializer = AvroSerializer(registry, json.dumps(CUSTOMER))
    expected = await made(serializer, {"name": "a", "age": 3})
    assert await made(serializer, Customer("a", 3)) == expected
    assert await made(serializer, CustomerModel(name="a")) == expected
    named = AvroSerializer(registry, CUSTOMER, to_dict=lambda name: {"name": name, "age": 3})
    assert await made(named, "a") == expected


MISFITS: list[tuple[Any, str | None, str]] = [
    ({"name": 5}, "name", "must be string, not int"),
    ({}, "name", "is missing and has no default"),
    ({"name": "a", "age": "secret"}, "age", "must be int, not str"),
    ({"name": "a", "address": {}}, "address.street", "is missing"),
    ({"name": "a", "address": {"street": 5}}, "address.street", "must be string, not int"),
    ({"name": "a", "tags": ["x", 5]}, "tags[1]", "must be string, not int"),
    ({"name": "a", "marks": {"k": "secret"}}, "marks['k']", "must be int, not str"),
    ({"name": "a", "more": "secret"}, "more", "is no field of shop.Customer"),
    (["secret"], None, "must be record shop.Customer, not list"),
]


@pytest.mark.parametrize(("data", "path", "reason"), MISFITS)
async def test_avro_names_the_field_that_does_not_fit(
    stub: StubSchemaRegistry, registry: SchemaRegistry, data: Any, path: str | None, reason: str
) -> None:
    stub.register("orders-value", CUSTOMER)
    with pytest.raises(SerializationError) as caught:
        await made(AvroSerializer(registry, CUSTOMER), data)
    error = caught.value
    assert (error.part, error.topic, error.path) == ("value", "orders", path)
    assert reason in str(error)
    assert "secret" not in str(error)


async def test_avro_leaves_out_unknown_fields_with_the_option(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    stub.register("orders-value", CUSTOMER)
    lenient = AvroSerializer(registry, CUSTOMER, ignore_unknown_fields=True)
    assert await made(lenient, {"name": "a", "more": 1}) == await made(lenient, {"name": "a"})


async def test_a_schema_of_bytes_writes_them_as_they_are(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    stub.register("orders-key", '"bytes"')
    serializer = AvroSerializer(registry, "bytes")
    assert await made(serializer, b"raw", KEY) == prefix(1) + b"raw"
    with pytest.raises(SerializationError, match="key: must be bytes"):
        await made(serializer, "text", KEY)


async def test_avro_schemas_may_refer_to_others(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    stub.register("address", ADDRESS)
    schema = {
        "type": "record",
        "name": "shop.Person",
        "fields": [{"name": "address", "type": "shop.Address"}],
    }
    reference = SchemaReference("shop.Address", "address", 1)
    serializer = AvroSerializer(registry, schema, references=[reference], auto_register=True)
    assert await made(serializer, {"address": {"street": "s"}}) == prefix(2) + b"\x02s"
    with pytest.raises(SerializationError, match=r"field address\.street: must be string"):
        await made(serializer, {"address": {"street": 1}})
    # A reader of the latest version finds the references there.
    latest = AvroSerializer(registry, use_latest_version=True)
    assert await made(latest, {"address": {"street": "s"}}) == prefix(2) + b"\x02s"


async def test_a_registered_schema_whose_default_does_not_fit_is_written_by(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    field = {"name": "a", "type": "int", "default": None}
    number = stub.register("orders-value", {"type": "record", "name": "C", "fields": [field]})
    serializer = AvroSerializer(registry, use_latest_version=True)
    assert await made(serializer, {"a": 1}) == prefix(number) + b"\x02"
    with pytest.raises(SerializationError, match="is missing and has a default that must be int"):
        await made(serializer, {})


async def test_an_older_version_is_written_with_the_schema_of_its_id(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 0}]
    record = {"type": "record", "name": "C"}
    ids = [stub.register("orders-value", record | {"fields": fields[:count]}) for count in (1, 2)]
    schema = await registry.schema(ids[0])
    assert schema == (await registry.version("orders-value", 1)).schema
    serializer = AvroSerializer(registry, schema.text, references=schema.references)
    assert await made(serializer, {"a": 1}) == prefix(ids[0]) + b"\x02"


@pytest.mark.parametrize("is_same", [True, False])
async def test_a_type_must_not_be_defined_in_two_ways(
    stub: StubSchemaRegistry, registry: SchemaRegistry, is_same: bool
) -> None:
    def node(**more: Any) -> dict[str, Any]:
        child = {"type": "record", "name": "Child", "fields": [{"name": "up", "type": "Node"}]}
        fields = [{"name": "child", "type": ["null", child]}, {"name": "n", "type": "int", **more}]
        return {"type": "record", "name": "shop.Node", "fields": fields}

    def holder(name: str) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [{"name": "node", "type": "shop.Node"}]}

    stub.register("node", node(doc="first"))
    stub.register("node", node() if is_same else node(default=7))
    for version, name in enumerate(("shop.A", "shop.B"), 1):
        reference = {"name": "shop.Node", "subject": "node", "version": version}
        stub.register(name, holder(name), references=[reference])
    both = {
        "type": "record",
        "name": "shop.Both",
        "fields": [{"name": "a", "type": "shop.A"}, {"name": "b", "type": "shop.B"}],
    }
    references = [SchemaReference(name, name, 1) for name in ("shop.A", "shop.B")]
    serializer = AvroSerializer(registry, both, references=references, auto_register=True)
    data = {"a": {"node": {"child": None, "n": 1}}, "b": {"node": {"child": None, "n": 2}}}
    if is_same:
        assert (await made(serializer, data))[5:] == b"\0\2\0\4"
    else:
        with pytest.raises(SchemaRegistryError, match=r"'shop\.Node' is defined in two ways"):
            await made(serializer, data)


@pytest.mark.parametrize("schema", ['"shop.Address"', "shop.Address", {"type": "shop.Address"}])
async def test_a_schema_that_is_a_reference_has_its_name(
    stub: StubSchemaRegistry, registry: SchemaRegistry, schema: Any
) -> None:
    stub.register("address", ADDRESS)
    reference = SchemaReference("shop.Address", "address", 1)
    serializer = AvroSerializer(
        registry, schema, references=[reference], subject=record_name, auto_register=True
    )
    assert (await made(serializer, {"street": "s"}))[5:] == b"\x02s"
    assert "POST /subjects/shop.Address/versions" in stub.requests


@pytest.mark.parametrize("schema", [CUSTOMER, [CUSTOMER, "null"]])
async def test_what_fastavro_adds_to_a_parsed_schema_is_not_registered(
    stub: StubSchemaRegistry, registry: SchemaRegistry, schema: Any
) -> None:
    serializer = AvroSerializer(registry, fastavro.parse_schema(schema), auto_register=True)
    await made(serializer, {"name": "a"})
    text = (await registry.latest("orders-value")).schema.text
    assert "shop.Customer" in text
    assert "__" not in text


async def test_a_bare_name_may_be_one_without_a_namespace(registry: SchemaRegistry) -> None:
    inner = {"type": "enum", "name": "Color", "namespace": "", "symbols": ["RED", "BLUE"]}
    fields = [{"name": "old", "type": inner}, {"name": "new", "type": "Color"}]
    schema = {"type": "record", "name": "Change", "namespace": "shop", "fields": fields}
    serializer = AvroSerializer(registry, schema, auto_register=True)
    assert await made(serializer, {"old": "RED", "new": "BLUE"}) == prefix(1) + b"\x00\x02"


@pytest.mark.parametrize("text", [json.dumps(CUSTOMER)[:-1] + ",}", "schemas/customer.avsc"])
def test_a_text_that_is_no_json_is_refused_as_such(registry: SchemaRegistry, text: str) -> None:
    for references in ([], [SchemaReference("shop.Address", "address", 1)]):
        with pytest.raises(ConfigError, match=r"no Avro schema: it is no JSON: .*line 1") as caught:
            AvroSerializer(registry, text, references=references)
        assert text not in str(caught.value)


# -- registering -----------------------------------------------------------------------------------


async def test_nothing_is_registered_without_the_option(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    with pytest.raises(SchemaNotFoundError, match="orders-value"):
        await made(AvroSerializer(registry, CUSTOMER), {"name": "a"})
    assert stub.subjects() == []
    assert await made(AvroSerializer(registry, CUSTOMER, auto_register=True), {"name": "a"})
    assert stub.subjects() == ["orders-value"]
    assert await made(AvroSerializer(registry, CUSTOMER), {"name": "a"})


async def test_an_incompatible_schema_is_refused_by_its_field(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    stub.register("orders-value", ADDRESS)
    changed = {**ADDRESS, "fields": [*ADDRESS["fields"], {"name": "city", "type": "string"}]}
    with pytest.raises(IncompatibleSchemaError, match="field 'city'"):
        await made(AvroSerializer(registry, changed, auto_register=True), {"street": "a"})
    with pytest.raises(SchemaNotFoundError, match="field 'city'"):
        await made(AvroSerializer(registry, changed), {"street": "a"})


async def test_the_latest_version_writes_whatever_it_is(stub: StubSchemaRegistry) -> None:
    registry = SchemaRegistry("http://r", transport=stub.transport, latest_cache_ttl_ms=0)
    stub.register("orders-value", ADDRESS)
    serializer = AvroSerializer(registry, use_latest_version=True)
    assert await made(serializer, {"street": "s"}) == prefix(1) + b"\x02s"
    more = {"name": "no", "type": "int", "default": 1}
    stub.register("orders-value", {**ADDRESS, "fields": [*ADDRESS["fields"], more]})
    assert await made(serializer, {"street": "s"}) == prefix(2) + b"\x02s\x02"


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("JSON", lambda registry: AvroSerializer(registry, use_latest_version=True)),
        ("AVRO", lambda registry: JsonSchemaSerializer(registry, use_latest_version=True)),
        ("AVRO", lambda registry: ProtobufSerializer(registry, Order, use_latest_version=True)),
    ],
)
async def test_a_newest_schema_of_another_type_is_refused(
    stub: StubSchemaRegistry, registry: SchemaRegistry, kind: str, make: Any
) -> None:
    stub.register("orders-value", {"type": "string"}, schemaType=kind)
    with pytest.raises(SchemaRegistryError, match=f"the registered schema is {kind}, not"):
        await made(make(registry), "text")


async def test_an_outage_of_the_registry_stops_no_call_with_a_cached_schema(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stub = StubSchemaRegistry()
    registry = SchemaRegistry(
        "http://r", transport=stub.transport, latest_cache_ttl_ms=0, retries=1, retry_backoff_ms=0
    )
    stub.register("orders-value", ADDRESS)
    serializer = AvroSerializer(registry, use_latest_version=True)
    expected = await made(serializer, {"street": "s"})
    stub.failures += [503, 503]
    assert await made(serializer, {"street": "s"}) == expected
    assert "orders-value is not asked for anew" in caplog.text
    stub.failures += [403]
    with pytest.raises(SerializationError):
        await made(serializer, {"street": "s"})
    stub.failures += [503, 503]
    with pytest.raises(SerializationError):
        await made(serializer, {"street": "s"}, KEY)


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        (record_name, "shop.Customer"),
        (topic_record_name, "orders-shop.Customer"),
        (lambda context, name: f"{context.part}/{name}", "value/shop.Customer"),
    ],
)
async def test_the_subject_is_a_strategy(
    stub: StubSchemaRegistry, registry: SchemaRegistry, strategy: Any, subject: str
) -> None:
    serializer = AvroSerializer(registry, CUSTOMER, subject=strategy, auto_register=True)
    await made(serializer, {"name": "a"})
    assert stub.subjects() == [subject]
    nameless = AvroSerializer(registry, "string", subject=record_name)
    with pytest.raises(SerializationError, match="no name to make a subject of"):
        await made(nameless, "a")


def by_header(context: SerializationContext, name: str | None) -> str:
    """A subject that depends on the record."""
    del name
    return f"{context.topic}-{dict(context.headers)['kind'].decode()}"  # type: ignore[union-attr]


def of_kind(kind: str) -> SerializationContext:
    return SerializationContext("orders", "value", [("kind", kind.encode())])


async def test_the_latest_schema_is_that_of_each_records_subject(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    stub.register("orders-a", '"string"')
    stub.register("orders-b", {"type": "string", "doc": "another id"})
    serializer = AvroSerializer(registry, subject=by_header, use_latest_version=True)
    for _ in range(2):
        assert await made(serializer, "x", of_kind("a")) == prefix(1) + b"\x02x"
        assert await made(serializer, "x", of_kind("b")) == prefix(2) + b"\x02x"
    assert len(stub.requests) == 2


async def test_a_schema_is_looked_up_in_each_records_subject(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    stub.register("orders-a", '"string"')
    serializer = AvroSerializer(registry, "string", subject=by_header)
    assert await made(serializer, "x", of_kind("a")) == prefix(1) + b"\x02x"
    with pytest.raises(SchemaNotFoundError, match="orders-b"):
        await made(serializer, "x", of_kind("b"))


async def test_records_that_wait_for_different_subjects_get_their_own(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    stub.register("orders-a", '"string"')
    stub.register("orders-c", {"type": "string", "doc": "another id"})
    serializer = AvroSerializer(registry, subject=by_header, use_latest_version=True)
    waiting = [made(serializer, "x", of_kind(kind)) for kind in "acac"]
    ids = [split(data)[0] for data in await asyncio.gather(*waiting)]
    assert ids == [1, 2, 1, 2]


async def test_each_subject_is_refreshed_for_itself() -> None:
    held = Held()
    held.stub.register("orders-a", ADDRESS)
    held.stub.register("orders-b", WIDER)
    async with held.registry() as registry:
        serializer = AvroSerializer(registry, subject=by_header, use_latest_version=True)
        data = {"street": "s"}
        assert split(await made(serializer, data, of_kind("a")))[0] == 1
        assert split(await made(serializer, data, of_kind("b")))[0] == 2
        await grown_old()
        held.stub.register("orders-a", WIDER)
        serializer.serialize(data, of_kind("a"))
        await until(lambda: split(serializer.serialize(data, of_kind("a")))[0] == 2)  # type: ignore[arg-type]
        assert split(await made(serializer, data, of_kind("b")))[0] == 2


@pytest.mark.parametrize("answer", [None, b"orders", ["orders"]])
async def test_a_subject_that_is_no_text_is_refused(registry: SchemaRegistry, answer: Any) -> None:
    serializer = AvroSerializer(registry, "string", subject=lambda context, name: answer)
    with pytest.raises(SerializationError, match=r"subject function returned .*, not str"):
        await made(serializer, "a")


async def test_key_and_value_and_topics_have_separate_schemas(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    serializer = AvroSerializer(registry, "string", auto_register=True, normalize=True)
    await made(serializer, "a", KEY)
    await made(serializer, "a", SerializationContext("other", "value"))
    assert stub.subjects() == ["orders-key", "other-value"]
    assert all(request.endswith("?normalize=true") for request in stub.requests)


# -- rules -----------------------------------------------------------------------------------------


def rule(**more: Any) -> dict[str, Any]:
    usual = {"name": "protect", "kind": "TRANSFORM", "mode": "WRITE", "type": "ENCRYPT"}
    return {**usual, **more}


ACTIVE = [
    {"domainRules": [rule()]},
    {"domainRules": [rule(mode="WRITEREAD")]},
    {"domainRules": [rule(mode="READ"), rule(type="CEL", kind="CONDITION")]},
    {"domainRules": None, "encodingRules": [rule(type="ENCRYPT_PAYLOAD", mode="WRITEREAD")]},
    {"domainRules": [rule(disabled=False)], "enableAt": None},
    {"domainRules": [rule()], "enableAt": "ALL"},
    {"domainRules": [rule()], "enableAt": "CLIENT"},
    {"domainRules": [rule(onFailure="NONE")]},
]
INACTIVE = [
    None,
    {},
    {"domainRules": [], "encodingRules": []},
    {"domainRules": [rule(mode="READ")]},
    {"domainRules": [rule(mode="UPDOWN")]},
    {"migrationRules": [rule(mode="UPGRADE", type="JSONATA"), rule(mode="WRITE")]},
    {"domainRules": [rule(disabled=True)]},
    {"encodingRules": [rule()], "enableAt": "GATEWAY"},
]
USES: list[dict[str, Any]] = [{}, {"use_latest_version": True}, {"auto_register": True}]


@pytest.mark.parametrize("use", USES, ids=str)
@pytest.mark.parametrize("rules", ACTIVE, ids=str)
async def test_a_schema_with_rules_for_writers_is_refused_without_the_option(
    stub: StubSchemaRegistry, registry: SchemaRegistry, rules: Any, use: dict[str, Any]
) -> None:
    stub.register("orders-value", '"string"', ruleSet=rules)
    serializer = AvroSerializer(registry, "string", **use)
    kind = (rules.get("domainRules") or rules["encodingRules"])[-1]["type"]
    for _ in range(2):  # the refusal is nothing that only the first record meets
        with pytest.raises(SchemaRegistryError, match=rf"orders-value .*'protect' \({kind}\)") as e:
            await made(serializer, "x")
        assert "`ignore_rules=True`" in str(e.value)
        assert not e.value.retriable
    knowing = AvroSerializer(registry, "string", ignore_rules=True, **use)
    assert await made(knowing, "x") == prefix(1) + b"\x02x"


@pytest.mark.parametrize("use", USES, ids=str)
@pytest.mark.parametrize("rules", INACTIVE, ids=str)
async def test_rules_that_are_not_for_writers_do_not_matter(
    stub: StubSchemaRegistry, registry: SchemaRegistry, rules: Any, use: dict[str, Any]
) -> None:
    stub.register("orders-value", '"string"', ruleSet=rules)
    assert await made(AvroSerializer(registry, "string", **use), "x") == prefix(1) + b"\x02x"


async def test_rules_are_refused_by_every_format(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    rules = {"ruleSet": {"domainRules": [rule()]}}
    stub.register("orders-value", {}, schemaType="JSON", **rules)
    for options in ({"use_latest_version": True}, {}):
        with pytest.raises(SchemaRegistryError, match="protect"):
            await made(JsonSchemaSerializer(registry, {}, **options), {})
    assert await made(JsonSchemaSerializer(registry, {}, ignore_rules=True), {})
    text = base64.b64encode(Second.DESCRIPTOR.file.serialized_pb).decode()
    stub.register("orders-value", text, schemaType="PROTOBUF", **rules)
    latest = {"use_latest_version": True}
    with pytest.raises(SchemaRegistryError, match="protect"):
        await made(ProtobufSerializer(registry, Second, **latest), Second(n=1))
    knowing = ProtobufSerializer(registry, Second, ignore_rules=True, **latest)
    assert await made(knowing, Second(n=1))


@pytest.mark.parametrize("rules", ["text", {"domainRules": "text"}, {"domainRules": [1]}], ids=str)
async def test_rules_that_are_not_understood_are_refused(
    stub: StubSchemaRegistry, registry: SchemaRegistry, rules: Any
) -> None:
    stub.register("orders-value", '"string"', ruleSet=rules)
    with pytest.raises(SchemaRegistryError, match="rules of the schema are not understood"):
        await made(AvroSerializer(registry, "string"), "x")


async def test_a_new_version_with_rules_ends_the_use_of_the_old_one() -> None:
    held = Held()
    held.stub.register("orders-value", ADDRESS)
    async with held.registry() as registry:
        serializer = AvroSerializer(registry, use_latest_version=True)
        old = await made(serializer, {"street": "s"})
        held.stub.register("orders-value", WIDER, ruleSet={"domainRules": [rule()]})
        await grown_old()
        assert serializer.serialize({"street": "s"}, VALUE) == old
        await until(lambda: held.asked == 2)
        await until(lambda: not serializer._plans)
        with pytest.raises(SchemaRegistryError, match="protect"):
            await made(serializer, {"street": "s"})


# -- the schema's id in a header -------------------------------------------------------------------

GUID = UUID("12345678-9abc-def0-1234-56789abcdef0")
IN_HEADER = b"\x01\x12\x34\x56\x78\x9a\xbc\xde\xf0\x12\x34\x56\x78\x9a\xbc\xde\xf0"


async def made_with_headers(
    serializer: Serializer, data: Any, part: Any = "value", *headers: tuple[str, bytes | None]
) -> tuple[bytes, list[tuple[str, bytes | None]]]:
    context = SerializationContext("orders", part, list(headers))
    return await made(serializer, data, context), context.headers


@pytest.mark.parametrize("use", USES, ids=str)
@pytest.mark.parametrize("part", ["key", "value"])
async def test_the_schemas_guid_may_be_in_a_header(
    stub: StubSchemaRegistry, registry: SchemaRegistry, part: str, use: dict[str, Any]
) -> None:
    stub.register(f"orders-{part}", '"string"', guid=str(GUID))
    serializer = AvroSerializer(registry, "string", schema_id_in="header", **use)
    for _ in range(2):  # the first one waits for the registry
        found = await made_with_headers(serializer, "x", part, ("h", b"v"))
        assert found == (b"\x02x", [("h", b"v"), (f"__{part}_schema_id", IN_HEADER)])


async def test_a_null_has_no_schema_in_a_header(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    stub.register("orders-value", '"string"')
    context = SerializationContext("orders", "value", [])
    serializer = AvroSerializer(registry, "string", schema_id_in="header")
    await made(serializer, "x")
    assert serializer.serialize(None, context) is None
    assert context.headers == []


async def test_a_record_that_is_refused_gets_no_header(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    stub.register("orders-value", '"string"')
    serializer = AvroSerializer(registry, "string", schema_id_in="header")
    context = SerializationContext("orders", "value", [])
    for _ in range(2):
        with pytest.raises(SerializationError):
            await made(serializer, 5, context)
    assert context.headers == []


async def test_headers_lead_to_protobufs_type_and_json_stays_json(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    text = base64.b64encode(Second.DESCRIPTOR.file.serialized_pb).decode()
    stub.register("orders-key", text, schemaType="PROTOBUF", guid=str(GUID))
    stub.register("orders-value", {}, schemaType="JSON", guid=str(GUID))
    latest: dict[str, Any] = {"use_latest_version": True, "schema_id_in": "header"}
    protobuf = ProtobufSerializer(registry, Second, **latest)
    for _ in range(2):
        assert await made_with_headers(protobuf, Second(n=1), "key") == (
            b"\x08\x01",
            [("__key_schema_id", IN_HEADER + b"\x04\x02\x02")],
        )
    found = await made_with_headers(JsonSchemaSerializer(registry, **latest), {"a": 1})
    assert found == (b'{"a":1}', [("__value_schema_id", IN_HEADER)])


async def test_a_header_of_another_schema_is_replaced(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    stub.register("orders-value", '"string"', guid=str(GUID))
    other = ("__key_schema_id", b"the key's")
    stale = [("__value_schema_id", b"old"), other, ("__value_schema_id", None)]
    in_header = AvroSerializer(registry, "string", schema_id_in="header")
    in_payload = AvroSerializer(registry, "string")
    for _ in range(2):
        _, headers = await made_with_headers(in_header, "x", "value", *stale)
        assert headers == [other, ("__value_schema_id", IN_HEADER)]
        # A reader would believe the header and read the prefix as data.
        assert await made_with_headers(in_payload, "x", "value", *stale) == (
            prefix(1) + b"\x02x",
            [other],
        )


@pytest.mark.parametrize(
    ("guid", "reason"),
    [(None, "needs.*8.0 or later"), ("no", "guid .*is none"), (5, "guid .*is none")],
)
async def test_a_registry_without_guids_is_refused_for_headers(
    stub: StubSchemaRegistry, registry: SchemaRegistry, guid: Any, reason: str
) -> None:
    stub.register("orders-value", '"string"', guid=guid)
    with pytest.raises(SchemaRegistryError, match=reason):
        await made(AvroSerializer(registry, "string", schema_id_in="header"), "x")


def test_headers_with_schemas_are_sent(stub: StubSchemaRegistry, registry: SchemaRegistry) -> None:
    stub.register("t-key", '"string"', guid=str(GUID))
    stub.register("t-value", '"long"', guid=str(GUID))
    producer = MockProducer(
        key_serializer=AvroSerializer(registry, "string", schema_id_in="header"),
        value_serializer=AvroSerializer(registry, "long", schema_id_in="header"),
    )

    async def send() -> None:
        async with producer, registry:
            await producer.send_and_wait("t", 1, key="k", headers=[("h", b"v")])
            await producer.send_many("t", [2, None])

    asyncio.run(send())
    in_value = ("__value_schema_id", IN_HEADER)
    assert [(record.value, list(record.headers)) for record in producer.history] == [
        (b"\x02", [("h", b"v"), ("__key_schema_id", IN_HEADER), in_value]),
        (b"\x04", [in_value]),
        (None, []),
    ]


# -- JSON Schema -----------------------------------------------------------------------------------


async def test_json_is_validated_and_written_after_the_id(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    serializer = JsonSchemaSerializer(registry, DESCRIBED, auto_register=True)
    assert await made(serializer, {"name": "a", "age": 7}) == prefix(1) + b'{"name":"a","age":7}'
    assert await made(serializer, Customer("a", 7)) == prefix(1) + b'{"name":"a","age":7}'
    registered = stub.answer("GET", "/schemas/ids/1", {})[1]
    assert registered["schemaType"] == "JSON"


@pytest.mark.parametrize(
    ("data", "path", "reason"),
    [
        ({"name": "a", "age": -5}, "age", "violates minimum: 0; given is an integer"),
        ({"name": "a", "lines": [1, "secret"]}, "lines[1]", 'violates type: "integer"'),
        ({}, None, "lacks 'name'"),
        ({"name": "a", "more": "secret"}, None, "has fields that the schema lacks: 'more'"),
        (["secret"], None, 'violates type: "object"'),
    ],
)
async def test_json_schema_names_the_field_that_does_not_fit(
    registry: SchemaRegistry, data: Any, path: str | None, reason: str
) -> None:
    serializer = JsonSchemaSerializer(registry, DESCRIBED, auto_register=True)
    with pytest.raises(SerializationError) as caught:
        await made(serializer, data)
    assert caught.value.path == path
    assert reason in str(caught.value)
    assert "secret" not in str(caught.value)
    trusting = JsonSchemaSerializer(registry, DESCRIBED, auto_register=True, validate=False)
    assert (
        await made(trusting, data) == prefix(1) + json.dumps(data, separators=(",", ":")).encode()
    )


@pytest.mark.parametrize("dialect", ["draft-03", "draft-04", "draft-07"])
@pytest.mark.parametrize(
    ("number", "factor", "fits"),
    [
        (0.07, 0.01, True),
        (4.35, 0.01, True),
        (-19.99, 0.01, True),
        (4.355, 0.01, False),
        (3, 0.1, True),
        (1e300, 0.01, True),
        (2**70 + 1, 2, False),
        (2**70, 2, True),
        (5.0, 5, True),
        (0, 0.3, True),
    ],
)
async def test_multiples_are_those_of_the_numbers_as_written(
    registry: SchemaRegistry, dialect: str, number: float, factor: float, fits: bool
) -> None:
    keyword = "divisibleBy" if dialect == "draft-03" else "multipleOf"
    schema = {"$schema": f"http://json-schema.org/{dialect}/schema#", keyword: factor}
    serializer = JsonSchemaSerializer(registry, schema, auto_register=True)
    if fits:
        assert json.loads((await made(serializer, number))[5:]) == number
    else:
        with pytest.raises(SerializationError, match=f"violates {keyword}"):
            await made(serializer, number)


async def test_a_keyword_of_another_draft_has_no_meaning(registry: SchemaRegistry) -> None:
    serializer = JsonSchemaSerializer(registry, {"divisibleBy": 2}, auto_register=True)
    assert await made(serializer, 3) == prefix(1) + b"3"


async def test_a_json_schema_may_be_any_mapping(registry: SchemaRegistry) -> None:
    schema = MappingProxyType({**DESCRIBED, "properties": MappingProxyType({"name": {}})})
    serializer = JsonSchemaSerializer(registry, schema, auto_register=True)
    assert await made(serializer, {"name": "a"}) == prefix(1) + b'{"name":"a"}'
    with pytest.raises(ConfigError, match="no JSON Schema: Object of type set"):
        JsonSchemaSerializer(registry, {"type": {"object"}})


async def test_json_schemas_may_refer_to_others_but_fetch_none(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    stub.register("part", {"type": "integer"}, schemaType="JSON")
    schema = {"properties": {"n": {"$ref": "part.json"}}}
    reference = SchemaReference("part.json", "part", 1)
    serializer = JsonSchemaSerializer(registry, schema, references=[reference], auto_register=True)
    assert await made(serializer, {"n": 1}) == prefix(2) + b'{"n":1}'
    with pytest.raises(SerializationError, match="field n: violates type"):
        await made(serializer, {"n": "x"})
    outside = {"properties": {"n": {"$ref": "http://127.0.0.1:1/part.json"}}}
    lonely = JsonSchemaSerializer(registry, outside, auto_register=True)
    with pytest.raises(SerializationError, match=r"refers to 'http://127\.0\.0\.1:1/part\.json'"):
        await made(lonely, {"n": 1})
    # What is data has no schemas.
    hidden = {"examples": [{"$id": "n.json"}], "properties": {"n": {"$ref": "n.json"}}}
    hiding = JsonSchemaSerializer(registry, hidden, auto_register=True)
    with pytest.raises(SerializationError, match=r"refers to 'n\.json', unknown"):
        await made(hiding, {"n": 1})


async def test_a_pydantic_model_is_a_json_schema(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    serializer = JsonSchemaSerializer(
        registry, CustomerModel, subject=record_name, auto_register=True
    )
    assert await made(serializer, CustomerModel(name="a")) == prefix(1) + b'{"name":"a","age":3}'
    assert stub.subjects() == ["CustomerModel"]


# -- Protobuf --------------------------------------------------------------------------------------


class Shipment(pydantic.BaseModel):
    order_id: int = pydantic.Field(alias="orderId")


@pytest.mark.parametrize("library", ["msgspec", "orjson", "json"])
async def test_a_model_is_written_by_the_aliases_of_its_schema(
    registry: SchemaRegistry, library: Any
) -> None:
    serializer = JsonSchemaSerializer(registry, Shipment, auto_register=True, library=library)
    assert await made(serializer, Shipment(orderId=1)) == prefix(1) + b'{"orderId":1}'


class Category(pydantic.BaseModel):
    parent: Category | None = None


async def test_a_model_that_contains_itself_has_a_name(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    serializer = JsonSchemaSerializer(registry, Category, subject=record_name, auto_register=True)
    value = Category(parent=Category())
    assert await made(serializer, value) == prefix(1) + b'{"parent":{"parent":null}}'
    assert stub.subjects() == ["Category"]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/A", "$defs": {"A": {}}},
        {"$ref": "#/$defs/B", "$defs": {"A": {"title": "A"}}},
        {"$ref": "#/definitions/A/b", "definitions": {"A": {"title": "A", "b": {}}}},
        {"$defs": {"A": {"title": "A"}}},
    ],
)
async def test_a_schema_without_a_title_has_no_name(registry: SchemaRegistry, schema: Any) -> None:
    with pytest.raises(SerializationError, match="the schema has no name"):
        await made(JsonSchemaSerializer(registry, schema, subject=record_name), {})


class Parcel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    number: int = pydantic.Field(serialization_alias="no")
    weight: float = pydantic.Field(validation_alias="kg")
    price: Decimal
    code: str = pydantic.Field(exclude=True)
    note: str = ""

    @pydantic.computed_field
    def is_heavy(self) -> bool:
        return self.weight > 20


async def test_the_schema_of_a_model_describes_what_its_instances_are_written_as(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    serializer = JsonSchemaSerializer(registry, Parcel, auto_register=True)
    parcel = Parcel(number=1, kg=30, price=Decimal("1.50"), code="x")  # type: ignore[call-arg]
    written = {"no": 1, "weight": 30.0, "price": "1.50", "note": "", "is_heavy": True}
    assert json.loads((await made(serializer, parcel))[5:]) == written
    described = json.loads((await registry.latest("orders-value")).schema.text)
    assert described["properties"].keys() == written.keys()
    assert described["required"] == ["no", "weight", "price", "is_heavy"]


async def test_a_pattern_of_another_dialect_goes_without_validation(
    registry: SchemaRegistry,
) -> None:
    schema = {"type": "string", "pattern": r"^\p{L}+$"}
    with pytest.raises(ConfigError, match=r"is not a 'regex' -> .* set validate=False"):
        JsonSchemaSerializer(registry, schema)
    serializer = JsonSchemaSerializer(registry, schema, auto_register=True, validate=False)
    assert await made(serializer, "abc") == prefix(1) + b'"abc"'


async def test_a_property_that_must_not_be_there_is_refused(registry: SchemaRegistry) -> None:
    schema = {"properties": {"old": False}}
    serializer = JsonSchemaSerializer(registry, schema, auto_register=True)
    with pytest.raises(SerializationError, match="value: is not allowed; given is an integer"):
        await made(serializer, {"old": 1})


async def test_protobuf_registers_what_it_imports(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    serializer = ProtobufSerializer(registry, Order, auto_register=True)
    order = Order(id=7, price=Money(cents=5))
    assert await made(serializer, order) == prefix(2) + b"\x00" + order.SerializeToString()
    assert stub.subjects() == ["test/common.proto", "orders-value"]
    registered = stub.answer("GET", "/subjects/orders-value/versions/latest", {})[1]
    assert registered["references"] == [
        {"name": "test/common.proto", "subject": "test/common.proto", "version": 1}
    ]
    # The next one, which may not register, finds everything.
    assert await made(ProtobufSerializer(registry, Order), order)


async def test_protobuf_says_which_type_of_the_file_it_is(registry: SchemaRegistry) -> None:
    serializer = ProtobufSerializer(registry, Second, auto_register=True)
    data = await made(serializer, Second(n=1))
    _, rest = split(data)
    assert rest == b"\x04\x02\x02" + Second(n=1).SerializeToString()
    assert split_indexes(rest) == ([1, 1], b"\x08\x01")


async def test_protobuf_names_what_is_wrong(registry: SchemaRegistry) -> None:
    serializer = ProtobufSerializer(registry, Order, auto_register=True)
    with pytest.raises(SerializationError, match=r"must be a test\.Order or None, not Money"):
        await made(serializer, Money(cents=1))
    with pytest.raises(SerializationError, match="field id: is required and not set"):
        await made(serializer, Order())


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=8), st.binary(max_size=8))
def test_message_indexes_can_be_read_back(path: list[int], rest: bytes) -> None:
    assert split_indexes(message_indexes(path) + rest) == (path, rest)


# -- together --------------------------------------------------------------------------------------


def test_a_producer_waits_for_the_first_record_only(
    stub: StubSchemaRegistry, registry: SchemaRegistry
) -> None:
    stub.register("t-value", CUSTOMER)

    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        with pytest.raises(WouldBlockError, match="value_serializer has to wait"):
            producer.send_nowait("t", {"name": "a"})
        await producer.send_and_wait("t", {"name": "a"})
        producer.send_nowait("t", {"name": "b"})
        result = await producer.send_many("t", [{"name": "c"}, {"name": 1}, None])
        assert [(failed.index, str(failed.error)) for failed in result.failed] == [
            (1, "value, field name: must be string, not int [topic t, not persisted]")
        ]
        await producer.close()
        await registry.close()
        assert [value[-5:-4] for value in stage.values("t") if value] == [b"a", b"b", b"c"]

    play(act, value_serializer=AvroSerializer(registry, CUSTOMER))
    assert stub.requests == ["POST /subjects/t-value"]


def test_wrong_schemas_and_options_are_refused(registry: SchemaRegistry) -> None:
    with pytest.raises(ConfigError, match="no Avro schema"):
        AvroSerializer(registry, {"type": "recrod"})
    with pytest.raises(ConfigError, match="needs a schema"):
        AvroSerializer(registry)
    with pytest.raises(ConfigError, match="contradict"):
        AvroSerializer(registry, "string", auto_register=True, use_latest_version=True)
    with pytest.raises(ConfigError, match="schema_id_in is 'payload' or 'header'"):
        AvroSerializer(registry, "string", schema_id_in="key")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no JSON Schema"):
        JsonSchemaSerializer(registry, {"type": "thing"})
    with pytest.raises(ConfigError, match="no JSON Schema, and no Pydantic model"):
        JsonSchemaSerializer(registry, int)
    with pytest.raises(ConfigError, match="needs a schema"):
        JsonSchemaSerializer(registry)
    with pytest.raises(ConfigError, match="not a generated Protobuf class"):
        ProtobufSerializer(registry, Customer)


@pytest.mark.parametrize(
    ("package", "make"),
    [
        ("fastavro", lambda registry: AvroSerializer(registry, "string")),
        ("jsonschema", lambda registry: JsonSchemaSerializer(registry, {})),
        ("google.protobuf.message", lambda registry: ProtobufSerializer(registry, Order)),
        ("httpx", lambda registry: SchemaRegistry("http://registry")),
    ],
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, registry: SchemaRegistry, package: str, make: Any
) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(ConfigError, match=r"is needed .*aioproducer\[schema-registry\]"):
        make(registry)


class Counting(JsonSchemaSerializer):
    """Counts how often a schema is prepared."""

    prepared = 0

    async def _encoder(self, schema: Schema) -> Encode:
        self.prepared += 1
        return await super()._encoder(schema)


async def made_at_once(serializer: Serializer, records: int) -> set[bytes]:
    return {*await asyncio.gather(*(made(serializer, {"name": "a"}) for _ in range(records)))}


@pytest.mark.parametrize("length", [10, 100_000])  # a long one is prepared in a thread
async def test_a_schema_is_prepared_once_for_all_records_that_wait(
    registry: SchemaRegistry, length: int
) -> None:
    schema = {**DESCRIBED, "description": length * "x"}
    serializer = Counting(registry, schema, auto_register=True)
    assert await made_at_once(serializer, 20) == {prefix(1) + b'{"name":"a"}'}
    assert serializer.prepared == 1


async def test_a_schema_is_prepared_once_for_all_topics(registry: SchemaRegistry) -> None:
    serializer = Counting(registry, DESCRIBED, auto_register=True)
    for topic in ("first", "second"):
        await made(serializer, {"name": "a"}, SerializationContext(topic, "value"))
    assert serializer.prepared == 1


async def test_a_record_that_is_given_up_ends_no_preparation_for_others(
    registry: SchemaRegistry,
) -> None:
    class Slow(Counting):
        async def _encoder(self, schema: Schema) -> Encode:
            encode = await super()._encoder(schema)
            await given_up.wait()
            return encode

    given_up = asyncio.Event()
    serializer = Slow(registry, DESCRIBED, auto_register=True)
    waiting = [asyncio.create_task(made(serializer, {"name": "a"})) for _ in range(3)]
    await until(lambda: serializer.prepared)
    waiting[0].cancel()
    given_up.set()
    first, *others = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(first, asyncio.CancelledError)
    assert {*others} == {prefix(1) + b'{"name":"a"}'}
    assert serializer.prepared == 1


# -- refreshing the latest version -----------------------------------------------------------------


class Held:
    """A stub registry whose answers wait until they are let go."""

    def __init__(self) -> None:
        self.stub = StubSchemaRegistry()
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def handle(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        await self.gate.wait()
        target = request.url.raw_path.decode("ascii")
        status, answer = self.stub.answer(request.method, target, {})
        return httpx.Response(status, json=answer)

    def registry(self, **options: Any) -> SchemaRegistry:
        transport = httpx.MockTransport(self.handle)
        options = {"retries": 0, "latest_cache_ttl_ms": 1, **options}
        return SchemaRegistry("http://r", transport=transport, **options)


async def grown_old() -> None:
    """Returns when what was asked before is older than 1 ms."""
    began = time.monotonic()
    await until(lambda: time.monotonic() > began + 0.001)


WIDER = {
    **ADDRESS,
    "fields": [*ADDRESS["fields"], {"name": "no", "type": "int", "default": 1}],
}


async def test_a_schema_is_used_while_it_is_asked_for_anew() -> None:
    held = Held()
    held.stub.register("orders-value", ADDRESS)
    async with held.registry() as registry:
        serializer = AvroSerializer(registry, use_latest_version=True)
        old = await made(serializer, {"street": "s"})
        held.stub.register("orders-value", WIDER)
        await grown_old()
        held.gate.clear()
        for _ in range(3):  # no record waits, and one request is enough
            assert serializer.serialize({"street": "s"}, VALUE) == old
            await asyncio.sleep(0)
        await until(lambda: held.asked == 2)
        held.gate.set()
        await until(lambda: serializer.serialize({"street": "s"}, VALUE) != old)
        new = serializer.serialize({"street": "s"}, VALUE)
        assert new == prefix(2) + b"\x02s\x02"


async def test_a_refresh_that_fails_leaves_the_schema_in_use(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = Held()
    held.stub.register("orders-value", ADDRESS)
    async with held.registry() as registry:
        serializer = AvroSerializer(registry, use_latest_version=True)
        old = await made(serializer, {"street": "s"})
        await grown_old()
        held.stub.failures += [503]
        assert serializer.serialize({"street": "s"}, VALUE) == old
        await until(lambda: "orders-value is not asked for anew" in caplog.text)
        assert serializer.serialize({"street": "s"}, VALUE) == old


async def test_a_refresh_that_is_refused_lets_the_next_record_ask() -> None:
    held = Held()
    held.stub.register("orders-value", ADDRESS)
    async with held.registry() as registry:
        serializer = AvroSerializer(registry, use_latest_version=True)
        old = await made(serializer, {"street": "s"})
        await grown_old()
        held.stub.failures += [403, 403]
        assert serializer.serialize({"street": "s"}, VALUE) == old
        await until(lambda: held.asked == 2)
        await until(lambda: not serializer._plans)
        with pytest.raises(SerializationError, match="missing permission"):
            await made(serializer, {"street": "s"})
        assert await made(serializer, {"street": "s"}) == old


async def test_closing_the_registry_ends_a_refresh() -> None:
    held = Held()
    held.stub.register("orders-value", ADDRESS)
    registry = held.registry()
    serializer = AvroSerializer(registry, use_latest_version=True)
    old = await made(serializer, {"street": "s"})
    await grown_old()
    held.gate.clear()
    assert serializer.serialize({"street": "s"}, VALUE) == old
    await registry.close()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_a_record_asks_itself_where_no_loop_is_the_registrys() -> None:
    held = Held()
    held.stub.register("orders-value", ADDRESS)
    registry = held.registry()
    serializer = AvroSerializer(registry, use_latest_version=True)
    old = await made(serializer, {"street": "s"})
    await registry.close()
    await grown_old()
    waiting = serializer.serialize({"street": "s"}, VALUE)
    assert not isinstance(waiting, bytes)
    assert await waiting == old
    await registry.close()


async def test_another_thread_may_find_a_schema_old() -> None:
    held = Held()
    held.stub.register("orders-value", ADDRESS)
    async with held.registry() as registry:
        serializer = AvroSerializer(registry, use_latest_version=True)
        old = await made(serializer, {"street": "s"})
        held.stub.register("orders-value", WIDER)
        await grown_old()
        found = await asyncio.to_thread(serializer.serialize, {"street": "s"}, VALUE)
        assert found == old
        await until(lambda: serializer.serialize({"street": "s"}, VALUE) != old)
