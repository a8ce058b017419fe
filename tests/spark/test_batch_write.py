"""DataFrames into Kafka by `df.write`."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.pages import blocks, page
from support.registry_server import serve_registry
from support.spark import EmbeddedKafka

from aioproducer.errors import NotLeaderOrFollowerError
from aioproducer.spark import register
from aioproducer.testing.schema_registry import StubSchemaRegistry
from aioproducer.wire.api_keys import ApiKey

pytestmark = pytest.mark.slow  # Spark starts


@pytest.fixture(autouse=True, scope="module")
def _registered(spark: Any) -> None:
    register(spark)


def write(frame: Any, kafka: EmbeddedKafka, options: Mapping[str, str]) -> None:
    writer = frame.write.format("aioproducer").mode("append")
    writer.option("kafka.bootstrap.servers", kafka.servers).options(**options).save()


def test_rows_arrive_once_with_their_keys(spark: Any, embedded: EmbeddedKafka) -> None:
    topic = embedded.topic()
    frame = spark.range(0, 20_000, 1, 4).selectExpr(
        "CAST(id % 7 AS STRING) AS key", "CAST(CAST(id AS STRING) AS BINARY) AS value"
    )
    write(frame, embedded, {"topic": topic})
    found = embedded.records(topic)
    assert sorted(int(record.value or b"") for record in found) == list(range(20_000))
    assert all(int(each.key or b"") == int(each.value or b"") % 7 for each in found)


def test_every_column_becomes_its_part_of_the_record(spark: Any, embedded: EmbeddedKafka) -> None:
    topic, other = embedded.topic(), embedded.topic()
    frame = spark.sql(f"""
        SELECT 'k' AS key, 'a' AS value, '{topic}' AS topic, 1 AS partition,
               array(named_struct('key', 'h', 'value', CAST('1' AS BINARY))) AS headers,
               TIMESTAMP '2026-01-02 03:04:05Z' AS timestamp
        UNION ALL SELECT NULL, NULL, '{other}', NULL, NULL, NULL
    """)
    write(frame, embedded, {})
    first = embedded.read(topic)[1]
    assert [(each.key, each.value, each.headers) for each in first] == [
        (b"k", b"a", (("h", b"1"),))
    ]
    assert first[0].timestamp_ms == 1_767_323_045_000
    assert [(each.key, each.value) for each in embedded.records(other)] == [(None, None)]


def test_columns_of_other_types_are_written_as_json(spark: Any, embedded: EmbeddedKafka) -> None:
    topic = embedded.topic(1)
    frame = spark.sql("""
        SELECT '1' AS key, to_json(struct(
                   CAST(12.50 AS DECIMAL(38, 18)) AS price,
                   TIMESTAMP_NTZ '2026-01-02 03:04:05.678901' AS at,
                   array(named_struct('city', 'Ulm', 'zips', map('a', 1))) AS stops
               )) AS value
        UNION ALL SELECT '2', to_json(parse_json('{"a": [1, null, {"b": 2.5}]}'))
    """)
    write(frame, embedded, {"topic": topic, "delivery.guarantee": "exactly-once"})
    found = {each.key: json.loads(each.value or b"") for each in embedded.records(topic)}
    assert found[b"2"] == {"a": [1, None, {"b": 2.5}]}
    assert (found[b"1"]["price"], found[b"1"]["stops"]) == (
        12.5,
        [{"city": "Ulm", "zips": {"a": 1}}],
    )
    assert found[b"1"]["at"].startswith("2026-01-02T03:04:05.678")


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_rows_of_python_and_pandas_functions_are_written_once(
    spark: Any, embedded: EmbeddedKafka, guarantee: str
) -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    from pyspark.sql.functions import pandas_udf, udf

    def doubled(numbers: Any) -> Any:
        return (2 * numbers).astype(str)

    # PySpark reads the types, and finds no names that are local.
    doubled.__annotations__ = {"numbers": pandas.Series, "return": pandas.Series}
    value = pandas_udf(doubled, "string")
    key = udf(lambda number: f"key-{number}".encode(), "binary")
    topic = embedded.topic()
    frame = spark.range(0, 3000, 1, 3)
    frame = frame.select(key("id").alias("key"), value("id").alias("value"))
    write(frame, embedded, {"topic": topic, "delivery.guarantee": guarantee})
    found = {each.key: each.value for each in embedded.records(topic)}
    assert found == {f"key-{n}".encode(): str(2 * n).encode() for n in range(3000)}
    assert len(embedded.records(topic)) == 3000


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ("id AS value", {"topic": "t"}, "column 'value' is bigint"),
        ("CAST(1 AS DECIMAL(9,2)) AS value", {"topic": "t"}, "column 'value' is decimal"),
        ("named_struct('a', 1) AS value", {"topic": "t"}, "column 'value' is struct"),
        ("parse_json('1') AS value", {"topic": "t"}, "column 'value' is variant"),
        (
            "'a' AS value; TIMESTAMP_NTZ '2026-01-02 03:04:05' AS timestamp",
            {"topic": "t"},
            "column 'timestamp' is timestamp_ntz",
        ),
        ("'a' AS value", {"topic": "t", "kafka.linger.m": "1"}, "did you mean kafka.linger.ms"),
    ],
)
def test_what_cannot_work_is_refused_before_any_task(
    spark: Any, embedded: EmbeddedKafka, columns: str, options: dict[str, str], reason: str
) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match=reason):
        write(spark.range(1).selectExpr(*columns.split("; ")), embedded, options)


def test_overwriting_is_refused(spark: Any, embedded: EmbeddedKafka) -> None:
    from pyspark.errors import AnalysisException

    writer = spark.sql("SELECT 'a' AS value").write.format("aioproducer").mode("overwrite")
    writer = writer.option("kafka.bootstrap.servers", embedded.servers).option("topic", "t")
    with pytest.raises(AnalysisException, match="cannot be overwritten"):
        writer.save()


def test_a_refused_row_fails_the_job_and_is_named(spark: Any, embedded: EmbeddedKafka) -> None:
    frame = spark.range(0, 10, 1, 1).selectExpr(
        "concat('key-', id) AS key", "IF(id = 7, repeat('x', 2000000), 'small') AS value"
    )
    with pytest.raises(Exception, match=r"Spark partition 0, row 7 \(key b'key-7'\)"):
        write(frame, embedded, {"topic": embedded.topic()})


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_refused_row_can_go_to_another_topic(
    spark: Any, embedded: EmbeddedKafka, guarantee: str
) -> None:
    topic, letters = embedded.topic(), embedded.topic(1)
    frame = spark.range(0, 10, 1, 1).selectExpr(
        "concat('key-', id) AS key",
        "IF(id = 7, repeat('x', 2000000), CAST(id AS STRING)) AS value",
        "IF(id = 3, -5L, 1L) AS timestamp",
    )
    options = {"topic": topic, "dead.letter.topic": letters, "delivery.guarantee": guarantee}
    write(frame, embedded, options)
    assert embedded.numbers(topic) == [0, 1, 2, 4, 5, 6, 8, 9]
    found = {record.key: record for record in embedded.records(letters)}
    assert found.keys() == {b"key-3", b"key-7"}
    assert (found[b"key-3"].value, found[b"key-7"].value) == (b"3", None)
    headers = dict(found[b"key-7"].headers)
    assert headers["__connect.errors.topic"] == topic.encode()
    assert headers["__connect.errors.task.id"] == b"0"
    assert headers["__aioproducer.spark.row"] == b"7"
    assert headers["__aioproducer.value.omitted.bytes"] == b"2000000"
    assert headers["__connect.errors.exception.class.name"].endswith(b"RecordTooLargeError")


def test_refused_rows_can_go_to_files(spark: Any, embedded: EmbeddedKafka, tmp_path: Path) -> None:
    topic = embedded.topic()
    frame = spark.range(0, 10, 1, 2).selectExpr(
        "CAST(id AS STRING) AS value", "IF(id IN (3, 7, 8), -5L, 1L) AS timestamp"
    )
    options = {"topic": topic, "dead.letter.path": str(tmp_path)}
    write(frame, embedded, options | {"delivery.guarantee": "exactly-once"})
    assert embedded.numbers(topic) == [0, 1, 2, 4, 5, 6, 9]
    files = sorted(tmp_path.iterdir())
    assert [path.name[:13] for path in files] == ["part-00000-0-", "part-00001-0-"]
    lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    assert [(each["row"], each["raw"]) for each in lines] == [(3, "3"), (2, "7"), (3, "8")]


def test_a_failed_task_shows_none_of_its_rows_in_task_transactions(
    spark: Any, embedded: EmbeddedKafka
) -> None:
    topic = embedded.topic()
    good = spark.range(0, 1000, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    options = {"topic": topic, "delivery.guarantee": "task-transactions"}
    write(good, embedded, options)
    broken = spark.range(1000, 2000, 1, 1).selectExpr(
        "IF(id = 1999, repeat('x', 2000000), CAST(id AS STRING)) AS value"
    )
    with pytest.raises(Exception, match="row 999"):
        write(broken, embedded, options)
    assert embedded.numbers(topic) == list(range(1000))


def published(embedded: EmbeddedKafka, topic: str, count: int) -> list[int]:
    """Return what read_committed readers get, once it is enough: markers follow the answer."""
    deadline = time.monotonic() + 30
    while len(found := embedded.numbers(topic)) < count and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def test_an_exactly_once_job_is_published_as_a_whole(spark: Any, embedded: EmbeddedKafka) -> None:
    topic = embedded.topic()
    options = {"topic": topic, "delivery.guarantee": "exactly-once"}
    broken = spark.range(0, 100, 1, 2).selectExpr(
        "IF(id = 99, repeat('x', 2000000), CAST(id AS STRING)) AS value"
    )
    with pytest.raises(Exception, match="row 49"):
        write(broken, embedded, options)
    assert embedded.numbers(topic) == []
    frame = spark.range(0, 100, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    for _ in range(2):  # a second run of the same job writes nothing
        write(frame, embedded, options | {"job.id": f"job-{topic}"})
        assert published(embedded, topic, 100) == list(range(100))
    write(frame, embedded, options)  # without a job.id every run is a new job
    assert len(published(embedded, topic, 200)) == 200


@pytest.mark.slow
def test_a_task_that_writes_when_its_job_has_failed_holds_no_later_job_up(
    spark: Any, embedded: EmbeddedKafka
) -> None:
    topic = embedded.topic(1)
    options = {
        "topic": topic,
        "delivery.guarantee": "exactly-once",
        "kafka.retry.backoff.ms": "20",
        "kafka.retry.backoff.max.ms": "20",
    }
    good = spark.range(0, 100, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    broken = spark.range(0, 100, 1, 2).selectExpr(
        "IF(id = 99, repeat('x', 2000000), CAST(id AS STRING)) AS value"
    )
    # Spark lets a failed job's workers go on for 2 to 4 s: nearer to 4 s where they run already.
    write(good, embedded, options)
    refusing = embedded.faults.error(
        ApiKey.PRODUCE, NotLeaderOrFollowerError, topic=topic, times=None
    )
    try:
        with pytest.raises(Exception, match="row 49"):
            write(broken, embedded, options)
    finally:
        embedded.faults.remove(refusing)
    assert refusing.struck, "the other task has not tried to write"
    for count in (2, 3, 4):
        write(good, embedded, options)
        assert len(published(embedded, topic, 100 * count)) == 100 * count


def test_columns_become_avro_by_a_schema_registry(spark: Any, embedded: EmbeddedKafka) -> None:
    fastavro = pytest.importorskip("fastavro", reason="needs the extra `schema-registry`")
    topic, stub = embedded.topic(1), StubSchemaRegistry()
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
    stub.register(f"{topic}-value", schema)
    frame = spark.range(0, 10, 1, 2).selectExpr("id", "array('a', 'b') AS tags", "'k' AS key")
    with serve_registry(stub) as url:
        options = {"topic": topic, "value.format": "avro", "schema.registry.url": url}
        write(frame, embedded, options | {"delivery.guarantee": "exactly-once"})
    values = [each.value or b"" for each in embedded.records(topic)]
    rows = [fastavro.schemaless_reader(io.BytesIO(value[5:]), schema) for value in values]
    assert rows == [{"id": number, "tags": ["a", "b"]} for number in range(10)]


@pytest.mark.slow
def test_spark_finds_the_source_by_itself(spark: Any, embedded: EmbeddedKafka) -> None:
    topic = embedded.topic()
    session = spark.newSession()
    frame = session.sql("SELECT '1' AS value")
    write(frame, embedded, {"topic": topic})
    assert embedded.numbers(topic) == [1]


def test_a_secret_of_the_environment_stays_out_of_the_plan(
    spark: Any, embedded: EmbeddedKafka
) -> None:
    options = {
        "topic": "t",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password.env": "AIOPRODUCER_TEST_NOT_SET",
    }
    with pytest.raises(Exception, match="'AIOPRODUCER_TEST_NOT_SET', which is not set"):
        write(spark.sql("SELECT '1' AS value"), embedded, options)
    options["kafka.sasl.password.env"] = "HOME"
    with pytest.raises(Exception, match="'HOME', which this process does not let options read"):
        write(spark.sql("SELECT '1' AS value"), embedded, options)


def test_program_in_the_guide_writes_its_rows(spark: Any, embedded: EmbeddedKafka) -> None:
    program, _ = blocks(page("spark"))
    topic = embedded.topic()
    program = program.replace("localhost:9092", embedded.servers)
    exec(program.replace('"topic", "orders"', f'"topic", {topic!r}'), {})  # `spark` is its session
    found = {(record.key, record.value) for record in embedded.records(topic)}
    assert found == {(b"%d" % each, b'{"id":%d}' % each) for each in range(3)}


def test_program_in_the_guide_listens_to_queries(spark: Any) -> None:
    _, program = blocks(page("spark"))
    made: dict[str, Any] = {}
    exec(program, made)
    assert made["spark"] is spark
    register(spark)  # without reports, for the tests that follow


def test_columns_of_every_type_become_protobuf(spark: Any, embedded: EmbeddedKafka) -> None:
    pytest.importorskip("google.protobuf", reason="needs the extra `schema-registry`")
    from unit.spark.protobuf_files import COMMON, ORDERS, file, serialized

    from aioproducer.spark.columns.protobuf_files import message_in

    topic, stub = embedded.topic(1), StubSchemaRegistry()
    stub.register("common", serialized(COMMON), schemaType="PROTOBUF")
    reference = {"name": "shop/common.proto", "subject": "common", "version": 1}
    more = {"schemaType": "PROTOBUF", "references": [reference]}
    stub.register(f"{topic}-value", serialized(ORDERS), **more)
    frame = spark.sql("""
        SELECT 5L AS id, 6 AS small, 'n' AS note, CAST('r' AS BINARY) AS raw, true AS paid,
               CAST(0.5 AS FLOAT) AS weight, 'PAID' AS state,
               named_struct('city', 'Ulm') AS address, array('a', 'b') AS tags,
               array(named_struct('city', 'Bonn')) AS stops, map('a', 1) AS counts,
               TIMESTAMP '2026-01-02 03:04:05.678901Z' AS at, INTERVAL '1' SECOND AS took,
               CAST(NULL AS STRING) AS comment, 1Y AS rank, -1.28 AS price,
               map(3, named_struct('city', 'Kiel')) AS places
    """)
    with serve_registry(stub) as url:
        options = {"topic": topic, "value.format": "protobuf", "schema.registry.url": url}
        write(frame, embedded, options)
        with pytest.raises(Exception, match=r"'note' is date, which field shop\.Order\.note"):
            write(spark.sql("SELECT current_date() AS note"), embedded, options)
    order: Any = message_in(file(ORDERS), {"shop/common.proto": file(COMMON)}, None)
    ((found,),) = [embedded.records(topic)]
    made = order.FromString((found.value or b"")[6:])
    assert (made.id, made.small, made.note, made.raw, made.paid) == (5, 6, "n", b"r", True)
    assert (made.weight, made.state, made.address.city, list(made.tags)) == (
        0.5,
        7,
        "Ulm",
        ["a", "b"],
    )
    assert ([each.city for each in made.stops], dict(made.counts)) == (["Bonn"], {"a": 1})
    assert made.at.ToJsonString() == "2026-01-02T03:04:05.678901Z"
    assert (made.took.seconds, made.HasField("comment"), made.rank.value) == (1, False, 1)
    assert (made.price.value, made.price.scale, made.places[3].city) == (b"\x80", 2, "Kiel")
