"""Record batches into a topic, without Spark."""

from __future__ import annotations

import pickle
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from support.spark import EmbeddedKafka, embedded_kafka

from aioproducer.errors import BootstrapError, UnknownTopicOrPartitionError
from aioproducer.spark import rows
from aioproducer.spark.options import SourceOptions
from aioproducer.spark.plan import JOB, SinkPlan, TaskPlace
from aioproducer.spark.pool import POOL
from aioproducer.spark.reports.tasks import TaskReport
from aioproducer.spark.rows import RowError
from aioproducer.spark.task import write_task

PLACE = TaskPlace(3, 0)
TEXT = [("key", "string"), ("value", "string")]


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with embedded_kafka() as kafka:
        yield kafka
        POOL.close()


def batches(values: list[str], size: int = 10) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(values), size):
        some = values[start : start + size]
        keys = [f"key-{start + at}" for at in range(len(some))]
        yield pa.RecordBatch.from_pydict({"key": keys, "value": some})


def write(
    kafka: EmbeddedKafka, topic: str, source: Iterator[pa.RecordBatch], **options: str
) -> TaskReport:
    given = {"kafka.bootstrap.servers": kafka.servers, "topic": topic}
    given |= {name.replace("__", "."): value for name, value in options.items()}
    plan = SinkPlan.of_batch(given, TEXT, overwrite=False)
    return write_task(plan, PLACE, JOB, source)


def test_the_report_says_what_was_done(kafka: EmbeddedKafka) -> None:
    topic = kafka.topic(1)
    report = write(kafka, topic, batches([str(each) for each in range(95)]))
    assert (report.place, report.rows, report.retries, report.dead_letters) == (PLACE, 95, 0, {})
    assert report.bytes > 95
    assert [int(each.value or b"") for each in kafka.read(topic)[0]] == list(range(95))


def test_the_message_of_a_task_does_not_grow_with_the_partitions(kafka: EmbeddedKafka) -> None:
    topic = kafka.topic(200)
    given = {"kafka.bootstrap.servers": kafka.servers, "topic": topic}
    plan = SinkPlan.of_batch(given, [*TEXT, ("partition", "int")], overwrite=False)
    batch = next(batches(["v"] * 200, 200))
    batch = batch.append_column("partition", pa.array(range(200), pa.int32()))
    # Spark's driver holds the messages of all tasks (`spark.driver.maxResultSize`).
    assert len(pickle.dumps(write_task(plan, PLACE, JOB, iter([batch])))) < 1500


def test_headers_may_be_a_map_and_times_milliseconds(kafka: EmbeddedKafka) -> None:
    topic = kafka.topic(1)
    given = {"kafka.bootstrap.servers": kafka.servers, "topic": topic}
    fields = [("value", "binary"), ("headers", "map<string,string>"), ("timestamp", "bigint")]
    batch = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"a"]),
            "headers": pa.array([[("trace", "7")]], pa.map_(pa.string(), pa.string())),
            "timestamp": pa.array([1234]),
        }
    )
    write_task(SinkPlan.of_batch(given, fields, overwrite=False), PLACE, JOB, iter([batch]))
    (record,) = kafka.records(topic)
    assert (record.headers, record.timestamp_ms) == ((("trace", b"7"),), 1234)


def test_no_rows_are_no_trouble(kafka: EmbeddedKafka) -> None:
    assert write(kafka, kafka.topic(), iter(())).rows == 0


def test_what_the_source_raises_comes_out_as_it_is(kafka: EmbeddedKafka) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(["1"])
        raise OSError("the source broke")

    with pytest.raises(OSError, match="the source broke"):
        write(kafka, kafka.topic(), broken())


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_task_that_cannot_begin_fails_while_its_source_still_blocks(
    kafka: EmbeddedKafka, guarantee: str
) -> None:
    may_end = threading.Event()

    def source() -> Iterator[pa.RecordBatch]:
        may_end.wait(30)
        yield from batches(["1"])

    given = {"topic": kafka.topic(), "delivery.guarantee": guarantee}
    here = {"kafka.bootstrap.servers": kafka.servers, "kafka.max.block.ms": "300"}
    plan = SinkPlan.of_batch(given | here, TEXT, overwrite=False).begun()
    nowhere = SinkPlan.of_batch(
        given | here | {"kafka.bootstrap.servers": "127.0.0.1:1"}, TEXT, overwrite=False
    )
    try:
        with pytest.raises(BootstrapError):
            write_task(replace(plan, options=nowhere.options), PLACE, JOB, source())
    finally:
        may_end.set()


