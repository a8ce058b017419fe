"""Avro's encoding: what each type takes, which branch of a union is chosen, what refusals say."""

from __future__ import annotations

import datetime
import io
import json
from collections import UserDict
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import attrs
import fastavro
import msgspec
import numpy
import pandas
import pydantic
import pytest
from fastavro.utils import generate_many

from aioproducer.errors import ConfigError, SchemaRegistryError, SerializationError
from aioproducer.serializers import (
    AvroSerializer,
    SchemaReference,
    SchemaRegistry,
    SerializationContext,
)
from aioproducer.serializers.registry.avro_schema import AvroSchemaError, resolve
from aioproducer.serializers.registry.avro_writer import AvroWriter, SchemaMismatch
from aioproducer.testing import StubSchemaRegistry

VALUE = SerializationContext("pets", "value")


def record(name: str, *fields: tuple[Any, ...]) -> dict[str, Any]:
    made = []
    for one in fields:
        made.append({"name": one[0], "type": one[1]})
        if len(one) > 2:
            made[-1]["default"] = one[2]
    return {"type": "record", "name": name, "fields": made}


def encoded(schema: Any, data: Any, **options: Any) -> bytes:
    return AvroWriter(resolve(schema), **options).encode(data)


def refused(schema: Any, data: Any) -> tuple[str, str]:
    with pytest.raises(SchemaMismatch) as caught:
        encoded(schema, data)
    return caught.value.path, caught.value.reason


def read(schema: Any, data: bytes) -> Any:
    stream = io.BytesIO(data)
    found = fastavro.schemaless_reader(
        stream, fastavro.parse_schema(schema), None, return_record_name=True
    )
    assert not stream.read()
    return found


CAT = record("zoo.Cat", ("name", "string"))
DOG = record("zoo.Dog", ("name", "string"))


@dataclass
class Cat:
    name: str


@dataclass
class Dog:
    name: str


class Puppy(Dog):
    pass


@dataclass
class Owner:
    pet: Any
    pets: list[Any] = field(default_factory=list)
    by_name: dict[str, Any] = field(default_factory=dict)


class DogModel(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


class CatModel(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    name: str


class OwnerModel(pydantic.BaseModel):
    pet: CatModel | DogModel = pydantic.Field(discriminator="kind")
    pets: list[CatModel | DogModel] = []


# -- the same bytes as fastavro's ------------------------------------------------------------------

EVERYTHING = record(
    "a.b.All",
    ("i", "int"),
    ("l", "long"),
    ("f", "float"),
    ("d", "double"),
    ("b", "bytes"),
    ("s", "string"),
    ("yes", "boolean"),
    ("fixed", {"type": "fixed", "name": "Four", "size": 4}),
    ("enum", {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]}),
    ("again", ["null", "Color"]),
    ("list", {"type": "array", "items": ["null", "long", {"type": "map", "values": "string"}]}),
    ("map", {"type": "map", "values": {"type": "array", "items": "double"}}),
    ("tree", ["null", record("Tree", ("left", ["null", "Tree"]), ("value", "int"))]),
)


def test_bytes_are_those_of_fastavro_for_any_data() -> None:
    parsed = fastavro.parse_schema(EVERYTHING)
    for data in generate_many(EVERYTHING, 50):
        target = io.BytesIO()
        fastavro.schemaless_writer(target, parsed, data)
        assert encoded(EVERYTHING, data) == target.getvalue()


STAMP = datetime.datetime(2026, 11, 25, 12, 0, 1, 5000, tzinfo=datetime.UTC)
LOGICAL: list[tuple[dict[str, Any], Any]] = [
    ({"type": "int", "logicalType": "date"}, datetime.date(2026, 1, 2)),
    ({"type": "int", "logicalType": "time-millis"}, datetime.time(1, 2, 3, 4000)),
    ({"type": "long", "logicalType": "time-micros"}, datetime.time(1, 2, 3, 4)),
    ({"type": "long", "logicalType": "timestamp-millis"}, STAMP),
    ({"type": "long", "logicalType": "timestamp-micros"}, STAMP),
    ({"type": "string", "logicalType": "uuid"}, UUID(int=7)),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        Decimal("-1.27"),
    ),
    (
        {"type": "fixed", "name": "D", "size": 5, "logicalType": "decimal", "precision": 9},
        Decimal(-128),
    ),
    ({"type": "long", "logicalType": "unknown"}, 5),
]


