"""Streams into Kafka by `df.writeStream`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.spark import EmbeddedKafka

from aioproducer.errors import GroupAuthorizationFailedError, NotLeaderOrFollowerError
from aioproducer.spark import BatchReport, TransactionCounts, batch_writer, register
from aioproducer.wire.api_keys import ApiKey

pytestmark = pytest.mark.slow  # Spark starts


@pytest.fixture(autouse=True, scope="module")
def _registered(spark: Any) -> None:
    register(spark)


def put(spark: Any, folder: Path, start: int, stop: int) -> None:
    """A file that the next micro-batch reads."""
    frame = spark.range(start, stop, 1, 1).selectExpr("CAST(id AS STRING) AS value")
    frame.write.mode("append").parquet(str(folder))


def stream(spark: Any, folder: Path) -> Any:
    return spark.readStream.schema("value STRING").parquet(str(folder))


def run(frame: Any, kafka: EmbeddedKafka, checkpoint: Path, options: Mapping[str, str]) -> Any:
    """Writes what is there; gives the progress of the last batch."""
    query = (
        frame.writeStream.format("aioproducer")
        .option("kafka.bootstrap.servers", kafka.servers)
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    return query.lastProgress


def run_batches(spark: Any, folder: Path, checkpoint: Path, write: Any) -> None:
    """Give what is there to a function for `foreachBatch`, in a new query."""
    query = (
        stream(spark, folder)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)


@pytest.mark.parametrize("guarantee", ["at-least-once", "task-transactions", "exactly-once"])
def test_what_arrives_is_written_once(
    spark: Any, embedded: EmbeddedKafka, tmp_path: Path, guarantee: str
) -> None:
    topic = embedded.topic()
    options = {"topic": topic, "delivery.guarantee": guarantee}
    for number in range(2):
        put(spark, tmp_path / "in", 100 * number, 100 * (number + 1))
        progress = run(stream(spark, tmp_path / "in"), embedded, tmp_path / "cp", options)
        assert progress.sink.numOutputRows == 100
    assert embedded.numbers(topic) == list(range(200))


def test_a_batch_that_spark_runs_again_is_skipped(
    spark: Any, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    topic, checkpoint = embedded.topic(), tmp_path / "cp"
    options = {"topic": topic, "delivery.guarantee": "exactly-once"}
    put(spark, tmp_path / "in", 0, 100)
    run(stream(spark, tmp_path / "in"), embedded, checkpoint, options)
    for name in ("0", ".0.crc"):  # as if the driver had died before it wrote this down
        (checkpoint / "commits" / name).unlink()
    put(spark, tmp_path / "in", 100, 200)
    run(stream(spark, tmp_path / "in"), embedded, checkpoint, options)
    assert embedded.numbers(topic) == list(range(200))


def test_the_same_batch_is_doubled_at_least_once(
    spark: Any, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    topic, checkpoint = embedded.topic(), tmp_path / "cp"
    put(spark, tmp_path / "in", 0, 100)
    run(stream(spark, tmp_path / "in"), embedded, checkpoint, {"topic": topic})
    for name in ("0", ".0.crc"):
        (checkpoint / "commits" / name).unlink()
    run(stream(spark, tmp_path / "in"), embedded, checkpoint, {"topic": topic})
    assert embedded.numbers(topic) == sorted([*range(100), *range(100)])


def test_updates_go_by_foreach_batch(spark: Any, embedded: EmbeddedKafka, tmp_path: Path) -> None:
    topic = embedded.topic(1)
    put(spark, tmp_path / "in", 0, 10)
    counts = stream(spark, tmp_path / "in").groupBy("value").count()
    options = {
        "kafka.bootstrap.servers": embedded.servers,
        "topic": topic,
        "delivery.guarantee": "exactly-once",
    }
    write = batch_writer(options, query=topic)
    query = (
        counts.selectExpr("value AS key", "CAST(count AS STRING) AS value")
        .writeStream.outputMode("update")
        .foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "cp"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert sorted(int(each.key or b"") for each in embedded.records(topic)) == list(range(10))
    assert set(embedded.numbers(topic)) == {1}


def test_complete_mode_appends_the_whole_result_in_a_named_query(
    spark: Any, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    topic = embedded.topic(1)
    options = {"topic": topic, "delivery.guarantee": "exactly-once"}
    for _ in range(2):
        put(spark, tmp_path / "in", 0, 3)
        counts = stream(spark, tmp_path / "in").groupBy("value").count()
        frame = counts.selectExpr("value AS key", "CAST(count AS STRING) AS value")
        query = (
            frame.writeStream.format("aioproducer")
            .queryName("counts")
            .outputMode("complete")
            .option("kafka.bootstrap.servers", embedded.servers)
            .option("checkpointLocation", str(tmp_path / "cp"))
            .options(**options)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
    assert embedded.numbers(topic) == [1, 1, 1, 2, 2, 2]
    newest = {each.key: each.value for each in embedded.read(topic)[0]}
    assert newest == {b"0": b"2", b"1": b"2", b"2": b"2"}


@pytest.mark.parametrize(("first", "second"), [(1000, 0), (0, 1000), (1000, 1000)])
def test_a_batch_is_written_once_whichever_way_it_is_written_first(
    spark: Any, embedded: EmbeddedKafka, tmp_path: Path, first: int, second: int
) -> None:
    topic = embedded.topic(2)
    options = {
        "kafka.bootstrap.servers": embedded.servers,
        "topic": topic,
        "delivery.guarantee": "exactly-once",
    }
    reports: list[BatchReport] = []

    def run_with(max_rows: int) -> None:
        write = batch_writer(
            options,
            query=topic,
            max_rows=max_rows,
            on_batch=reports.append,
        )
        run_batches(spark, tmp_path / "in", tmp_path / "cp", write)

    put(spark, tmp_path / "in", 0, 100)
    run_with(first)
    for name in ("0", ".0.crc"):  # as if the driver had died before it wrote this down
        (tmp_path / "cp" / "commits" / name).unlink()
    put(spark, tmp_path / "in", 100, 200)
    run_with(second)
    assert embedded.numbers(topic) == list(range(200))
    ways = [first > 0, second > 0, second > 0]
    assert [(each.batch, each.by_driver) for each in reports] == list(
        zip((0, 0, 1), ways, strict=True)
    )
    assert [(each.rows, each.retries) for each in reports] == [(100, 0), (0, 0), (100, 0)]
    assert all(each.bytes for each in (reports[0], reports[2]))
    for report in (each for each in (reports[0], reports[2]) if not each.by_driver):
        assert report.transactions is not None and report.transactions.committed > 0


def test_another_query_of_the_same_name_is_refused(
    spark: Any, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    topic = embedded.topic()
    options = {
        "kafka.bootstrap.servers": embedded.servers,
        "topic": topic,
        "delivery.guarantee": "exactly-once",
    }
    write = batch_writer(options, query=topic)
    put(spark, tmp_path / "in", 0, 10)
    put(spark, tmp_path / "other", 10, 20)
    run_batches(spark, tmp_path / "in", tmp_path / "cp", write)
    with pytest.raises(Exception, match="a second call with other rows of it would write nothing"):
        run_batches(spark, tmp_path / "other", tmp_path / "cp2", write)
    assert embedded.numbers(topic) == list(range(10))


def test_a_listener_feeds_rows_and_bytes(
    spark: Any, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    from aioproducer.spark.metrics import QueryMetrics, observed

    fed: list[tuple[int, int | None, int | None]] = []
    listener = QueryMetrics(lambda _, each: fed.append((each.batch, each.rows, each.bytes)))
    spark.streams.addListener(listener)
    try:
        put(spark, tmp_path / "in", 0, 100)
        frame = observed(stream(spark, tmp_path / "in"))
        run(frame, embedded, tmp_path / "cp", {"topic": embedded.topic()})
        deadline = time.monotonic() + 30
        while not fed and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        spark.streams.removeListener(listener)
    assert fed == [(0, 100, 190)]


def test_a_registered_listener_gets_what_commits_know(
    spark: Any, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    from aioproducer.spark.metrics import QueryMetrics

    fed: list[BatchReport] = []
    listener = QueryMetrics(lambda _, report: fed.append(report))
    register(spark, metrics=listener)
    topic, checkpoint = embedded.topic(), tmp_path / "cp"
    options = {"topic": topic, "delivery.guarantee": "exactly-once"}
    lost = embedded.faults.error(ApiKey.PRODUCE, NotLeaderOrFollowerError)
    try:
        for number in range(2):
            put(spark, tmp_path / "in", 100 * number, 100 * (number + 1))
            run(stream(spark, tmp_path / "in"), embedded, checkpoint, options)
            deadline = time.monotonic() + 30
            while len(fed) == number and time.monotonic() < deadline:
                time.sleep(0.1)
    finally:
        spark.streams.removeListener(listener)
        register(spark)
    assert lost.is_spent
    first, second = fed
    assert (first.batch, first.rows, first.dead_letters) == (0, 100, 0)
    assert first.retries and not second.retries
    assert first.bytes and first.delivery_times and first.delivery_times.total == 100
    assert first.transactions == TransactionCounts(1, 1, 1)
    assert second.transactions == TransactionCounts(1, 1, 1)
    assert embedded.numbers(topic) == list(range(200))


def test_a_registered_listener_gets_the_micro_batch_that_a_query_fails_with(
    spark: Any, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    from aioproducer.spark.metrics import QueryMetrics

    fed: list[tuple[str, BatchReport]] = []
    listener = QueryMetrics(lambda query, report: fed.append((query, report)))
    register(spark, metrics=listener)
    topic = embedded.topic()
    options = {"topic": topic, "delivery.guarantee": "exactly-once", "queryName": "orders"}
    embedded.faults.error(ApiKey.TXN_OFFSET_COMMIT, GroupAuthorizationFailedError)
    put(spark, tmp_path / "in", 0, 100)
    try:
        with pytest.raises(Exception, match="GroupAuthorizationFailedError"):
            run(stream(spark, tmp_path / "in"), embedded, tmp_path / "cp", options)
        deadline = time.monotonic() + 30
        while not fed and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        spark.streams.removeListener(listener)
        register(spark)
    ((name, report),) = fed
    assert (name, report.batch, report.is_aborted, report.rows) == ("orders", 0, True, None)
    assert report.transactions == TransactionCounts(1, 1, 0, aborted=1)
    assert embedded.numbers(topic) == []


def test_a_directory_that_the_driver_lacks_fails_the_query_before_a_task(
    spark: Any, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    topic = embedded.topic()
    options = {"topic": topic, "dead.letter.path": str(tmp_path / "none")}
    put(spark, tmp_path / "in", 0, 100)
    with pytest.raises(Exception, match="is not a directory that the driver can write to"):
        run(stream(spark, tmp_path / "in"), embedded, tmp_path / "cp", options)
    assert embedded.records(topic) == []


def test_a_batch_writer_may_serve_one_query_after_the_other(
    spark: Any, embedded: EmbeddedKafka, tmp_path: Path
) -> None:
    topic = embedded.topic()
    reports: list[BatchReport] = []
    options = {"kafka.bootstrap.servers": embedded.servers, "topic": topic}
    write = batch_writer(options, max_rows=0, on_batch=reports.append)
    for number in range(2):  # each query has its own session
        put(spark, tmp_path / "in", 10 * number, 10 * number + 10)
        run_batches(spark, tmp_path / "in", tmp_path / "cp", write)
    assert embedded.numbers(topic) == list(range(20))
    assert [(each.batch, each.rows) for each in reports] == [(0, 10), (1, 10)]
