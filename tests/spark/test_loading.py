"""Loads by Spark: the same records as the loader makes in this process, step by step, once."""

from __future__ import annotations

import asyncio
import datetime
import gzip
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyarrow import orc, parquet
from support.spark import EmbeddedKafka

from aioproducer import Producer
from aioproducer.errors import ConfigError
from aioproducer.loader import (
    FORMATS,
    CsvFormat,
    DeadLetterError,
    FileSource,
    Loader,
    LoadOptions,
    MappingError,
    RecordMapping,
    RejectedRowError,
    SourceError,
    StateError,
)
from aioproducer.spark.loading.load import SparkLoad, SparkLoadResult
from aioproducer.spark.loading.options import SparkLoadOptions

pytestmark = pytest.mark.slow  # Spark starts

pytest.importorskip("pyspark", reason="needs pyspark (the extra `spark`)")

Load = Callable[..., SparkLoadResult]

ROWS: list[dict[str, Any]] = [
    {
        "id": number,
        "name": None if number % 7 == 3 else f'n, "{number}"\nü',
        "share": number / 3,
        "sum": Decimal(number) / 4,
        "on": datetime.date(2013, 1, 1 + number % 28),
        "at": datetime.datetime(2013, 1, 1, 5, 0, number % 60, 250_000),
        "raw": bytes([number % 128, 65]),
        "tags": ["a", str(number)],
        "in": {"x": number, "y": None},
        "yes": number % 2 == 0,
    }
    for number in range(1, 120)
]
TABLE = pa.Table.from_pylist(
    ROWS,
    pa.schema(
        [
            ("id", pa.int64()),
            ("name", pa.string()),
            ("share", pa.float64()),
            ("sum", pa.decimal128(12, 2)),
            ("on", pa.date32()),
            ("at", pa.timestamp("us")),
            ("raw", pa.binary()),
            ("tags", pa.list_(pa.string())),
            ("in", pa.struct([("x", pa.int64()), ("y", pa.string())])),
            ("yes", pa.bool_()),
        ]
    ),
)
MAPPING = RecordMapping(
    key=("id", "name"),
    headers=(("source", b"test"),),
    header_columns=(("on", "on"),),
    timestamp="at",
    partition_by=("id",),
)


@pytest.fixture
def load(spark: Any, embedded: EmbeddedKafka) -> Load:
    from aioproducer.spark import register

    register(spark)

    def run(inputs: Any, topic: str, **options: Any) -> SparkLoadResult:
        names = (inputs,) if isinstance(inputs, str | Path) else inputs
        own = {name: options.pop(name) for name in ("load_id", "step_bytes") if name in options}
        return SparkLoad(
            spark,
            SparkLoadOptions(
                tuple(map(str, names)),
                topic,
                {"bootstrap.servers": embedded.servers},
                options.pop("formats", FORMATS),
                load=LoadOptions(**options),
                **own,
            ),
        ).run()

    return run


