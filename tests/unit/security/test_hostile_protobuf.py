"""Protobuf schemas of registries and options that are made to stop, fill or confuse a process."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pool, message_factory, text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from aioproducer._util.varints import varint
from aioproducer.errors import ConfigError
from aioproducer.serializers import (
    AvroSerializer,
    ProtobufSerializer,
    SchemaRegistry,
    SerializationContext,
)
from aioproducer.serializers.registry.protobuf_names import path_in
from aioproducer.serializers.registry.subjects import topic_name
from aioproducer.spark.columns.protobuf import RowProtobufSerializer
from aioproducer.spark.columns.protobuf_fields import FieldError, RowWriter
from aioproducer.spark.columns.protobuf_files import file_of, files_in, message_in
from aioproducer.testing import StubSchemaRegistry

VALUE = SerializationContext("orders", "value")
OPTIONAL = "label: LABEL_OPTIONAL"


def sized(number: int, content: bytes) -> bytes:
    """An encoded field that has a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def nested(depth: int, name: bytes) -> bytes:
    message = sized(1, name)
    for _ in range(depth - 1):
        message = sized(1, name) + sized(3, message)
    return sized(4, message)


def in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def file(text: str) -> FileDescriptorProto:
    return text_format.Parse(text, FileDescriptorProto())


START = sized(1, b"a.proto") + sized(12, b"proto3")
MESSAGE = sized(4, sized(1, b"M"))
MANY = 120_000

# -- sizes -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (sized(4, b"") * MANY, "more fields"),
        (sized(4, sized(1, b"M") + sized(2, b"") * MANY), "more fields"),
        (sized(4, sized(1, b"M") + sized(3, b"") * MANY), "more fields"),
        (sized(4, sized(1, b"M") + sized(5, sized(2, b"") * MANY)), "more fields"),
        (sized(4, sized(1, b"M") + sized(8, b"") * MANY), "more fields"),
        (sized(4, sized(1, b"M") + sized(9, b"") * MANY), "more fields"),
        (MESSAGE + sized(3, b"") * MANY, "more fields"),
        (MESSAGE + sized(5, sized(1, b"E") + sized(2, b"") * MANY), "more fields"),
        (MESSAGE + sized(6, sized(1, b"S") + sized(2, b"") * MANY), "more fields"),
        (MESSAGE + sized(7, b"") * MANY, "more fields"),
        (MESSAGE + sized(8, sized(999, b"") * MANY), "more fields"),
        (MESSAGE + sized(8, sized(999, sized(2, b"") * MANY)), "more fields"),
        (MESSAGE + sized(9, sized(1, b"") * MANY), "more fields"),
        (MESSAGE + b"\x58\x01" * MANY, "more fields"),
        (nested(120, b"a"), "nested more than 100 deep"),
        (nested(90, b"abcdef"), "a name in the schema is longer"),
        (sized(2, b"p" * 400) + nested(2, b"a" * 60), "a name in the schema is longer"),
        (sized(4, sized(3, sized(1, b"b" * 300)) + sized(1, b"a" * 300)), "a name in the schema"),
        (sized(1, b"f" * 2000) + MESSAGE, "the name of a file of the schema is too long"),
        (MESSAGE + sized(99, b"x" * (7 << 20)), "more than 6291456 bytes"),
    ],
)
def test_a_schema_beyond_the_limits_is_refused_before_it_is_built(
    content: bytes, reason: str
) -> None:
    began = time.process_time()
    with pytest.raises(ConfigError, match=reason):
        file_of(in_base64(START + content))
    with pytest.raises(ConfigError, match=reason):
        files_in(in_base64(sized(1, START + content)))
    assert time.process_time() - began < 10


def test_the_files_of_a_schema_are_limited_together() -> None:
    fields = START + MESSAGE + sized(99, b"") * 90_000
    with pytest.raises(ConfigError, match="more fields"):
        files_in(in_base64(sized(1, fields) * 3))
    with pytest.raises(ConfigError, match="more than 6291456 bytes"):
        files_in(in_base64(sized(1, START + MESSAGE + sized(99, b"x" * 4_000_000)) * 2))
    with pytest.raises(ConfigError, match="more fields"):
        files_in(in_base64(sized(1, START) * 600 + sized(1, START + MESSAGE)))


