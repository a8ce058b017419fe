"""JSON Schemas of a registry that refer to each other."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest

from aioproducer.errors import SchemaRegistryError, SerializationError
from aioproducer.serializers import (
    JsonSchemaSerializer,
    SchemaReference,
    SchemaRegistry,
    SerializationContext,
)
from aioproducer.serializers.registry.json_references import linked
from aioproducer.serializers.registry.schema import Schema
from aioproducer.testing import StubSchemaRegistry

VALUE = SerializationContext("orders", "value")
BASE = "http://acme.example/schemas/"


@pytest.fixture
def stub() -> StubSchemaRegistry:
    return StubSchemaRegistry()


def registered(stub: StubSchemaRegistry, subject: str, schema: Any, **names: str) -> None:
    """Registers a schema; `names` are the subjects of its references, by their names."""
    references = [
        {"name": name, "subject": where, "version": len(stub._subjects[where])}
        for name, where in names.items()
    ]
    stub.register(subject, schema, schemaType="JSON", references=references)


async def accepts(stub: StubSchemaRegistry, data: Any) -> bool:
    """Return whether a value fits the newest schema; refusals must be the data's."""
    registry = SchemaRegistry("http://registry", transport=stub.transport)
    serializer = JsonSchemaSerializer(registry, use_latest_version=True)
    made = serializer.serialize(data, VALUE)
    assert made is not None
    assert not isinstance(made, bytes)
    try:
        await made
    except SchemaRegistryError:
        raise
    except SerializationError:
        return False
    return True


def field(reference: str, **more: Any) -> dict[str, Any]:
    return {"properties": {"n": {"$ref": reference}}, **more}


ROOTS: list[tuple[str | None, str, str]] = [
    # the root's $id, the $ref, the name of the reference
    (None, "part.json", "part.json"),
    (BASE + "order.json", "part.json", "part.json"),
    (BASE + "order.json", BASE + "part.json", "part.json"),
    (BASE + "order.json", "part.json", BASE + "part.json"),
    (BASE + "order.json", BASE + "part.json", BASE + "part.json"),
    (BASE + "order.json", "../part.json", "../part.json"),
    (BASE + "order.json", "/part.json", "http://acme.example/part.json"),
    (BASE + "order.json#", "./part.json", "part.json"),
    ("order.json", "part.json", "part.json"),
    ("urn:acme:order", "part.json", "part.json"),
    ("urn:acme:order", "urn:acme:part", "urn:acme:part"),
]


@pytest.mark.parametrize("fragment", ["", "#", "#/definitions/number"])
@pytest.mark.parametrize(("own", "reference", "name"), ROOTS)
async def test_a_name_is_resolved_against_the_id_of_the_schema(
    stub: StubSchemaRegistry, own: str | None, reference: str, name: str, fragment: str
) -> None:
    number = {"type": "integer"}
    registered(stub, "part", {**number, "definitions": {"number": number}})
    schema = field(reference + fragment, **({"$id": own} if own else {}))
    registered(stub, "orders-value", schema, **{name: "part"})
    assert await accepts(stub, {"n": 1})
    assert not await accepts(stub, {"n": "x"})


@pytest.mark.parametrize("own", [None, BASE + "a/part.json"])
async def test_a_schema_that_has_an_id_is_found_by_its_name(
    stub: StubSchemaRegistry, own: str | None
) -> None:
    content = {"$ref": "#/definitions/number", "definitions": {"number": {"type": "integer"}}}
    registered(stub, "part", {**content, **({"$id": own} if own else {})})
    schema = field("part.json", **{"$id": BASE + "order.json"})
    registered(stub, "orders-value", schema, **{"part.json": "part"})
    assert await accepts(stub, {"n": 1})
    assert not await accepts(stub, {"n": "x"})


@pytest.mark.parametrize("dialect", ["draft-04", "draft-07", "2020-12"])
async def test_names_are_resolved_at_every_level(stub: StubSchemaRegistry, dialect: str) -> None:
    place = "draft/2020-12" if dialect == "2020-12" else dialect
    says = {"$schema": f"http{'s' * (dialect == '2020-12')}://json-schema.org/{place}/schema"}
    key = "id" if dialect == "draft-04" else "$id"
    registered(stub, "deep", {**says, key: "http://c.example/deep.json", "type": "integer"})
    middle = {**says, key: "http://b.example/x/middle.json", **field("deep.json")}
    registered(stub, "middle", middle, **{"deep.json": "deep"})
    top = {**says, key: "http://a.example/top.json", **field("parts/middle.json")}
    registered(stub, "orders-value", top, **{"parts/middle.json": "middle"})
    assert await accepts(stub, {"n": {"n": 1}})
    assert not await accepts(stub, {"n": {"n": "x"}})


