"""Compares every field of every version with Kafka's own schema.

The message JSON inside the released kafka-clients jars is the reference: 4.4 for what it still
has, 3.9 for the versions 4.0 retired. The jars are fetched by Maven when the tests run; without
Maven the tests are skipped.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from aioproducer.testing.maven import MavenMissingError, fetch_jar
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.fields import Array, Primitive, Struct, Versions, WireType
from aioproducer.wire.primitives import ZERO_UUID
from aioproducer.wire.schema import Message

from .generated import MESSAGES, VERSIONS, by_name

CURRENT = "org.apache.kafka:kafka-clients:4.4.0"
RETIRED = "org.apache.kafka:kafka-clients:3.9.2"

LAST_CLIENT_VERSION = {ApiKey.ADD_PARTITIONS_TO_TXN: 3}
"""Later versions are used among brokers only, says the schema's comment."""

Json = dict[str, Any]


def schemas(coordinate: str) -> dict[str, Json]:
    """The message JSON of a jar by message name."""
    try:
        jar = fetch_jar(coordinate)
    except MavenMissingError as error:
        pytest.skip(str(error))
    with zipfile.ZipFile(jar) as archive:
        texts = [
            archive.read(name).decode()
            for name in archive.namelist()
            if name.startswith("common/message/") and name.endswith(".json")
        ]
    parsed = [json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)) for text in texts]
    return {schema["name"]: schema for schema in parsed}


@pytest.fixture(scope="module")
def current() -> dict[str, Json]:
    return schemas(CURRENT)


@pytest.fixture(scope="module")
def retired() -> dict[str, Json]:
    return schemas(RETIRED)


def snake(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def within(version: int, text: str | None) -> bool:
    return version in Versions.parse(text or "none")


# Both sides are brought into one shape: a list of fields in wire order, each a dictionary.


class Expected:
    """Layouts according to a JSON schema."""

    def __init__(self, schema: Json, version: int) -> None:
        self.schema = schema
        self.version = version
        self.common = {
            struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])
        }

    def layout(self, fields: list[Json] | None = None) -> list[Json]:
        return [
            self.field(field)
            for field in (self.schema["fields"] if fields is None else fields)
            if within(self.version, field["versions"])
        ]

    def field(self, field: Json) -> Json:
        is_tagged = within(self.version, field.get("taggedVersions"))
        flexible = field.get("flexibleVersions", self.schema["flexibleVersions"])
        return {
            "name": snake(field["name"]),
            "type": self.type(field["type"], field.get("fields")),
            "nullable": within(self.version, field.get("nullableVersions")),
            "tag": field["tag"] if is_tagged else None,
            "compact": within(self.version, flexible),
            "default": self.default(field),
        }

    def type(self, name: str, fields: list[Json] | None) -> Any:
        if name.startswith("[]"):
            return ["array", self.type(name[2:], fields)]
        if fields is None and name not in self.common:
            return name
        return [name, self.layout(fields or self.common[name])]

    def default(self, field: Json) -> Any:
        name, text = field["type"], field.get("default")
        if text is not None and str(text) == "null":
            return None
        if name == "bool":
            return str(text).lower() == "true"
        if name.startswith("int"):
            return int(str(text or 0), 0)
        implied = {"string": "", "bytes": b"", "records": None, "uuid": ZERO_UUID}
        if name in implied:
            return text or implied[name]
        return [] if name.startswith("[]") else "all defaults"


class Declared:
    """Layouts according to our own declarations."""

    def __init__(self, message: type[Message], version: int) -> None:
        self.flexible = message.is_flexible(version)
        self.version = version

    def layout(self, cls: type[Struct]) -> list[Json]:
        return [
            {
                "name": field.name,
                "type": self.type(field.type),
                "nullable": self.version in field.nullable,
                "tag": field.tag,
                "compact": self.flexible,
                "default": self.default(field.make_default()),
            }
            for field in cls.FIELDS
            if self.version in field.versions
        ]

    def type(self, wire_type: WireType) -> Any:
        if isinstance(wire_type, Primitive):
            return wire_type.name
        if isinstance(wire_type, Array):
            return ["array", self.type(wire_type.element)]
        # Two different structs have this name in Kafka; ours carry their message's name as well.
        name = re.sub(r".+TransactionState$", "TransactionState", wire_type.__name__)
        return [name, self.layout(wire_type)]

    def default(self, value: object) -> Any:
        return "all defaults" if isinstance(value, Struct) else value


