"""The registry's API, as documented: the stub keeps the contract, and so does a real registry.

The real one is Apicurio Registry in its Confluent-compatible API. It runs with
AIOPRODUCER_TEST_REGISTRY=1, which `make cluster` sets: Maven fetches 100 MB for it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from support.apicurio import apicurio
from support.clusters import unique_topic
from support.wire_format import split
from unit.serializers.messages import Money, Order, Second

from aioproducer import Producer
from aioproducer.errors import IncompatibleSchemaError, SchemaNotFoundError, SchemaRegistryError
from aioproducer.serializers import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    Schema,
    SchemaReference,
    SchemaRegistry,
    SerializationContext,
    record_name,
)
from aioproducer.testing import EmbeddedCluster, StubSchemaRegistry, read_topic

OLD = {
    "type": "record",
    "name": "shop.Customer",
    "fields": [{"name": "name", "type": "string"}],
}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "age", "type": "int"}]}
DEFAULTED = {**OLD, "fields": [*OLD["fields"], {"name": "age", "type": "int", "default": 0}]}
DESCRIBED = {"title": "Point", "type": "object", "properties": {"x": {"type": "integer"}}}


@dataclass
class Backend:
    """A registry to test with.

    Attributes:
        ask: sends `(method, path, body)`, gives status and answer.
        connect: makes a client of ours.
    """

    ask: Callable[[str, str, Mapping[str, Any]], tuple[int, Any]]
    connect: Callable[[], SchemaRegistry]
    is_stub: bool


def _stub() -> Backend:
    stub = StubSchemaRegistry()
    return Backend(
        stub.answer,
        lambda: SchemaRegistry("http://registry", transport=stub.transport),
        is_stub=True,
    )


@pytest.fixture(scope="module")
def real_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not os.environ.get("AIOPRODUCER_TEST_REGISTRY"):
        pytest.skip("needs a registry: AIOPRODUCER_TEST_REGISTRY=1 (make cluster) runs it")
    with apicurio(tmp_path_factory.mktemp("apicurio")) as url:
        yield url


@pytest.fixture(params=["stub", pytest.param("apicurio", marks=pytest.mark.kafka)])
def backend(request: pytest.FixtureRequest) -> Backend:
    if request.param == "stub":
        return _stub()
    url = request.getfixturevalue("real_url")

    def ask(method: str, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        answer = httpx.request(method, url + path, json=body or None, timeout=30)
        return answer.status_code, answer.json()

    return Backend(ask, lambda: SchemaRegistry(url), is_stub=False)


def _body(schema: Any, **more: Any) -> dict[str, Any]:
    return {"schema": json.dumps(schema), **more}


def test_statuses_codes_and_fields_are_those_of_the_documentation(backend: Backend) -> None:
    ask, subject = backend.ask, unique_topic()

    def refused(method: str, path: str, body: Mapping[str, Any]) -> tuple[int, int]:
        status, answer = ask(method, path, body)
        assert isinstance(answer["message"], str)
        return status, answer["error_code"]

    here = f"/subjects/{subject}"
    assert refused("POST", here, _body(OLD)) == (404, 40401)
    assert refused("GET", f"{here}/versions/latest", {}) == (404, 40401)
    assert refused("POST", f"{here}/versions", {"schema": "no schema"}) == (422, 42201)
    status, answer = ask("POST", f"{here}/versions", _body(OLD))
    assert status == 200
    schema_id = answer["id"]
    assert ask("POST", f"{here}/versions", _body(OLD))[1]["id"] == schema_id
    for method, path, body in (
        ("POST", here, _body(OLD)),
        ("GET", f"{here}/versions/latest", {}),
        ("GET", f"{here}/versions/1", {}),
    ):
        status, answer = ask(method, path, body)
        assert status == 200
        assert (answer["subject"], answer["id"], answer["version"]) == (subject, schema_id, 1)
        assert json.loads(answer["schema"]) == OLD
    assert refused("POST", here, _body(NEW)) == (404, 40403)
    assert refused("GET", f"{here}/versions/9", {}) == (404, 40402)
    assert refused("GET", "/schemas/ids/999999", {}) == (404, 40403)
    status, answer = ask("GET", f"/schemas/ids/{schema_id}", {})
    assert (status, json.loads(answer["schema"])) == (200, OLD)
    assert subject in ask("GET", "/subjects", {})[1]


def test_what_readers_could_not_read_is_refused(backend: Backend) -> None:
    ask, subject = backend.ask, unique_topic()
    assert ask("POST", f"/subjects/{subject}/versions", _body(OLD))[0] == 200
    if not backend.is_stub:  # where nothing is refused by itself
        assert ask("PUT", f"/config/{subject}", {"compatibility": "BACKWARD"})[0] == 200
    status, answer = ask("POST", f"/subjects/{subject}/versions", _body(NEW))
    assert (status, answer["error_code"]) == (409, 409)
    assert "age" in answer["message"]
    compare = f"/compatibility/subjects/{subject}/versions/latest?verbose=true"
    for schema, expected in ((NEW, False), (DEFAULTED, True)):
        status, answer = ask("POST", compare, _body(schema))
        assert (status, answer["is_compatible"]) == (200, expected)
    assert ask("POST", f"/subjects/{subject}/versions", _body(DEFAULTED))[0] == 200


async def test_our_client_understands_it(backend: Backend) -> None:
    subject = unique_topic()
    async with backend.connect() as registry:
        with pytest.raises(SchemaNotFoundError):
            await registry.lookup(subject, Schema(json.dumps(OLD)))
        schema_id = await registry.register(subject, Schema(json.dumps(OLD)))
        found = await registry.latest(subject)
        assert (found.id, found.version) == (schema_id, 1)
        assert json.loads((await registry.schema(schema_id)).text) == OLD
        with pytest.raises(SchemaRegistryError) as caught:
            await registry.register(subject, Schema("no schema"))
        assert caught.value.status == 422
        if not backend.is_stub:
            backend.ask("PUT", f"/config/{subject}", {"compatibility": "BACKWARD"})
        with pytest.raises(IncompatibleSchemaError, match="age"):
            await registry.register(subject, Schema(json.dumps(NEW)))
        assert await registry.incompatibilities(subject, Schema(json.dumps(NEW)))
        assert await registry.incompatibilities(subject, Schema(json.dumps(DEFAULTED))) == ()


async def test_schemas_of_all_formats_and_their_references_are_found_again(
    backend: Backend,
) -> None:
    topic = unique_topic()
    value = SerializationContext(topic, "value")
    address = {"type": "record", "name": f"shop.A{abs(hash(topic))}", "fields": []}
    async with backend.connect() as registry:
        await registry.register(f"{topic}-address", Schema(json.dumps(address)))
        person = {
            "type": "record",
            "name": "shop.Person",
            "fields": [{"name": "address", "type": address["name"]}],
        }
        reference = SchemaReference(str(address["name"]), f"{topic}-address", 1)
        made: list[tuple[Any, Any]] = [
            (
                AvroSerializer(registry, person, references=[reference], auto_register=True),
                {"address": {}},
            ),
            (
                JsonSchemaSerializer(registry, DESCRIBED, subject=record_name, auto_register=True),
                {"x": 1},
            ),
            (
                ProtobufSerializer(
                    registry, Order, subject=lambda _, name: f"{topic}-{name}", auto_register=True
                ),
                Order(id=1, price=Money(cents=2)),
            ),
            (
                ProtobufSerializer(
                    registry, Second, subject=lambda _, name: f"{topic}-{name}", auto_register=True
                ),
                Second(n=1),
            ),
        ]
        ids = []
        for serializer, data in made:
            schema_id, _ = split(await serializer.serialize(data, value))
            ids.append(schema_id)
        kinds = [(await registry.schema(schema_id)).type for schema_id in ids]
        assert kinds == ["AVRO", "JSON", "PROTOBUF", "PROTOBUF"]
        latest = AvroSerializer(registry, use_latest_version=True)
        assert split(await latest.serialize({"address": {}}, value)) == (ids[0], b"")


async def test_a_producer_sends_what_others_can_look_up(backend: Backend) -> None:
    topic = unique_topic()
    async with EmbeddedCluster(1, topics={topic: 1}) as cluster, backend.connect() as registry:
        servers = cluster.bootstrap_servers
        serializer = AvroSerializer(registry, OLD, auto_register=True)
        async with Producer(bootstrap_servers=servers, value_serializer=serializer) as producer:
            result = await producer.send_many(topic, [{"name": "a"}, {"name": "b"}])
            assert result.delivered == 2
        values = [record.value or b"" for record in (await read_topic(servers, topic))[0]]
        assert [split(value)[1] for value in values] == [b"\x02a", b"\x02b"]
        assert json.loads((await registry.schema(split(values[0])[0])).text) == OLD