@pytest.mark.parametrize(("schema", "data"), LOGICAL)
def test_logical_types_are_written_as_fastavro_writes_them(schema: Any, data: Any) -> None:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), data)
    assert encoded(schema, data) == target.getvalue()
    for union, prefix in ((["null", schema], b"\x02"), ([schema, "null"], b"\x00")):
        assert encoded(union, data) == prefix + target.getvalue()


CUSTOM: list[tuple[Any, Any, Any, bytes]] = [
    ("string", {"maxLength": 2}, "abc", b"\x04ab"),
    ("array", {"items": "int"}, {2, 1}, b"\x04\x02\x04\0"),
    ("map", {"values": "int"}, [("a", 1)], b"\x02\x02a\x02\0"),
    ("enum", {"name": "E", "symbols": ["NO", "YES"]}, True, b"\x02"),
    ("fixed", {"name": "F", "size": 2}, 258, b"\x01\x02"),
    ("record", record("R", ("x", "int"), ("y", "int")), 1 + 2j, b"\x02\x04"),
]
CONVERT: dict[str, Any] = {
    "string": lambda data, schema: data[: schema["maxLength"]],
    "array": lambda data, schema: sorted(data),
    "map": lambda data, schema: dict(data),
    "enum": lambda data, schema: "YES" if data else "NO",
    "fixed": lambda data, schema: data.to_bytes(schema["size"], "big"),
    "record": lambda data, schema: {"x": int(data.real), "y": int(data.imag)},
}


@pytest.mark.parametrize(("kind", "more", "data", "expected"), CUSTOM)
def test_a_logical_type_of_each_type_may_be_registered_with_fastavro(
    monkeypatch: pytest.MonkeyPatch, kind: str, more: Any, data: Any, expected: bytes
) -> None:
    monkeypatch.setitem(fastavro.write.LOGICAL_WRITERS, f"{kind}-custom", CONVERT[kind])
    schema = {"type": kind, "logicalType": "custom", **more}
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), data)
    assert encoded(schema, data) == target.getvalue() == expected
    assert encoded(["null", schema], data) == b"\x02" + expected


@pytest.mark.parametrize("logical", [["date"], {"a": 1}, 5, None])
def test_a_logical_type_whose_name_is_no_text_is_none(logical: Any) -> None:
    for schema, data in ({"type": "int"}, 5), ({"type": "array", "items": "int"}, [5]):
        union = ["null", {**schema, "logicalType": logical}]
        assert encoded(union, data) == encoded(["null", schema], data)


def test_types_that_differ_in_an_attribute_of_a_logical_type_are_the_same() -> None:
    day = {"type": "int", "logicalType": "date"}
    one, other = (record("R", ("a", {**day, **more})) for more in ({}, {"connect.version": 1}))
    assert resolve(other, [one]) is not None


@pytest.mark.parametrize("name", ["timestamp-nanos", "local-timestamp-nanos"])
def test_a_datetime_is_written_in_nanoseconds(name: str) -> None:
    schema = {"type": "long", "logicalType": name}
    moment = datetime.datetime(2026, 1, 2, 12, 0, 0, 1, tzinfo=datetime.UTC)
    assert encoded(schema, moment) == encoded("long", 1_767_355_200_000_001_000)
    assert encoded(schema, pandas.Timestamp(moment).replace(nanosecond=7)) == encoded(
        "long", 1_767_355_200_000_001_007
    )
    assert encoded(schema, 5) == encoded("long", 5)
    assert refused(schema, datetime.datetime.max)[1].endswith("out of its range")