async def test_one_name_may_mean_two_schemas(stub: StubSchemaRegistry) -> None:
    registered(stub, "number", {"$id": BASE + "part.json", "type": "integer"})
    registered(stub, "text", {"$id": BASE + "part.json", "type": "string"})
    registered(stub, "inner", field("part.json"), **{"part.json": "text"})
    schema = {
        "$id": BASE + "order.json",
        "properties": {"n": {"$ref": "part.json"}, "inner": {"$ref": "inner.json"}},
    }
    names = {"part.json": "number", "inner.json": "inner"}
    registered(stub, "orders-value", schema, **names)
    assert await accepts(stub, {"n": 1, "inner": {"n": "x"}})
    assert not await accepts(stub, {"n": "x"})
    assert not await accepts(stub, {"inner": {"n": 1}})


async def test_one_schema_may_have_two_names(stub: StubSchemaRegistry) -> None:
    registered(stub, "part", {"type": "integer"})
    registered(stub, "inner", field("b.json"), **{"b.json": "part"})
    schema = {
        "$id": BASE + "order.json",
        "properties": {"n": {"$ref": "a.json"}, "c": {"$ref": "c.json"}, "i": {"$ref": "i.json"}},
    }
    names = {"a.json": "part", "c.json": "part", "i.json": "inner"}
    registered(stub, "orders-value", schema, **names)
    assert await accepts(stub, {"n": 1, "c": 1, "i": {"n": 1}})
    for data in ({"n": "x"}, {"c": "x"}, {"i": {"n": "x"}}):
        assert not await accepts(stub, data)


async def test_two_versions_of_a_schema_have_one_id(stub: StubSchemaRegistry) -> None:
    part = {"$id": BASE + "part.json", "$ref": "#/definitions/n"}
    registered(stub, "part", {**part, "definitions": {"n": {"type": "integer"}}})
    registered(stub, "inner", field("part.json"), **{"part.json": "part"})
    registered(stub, "part", {**part, "definitions": {"n": {"type": "string"}}})
    schema = {"properties": {"new": {"$ref": "part.json"}, "old": {"$ref": "inner.json"}}}
    names = {"part.json": "part", "inner.json": "inner"}
    registered(stub, "orders-value", schema, **names)
    assert await accepts(stub, {"new": "x", "old": {"n": 1}})
    assert not await accepts(stub, {"new": 1})
    assert not await accepts(stub, {"old": {"n": "x"}})


@pytest.mark.parametrize("place", ["$defs", "definitions", "parts"])
@pytest.mark.parametrize("root", [{}, {"$id": BASE + "order.json"}])
async def test_an_inner_id_is_found_wherever_it_is_in_a_schema_without_a_dialect(
    stub: StubSchemaRegistry, place: str, root: dict[str, str]
) -> None:
    inner = {"$id": BASE + "part.json", **field("#/definitions/whole")}
    inner["definitions"] = {"whole": {"type": "integer"}}
    registered(stub, "orders-value", field(BASE + "part.json", **root, **{place: {"p": inner}}))
    assert await accepts(stub, {"n": {"n": 1}})
    assert not await accepts(stub, {"n": {"n": "x"}})


async def test_an_inner_id_is_the_base_of_what_is_within(stub: StubSchemaRegistry) -> None:
    registered(stub, "part", {"type": "integer"})
    schema = {
        "$id": BASE + "order.json",
        "properties": {
            "inner": {"$id": "http://other.example/in/inner.json", **field("part.json")},
            "same": {"$ref": "http://other.example/in/inner.json"},
            "itself": {"$ref": "order.json"},
            "local": {"$ref": "#/definitions/local"},
        },
        "definitions": {"local": {"type": "integer"}},
    }
    registered(stub, "orders-value", schema, **{"http://other.example/in/part.json": "part"})
    assert await accepts(stub, {"inner": {"n": 1}, "same": {"n": 1}, "itself": {"local": 1}})
    for data in (
        {"inner": {"n": "x"}},
        {"same": {"n": "x"}},
        {"itself": {"local": "x"}},
        {"itself": {"itself": {"inner": {"n": "x"}}}},
        {"local": "x"},
    ):
        assert not await accepts(stub, data), data


async def test_a_schema_without_an_id_resolves_against_its_name(stub: StubSchemaRegistry) -> None:
    registered(stub, "deep", {"type": "integer"})
    registered(stub, "part", field("deep.json"), **{BASE + "deep.json": "deep"})
    schema = field("part.json", **{"$id": BASE + "order.json"})
    registered(stub, "orders-value", schema, **{"part.json": "part"})
    assert await accepts(stub, {"n": {"n": 1}})
    assert not await accepts(stub, {"n": {"n": "x"}})