def test_a_long_text_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(ConfigError, match="more than 6291456 bytes"):
        file_of("*" * (16 << 20))


def test_a_large_schema_of_real_use_is_read() -> None:
    fields = "".join(
        f'field {{ name: "field_{n}" number: {n + 1} type: TYPE_STRING {OPTIONAL} }}'
        for n in range(1_000)
    )
    messages = "".join(f'message_type {{ name: "M{n}" {fields} }}' for n in range(10))
    text = in_base64(file(f'name: "a.proto" {messages}').SerializeToString())
    assert len(message_in(file_of(text), {}, "M9").DESCRIPTOR.fields) == 1_000


@pytest.mark.parametrize(
    "content",
    [
        b"\x0a",
        b"\x0a\xff",
        b"\x0a\x05a",
        b"\x0b\x0c",
        b"\x02\x00",
        b"\xff" * 20,
        b"\x08" + b"\xff" * 20,
        b"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    ],
)
def test_bytes_that_are_no_schema_are_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"the text of a \.proto file"):
        file_of(in_base64(content))
    with pytest.raises(ConfigError, match="this is no FileDescriptorSet"):
        files_in(in_base64(content))
    assert path_in(in_base64(content), "a") is None


# -- imports ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "google/type/../../x.proto",
        "google/protobuf/../../os.proto",
        "google/protobuf/util/x.proto",
        "google/protobuf/testdata/x.proto",
        "google/protobuf/util.x.proto",
        "google/protobuf/compiler.testdata.plugin.proto",
        "google/protobuf/testdata.proto",
        "google/protobuf/.proto",
        "google/protobuf/\0.proto",
        "google/protobuf/a\n.proto",
        "google/type/" + "x/" * 400 + "a.proto",
        "google/type/\x1b[2J.proto",
        "google/cloud/x.proto",
        "os.proto",
    ],
)
def test_the_name_of_an_import_imports_no_code(name: str) -> None:
    main = FileDescriptorProto(name="m.proto", dependency=[name])
    main.message_type.add(name="A")
    text = in_base64(main.SerializeToString())
    code = (
        "import sys\n"
        "from aioproducer.errors import ConfigError\n"
        "from aioproducer.spark.columns.protobuf_files import file_of, message_in\n"
        "import google.protobuf.descriptor_pool, google.protobuf.message_factory\n"
        "file = file_of(sys.stdin.read())\n"
        "before = set(sys.modules)\n"
        "try:\n"
        "    message_in(file, {}, None)\n"
        "except ConfigError as error:\n"
        "    assert 'which is not among its references' in str(error), error\n"
        "print(sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def chained(count: int, last: Iterable[str] = ()) -> dict[str, FileDescriptorProto]:
    """Files of which each imports the next."""
    names = [f"f{n}.proto" for n in range(count)]
    files = {
        name: FileDescriptorProto(name=name, dependency=[after]) for name, after in pairwise(names)
    }
    return files | {names[-1]: FileDescriptorProto(name=names[-1], dependency=last)}


def test_a_chain_of_imports_needs_no_recursion() -> None:
    main = file('name: "m.proto" dependency: "f0.proto" message_type { name: "A" }')
    assert message_in(main, chained(10_000), None).DESCRIPTOR.full_name == "A"


def test_a_cycle_of_imports_is_refused() -> None:
    main = file('name: "m.proto" dependency: "f0.proto" message_type { name: "A" }')
    with pytest.raises(ConfigError, match="imports itself"):
        message_in(main, chained(5_000, last=["f0.proto"]), None)
    with pytest.raises(ConfigError, match="imports itself"):
        message_in(file('name: "m.proto" dependency: "m.proto"'), {}, None)


def test_files_that_are_built_in_are_not_taken_from_a_schema() -> None:
    forged = 'message_type {{ name: "{}" }}'
    imports = {
        "google/protobuf/timestamp.proto": file(
            'name: "x" package: "google.protobuf"' + forged.format("Timestamp")
        ),
        "confluent/type/decimal.proto": file(
            'name: "y" package: "confluent.type"' + forged.format("Decimal")
        ),
    }
    main = file(
        'name: "m.proto" dependency: "google/protobuf/timestamp.proto" '
        'dependency: "confluent/type/decimal.proto" message_type { name: "A" '
        f'field {{ name: "at" number: 1 type: TYPE_MESSAGE {OPTIONAL} '
        '        type_name: ".google.protobuf.Timestamp" }'
        f'field {{ name: "price" number: 2 type: TYPE_MESSAGE {OPTIONAL} '
        '        type_name: ".confluent.type.Decimal" } }'
    )
    columns = pa.struct([("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(9, 2))])
    row = {"at": datetime(2026, 1, 2, tzinfo=UTC), "price": Decimal("1.50")}
    made = RowWriter(message_in(main, imports, None), columns).message(row)
    assert (made.at.seconds, made.price.scale) == (1767312000, 2)


async def test_imports_of_a_generated_class_are_registered_once_each() -> None:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(FileDescriptorProto(name="a0.proto"))
    pool.Add(FileDescriptorProto(name="b0.proto"))
    for n in range(1, 60):
        below = [f"a{n - 1}.proto", f"b{n - 1}.proto"]
        pool.Add(FileDescriptorProto(name=f"a{n}.proto", dependency=below))
        pool.Add(FileDescriptorProto(name=f"b{n}.proto", dependency=below))
    top = FileDescriptorProto(name="top.proto", dependency=["a59.proto", "b59.proto"])
    top.message_type.add(name="Top")
    pool.Add(top)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("Top"))
    stub = StubSchemaRegistry()
    async with SchemaRegistry("http://registry", transport=stub.transport) as registry:
        found = ProtobufSerializer(registry, kind, auto_register=True).serialize(kind(), VALUE)
        assert found is not None
        assert not isinstance(found, bytes)
        await found
    assert len(stub.subjects()) == 121


# -- types -----------------------------------------------------------------------------------------

AT = datetime(2026, 1, 2, tzinfo=UTC)
COLUMNS = [
    (pa.timestamp("us", "UTC"), AT),
    (pa.duration("us"), timedelta(1)),
    (pa.string(), "x"),
    (pa.decimal128(9, 2), Decimal("1.50")),
    (pa.int64(), 2**40),
    (pa.struct([("value", pa.string())]), {"value": "x"}),
    (pa.map_(pa.string(), pa.string()), {"a": "b"}),
    (pa.list_(pa.string()), ["a"]),
]
INSIDE = [
    "",
    f'field {{ name: "value" number: 1 type: TYPE_MESSAGE {OPTIONAL} type_name: ".SELF" }}',
    f'field {{ name: "value" number: 1 type: TYPE_STRING {OPTIONAL} }}',
    f'field {{ name: "seconds" number: 1 type: TYPE_STRING {OPTIONAL} }}',
    'field { name: "value" number: 1 type: TYPE_STRING label: LABEL_REPEATED }',
]


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("google.protobuf", "Timestamp"),
        ("google.protobuf", "Duration"),
        ("google.protobuf", "StringValue"),
        ("google.protobuf", "Struct"),
        ("google.protobuf", "Any"),
        ("confluent.type", "Decimal"),
    ],
)
@pytest.mark.parametrize("own", ["m.proto", "google/protobuf/timestamp.proto"])
def test_types_with_the_names_of_built_in_ones_raise_errors_of_ours_only(
    package: str, name: str, inside: str, own: str
) -> None:
    full = f"{package}.{name}"
    content = inside.replace("SELF", full)
    message = message_in(
        file(
            f'name: "{own}" package: "{package}" message_type {{ name: "A" field {{ name: "x" '
            f'number: 1 type: TYPE_MESSAGE {OPTIONAL} type_name: ".{full}" }} }} '
            f'message_type {{ name: "{name}" {content} }}'
        ),
        {},
        None,
    )
    for kind, value in COLUMNS:
        try:
            writer = RowWriter(message, pa.struct([("x", kind)]))
            type(made := writer.message({"x": value})).SerializeToString(made)
        except (ConfigError, FieldError):
            pass


@pytest.mark.parametrize(
    "text",
    [
        "public_dependency: 5",
        'dependency: "google/protobuf/any.proto" public_dependency: -7',
        'syntax: "\\033[2J"',
        'syntax: "editions" edition: EDITION_MAX',
        'name: "\\033]0;x" message_type { name: "A\\033[2J" }',
        'enum_type { name: "E" }',
        'message_type { name: "M" }',
        'message_type { name: "M" } message_type { name: "M" }',
        'message_type { name: "Q" field { name: "f" number: 0 } }',
        'message_type { name: "Q" field { name: "f" number: 1 type: TYPE_ENUM type_name: ".M" } }',
        'message_type { name: "Q" oneof_decl { name: "o" } }',
        'message_type { name: "Q" nested_type { name: "E" options { map_entry: true } } }',
    ],
)
def test_files_that_contradict_themselves_raise_errors_of_ours_only(text: str) -> None:
    try:
        message_in(file('message_type { name: "M" } ' + text), {}, None)
    except ConfigError as error:
        assert "\x1b" not in str(error)


@pytest.mark.parametrize("place", [1, 2, 3, 12])
def test_text_that_is_no_utf8_raises_errors_of_ours_only(place: int) -> None:
    content = sized(place, b"\xff\xfe") + MESSAGE
    with pytest.raises(ConfigError, match="this is no Protobuf schema"):
        message_in(file_of(in_base64(content)), {}, None)


@pytest.mark.parametrize("count", [5_000, 20_000])
@pytest.mark.parametrize("is_cycle", [True, False])
def test_a_chain_of_types_raises_errors_of_ours_only(count: int, is_cycle: bool) -> None:
    main = FileDescriptorProto(name="m.proto", syntax="proto3")
    for n in range(count):
        message = main.message_type.add(name=f"M{n}")
        if is_cycle or n + 1 < count:
            message.field.add(
                name="f", number=1, type=11, label=1, type_name=f".M{(n + 1) % count}"
            )
    try:
        message_in(main, {}, None)
    except ConfigError as error:
        assert "too long a chain" in str(error)


@pytest.mark.parametrize("name", ["SerializeToString", "DESCRIPTOR", "__init__", "self", "message"])
async def test_fields_with_the_names_of_methods_are_written(name: str) -> None:
    text = (
        f'name: "m.proto" message_type {{ name: "A" field {{ name: "{name}" number: 1 '
        f"type: TYPE_STRING {OPTIONAL} }} }}"
    )
    stub = StubSchemaRegistry()
    stub.register("orders-value", in_base64(file(text).SerializeToString()), schemaType="PROTOBUF")
    assert (await written(stub, {name: "x"}))[6:] == b"\x0a\x01x"


def test_errors_list_some_of_the_names_only() -> None:
    main = FileDescriptorProto(name="m.proto", syntax="proto3")
    enum = main.enum_type.add(name="E")
    first = main.message_type.add(name="M0")
    first.field.add(name="state", number=1, type=14, label=1, type_name=".E")
    for n in range(3_000):
        enum.value.add(name=f"VALUE_{n}", number=n)
        main.message_type.add(name=f"M{n + 1}")
        first.field.add(name=f"field_{n}", number=n + 2, type=9, label=1)
    message = message_in(main, {}, None)
    with pytest.raises(ConfigError, match=r"it has M0, M1, .*, \.\.\.") as unknown:
        message_in(main, {}, "N")
    with pytest.raises(ConfigError, match=r"the fields are .* more") as column:
        RowWriter(message, pa.struct([("none", pa.string())]))
    with pytest.raises(FieldError, match=r"is no value of E: VALUE_0, .* more") as value:
        RowWriter(message, pa.struct([("state", pa.string())])).message({"state": "x"})
    assert max(len(str(each.value)) for each in (unknown, column, value)) < 1_500


# -- registries ------------------------------------------------------------------------------------


async def written(stub: StubSchemaRegistry, row: dict[str, Any], **more: Any) -> bytes:
    """A row of texts by the newest schema of the subject."""
    columns = pa.struct([(name, pa.string()) for name in row])
    async with SchemaRegistry("http://registry", transport=stub.transport, retries=0) as registry:
        given: dict[str, Any] = {"schema": None, "auto_register": False} | more
        serializer = RowProtobufSerializer(
            registry, columns, column=None, message=None, subject=topic_name, **given
        )
        found = serializer.serialize(row, VALUE)
        assert found is not None
        return found if isinstance(found, bytes) else (await found or b"")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (START + sized(4, b"") * MANY, "is refused: the schema has more fields"),
        (START + sized(3, b"google/type/../../x.proto") + MESSAGE, "which is not among"),
        (sized(3, b"\xff\xfe") + MESSAGE, "this is no Protobuf schema"),
        (START + MESSAGE, "column 'x' has no field"),
    ],
)
async def test_a_refusal_of_a_registered_schema_names_version_and_subject(
    content: bytes, reason: str
) -> None:
    stub = StubSchemaRegistry()
    stub.register("orders-value", in_base64(content), schemaType="PROTOBUF")
    with pytest.raises(ConfigError, match=f"^version 1 of subject orders-value: .*{reason}"):
        await written(stub, {"x": "y"})