@pytest.mark.parametrize("number", [0, 1, 127, 128, -1, -128, -129, 255, 256, 99999999])
def test_a_decimal_takes_as_few_bytes_as_java_writes(number: int) -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 9}
    size, *content = encoded(schema, Decimal(number))
    assert int.from_bytes(content, "big", signed=True) == number
    assert size // 2 == len(content) == max(1, len(content))
    shorter = bytes(content[1:])
    assert not shorter or int.from_bytes(shorter, "big", signed=True) != number


# -- schemas that are no records and use references ------------------------------------------------


TOPS: list[tuple[Any, Any]] = [
    (["zoo.Cat", "zoo.Dog"], Dog("a")),
    (["null", "zoo.Cat", "zoo.Dog"], ("zoo.Dog", {"name": "a"})),
    ({"type": "array", "items": "zoo.Cat"}, [{"name": "a"}]),
    ({"type": "array", "items": ["zoo.Cat", "zoo.Dog"]}, [Cat("a"), Dog("b")]),
    ({"type": "map", "values": "zoo.Dog"}, {"k": {"name": "a"}}),
    ({"type": "map", "values": {"type": "array", "items": ["null", "zoo.Cat"]}}, {"k": [None]}),
    ("zoo.Cat", Cat("a")),
    ({"type": "zoo.Cat"}, {"name": "a"}),
]


@pytest.mark.parametrize(("top", "data"), TOPS)
async def test_a_schema_of_any_top_may_use_references(top: Any, data: Any) -> None:
    stub = StubSchemaRegistry()
    stub.register("cat", CAT)
    stub.register("dog", DOG)
    registry = SchemaRegistry("http://registry", transport=stub.transport)
    references = [SchemaReference("zoo.Cat", "cat", 1), SchemaReference("zoo.Dog", "dog", 1)]
    own = AvroSerializer(registry, top, references=references, auto_register=True)
    expected = encoded(_inlined(top), data)
    made = own.serialize(data, VALUE)
    assert not isinstance(made, bytes)
    assert made is not None
    assert (await made or b"")[5:] == expected
    latest = AvroSerializer(registry, use_latest_version=True)
    made = latest.serialize(data, VALUE)
    assert not isinstance(made, bytes)
    assert made is not None
    assert (await made or b"")[5:] == expected


def _inlined(top: Any) -> Any:
    text = json.dumps(top)
    for one in (CAT, DOG):
        text = text.replace(json.dumps(one["name"]), json.dumps(one), 1)
    return json.loads(text)


async def test_references_of_references_define_names_across_namespaces() -> None:
    stub = StubSchemaRegistry()
    stub.register("color", {"type": "enum", "name": "Color", "symbols": ["RED"]})
    inner = {**record("Cat", ("color", "Color")), "namespace": "zoo.small"}
    references = [{"name": "Color", "subject": "color", "version": 1}]
    stub.register("cat", inner, references=references)
    registry = SchemaRegistry("http://registry", transport=stub.transport)
    top = ["null", {"type": "array", "items": "zoo.small.Cat"}]
    serializer = AvroSerializer(
        registry,
        top,
        references=[SchemaReference("zoo.small.Cat", "cat", 1)],
        auto_register=True,
    )
    made = serializer.serialize([{"color": "RED"}], VALUE)
    assert not isinstance(made, bytes)
    assert made is not None
    assert (await made or b"")[5:] == b"\x02\x02\x00\x00"


async def test_a_name_that_nothing_defines_is_named() -> None:
    stub = StubSchemaRegistry()
    registry = SchemaRegistry("http://registry", transport=stub.transport)
    stub.register("pets-value", ["zoo.Cat"])  # type: ignore[arg-type]
    made = AvroSerializer(registry, use_latest_version=True).serialize({}, VALUE)
    assert not isinstance(made, bytes)
    assert made is not None
    with pytest.raises(SchemaRegistryError, match=r"'zoo\.Cat' is not defined"):
        await made


