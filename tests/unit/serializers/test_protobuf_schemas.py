"""Protobuf with a registry: imports, their subjects, the place of a type in the newest schema."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2
from support.wire_format import split, split_indexes

from aioproducer.errors import SchemaRegistryError
from aioproducer.serializers import ProtobufSerializer, SchemaRegistry, SerializationContext
from aioproducer.serializers.registry.protobuf import index_path
from aioproducer.serializers.registry.protobuf_names import path_in
from aioproducer.testing import StubSchemaRegistry

from .messages import Money, Order, Second

VALUE = SerializationContext("orders", "value")


def importing(*names: str) -> Any:
    """A generated class whose file imports others, all of them empty."""
    pool = descriptor_pool.DescriptorPool()
    for name in names:
        pool.Add(descriptor_pb2.FileDescriptorProto(name=name, syntax="proto3"))
    file = descriptor_pb2.FileDescriptorProto(
        name="top.proto", package="p", syntax="proto3", dependency=names
    )
    file.message_type.add(name="Top")
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Top"))


def of(stub: StubSchemaRegistry) -> SchemaRegistry:
    return SchemaRegistry("http://registry", transport=stub.transport, retry_backoff_ms=0)


async def made(serializer: ProtobufSerializer, message: Any) -> bytes:
    found = serializer.serialize(message, VALUE)
    assert found is not None
    return found if isinstance(found, bytes) else (await found or b"")


@pytest.mark.parametrize(
    "name",
    [
        "google/protobuf/any.proto",
        "google/type/money.proto",
        "google/type/date.proto",
        "confluent/meta.proto",
        "confluent/type/decimal.proto",
    ],
)
@pytest.mark.parametrize("auto_register", [True, False])
async def test_imports_that_are_built_in_are_not_registered(name: str, auto_register: bool) -> None:
    stub = StubSchemaRegistry()
    kind = importing(name, "own/google/type/money.proto")
    await made(ProtobufSerializer(of(stub), kind, auto_register=True), kind())
    await made(ProtobufSerializer(of(stub), kind, auto_register=auto_register), kind())
    assert stub.subjects() == ["own/google/type/money.proto", "orders-value"]
    assert not any(f"/{quote(name, safe='')}" in request for request in stub.requests)


async def test_subjects_of_imports_may_be_chosen() -> None:
    stub = StubSchemaRegistry()

    def subject(context: SerializationContext, name: str) -> str:
        return f"{context.topic}/{name.removesuffix('.proto')}"

    serializer = ProtobufSerializer(of(stub), Order, auto_register=True, reference_subject=subject)
    await made(serializer, Order(id=1, price=Money(cents=5)))
    assert stub.subjects() == ["orders/test/common", "orders-value"]
    registered = stub.answer("GET", "/subjects/orders-value/versions/latest", {})[1]
    assert registered["references"] == [
        {"name": "test/common.proto", "subject": "orders/test/common", "version": 1}
    ]
    finding = ProtobufSerializer(of(stub), Order, reference_subject=subject)
    assert await made(finding, Order(id=1))


async def test_an_import_is_in_the_context_of_its_message() -> None:
    stub = StubSchemaRegistry()
    serializers = [
        ProtobufSerializer(
            of(stub), Order, subject=lambda *_: ":.site:orders-value", auto_register=auto_register
        )
        for auto_register in (True, False)
    ]
    first, second = [await made(each, Order(id=1)) for each in serializers]
    assert first == second
    assert stub.subjects() == [":.site:test/common.proto", ":.site:orders-value"]


async def test_a_subject_of_an_import_that_is_no_text_is_refused() -> None:
    wrong: Any = lambda context, name: None  # noqa: E731
    serializer = ProtobufSerializer(of(StubSchemaRegistry()), Order, reference_subject=wrong)
    with pytest.raises(SchemaRegistryError, match="reference_subject returned NoneType, not str"):
        await made(serializer, Order(id=1))


SOURCE = """
syntax = "proto3"; // message Wrong { }
package test;
/* message Wrong {
} */
import "message Wrong { }";
option (deep) = { message { a: 1 } };
option (deeper) = { message: { a: 1 } };
enum Kind { NONE = 0; }
message New { string message = 1; map<string, int32> by_name = 2; message In {} }
message Other {
  oneof one { string a = 1; group Grouped = 2 { optional int32 x = 1; } }
  enum E { Z = 0; }
  message Zero { message Deep {} }
  message Second { int32 n = 1; }
}
service S { rpc Call (New) returns (Other) { option (x) = {a: 1}; } }
"""


def test_types_are_found_in_the_text_of_a_file() -> None:
    for name, path in {
        "test.New": [0],
        "test.New.ByNameEntry": [0, 0],
        "test.New.In": [0, 1],
        "test.Other": [1],
        "test.Other.Grouped": [1, 0],
        "test.Other.Zero": [1, 1],
        "test.Other.Zero.Deep": [1, 1, 0],
        "test.Other.Second": [1, 2],
        "test.Second": None,
        "test": None,
        "": None,
    }.items():
        assert path_in(SOURCE, name) == path
    nested = "message A {} message B { message A {} }"
    assert [path_in(nested, name) for name in ("A", "B", "B.A", "A.B")] == [[0], [1], [1, 0], None]
    assert path_in("{ } } message", "A") is None


def test_types_are_found_in_the_binary_form_as_protobuf_reads_it() -> None:
    for module in (descriptor_pb2, struct_pb2):
        text = base64.b64encode(module.DESCRIPTOR.serialized_pb).decode()
        waiting = list(module.DESCRIPTOR.message_types_by_name.values())
        assert waiting
        while waiting:
            each = waiting.pop()
            assert path_in(text, each.full_name) == index_path(each)
            waiting += each.nested_types
        assert path_in(text, "google.protobuf.Missing") is None


def moved() -> str:
    """The file of `Second` with other types in front."""
    file = descriptor_pb2.FileDescriptorProto()
    Second.DESCRIPTOR.file.CopyToProto(file)
    types = list(file.message_type)
    del file.message_type[:]
    file.message_type.add(name="New")
    file.message_type.extend(reversed(types))
    file.message_type[1].nested_type.insert(0, descriptor_pb2.DescriptorProto(name="Zero"))
    return base64.b64encode(file.SerializeToString()).decode()


@pytest.mark.parametrize(("text", "path"), [(moved(), [1, 2]), (SOURCE, [1, 2])])
async def test_a_type_is_found_in_the_newest_schema_by_its_name(text: str, path: list[int]) -> None:
    stub = StubSchemaRegistry()
    stub.register("orders-value", text, schemaType="PROTOBUF")
    serializer = ProtobufSerializer(of(stub), Second, use_latest_version=True)
    for _ in range(2):
        _, rest = split(await made(serializer, Second(n=1)))
        assert split_indexes(rest) == (path, b"\x08\x01")
    assert stub.requests == ["GET /subjects/orders-value/versions/latest?format=serialized"]


@pytest.mark.parametrize("text", ["package other; message Other { message Second {} }", "", "[]"])
async def test_a_newest_schema_without_the_type_is_refused(text: str) -> None:
    stub = StubSchemaRegistry()
    stub.register("orders-value", text, schemaType="PROTOBUF")
    serializer = ProtobufSerializer(of(stub), Second, use_latest_version=True)
    with pytest.raises(
        SchemaRegistryError,
        match=r"1 of subject orders-value has no message test\.Other\.S",
    ):
        await made(serializer, Second(n=1))