async def test_references_count_towards_the_limits_of_a_schema() -> None:
    stub = StubSchemaRegistry()
    large = START + sized(99, b"") * 90_000
    names = ["b.proto", "c.proto", "d.proto"]
    for name in names:
        stub.register(name, in_base64(large), schemaType="PROTOBUF")
    references = [{"name": name, "subject": name, "version": 1} for name in names]
    stub.register(
        "orders-value",
        in_base64(START + MESSAGE),
        schemaType="PROTOBUF",
        references=references,
    )
    with pytest.raises(ConfigError, match=r"version 1 of subject orders-value: .*more fields"):
        await written(stub, {"x": "y"})


MANY_TURNS = 5
"""More than a schema that is read in the loop leaves to others."""


async def turns_of_the_loop(
    serialize: Callable[[SchemaRegistry], Any], stub: StubSchemaRegistry
) -> int:
    """Count the turns of another task until the first record of a subject is serialized."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    async with SchemaRegistry("http://registry", transport=stub.transport) as registry:
        await registry.latest("orders-value", schema_format="serialized")
        await registry.latest("orders-value")
        counting = asyncio.create_task(count())
        await asyncio.sleep(0)
        await serialize(registry)
        counting.cancel()
    return turns


async def test_the_largest_schema_for_rows_is_read_while_the_loop_runs() -> None:
    values = b"".join(sized(2, sized(1, b"V%d" % n) + b"\x10" + varint(n)) for n in range(30_000))
    main = file(
        f'name: "m.proto" message_type {{ name: "A" field {{ name: "x" number: 1 '
        f"type: TYPE_STRING {OPTIONAL} }} }}"
    )
    text = in_base64(sized(5, sized(1, b"E") + values) + main.SerializeToString())
    stub = StubSchemaRegistry()
    stub.register("orders-value", text, schemaType="PROTOBUF")
    columns = pa.struct([("x", pa.string())])

    def serialize(registry: SchemaRegistry) -> Any:
        return RowProtobufSerializer(
            registry,
            columns,
            column=None,
            schema=None,
            message=None,
            subject=topic_name,
            auto_register=False,
        ).serialize({"x": "y"}, VALUE)

    assert await turns_of_the_loop(serialize, stub) > MANY_TURNS


async def test_the_largest_source_of_a_schema_is_read_while_the_loop_runs() -> None:
    kind = message_in(file('name: "m.proto" message_type { name: "A" }'), {}, None)
    source = "message B { string x = 1; } " * 60_000 + "message A { }"
    stub = StubSchemaRegistry()
    stub.register("orders-value", source, schemaType="PROTOBUF")

    def serialize(registry: SchemaRegistry) -> Any:
        return ProtobufSerializer(registry, kind, use_latest_version=True).serialize(kind(), VALUE)

    assert await turns_of_the_loop(serialize, stub) > MANY_TURNS


async def test_the_largest_avro_schema_is_read_while_the_loop_runs() -> None:
    names = [f"f{n}" for n in range(20_000)]
    fields = [{"name": name, "type": {"type": "array", "items": "string"}} for name in names]
    text = json.dumps({"type": "record", "name": "R", "fields": fields})
    stub = StubSchemaRegistry()
    stub.register("orders-value", text)

    def serialize(registry: SchemaRegistry) -> Any:
        return AvroSerializer(registry, use_latest_version=True).serialize(
            {name: [] for name in names}, VALUE
        )

    assert await turns_of_the_loop(serialize, stub) > MANY_TURNS