# -- unions of records -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [Dog("a"), Puppy("a"), ("zoo.Dog", {"name": "a"}), ("Dog", Cat("a"))]
)
def test_the_class_or_a_given_name_decides_in_a_union(data: Any) -> None:
    assert read([CAT, DOG], encoded([CAT, DOG], data)) == ("zoo.Dog", {"name": "a"})


def test_a_type_key_decides_in_a_union() -> None:
    data = {"-type": "zoo.Dog", "name": "a"}
    assert encoded([CAT, DOG], data) == b"\x02\x02a"


def test_the_class_decides_at_any_depth() -> None:
    union = [CAT, DOG]
    owner = record(
        "zoo.Owner",
        ("pet", union),
        ("pets", {"type": "array", "items": ["null", "Cat", "Dog"]}),
        ("by_name", {"type": "map", "values": ["Cat", "Dog"]}),
    )
    data = Owner(Dog("a"), [Cat("b"), Dog("c"), None], {"d": Dog("e")})
    expected = b"\x02\x02a" + b"\x06\x02\x02b\x04\x02c\x00\x00" + b"\x02\x02d\x02\x02e\x00"
    assert encoded(owner, data) == expected
    assert encoded(owner, {"pet": Dog("a"), "pets": data.pets, "by_name": data.by_name}) == expected


def test_the_class_decides_in_pydantic_models() -> None:
    cat = record("CatModel", ("kind", "string"), ("name", "string"))
    dog = record("DogModel", ("kind", "string"), ("name", "string"))
    owner = record(
        "OwnerModel",
        ("pet", [cat, dog]),
        ("pets", {"type": "array", "items": ["CatModel", "DogModel"]}),
    )
    data = OwnerModel(pet=DogModel(name="a"), pets=[DogModel(name="b"), CatModel(name="c")])
    expected = b"\x02\x06dog\x02a" + b"\x04\x02\x06dog\x02b\x00\x06cat\x02c\x00"
    assert encoded(owner, data) == expected
    root = pydantic.RootModel[OwnerModel](data)
    assert encoded(["null", owner], root) == b"\x02" + expected
    assert encoded([cat, dog], pydantic.RootModel[CatModel | DogModel](DogModel(name="a"))) == (
        b"\x02\x06dog\x02a"
    )


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ({"type": "array", "items": "string"}, ["a"]),
        ({"type": "map", "values": "int"}, {"a": 1}),
        ("int", 1),
        ("double", 1.5),
        ("string", "a"),
        ("bytes", b"a"),
        ("boolean", True),
        ("null", None),
        (["null", "int"], None),
        (["null", "int"], 1),
        ({"type": "fixed", "name": "F", "size": 1}, b"a"),
        ({"type": "enum", "name": "E", "symbols": ["a"]}, "a"),
        ({"type": "int", "logicalType": "date"}, datetime.date(2020, 1, 1)),
        ({"type": "string", "logicalType": "uuid"}, UUID(int=1)),
    ],
)
def test_a_root_model_in_plain_data_is_written_as_its_root(schema: Any, data: Any) -> None:
    root = pydantic.RootModel[Any](data)
    outer = record("Outer", ("inner", schema))
    assert encoded(outer, {"inner": root}) == encoded(outer, {"inner": data})
    items = {"type": "array", "items": schema}
    assert encoded(items, [root]) == encoded(items, [data])


def test_a_subclass_in_a_field_of_its_base_class_keeps_its_fields() -> None:
    class Animal(pydantic.BaseModel):
        name: str

    class Bird(Animal):
        wings: int

    class Cage(pydantic.BaseModel):
        inside: Animal

    bird = record("Bird", ("name", "string"), ("wings", "int"))
    schema = record("Cage", ("inside", [record("Animal", ("name", "string")), bird]))
    assert encoded(schema, Cage(inside=Bird(name="a", wings=2))) == b"\x02\x02a\x04"