def bounds(schema: Json) -> tuple[int, int]:
    versions = Versions.parse(schema["validVersions"])
    return versions.lowest, versions.highest


@pytest.mark.parametrize("message", MESSAGES, ids=by_name)
def test_every_version_ever_released_is_declared(
    message: type[Message], current: dict[str, Json], retired: dict[str, Json]
) -> None:
    now, before = bounds(current[message.__name__]), bounds(retired[message.__name__])
    assert message.API_KEY is not None
    highest = LAST_CLIENT_VERSION.get(message.API_KEY, now[1])
    assert (min(now[0], before[0]), highest) == message.VALID_VERSIONS


@pytest.mark.parametrize("message", MESSAGES, ids=by_name)
def test_api_key_and_kind_of_every_message_are_kafkas(
    message: type[Message], current: dict[str, Json]
) -> None:
    schema = current[message.__name__]
    assert schema["apiKey"] == message.API_KEY
    assert ("RESPONSE" in vars(message)) == (schema["type"] == "request")


@pytest.mark.parametrize(("message", "version"), VERSIONS, ids=by_name)
def test_every_field_is_declared_as_in_kafkas_schema(
    message: type[Message], version: int, current: dict[str, Json], retired: dict[str, Json]
) -> None:
    name = message.__name__
    lowest, highest = bounds(current[name])
    schema = current[name] if lowest <= version <= highest else retired[name]
    assert message.is_flexible(version) == within(version, schema["flexibleVersions"])
    assert Declared(message, version).layout(message) == Expected(schema, version).layout()


@pytest.mark.parametrize("message", MESSAGES, ids=by_name)
def test_what_a_version_may_leave_out_is_what_kafka_leaves_out(
    message: type[Message], current: dict[str, Json], retired: dict[str, Json]
) -> None:
    def kafkas(schema: Json, fields: list[Json], path: str = "") -> Iterator[tuple[str, bool]]:
        common = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}
        for field in fields:
            at = f"{path}.{snake(field['name'])}"
            yield at, str(field.get("ignorable", False)).lower() == "true"
            inner = field.get("fields") or common.get(field["type"].removeprefix("[]"), [])
            yield from kafkas(schema, inner, at)

    def ours(cls: type[Struct], path: str = "") -> Iterator[tuple[str, bool]]:
        for field in cls.FIELDS:
            at = f"{path}.{field.name}"
            yield at, field.ignorable
            inner = field.type.element if isinstance(field.type, Array) else field.type
            if not isinstance(inner, Primitive):
                yield from ours(inner, at)

    # A field only the retired versions have is as ignorable as it was then.
    name = message.__name__
    expected = {
        **dict(kafkas(retired[name], retired[name]["fields"])),
        **dict(kafkas(current[name], current[name]["fields"])),
    }
    declared = dict(ours(message))
    assert declared == {path: expected[path] for path in declared}


def test_the_headers_are_those_framing_writes(current: dict[str, Json]) -> None:
    def fields(name: str, version: int) -> list[tuple[str, str, bool, bool]]:
        layout = Expected(current[name], version).layout()
        return [(f["name"], f["type"], f["nullable"], f["compact"]) for f in layout]

    assert current["RequestHeader"]["flexibleVersions"] == "2+"
    assert [field[:3] for field in fields("RequestHeader", 1)] == [
        ("request_api_key", "int16", False),
        ("request_api_version", "int16", False),
        ("correlation_id", "int32", False),
        ("client_id", "string", True),
    ]
    assert fields("RequestHeader", 2)[-1] == ("client_id", "string", True, False)
    assert current["ResponseHeader"]["flexibleVersions"] == "1+"
    assert [field[:3] for field in fields("ResponseHeader", 1)] == [
        ("correlation_id", "int32", False)
    ]


def test_every_api_key_has_kafkas_name_and_number(
    current: dict[str, Json], retired: dict[str, Json]
) -> None:
    requests = {
        schema["apiKey"]: schema["name"].removesuffix("Request")
        for schema in [*retired.values(), *current.values()]
        if schema["type"] == "request"
    }
    kafkas = {number: snake(name).upper() for number, name in requests.items()}
    assert {int(key): key.name for key in ApiKey}.items() <= kafkas.items()