def test_columns_with_dots_and_backticks_are_loaded(
    load: Load, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("a.b,`c`\n1,2\n")
    topic = embedded.topic(1)
    load(tmp_path / "a.csv", topic, mapping=RecordMapping(key=("a.b",)))
    (record,) = embedded.records(topic)
    assert (record.key, record.value) == (b"1", b'{"a.b":"1","`c`":"2"}')


def test_a_load_that_is_stopped_before_its_first_step_writes_nothing(
    spark: Any, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    file, topic = tmp_path / "a.ndjson", embedded.topic(1)
    file.write_text('{"n": 1}\n')
    kafka = {"bootstrap.servers": embedded.servers}
    load = SparkLoad(spark, SparkLoadOptions((str(file),), topic, kafka, FORMATS))
    load.stop()
    result = load.run()
    assert (result.state.steps, result.state.done, result.state.complete) == (1, 0, False)
    assert embedded.records(topic) == []


def load_here(kafka: EmbeddedKafka, files: list[Path], topic: str, **options: Any) -> None:
    async def run() -> None:
        source = FileSource(
            sorted(files),
            format=options.pop("format", None),
            formats=options.pop("formats", FORMATS),
        )
        async with Producer(bootstrap_servers=kafka.servers) as producer:
            await Loader(producer, source, topic, LoadOptions(**options)).run()

    asyncio.run(run())


def contents(kafka: EmbeddedKafka, topic: str, *, timed: bool = True) -> Counter[Any]:
    return Counter(
        (place, each.key, each.value, each.headers, each.timestamp_ms if timed else None)
        for place, records in kafka.read(topic).items()
        for each in records
    )


def parquet_files(folder: Path) -> None:
    for number in range(3):
        part = TABLE.slice(number * 40, 40)
        parquet.write_table(part, folder / f"part-{number}.snappy.parquet", row_group_size=16)


def orc_files(folder: Path) -> None:
    for number in range(3):
        orc.write_table(TABLE.slice(number * 40, 40), folder / f"part-{number}.orc")


def avro_files(folder: Path) -> None:
    schema = {
        "type": "record",
        "name": "Row",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"]},
            {"name": "share", "type": "double"},
            {
                "name": "sum",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
            },
            {"name": "on", "type": {"type": "int", "logicalType": "date"}},
            {"name": "at", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
            {"name": "raw", "type": "bytes"},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
    names = [each["name"] for each in schema["fields"]]
    rows = [{name: row[name] for name in names} for row in ROWS]
    for number in range(3):
        with (folder / f"part-{number}.avro").open("wb") as file:
            fastavro.writer(file, schema, rows[number * 40 : number * 40 + 40], codec="deflate")


def csv_files(folder: Path) -> None:
    head = "id,name,share,on,at,note\n"
    for number in range(3):
        lines = [
            f'{row["id"]},"{(row["name"] or "").replace(chr(34), chr(34) * 2)}",'
            f"{row['share']},{row['on']},{row['at'].isoformat()}, x {'' if row['yes'] else '-'}\n"
            for row in ROWS[number * 40 : number * 40 + 40]
        ]
        text = head + "\n".join(["", *lines])
        (folder / f"part-{number}.csv").write_text(text, encoding="utf-8")


def ndjson_files(folder: Path) -> None:
    def line(row: Mapping[str, Any]) -> str:
        plain = {name: row[name] for name in ("id", "name", "share", "tags", "in", "yes")}
        return json.dumps(plain | {"on": str(row["on"]), "at": str(row["at"])})

    for number in range(3):
        rows = ROWS[number * 40 : number * 40 + 40]
        text = "\r\n".join(["", *map(line, rows), "  ", ""])
        with gzip.open(folder / f"part-{number}.ndjson.gz", "wt", encoding="utf-8") as file:
            file.write(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [parquet_files, orc_files, avro_files, csv_files, ndjson_files],
    ids=lambda f: f.__name__,
)
def test_both_engines_give_the_same_records(
    make: Callable[[Path], None], load: Load, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    make(tmp_path)
    ours, theirs = embedded.topic(3), embedded.topic(3)
    formats = {**FORMATS, "csv": CsvFormat(null="-")}
    result = load(tmp_path, ours, mapping=MAPPING, formats=formats)
    load_here(embedded, list(tmp_path.iterdir()), theirs, mapping=MAPPING, formats=formats)
    found = contents(embedded, ours)
    assert found == contents(embedded, theirs)
    assert found.total() == result.progress.acknowledged == len(ROWS)
    assert result.state.complete


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1252"])
def test_csv_in_another_encoding_is_rejected_or_read(
    encoding: str, load: Load, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    file = tmp_path / "some é.csv"
    file.write_bytes("näme\n".encode(encoding) + b"M\xfcller\nok\n")
    formats = {**FORMATS, "csv": CsvFormat(encoding=encoding)}
    ours, theirs = embedded.topic(1), embedded.topic(1)
    load(file, ours, formats=formats, dead_letter=tmp_path / "bad.ndjson")
    load_here(embedded, [file], theirs, formats=formats, dead_letter=tmp_path / "theirs.ndjson")
    assert contents(embedded, ours, timed=False) == contents(embedded, theirs, timed=False)
    assert contents(embedded, ours).total() == (1 if encoding == "utf-8" else 2)


def test_csv_files_with_other_headers_and_line_ends_are_read_as_by_the_loader(
    load: Load, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_bytes(b'n,m\r\n1,2\n3,4\r\n"5\r\n6",7\n')
    (tmp_path / "b.csv").write_bytes(b"m\n1\r\n2\n")
    ours, theirs = embedded.topic(1), embedded.topic(1)
    load(tmp_path, ours)
    load_here(embedded, list(tmp_path.iterdir()), theirs)
    assert contents(embedded, ours, timed=False) == contents(embedded, theirs, timed=False)
    assert contents(embedded, ours).total() == 5


def test_a_large_csv_file_is_read_by_one_task_whatever_spark_would_divide(
    load: Load, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    rows = "".join(f"{number},{'x' * 2000}\n" for number in range(6000))
    (tmp_path / "a.csv").write_text(f"n,m\n{rows}")
    topic = embedded.topic(1)
    result = load(tmp_path, topic, mapping=RecordMapping(value="n"))
    assert result.progress.acknowledged == 6000
    assert embedded.numbers(topic) == list(range(6000))


def test_a_load_keeps_the_dead_letters_of_a_load_of_another_file(
    load: Load, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    one, other, dead = tmp_path / "a %20ü.csv", tmp_path / "b.csv", tmp_path / "bad.ndjson"
    for file in (one, other):
        file.write_text("n,m\n1,2\n3\n")
    topic = embedded.topic(1)
    for _ in range(2):
        load(one, topic, dead_letter=dead)
        (bad,) = map(json.loads, dead.read_text().splitlines())
    with pytest.raises(DeadLetterError, match=r"which is no input of this load"):
        load(other, topic, dead_letter=dead)
    assert [json.loads(line) for line in dead.read_text().splitlines()] == [bad]


def test_lines_are_the_values_as_they_are(
    load: Load, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    file = tmp_path / "some.txt"
    file.write_bytes(b"\xef\xbb\xbfone\r\n\n two \xff\rthree\x00\nlast")
    ours, theirs = embedded.topic(1), embedded.topic(1)
    load(file, ours)
    load_here(embedded, [file], theirs)
    assert contents(embedded, ours, timed=False) == contents(embedded, theirs, timed=False)
    assert contents(embedded, ours).total() == 4


def test_folders_name_columns_and_files_of_other_columns_lose_none(
    load: Load, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    for year, name in ((2013, "a"), (2014, "b")):
        folder = tmp_path / f"year={year}"
        folder.mkdir()
        parquet.write_table(pa.table({name: [1]}), folder / "x.parquet")
    topic = embedded.topic(1)
    load(tmp_path, topic, mapping=RecordMapping(key=("year",)))
    found = {each.key: json.loads(each.value or b"") for each in embedded.records(topic)}
    assert found == {
        b"2013": {"a": 1, "b": None, "year": 2013},
        b"2014": {"a": None, "b": 1, "year": 2014},
    }


@pytest.mark.parametrize("kind", ["csv", "ndjson"])
def test_files_beside_folders_that_name_columns_are_loaded(
    kind: str, load: Load, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    texts = {"csv": "a\n1\n", "ndjson": '{"a": "1"}\n'}
    for folder in ("day=1", "day=__HIVE_DEFAULT_PARTITION__", "."):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"x.{kind}").write_text(texts[kind])
    topic = embedded.topic(1)
    result = load(tmp_path, topic)
    assert (result.state.complete, result.progress.sent) == (True, 3)
    found = [tuple(json.loads(each.value or b"").items()) for each in embedded.records(topic)]
    a = ("a", "1")
    assert set(found) == {(a, ("day", 1)), (a, ("day", None)), (a,)}


@pytest.mark.parametrize("kind", ["avro", "ndjson"])
def test_folders_name_columns_of_rows_that_bring_their_own(
    kind: str, load: Load, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    folder = tmp_path / "city=Zürich%2FOrt"
    folder.mkdir()
    if kind == "avro":
        schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
        with (folder / "x.avro").open("wb") as file:
            fastavro.writer(file, schema, [{"a": 1}])
    else:
        (folder / "x.ndjson").write_text('{"a": 1}\n')
    topic = embedded.topic(1)
    load(tmp_path, topic)
    assert [json.loads(each.value or b"") for each in embedded.records(topic)] == [
        {"a": 1, "city": "Zürich/Ort"}
    ]


def test_a_load_exactly_once_writes_once_and_refuses_other_files(
    load: Load, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"{number}1\n{number}2\n")
    topic, own = embedded.topic(2), {"load_id": "load-of-a-test", "step_bytes": 10}
    first = load(tmp_path, topic, **own)
    assert (first.state.steps, first.skipped, first.progress.acknowledged) == (2, 0, 6)
    again = load(tmp_path, topic, **own)
    assert (again.skipped, again.progress.acknowledged, again.state.complete) == (2, 0, True)
    assert embedded.numbers(topic) == [1, 2, 11, 12, 21, 22]
    another = embedded.topic(2)
    assert load(tmp_path, another, **own).skipped == 0
    assert embedded.numbers(another) == [1, 2, 11, 12, 21, 22]
    (tmp_path / "3.txt").write_text("31\n")
    with pytest.raises(StateError, match="begun with"):
        load(tmp_path, topic, **own)


def test_a_load_that_failed_goes_on_after_its_last_step(
    load: Load, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    folder, state = tmp_path / "in", tmp_path / "state.json"
    folder.mkdir()
    for number in range(3):
        text = "7" if number < 2 else "none"
        (folder / f"{number}.csv").write_text(f"p,v\n0,{number}1\n{text[0]},{number}2\n")
    (folder / "0.csv").write_text("p,v\n0,1\n")
    (folder / "1.csv").write_text("p,v\n0,11\n")
    topic = embedded.topic(1)
    own: dict[str, Any] = {"state": state, "step_bytes": 1}
    mapping = RecordMapping(value="v", partition="p")
    with pytest.raises(RejectedRowError, match="'n' is no partition number"):
        load(folder, topic, mapping=mapping, **own)
    assert json.loads(state.read_text())["done"] == 2
    result = load(folder, topic, mapping=mapping, resume=True, dead_letter=tmp_path / "bad", **own)
    assert (result.skipped, result.progress.acknowledged, result.progress.rejected) == (2, 1, 1)
    assert embedded.numbers(topic) == [1, 11, 21]
    bad = json.loads((tmp_path / "bad").read_text())
    assert (Path(bad["file"]).name, bad["raw"]) == ("2.csv", "n,22")


def test_rows_that_are_none_are_rejected_in_every_format(
    load: Load, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    for name, text in (("x.csv", "a,b\n1,2\n3\n"), ("x.ndjson", '{"a": 1}\n[]\n')):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text(text)
        topic, bad = embedded.topic(1), tmp_path / f"{name}.bad"
        result = load(folder, topic, dead_letter=bad)
        assert (result.progress.acknowledged, result.progress.rejected) == (1, 1)
        assert json.loads(bad.read_text())["raw"] in {"3", "[]"}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b"first name,b\r\n1,2\r\n", "first name"),
        (b"\xef\xbb\xbf\r\n\r\nfirst name,b\r\n1,2\r\n", "first name"),
        (b"\n\na,b\n1,2\n", "a"),
        (b'"a\nx",b\n1,2\n', "a\nx"),
    ],
)
def test_headers_are_read_as_by_the_loader(
    load: Load, embedded: EmbeddedKafka, tmp_path: Path, text: bytes, name: str
) -> None:
    topic = embedded.topic(1)
    (tmp_path / "a.csv").write_bytes(text)
    load(tmp_path, topic)
    (record,) = embedded.records(topic)
    assert json.loads(record.value or b"") == {name: "1", "b": "2"}


def test_what_cannot_be_loaded_is_said_in_the_loaders_words(
    load: Load, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    topic = embedded.topic(1)
    with pytest.raises(SourceError, match="no such file"):
        load(tmp_path / "none", topic)
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(MappingError, match="no column 'c'"):
        load(tmp_path, topic, mapping=RecordMapping(key=("c",)))
    (tmp_path / "b.json").write_text("{}\n")
    with pytest.raises(SourceError, match="several formats"):
        load(tmp_path, topic)
    with pytest.raises(SourceError, match="more than one"):
        load([tmp_path / "a.csv", tmp_path], topic)
    assert not embedded.records(topic)


def test_a_load_writes_over_nothing_that_it_reads(
    load: Load, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    topic = embedded.topic(1)
    folder, link = tmp_path / "in", tmp_path / "link"
    folder.mkdir()
    row = {"file": "f", "member": None, "row": 1, "stage": "row", "reason": "r", "raw": ""}
    bad = folder / "bad.ndjson"
    bad.write_text(json.dumps(row) + "\n")
    before = bad.read_text()
    link.symlink_to(bad)
    for path in (bad, link):
        with pytest.raises(ConfigError, match="is the same file as the input"):
            load(folder, topic, dead_letter=path)
        with pytest.raises(ConfigError, match="is the same file as the input"):
            load(folder, topic, state=path)
    with pytest.raises(ConfigError, match="is the same file as the dead-letter file"):
        load(folder, topic, dead_letter=tmp_path / "x", state=tmp_path / "in" / ".." / "x")
    (tmp_path / "precious").write_text("precious")
    with pytest.raises(StateError, match="not a state file"):
        load(folder, topic, state=tmp_path / "precious")
    assert (bad.read_text(), (tmp_path / "precious").read_text()) == (before, "precious")
    assert not embedded.records(topic)


def test_progress_ends_at_the_end(load: Load, embedded: EmbeddedKafka, tmp_path: Path) -> None:
    csv_files(tmp_path)
    seen: list[Any] = []
    load(tmp_path, embedded.topic(1), on_progress=seen.append, step_bytes=1)
    assert seen[-1].fraction == 1.0
    assert seen[-1].acknowledged == len(ROWS)
    assert replace(seen[-1], elapsed_s=0.0).outstanding == 0