def test_a_plain_dict_that_fits_several_records_equally_is_refused() -> None:
    path, reason = refused(record("R", ("pet", ["null", CAT, DOG])), {"pet": {"name": "secret"}})
    assert path == "pet"
    assert "fits zoo.Cat and zoo.Dog equally" in reason
    assert "secret" not in reason


def test_a_plain_dict_goes_to_the_record_that_it_fits_best() -> None:
    wide = record("zoo.Fox", ("name", "string"), ("tail", "int", 1))
    assert encoded([wide, CAT], {"name": "a"}) == b"\x02\x02a"
    assert encoded([CAT, wide], {"name": "a", "tail": 2}) == b"\x02\x02a\x04"
    other = record("zoo.Elk", ("name", "string"), ("horns", "int", 2))
    assert "equally" in refused([wide, other], {"name": "a"})[1]


def test_an_object_whose_class_is_a_branch_is_never_written_as_another() -> None:
    thin = record("zoo.Dog", ("name", "string"), ("bark", "string"))
    path, reason = refused(["null", CAT, thin], Dog("a"))
    assert (path, "is missing and has no default" in reason) == ("bark", True)


def test_values_go_to_the_branch_of_their_type() -> None:
    assert encoded(["float", "int"], 1) == b"\x02\x02"
    assert encoded(["float", "double"], 1.0)[:1] == b"\x02"
    assert encoded(["float", "double"], 2**24 + 1)[:1] == b"\x02"
    assert encoded(["float", "double"], Decimal("0.1"))[:1] == b"\x02"
    assert encoded(["int", "long"], 2**40)[:1] == b"\x02"
    assert encoded(["int", "boolean"], True) == b"\x02\x01"
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4}
    assert encoded(["string", "double", decimal], Decimal(1)) == b"\x04\x02\x01"
    assert encoded(["double", "long"], numpy.int64(2**53 + 1)) == encoded(
        ["double", "long"], 2**53 + 1
    )
    assert encoded(["null", {"type": "array", "items": "string"}], ("a", "b"))[:1] == b"\x02"
    assert encoded([{"type": "int", "logicalType": "date"}, "string"], "2026-01-01")[:1] == b"\x02"


@pytest.mark.parametrize("name", ["timestamp-millis", "timestamp-nanos", "local-timestamp-nanos"])
def test_a_datetime_in_a_union_keeps_its_time(name: str) -> None:
    day = {"type": "int", "logicalType": "date"}
    moment = {"type": "long", "logicalType": name}
    noon = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
    for union in (["null", day, moment], ["null", moment, day]):
        written = encoded(union, noon)
        assert written[1:] == encoded(moment, noon)
        assert written[0] == 2 * union.index(moment)
        assert read(union, encoded(union, noon.date())) == noon.date()


# -- defaults --------------------------------------------------------------------------------------

DEFAULTS: list[tuple[Any, Any, bytes]] = [
    ("bytes", "\u00ff\u0001", b"\x04\xff\x01"),
    ({"type": "fixed", "name": "F", "size": 2}, "\u00ffa", b"\xffa"),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        "\u0001\u0000",
        b"\x04\x01\x00",
    ),
    (
        {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4},
        "\u0000\u0005",
        b"\x00\x05",
    ),
    (["bytes", "null"], "\u0001", b"\x00\x02\x01"),
    (["null", "bytes"], None, b"\x00"),
    ({"type": "array", "items": "bytes"}, ["\u0001"], b"\x02\x02\x01\x00"),
    ({"type": "map", "values": "bytes"}, {"k": "\u0001"}, b"\x02\x02k\x02\x01\x00"),
    (record("N", ("b", "bytes"), ("c", "bytes", "\u0002")), {"b": "\u0001"}, b"\x02\x01\x02\x02"),
    ({"type": "int", "logicalType": "date"}, 3, b"\x06"),
    ({"type": "string", "logicalType": "uuid"}, str(UUID(int=0)), b"\x48" + b"0" * 8),
    ("double", "NaN", b"\x00\x00\x00\x00\x00\x00\xf8\x7f"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", b"\x02"),
]