def test_the_first_refused_row_ends_the_reading(kafka: EmbeddedKafka) -> None:
    read = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal read
        for batch in batches(["x" * 2_000_000, *map(str, range(500))]):
            read += 1
            yield batch

    with pytest.raises(RowError, match=r"Spark partition 3, row 0 \(key b'key-0'\)"):
        write(kafka, kafka.topic(), counted())
    assert read <= 2


def test_a_long_key_is_shortened(kafka: EmbeddedKafka) -> None:
    batch = pa.RecordBatch.from_pydict({"key": ["k" * 100], "value": ["x" * 2_000_000]})
    with pytest.raises(RowError, match=r"key b'k{40}'\.\.\. of 100 bytes"):
        write(kafka, kafka.topic(), iter([batch]))


@pytest.fixture
def _few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioproducer.spark.sending.KEPT_BYTES", 500)
    monkeypatch.setattr(rows, "KEPT_BYTES", 500)


@pytest.mark.usefixtures("_few_are_kept")
def test_refused_rows_are_found_again_batch_after_batch(kafka: EmbeddedKafka) -> None:
    topic, letters = kafka.topic(), kafka.topic(1)
    values = [str(each) if each % 30 else "x" * 2_000_000 for each in range(100)]
    report = write(kafka, topic, batches(values), dead__letter__topic=letters)
    assert (report.rows, report.dead_letters) == (100, {"RecordTooLargeError": 4})
    keys = [record.key for record in kafka.read(letters)[0]]
    assert keys == [b"key-0", b"key-30", b"key-60", b"key-90"]
    assert kafka.numbers(topic) == [each for each in range(100) if each % 30]


def keyed(count: int, *, bad: int) -> Iterator[pa.RecordBatch]:
    """One batch; a row of it has no key."""
    keys = [None if each == bad else f"key-{each}" for each in range(count)]
    yield pa.RecordBatch.from_pydict({"key": keys, "value": [str(each) for each in range(count)]})


def test_of_many_rows_only_the_bad_one_is_a_dead_letter(kafka: EmbeddedKafka) -> None:
    topic, letters = kafka.topic(1, cleanup_policy="compact"), kafka.topic(1)
    report = write(kafka, topic, keyed(1000, bad=500), dead__letter__topic=letters)
    assert (report.rows, report.dead_letters) == (1000, {"InvalidRecordError": 1})
    assert [record.value for record in kafka.read(letters)[0]] == [b"500"]
    written = [int(record.value or b"") for record in kafka.read(topic)[0]]
    assert written == [each for each in range(1000) if each != 500]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_the_row_that_is_to_blame_is_named(kafka: EmbeddedKafka, guarantee: str) -> None:
    topic = kafka.topic(1, cleanup_policy="compact")
    given = {"topic": topic, "delivery.guarantee": guarantee}
    given |= {"kafka.bootstrap.servers": kafka.servers}
    plan = SinkPlan.of_batch(given, TEXT, overwrite=False).begun()
    with pytest.raises(RowError, match=r"row 500: InvalidRecordError: .* without key"):
        write_task(plan, PLACE, JOB, keyed(1000, bad=500))


def test_rows_that_fail_with_it_are_counted(kafka: EmbeddedKafka) -> None:
    given = {"topic": kafka.topic(1), "delivery.guarantee": "exactly-once"}
    given |= {"kafka.bootstrap.servers": kafka.servers, "kafka.linger.ms": "60000"}
    plan = SinkPlan.of_batch(given, TEXT, overwrite=False).begun()
    rows = batches([*map(str, range(27)), "x" * 2_000_000])
    with pytest.raises(RowError, match=r"row 27 .*max.request.size=1048576; 27 more failed"):
        write_task(plan, PLACE, JOB, rows)


