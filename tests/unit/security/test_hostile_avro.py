"""Avro schemas and files that are made to end the process, or to take memory without end."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
import zstandard

from aioproducer._util.varints import varint, zigzag
from aioproducer.errors import ConfigError, SchemaRegistryError
from aioproducer.loader import AvroValues, FileSource
from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats.avro import avro_rows
from aioproducer.serializers import AvroSerializer, SchemaRegistry

SYNC = b"s" * 16


def number(value: int) -> bytes:
    return varint(zigzag(value))


def text(value: bytes) -> bytes:
    return number(len(value)) + value


def container(
    schema: Any, *blocks: tuple[int, bytes], codec: str = "null", sync: bytes = SYNC
) -> bytes:
    header = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    data = b"Obj\x01" + number(2) + text(b"avro.schema") + text(header)
    data += text(b"avro.codec") + text(codec.encode()) + number(0) + SYNC
    for count, content in blocks:
        data += number(count) + number(len(content)) + content + sync
    return data


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    named = [{"name": f"f{place}", "type": kind} for place, kind in enumerate(fields)]
    return {"type": "record", "name": name, "fields": named}


def rows(data: bytes) -> list[Any]:
    return [row for _, chunk in avro_rows(io.BytesIO(data)) for row in chunk]


def in_process(code: str, *, memory_mb: int = 1500) -> subprocess.CompletedProcess[str]:
    """Run code in a separate process, with little memory: it may end it."""
    limit = (
        "import resource;"
        f"resource.setrlimit(resource.RLIMIT_AS, ({memory_mb << 20}, {memory_mb << 20}))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", limit + code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def nested(depth: int) -> Any:
    schema: Any = "long"
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def chain(length: int) -> dict[str, Any]:
    """Records of which each has two of the next, and defaults that say so: 2**length parts."""
    schema = {"type": "record", "name": "C0", "fields": []}
    for place in range(1, length):
        inner = schema["name"]
        fields = [
            {"name": "a", "type": schema, "default": {}},
            {"name": "b", "type": inner, "default": {}},
        ]
        schema = {"type": "record", "name": f"C{place}", "fields": fields}
    return schema


HOSTILE_SCHEMAS: dict[str, Any] = {
    "itself": {
        "type": "record",
        "name": "R",
        "fields": [{"name": "r", "type": "R", "default": {}}],
    },
    "itself in a union": {
        "type": "record",
        "name": "R",
        "fields": [{"name": "r", "type": ["R", "null"], "default": {}}],
    },
    "itself in an array": {
        "type": "record",
        "name": "R",
        "fields": [{"name": "r", "type": {"type": "array", "items": "R"}, "default": [{}]}],
    },
    "each other": {
        "type": "record",
        "name": "A",
        "fields": [
            {
                "name": "b",
                "type": {
                    "type": "record",
                    "name": "B",
                    "fields": [{"name": "a", "type": "A", "default": {}}],
                },
                "default": {},
            }
        ],
    },
    "doubling": chain(40),
}


@pytest.mark.parametrize("name", HOSTILE_SCHEMAS)
def test_a_schema_with_endless_defaults_is_refused(name: str) -> None:
    schema = json.dumps(HOSTILE_SCHEMAS[name])
    done = in_process(
        "import json\n"
        "from aioproducer.errors import ConfigError\n"
        "from aioproducer.loader import AvroValues\n"
        "from aioproducer.serializers import SchemaRegistry\n"
        "from aioproducer.serializers import AvroSerializer\n"
        f"schema = {schema!r}\n"
        "for make in (lambda: AvroValues(1, schema),"
        " lambda: AvroSerializer(SchemaRegistry('http://r'), schema)):\n"
        "    try: make()\n"
        "    except ConfigError as error: print(error)\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("no Avro schema") == 2


@pytest.mark.parametrize(
    "schema",
    [json.dumps(record(nested(900))), "[" * 100_000, '{"type":' * 100_000],
    ids=["arrays", "brackets", "types"],
)
async def test_a_schema_that_is_nested_too_deeply_is_refused(schema: str) -> None:
    with pytest.raises(ConfigError, match="Avro schema"):
        AvroValues(1, schema)
    with pytest.raises(SourceError, match="Avro"):
        rows(container(schema.encode()))


@pytest.mark.parametrize("name", ["itself in a union", "doubling"])
async def test_a_registered_schema_with_endless_defaults_is_refused(name: str) -> None:
    from aioproducer.serializers.registry.schema import Schema

    class Registry(SchemaRegistry):
        async def referenced(self, schema: Schema) -> Any:
            return []

    serializer = AvroSerializer(Registry("http://r"), use_latest_version=True)
    for text_ in (json.dumps(HOSTILE_SCHEMAS[name]), "[" * 100_000):
        with pytest.raises(SchemaRegistryError, match="no Avro schema"):
            await serializer._encoder(Schema(text_))


# -- files that send rows or take memory without end -----------------------------------------------

HUGE = 10**12


def array_of(items: Any) -> dict[str, Any]:
    return record({"type": "array", "items": items})


HOSTILE_FILES: dict[str, bytes] = {
    "rows without fields": container(record(), (HUGE, b"")),
    "rows of nulls": container(record("null"), (HUGE, b"")),
    "more rows than bytes": container(record("long"), (HUGE, b"\x02\x02")),
    "negative rows": container(record("long"), (-5, b"\x02")),
    "an array of nulls": container(array_of("null"), (1, number(HUGE) + b"\0")),
    "an array of empty records": container(
        array_of(record(name="Empty")), (1, number(10**9) + b"\0")
    ),
    "an array of nothing fixed": container(
        array_of({"type": "fixed", "name": "F", "size": 0}), (1, number(10**9) + b"\0")
    ),
    "an array without its items": container(array_of("long"), (1, number(10**9))),
    "an array of negative length": container(array_of("null"), (1, number(-HUGE) + b"\0\0")),
    "a long text": container(record("string"), (1, number(10**10))),
    "a text of negative length": container(record("string"), (1, number(-10))),
    "a large block": b"".join((container(record("long")), number(1), number(1 << 40), b"x" * 100)),
    "a block of negative size": container(record("long")) + number(1) + number(-8),
    "a huge fixed": container(record({"type": "fixed", "name": "F", "size": 1 << 62}), (1, b"xx")),
    "a number without end": container(record("long")) + b"\xff" * 100,
    "a large header": b"Obj\x01" + number(1) + text(b"a") + number(1 << 40),
    "many entries of a header": b"Obj\x01" + number(1 << 60) + text(b"a") * 100,
    "no schema": b"Obj\x01" + number(0) + SYNC,
    "another codec": container(record("long"), codec="\x1b[31m"),
    "a wrong marker": container(record("long"), (1, b"\x02"), sync=b"t" * 16),
    "doubling records": container(
        {
            **json.loads(json.dumps(chain(40)).replace('"default": {}', '"doc": ""')),
        },
        (1, b""),
    ),
    "deflate": container(
        record("bytes"),
        (1, zlib.compressobj(9, zlib.DEFLATED, -15).compress(b"") + b"\x03\x00"),
        codec="deflate",
    ),
    "snappy of gigabytes": container(
        record("bytes"), (1, b"\xff\xff\xff\xff\x0f" + b"\0" * 20), codec="snappy"
    ),
    "lz4 of gigabytes": container(
        record("bytes"), (1, struct.pack("<I", 0xFFFF_FFFF) + b"\0" * 20), codec="lz4"
    ),
    "a decimal of a megabyte": container(
        record({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}),
        (1, text(b"\x7f" * 1_000_000)),
    ),
    "a decimal of any scale": container(
        record({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1 << 70}),
        (1, text(b"\x7f")),
    ),
    "a list without end": container(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "next", "type": ["null", "R"]}],
        },
        (1, b"\x02" * 1_000_000 + b"\0"),
    ),
    "nested arrays": container(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "r", "type": {"type": "array", "items": "R"}}],
        },
        (1, b"\x02" * 1_000_000 + b"\0" * 1_000_000),
    ),
}

COMPRESSIONS_OF_GIGABYTES: dict[str, Callable[[], bytes]] = {
    "deflate": lambda: zlib.compress(bytes(300 << 20), 1)[2:-4],
    "bzip2": lambda: bz2.compress(bytes(300 << 20), 1),
    "zstandard": lambda: zstandard.compress(bytes(300 << 20)),
    "xz": lambda: lzma.compress(bytes(200 << 20), preset=0),
}


@pytest.mark.slow
@pytest.mark.parametrize("codec", COMPRESSIONS_OF_GIGABYTES)
def test_a_block_of_gigabytes_is_refused_in_little_memory(codec: str, tmp_path: Path) -> None:
    block = COMPRESSIONS_OF_GIGABYTES[codec]()
    check_is_refused(container(record("bytes"), (1, block), codec=codec), tmp_path)


@pytest.mark.parametrize("name", HOSTILE_FILES)
def test_a_hostile_file_is_refused_in_little_memory(name: str, tmp_path: Path) -> None:
    check_is_refused(HOSTILE_FILES[name], tmp_path)


def check_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "hostile.avro"
    path.write_bytes(content)
    done = in_process(
        "from aioproducer.loader import FileSource\n"
        "from aioproducer.loader.errors import SourceError\n"
        "count = 0\n"
        "try:\n"
        f"    for batch in FileSource({str(path)!r}).batches(): count += len(batch.fields)\n"
        "except SourceError as error: print(error)\n"
        "assert count < 5000, count\n"
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert "hostile.avro" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "snappy", "lz4"])
def test_files_of_every_codec_are_read_as_fastavro_reads_them(codec: str) -> None:
    schema = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "text", "type": ["null", "string"], "default": None},
            {"name": "parts", "type": {"type": "array", "items": "long"}, "default": []},
            {"name": "when", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "next", "type": ["null", "Order"], "default": None},
        ],
    }
    flat = {**schema, "fields": [schema["fields"][0], schema["fields"][1], schema["fields"][3]]}
    for kind in (schema, flat):
        given = [
            {
                "id": each,
                "text": None if each % 3 else "x" * each,
                "parts": list(range(each % 50)),
                "when": each,
                "next": None,
            }
            for each in range(3000)
        ]
        file = io.BytesIO()
        fastavro.writer(file, kind, given, codec=codec, sync_interval=20_000)
        expected = list(fastavro.reader(io.BytesIO(file.getvalue())))
        assert rows(file.getvalue()) == expected
        for skip in (1, 999, 1000, 2999, 3000):
            data = io.BytesIO(file.getvalue())
            found = [row for _, chunk in avro_rows(data, skip) for row in chunk]
            assert found == expected[skip:]
        with pytest.raises(SourceError, match="3,000 rows"):
            list(avro_rows(io.BytesIO(file.getvalue()), 3001))


@pytest.mark.parametrize("recursive", [False, True])
def test_decimals_are_those_of_fastavro(recursive: bool) -> None:
    decimal = {"logicalType": "decimal", "precision": 30, "scale": 2}
    schema = record(
        {"type": "bytes", **decimal},
        ["null", {"type": "fixed", "name": "F", "size": 16, **decimal}],
        *([["null", "R"]] if recursive else []),
    )
    given = [
        {"f0": Decimal(text_), "f1": Decimal(text_), "f2": None}
        for text_ in ("0.00", "1.25", "-3.10", "1234567890123456789012345678.99")
    ]
    file = io.BytesIO()
    fastavro.writer(file, schema, given)
    expected = list(fastavro.reader(io.BytesIO(file.getvalue())))
    assert rows(file.getvalue()) == expected
    assert str(rows(file.getvalue())) == str(expected)


def test_zstandard_is_read() -> None:
    data = container(record("long"), (1, zstandard.compress(b"\x02")), codec="zstandard")
    assert rows(data) == [{"f0": 1}]


def test_a_large_block_of_rows_with_arrays_is_read() -> None:
    schema = array_of("long")
    file = io.BytesIO()
    given = [{"f0": [each] * 100} for each in range(70_000)]
    fastavro.writer(file, schema, given, sync_interval=1 << 30)
    assert rows(file.getvalue()) == given


def test_too_little_memory_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from aioproducer.loader.formats import avro

    path = tmp_path / "a.avro"
    path.write_bytes(container(record("long"), (1, b"\x02")))

    def fails(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(avro, "_chunks", fails)
    with pytest.raises(SourceError, match=r"a\.avro.*memory"):
        list(FileSource(path).batches())