@pytest.mark.parametrize(("kind", "default", "expected"), DEFAULTS)
def test_defaults_of_every_type_are_applied(kind: Any, default: Any, expected: bytes) -> None:
    assert encoded(record("R", ("x", kind, default)), {}).startswith(expected)


def test_a_default_that_does_not_fit_its_type_is_refused_with_the_schema() -> None:
    with pytest.raises(AvroSchemaError, match=r"the default of field 'x' of R must be .* U\+00FF"):
        encoded(record("R", ("x", "bytes", "\u0100")), {})
    registry = SchemaRegistry("http://r", transport=StubSchemaRegistry().transport)
    with pytest.raises(ConfigError, match="no Avro schema: the default of field 'x'"):
        AvroSerializer(registry, record("R", ("x", "int", "a")))


# -- values that must not be written ---------------------------------------------------------------

MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
FIXED_MONEY = {**MONEY, "type": "fixed", "name": "M", "size": 4}


@pytest.mark.parametrize("kind", [MONEY, FIXED_MONEY, ["null", MONEY]])
@pytest.mark.parametrize("text", ["123", "100.00", "1E+2", "-123.4", "1.234", "NaN", "Infinity"])
def test_a_decimal_with_too_many_digits_is_refused(kind: Any, text: str) -> None:
    path, reason = refused(record("R", ("sum", kind)), {"sum": Decimal(text)})
    assert path == "sum"
    assert "(decimal(4,2)), not a Decimal" in reason


@pytest.mark.parametrize("value", [Decimal("1.5"), b"\x01"])
def test_a_decimal_of_more_than_a_thousand_digits_is_refused(value: Any) -> None:
    huge = {**MONEY, "precision": 1_000_000, "scale": 400_000}
    path, reason = refused(record("R", ("sum", huge)), {"sum": value})
    assert (path, "up to 1000 digits" in reason) == ("sum", True)


def test_a_decimal_in_a_fixed_without_bounds_is_refused() -> None:
    fixed = {**MONEY, "type": "fixed", "name": "F", "size": (1 << 31) - 1}
    assert "up to 65536 bytes" in refused(fixed, Decimal("1.5"))[1]


@pytest.mark.parametrize(
    "invalid", [{"scale": 1 << 40}, {"scale": 5}, {"scale": "2"}, {"precision": None}]
)
def test_a_decimal_whose_digits_are_invalid_is_none(invalid: Any) -> None:
    """As Avro says, the type below it counts; a scale without bounds would take endless time."""
    schema = {**MONEY, **invalid}
    assert refused(schema, Decimal("1.5"))[1].endswith("not Decimal")
    assert encoded(schema, b"\x05") == b"\x02\x05"


@pytest.mark.parametrize("text", ["99.99", "-99.99", "1", "1.500", "1E+1", "0", "0E-9"])
def test_a_decimal_that_fits_is_written_exactly(text: str) -> None:
    made = encoded(MONEY, Decimal(text))
    assert int.from_bytes(made[1:], "big", signed=True) == Decimal(text) * 100


@pytest.mark.parametrize(
    "text", ["", "7", "no-uuid", "{" + str(UUID(int=1)) + "}", UUID(int=1).hex]
)
def test_text_that_is_no_uuid_is_refused(text: str) -> None:
    kind = {"type": "string", "logicalType": "uuid"}
    path, reason = refused(record("R", ("id", ["null", kind])), {"id": text})
    assert (path, reason) == ("id", "must be string (uuid), not a str that is no UUID")
    assert encoded(kind, str(UUID(int=1)).upper())