async def test_a_referenced_schema_is_known_by_its_own_id_too(stub: StubSchemaRegistry) -> None:
    registered(stub, "part", {"$id": "http://part.example/p.json", "type": "integer"})
    schema = field("http://part.example/p.json", **{"$id": BASE + "order.json"})
    registered(stub, "orders-value", schema, part="part")
    assert await accepts(stub, {"n": 1})
    assert not await accepts(stub, {"n": "x"})


async def test_data_in_a_schema_is_no_reference(stub: StubSchemaRegistry) -> None:
    registered(stub, "part", {"type": "integer"})
    constant = {"$ref": "part.json", "$id": "x"}
    schema = {
        "$id": BASE + "order.json",
        "properties": {
            "const": {"const": constant},
            "enum": {"enum": [constant]},
            "$ref": {"$ref": "part.json"},
            "$id": {"type": "string"},
            "definitions": {"$ref": "part.json"},
        },
    }
    registered(stub, "orders-value", schema, **{"part.json": "part"})
    assert await accepts(stub, {"const": constant, "enum": constant, "$ref": 1, "$id": "x"})
    for data in ({"const": 1}, {"enum": 1}, {"$ref": "x"}, {"$id": 1}, {"definitions": "x"}):
        assert not await accepts(stub, data), data


async def test_references_of_ones_own_schema_are_found_as_well(stub: StubSchemaRegistry) -> None:
    registered(stub, "part", {"type": "integer"})
    registry = SchemaRegistry("http://registry", transport=stub.transport)
    schema = field("part.json", **{"$id": BASE + "order.json"})
    references = [SchemaReference("part.json", "part", 1)]
    serializer = JsonSchemaSerializer(registry, schema, references=references, auto_register=True)
    made = serializer.serialize({"n": 1}, VALUE)
    assert made is not None
    assert not isinstance(made, bytes)
    assert await made == b'\0\0\0\0\2{"n":1}'
    with pytest.raises(SerializationError, match="field n: violates type"):
        serializer.serialize({"n": "x"}, VALUE)


async def test_an_unknown_reference_is_named_as_it_is_written_in_the_schema(
    stub: StubSchemaRegistry,
) -> None:
    registered(stub, "part", {"type": "integer"})
    schema = field("other.json", **{"$id": BASE + "order.json"})
    registered(stub, "orders-value", schema, **{"part.json": "part"})
    with pytest.raises(
        SchemaRegistryError, match=r"refers to 'other\.json', unknown .* -> register"
    ):
        await accepts(stub, {"n": 1})


async def test_refusals_show_references_as_they_are_written_in_the_schema(
    stub: StubSchemaRegistry,
) -> None:
    registered(stub, "part", {"type": "integer"})
    schema = {"$id": BASE + "order.json", "properties": {"n": {"not": {"$ref": "part.json"}}}}
    registered(stub, "orders-value", schema, **{"part.json": "part"})
    registry = SchemaRegistry("http://registry", transport=stub.transport)
    made = JsonSchemaSerializer(registry, use_latest_version=True).serialize({"n": 1}, VALUE)
    assert made is not None
    assert not isinstance(made, bytes)
    with pytest.raises(
        SerializationError, match=r'field n: violates not: \{"\$ref": "part.json"\}'
    ):
        await made


@pytest.mark.parametrize("broken", ["no JSON", '{"type": "thing"}'])
async def test_a_registered_schema_that_is_none_is_not_the_datas_fault(
    stub: StubSchemaRegistry, broken: str
) -> None:
    stub.register("orders-value", broken, schemaType="JSON")
    with pytest.raises(SchemaRegistryError, match="no JSON Schema"):
        await accepts(stub, {"n": 1})


async def test_an_empty_id_is_none(stub: StubSchemaRegistry) -> None:
    registered(stub, "part", {"$id": "", "type": "integer"})
    registered(stub, "orders-value", field("part.json", **{"$id": "#"}), **{"part.json": "part"})
    assert await accepts(stub, {"n": 1})
    assert not await accepts(stub, {"n": "x"})


async def test_json_schemas_own_schemas_are_known(stub: StubSchemaRegistry) -> None:
    registered(stub, "orders-value", field("http://json-schema.org/draft-07/schema#"))
    assert await accepts(stub, {"n": {"type": "integer"}})
    assert not await accepts(stub, {"n": {"type": 5}})


# -- schemas that are hostile ----------------------------------------------------------------------