@pytest.mark.usefixtures("_few_are_kept")
def test_a_refused_row_is_at_hand_when_others_have_come_after_it(kafka: EmbeddedKafka) -> None:
    topic, letters = kafka.topic(), kafka.topic(1)
    given = {"kafka.bootstrap.servers": kafka.servers, "topic": topic}
    given["dead.letter.topic"] = letters

    def source() -> Iterator[pa.RecordBatch]:
        for batch in batches(["x" * 30] * 20):
            places = [-1 if each == "key-5" else 0 for each in batch["key"].to_pylist()]
            yield batch.append_column("partition", pa.array(places, pa.int32()))

    plan = SinkPlan.of_batch(given, [*TEXT, ("partition", "int")], overwrite=False)
    assert write_task(plan, PLACE, JOB, source()).dead_letters == {"InvalidPartitionError": 1}
    (letter,) = kafka.records(letters)
    assert (letter.key, letter.value) == (b"key-5", b"x" * 30)


def test_few_batches_are_kept_to_name_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "KEPT_BYTES", 1000)
    plan = SinkPlan.of_batch(
        {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}, TEXT, overwrite=False
    )
    window = rows.RowWindow(plan.columns)
    first = 0
    for batch in batches(["x" * 40] * 100):
        window.add(first, batch, batch.nbytes)
        first += batch.num_rows
    assert window.size <= 1000
    assert window.row(0) == rows.Row()
    newest = window.row(99)
    assert (newest.key, newest.value) == (b"key-99", b"x" * 40)


def test_a_batch_is_let_go_once_its_rows_are_delivered(kafka: EmbeddedKafka) -> None:
    first: weakref.ref[pa.RecordBatch] | None = None
    read = 0

    def until_it_is_gone() -> Iterator[pa.RecordBatch]:
        nonlocal first, read
        for batch in batches(["x"] * 100_000):
            if first is None:
                first = weakref.ref(batch)
            elif first() is None:
                return
            read += 1
            yield batch

    report = write(kafka, kafka.topic(1), until_it_is_gone(), kafka__linger__ms="0")
    assert report.rows == read * 10 < 100_000


def test_batches_are_let_go_in_order() -> None:
    plan = SinkPlan.of_batch(
        {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}, TEXT, overwrite=False
    )
    window = rows.RowWindow(plan.columns)
    for number, batch in enumerate(batches(["x"] * 30)):
        window.add(number * 10, batch, batch.nbytes)
        if number < 2:
            window.mark(number + 1)
    window.drop(lambda mark: mark > 1)
    assert window.row(0).value == b"x"
    window.drop(lambda mark: mark == 1)
    assert (window.row(9), window.row(10).value) == (rows.Row(), b"x")
    window.drop(lambda mark: True)  # the last one is not handed over yet
    assert (window.row(19), window.row(20).value) == (rows.Row(), b"x")
    window.clear()
    assert window.size == 0


def test_a_plan_pickles_without_a_secret_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import pickle

    monkeypatch.setenv("THE_PASSWORD", "hush-hush")
    monkeypatch.setenv("AIOPRODUCER_ALLOW", "env:THE_PASSWORD")
    given = {
        "kafka.bootstrap.servers": "localhost:9092",
        "topic": "t",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password.env": "THE_PASSWORD",
    }
    plan = SinkPlan.of_batch(given, TEXT, overwrite=False)
    pickled = pickle.dumps(plan)
    assert b"hush" not in pickled
    assert pickle.loads(pickled).options.config().sasl_password == "hush-hush"
    assert SourceOptions.__name__ in repr(plan)


def test_a_worker_that_is_used_again_is_spared_the_collector(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[int] = []
    monkeypatch.setattr("aioproducer.spark.task.gc.freeze", lambda: frozen.append(1))
    monkeypatch.setattr("aioproducer.spark.task._tasks", 0)
    topic = kafka.topic()
    for _ in range(2):
        write(kafka, topic, batches(["1"]))
    assert frozen == []  # no worker of Spark's
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    monkeypatch.setattr("aioproducer.spark.task._tasks", 0)
    counts = []
    for _ in range(4):
        write(kafka, topic, batches(["1"]))
        counts.append(len(frozen))
    assert counts == [0, 1, 1, 1]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
)
def test_a_topic_that_only_rows_name_is_waited_for_its_time(
    kafka: EmbeddedKafka, kind: pa.DataType
) -> None:
    known = kafka.topic(1)
    given = {
        "kafka.bootstrap.servers": kafka.servers,
        "kafka.allow.auto.create.topics": "false",
        "topic.timeout.ms": "300",
    }
    fields = [("value", "binary"), ("topic", "string")]
    plan = SinkPlan.of_batch(given, fields, overwrite=False)

    def rows_for(*topics: str) -> pa.RecordBatch:
        values = [b"v"] * len(topics)
        return pa.RecordBatch.from_pydict({"value": values, "topic": pa.array(topics).cast(kind)})

    began = time.monotonic()
    with pytest.raises(UnknownTopicOrPartitionError, match="'nowhere' does not exist") as caught:
        write_task(plan, PLACE, JOB, iter([rows_for(known, known), rows_for(known, "nowhere")]))
    assert time.monotonic() - began < 5
    assert "Rows for other topics may have been written" in str(caught.value)
    assert "topic.timeout.ms" in str(caught.value)
    assert write_task(plan, PLACE, JOB, iter([rows_for(known)])).rows == 1