class Color(Enum):
    RED = "red"
    PINK = "pink"


class Level(Enum):
    HIGH = 3


class Bird:
    """A class that has a schema's name, and nothing that could be written."""


class Breed(Enum):
    MANX = "manx"


BIRD = {"type": "record", "name": "shop.Bird", "fields": [{"name": "id", "type": "int"}]}
BREED = {"type": "enum", "name": "Breed", "symbols": ["A"]}

REFUSED: list[tuple[Any, Any, str]] = [
    (
        BIRD,
        Bird(),
        "must be record shop.Bird, not an object of class Bird that has no fields",
    ),
    (
        [BIRD, BREED],
        Bird(),
        "must be one of record shop.Bird, enum Breed (A), "
        "not an object of class Bird that has no fields",
    ),
    (
        [BIRD, BREED],
        Breed.MANX,
        "must be one of record shop.Bird, enum Breed (A), "
        "not a member of Breed that is none of its symbols",
    ),
    (
        [BIRD, BREED],
        ("Dog", {"id": 1}),
        "must be one of record shop.Bird, enum Breed (A), not a tuple whose first item names none "
        "of them",
    ),
    ("int", 2**31, "must be int, not int out of its range"),
    ("long", -(2**63) - 1, "must be long, not int out of its range"),
    ("int", True, "must be int, not bool"),
    ("int", 1.0, "must be int, not float"),
    ("double", "1.5", "must be double, not str"),
    ("float", 1e300, "must be float, not float out of its range"),
    ("string", b"a", "must be string, not bytes"),
    ("string", "\ud800", "must be string, not str with a lone surrogate"),
    ("bytes", "a", "must be bytes, not str"),
    ("string", None, "must be string, not null"),
    ({"type": "fixed", "name": "F", "size": 2}, b"abc", "must be fixed F of 2 bytes, not 3 bytes"),
    ({"type": "array", "items": "string"}, "ab", "must be array, not str"),
    ({"type": "array", "items": "int"}, {"a": 1}, "must be array, not dict"),
    ({"type": "map", "values": "int"}, {1: 1}, "must have keys of type string, not int"),
    (["null", "int", "string"], 1.5, "must be one of null, int, string, not float"),
]


@pytest.mark.parametrize(("kind", "data", "reason"), REFUSED)
def test_a_refusal_says_where_what_was_expected_and_what_was_given(
    kind: Any, data: Any, reason: str
) -> None:
    deep = record("R", ("list", {"type": "array", "items": record("S", ("x", kind))}))
    assert refused(deep, {"list": [{"x": data}]}) == ("list[0].x", reason)


def test_a_missing_nullable_field_without_default_is_named() -> None:
    schema = record("R", ("a", "int"), ("b", ["null", "int"]))
    assert refused(schema, {"a": 1}) == (
        "b",
        "is missing and has no default; it must be null or int",
    )
    assert encoded(schema, {"a": 1}, strict=False) == b"\x02\x00"


def test_members_of_enumerations_are_converted() -> None:
    kind = {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]}
    assert encoded(kind, Color.RED) == b"\x00"  # by its name
    assert encoded({**kind, "symbols": ["green", "red"]}, Color.RED) == b"\x02"  # by its value
    assert encoded(["null", "string", kind], Color.RED) == b"\x04\x00"
    assert encoded("string", Color.RED) == b"\x06red"
    assert encoded("int", Level.HIGH) == b"\x06"
    assert encoded({"type": "map", "values": kind}, {"k": Color.RED}) == b"\x02\x02k\x00\x00"
    light = {"type": "enum", "name": "Light", "symbols": ["RED"]}
    assert encoded([light, kind], Color.RED) == b"\x02\x00"
    path, reason = refused(record("R", ("c", kind)), {"c": Color.PINK})
    expected = "must be enum Color (RED, GREEN), not a member of Color that is none"
    assert (path, reason) == ("c", expected)
    assert (
        refused(kind, "secret")[1]
        == "must be enum Color (RED, GREEN), not a str that is none of them"
    )