def hostile(
    main: Any, others: dict[str, Any], references: dict[str, list[str]]
) -> tuple[Schema, dict[tuple[str, int], Schema]]:
    def schema(name: str, content: Any) -> Schema:
        named = tuple(SchemaReference(each, each, 1) for each in references.get(name, ()))
        return Schema(json.dumps(content), "JSON", named)

    return schema("", main), {(name, 1): schema(name, each) for name, each in others.items()}


MANY = [f"doc{number}" for number in range(500)]
LONG = "http://a/" + "x" * 200_000 + "/"


@pytest.mark.parametrize(
    "given",
    [
        # 3,000 references without a target, in a schema that has 500 names
        hostile(
            {"$defs": {str(n): {"$ref": f"no{n}"} for n in range(3_000)}},
            {name: {} for name in MANY},
            {"": MANY},
        ),
        # the same against as many bases
        hostile(
            {
                "$defs": {
                    str(n): {"$id": f"http://b{n}/", "items": {"$ref": f"no{n}"}}
                    for n in range(3_000)
                }
            },
            {name: {} for name in MANY},
            {"": MANY},
        ),
        # every schema names all others and has one id
        hostile(
            {},
            {
                name: {
                    "$id": "http://same/",
                    "$defs": {str(n): {"$ref": f"n{n}"} for n in range(9)},
                }
                for name in MANY
            },
            dict.fromkeys(["", *MANY], MANY),
        ),
        # references in a schema with a long id
        hostile({"$id": LONG, "$defs": {str(n): {"$ref": f"b{n}"} for n in range(3_000)}}, {}, {}),
        hostile({"$id": "http://a/", "$defs": {"a": {"$ref": LONG}}}, {}, {}),
    ],
    ids=["names", "bases", "ids", "a long id", "a long reference"],
)
def test_references_are_resolved_in_bounded_time(
    given: tuple[Schema, dict[tuple[str, int], Schema]],
) -> None:
    began = time.process_time()
    with contextlib.suppress(ValueError):
        linked(*given)
    assert time.process_time() - began < 4


async def test_an_error_shows_references_as_written_in_bounded_time(
    stub: StubSchemaRegistry,
) -> None:
    registered(stub, "part", {"type": "string"})
    registered(
        stub,
        "orders-value",
        {
            "$defs": {
                **{str(n): {"$ref": f"http://no.example/{n}"} for n in range(20_000)},
                "one": {"not": {"anyOf": [{"$ref": "part"}] + [{"maxLength": 5}] * 20_000}},
            },
            "properties": {"n": {"$ref": "#/$defs/one"}},
        },
        part="part",
    )
    registry = SchemaRegistry("http://registry", transport=stub.transport)
    serializer = JsonSchemaSerializer(registry, use_latest_version=True)
    encode = await serializer._encoder((await registry.latest("orders-value")).schema)
    began = time.process_time()
    with pytest.raises(SerializationError) as raised:
        encode({"n": "x"}, VALUE)
    assert time.process_time() - began < 2
    assert 'violates not: {"anyOf": [{"$ref": "part"}, {"maxLength": 5}' in str(raised.value)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"required": [f"name{n}" for n in range(50_000)]}, "and 49980 more"),
        ({"additionalProperties": False}, "and 980 more"),
        ({"enum": ["x" * 100_000]}, "violates enum"),
        ({"$ref": "http://no.example/" + "x" * 4_000}, "unknown"),
    ],
)
async def test_an_error_shows_a_bounded_part_of_a_schema(
    stub: StubSchemaRegistry, schema: Any, words: str
) -> None:
    registered(stub, "orders-value", schema)
    registry = SchemaRegistry("http://registry", transport=stub.transport)
    serializer = JsonSchemaSerializer(registry, use_latest_version=True)
    encode = await serializer._encoder((await registry.latest("orders-value")).schema)
    with pytest.raises(SerializationError, match=words) as raised:
        encode({f"field{n}": n for n in range(1_000)}, VALUE)
    assert len(str(raised.value)) < 6_000


async def test_an_inner_schema_with_an_id_is_not_searched_for_at_each_reference(
    stub: StubSchemaRegistry,
) -> None:
    filler = {f"f{n}": {"properties": {"a": {"type": "string"}}} for n in range(5_000)}
    inner = {"$id": "http://inner.example/", "type": "integer"}
    registered(
        stub,
        "orders-value",
        {"definitions": filler | {"inner": inner}, "items": {"$ref": "http://inner.example/"}},
    )
    registry = SchemaRegistry("http://registry", transport=stub.transport)
    serializer = JsonSchemaSerializer(registry, use_latest_version=True)
    encode = await serializer._encoder((await registry.latest("orders-value")).schema)
    began = time.process_time()
    assert encode([1] * 300, VALUE)
    assert time.process_time() - began < 3