def test_a_dead_letter_topic_that_does_not_exist_is_waited_for_its_time(
    kafka: EmbeddedKafka,
) -> None:
    topic = kafka.topic(1, max_message_bytes="1000")
    began = time.monotonic()
    with pytest.raises(UnknownTopicOrPartitionError, match="'nowhere' does not exist"):
        write(
            kafka,
            topic,
            batches(["v" * 5000]),
            dead__letter__topic="nowhere",
            topic__timeout__ms="300",
            kafka__allow__auto__create__topics="false",
        )
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("guarantee", ["at-least-once", "task-transactions", "exactly-once"])
@pytest.mark.parametrize("by_row", [False, True])
def test_a_partition_that_does_not_exist_is_waited_for_as_long_as_a_topic(
    kafka: EmbeddedKafka, guarantee: str, by_row: bool
) -> None:
    two, five = kafka.topic(2), kafka.topic(5)
    given = {
        "kafka.bootstrap.servers": kafka.servers,
        "delivery.guarantee": guarantee,
        "marker.topic": two,
        "topic.timeout.ms": "300",
    }
    fields = [*TEXT, ("topic", "string"), ("partition", "bigint")]
    given |= {} if by_row else {"topic": two}
    plan = SinkPlan.of_batch(given, fields, overwrite=False).begun()
    batch = next(batches(list("abcd")))
    batch = batch.append_column("topic", pa.array([five, two, None, two] if by_row else [two] * 4))
    places = [4 if by_row else 1, None, 1, 2]
    batch = batch.append_column("partition", pa.array(places, pa.int64()))
    wanted = (
        r"Spark partition 3, row 3 \(key b'key-3'\): MetadataTimeoutError: the partition is not "
        r"present in metadata: the topic has 2 partition\(s\)"
    )
    began = time.monotonic()
    with pytest.raises(RowError, match=wanted) as caught:
        write_task(plan, PLACE, JOB, iter([batch]))
    assert time.monotonic() - began < 5
    assert (caught.value.topic, caught.value.partition) == (two, 2)


def test_a_partition_that_is_added_within_the_wait_is_written_to(kafka: EmbeddedKafka) -> None:
    topic = kafka.topic(1)
    given = {"kafka.bootstrap.servers": kafka.servers, "topic": topic}
    plan = SinkPlan.of_batch(given, [*TEXT, ("partition", "int")], overwrite=False)

    def source() -> Iterator[pa.RecordBatch]:
        for place, batch in enumerate(batches(["a", "b"], 1)):
            if place:
                kafka.create_partitions(topic, 2)
            yield batch.append_column("partition", pa.array([place], pa.int32()))

    write_task(plan, PLACE, JOB, source())
    assert {place: len(found) for place, found in kafka.read(topic).items()} == {0: 1, 1: 1}


def test_a_partition_that_no_topic_can_have_is_refused_at_once(kafka: EmbeddedKafka) -> None:
    letters = kafka.topic(1)
    given = {"kafka.bootstrap.servers": kafka.servers, "topic": kafka.topic()}
    given["dead.letter.topic"] = letters
    plan = SinkPlan.of_batch(given, [*TEXT, ("partition", "bigint")], overwrite=False)
    batch = next(batches(["a", "b"])).append_column("partition", pa.array([2**31, 0]))
    began = time.monotonic()
    assert write_task(plan, PLACE, JOB, iter([batch])).dead_letters == {"InvalidPartitionError": 1}
    assert time.monotonic() - began < 5
    assert [each.value for each in kafka.records(letters)] == [b"a"]