def test_dataclasses_and_models_inside_dicts_are_converted() -> None:
    schema = record("R", ("pets", {"type": "map", "values": {"type": "array", "items": CAT}}))
    assert encoded(schema, {"pets": {"a": [Cat("b")]}}) == b"\x02\x02a\x02\x02b\x00\x00"

    class Named(pydantic.BaseModel):
        name: str

    assert encoded(schema, {"pets": {"a": [Named(name="b")]}}) == b"\x02\x02a\x02\x02b\x00\x00"


def test_classes_of_attrs_and_msgspec_are_written_by_their_fields() -> None:
    @attrs.define
    class Cat:
        name: str

    class Dog(msgspec.Struct, rename={"called": "name"}):
        called: str

    schema = record("R", ("pets", {"type": "array", "items": [CAT, DOG]}))
    made = encoded(schema, {"pets": [Cat("a"), Dog("b")]})
    assert made == b"\x04\x00\x02a\x02\x02b\x00"


def test_data_that_contains_itself_is_refused() -> None:
    schema = record("Node", ("next", ["null", "Node"]))
    data: dict[str, Any] = {}
    data["next"] = data
    with pytest.raises(SchemaMismatch):
        encoded(schema, data)


class Counted(UserDict[str, Any]):
    """A mapping that counts how often a field of it is read."""

    reads = 0

    def __getitem__(self, key: str) -> Any:
        self.reads += 1
        return super().__getitem__(key)


ADD_OR_SUB = ["null", "Add", record("Sub", ("next", ["null", "Add", "Sub"]), ("sign", "string"))]
ADD = record("Add", ("next", ADD_OR_SUB), ("sign", "int"))
LINK = record("Link", ("next", ["null", "Link"]), ("sign", "string"))
FOLDER_OR_MAP = ["null", {"type": "map", "values": ["string", "Folder"]}, "Folder"]
FOLDER = record("Folder", ("next", FOLDER_OR_MAP), ("sign", "string"))


@pytest.mark.parametrize("top", [ADD, LINK, FOLDER])
@pytest.mark.parametrize("sign", ["-", None])
def test_the_types_of_a_deep_value_are_tried_in_linear_time(top: Any, sign: Any) -> None:
    bottom = Counted(next=None, sign=sign)
    data: Any = bottom
    for _ in range(14):
        data = {"next": data, "sign": "-"}
    schema = record("Top", ("top", ["null", top]))
    data["sign"] = 1 if top is ADD else "-"
    if sign is None:
        refused(schema, {"top": data})
    else:
        assert read(schema, encoded(schema, {"top": data}))
    assert 0 < bottom.reads <= 10


def test_attempts_at_branches_take_bounded_memory() -> None:
    data: Any = {"next": None, "sign": "-" * (1 << 20)}
    for _ in range(70):
        data = {"next": data, "sign": "-"}
    path, reason = refused(record("Top", ("top", ["null", ADD])), {"top": {**data, "sign": 1}})
    assert path.startswith("top.next")
    assert "fits several types at too many levels; give (name, value)" in reason


async def test_the_refusal_of_a_serializer_has_the_path() -> None:
    stub = StubSchemaRegistry()
    registry = SchemaRegistry("http://registry", transport=stub.transport)
    schema = record("R", ("a", {"type": "array", "items": ["null", MONEY]}))
    made = AvroSerializer(registry, schema, auto_register=True).serialize(
        {"a": [Decimal("1000")]}, VALUE
    )
    assert not isinstance(made, bytes)
    assert made is not None
    with pytest.raises(SerializationError, match="more digits") as caught:
        await made
    assert caught.value.path == "a[0]"
