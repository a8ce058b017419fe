"""Micro-batches that the driver writes itself, beside those that tasks write."""

from __future__ import annotations

import asyncio
import gc
import pickle
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from support.spark import EmbeddedKafka, embedded_kafka

from aioproducer.errors import (
    CommitOutcomeUnknownError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
)
from aioproducer.spark.direct import DirectEpochs
from aioproducer.spark.errors import (
    CheckpointBehindError,
    DecisionUnknownError,
    SupersededError,
)
from aioproducer.spark.exactly_once.calls import CALLERS
from aioproducer.spark.foreach import BatchReport, batch_writer
from aioproducer.spark.plan import SinkPlan, TaskPlace
from aioproducer.spark.pool import POOL
from aioproducer.spark.rows import RowError
from aioproducer.spark.task import commit, write_task
from aioproducer.wire.api_keys import ApiKey

types: Any = pytest.importorskip("pyspark.sql.types", reason="needs pyspark (the extra `spark`)")

SCHEMA = types.StructType([types.StructField("value", types.StringType())])
FIELDS = [("value", "string")]


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with embedded_kafka() as kafka:
        yield kafka
        POOL.close()
        CALLERS.close()


@pytest.fixture
def direct() -> Iterator[DirectEpochs]:
    made = DirectEpochs()
    yield made
    made.leave()


def rows(epoch: int) -> list[pa.RecordBatch]:
    values = [str(number) for number in range(10 * epoch, 10 * epoch + 10)]
    return [
        pa.RecordBatch.from_pydict({"value": values[:4]}),
        pa.RecordBatch.from_pydict({"value": values[4:]}),
    ]


def options_of(kafka: EmbeddedKafka, topic: str, guarantee: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": kafka.servers,
        "topic": topic,
        "delivery.guarantee": guarantee,
    }


def plan_of(kafka: EmbeddedKafka, topic: str, epoch: int, **options: str) -> SinkPlan:
    given = options_of(kafka, topic, "exactly-once")
    given |= {"job.id": topic, "job.epoch": str(epoch)}
    named = {name.replace("__", "."): value for name, value in options.items()}
    return SinkPlan.of_batch(given | named, FIELDS, overwrite=False)


def write(direct: DirectEpochs, kafka: EmbeddedKafka, topic: str, epoch: int) -> int | None:
    plan = plan_of(kafka, topic, epoch)
    report = direct.write(plan, plan.epoch, rows(epoch))
    return None if report is None else report.rows


def by_tasks(kafka: EmbeddedKafka, topic: str, epoch: int) -> int:
    plan = pickle.loads(pickle.dumps(plan_of(kafka, topic, epoch).begun()))
    reports = [
        write_task(plan, TaskPlace(number, 0), plan.epoch, iter([batch]))
        for number, batch in enumerate(rows(epoch))
    ]
    commit(plan, epoch, reports)
    return sum(each.rows for each in reports)


def test_epochs_are_written_once_each(kafka: EmbeddedKafka, direct: DirectEpochs) -> None:
    topic = kafka.topic()
    assert [write(direct, kafka, topic, epoch) for epoch in (0, 1, 1, 2)] == [10, 10, None, 10]
    assert kafka.numbers(topic) == list(range(30))
    with pytest.raises(CheckpointBehindError):
        write(direct, kafka, topic, 1)


def test_epochs_are_written_from_a_thread_with_a_running_event_loop(
    kafka: EmbeddedKafka, direct: DirectEpochs
) -> None:
    topic = kafka.topic()

    async def cell() -> list[int | None]:  # of a notebook
        return [write(direct, kafka, topic, epoch) for epoch in (0, 1)]

    with pytest.warns(RuntimeWarning, match="holds up the event loop"):
        assert asyncio.run(cell()) == [10, 10]
    assert kafka.numbers(topic) == list(range(20))


def test_a_new_driver_finds_what_the_last_one_has_written(kafka: EmbeddedKafka) -> None:
    topic = kafka.topic()
    for epochs in ((0, 1), (1, 2), (2, 3)):  # each process dies before its last epoch is noted
        driver = DirectEpochs()
        for epoch in epochs:
            write(driver, kafka, topic, epoch)
        driver.leave()
    assert kafka.numbers(topic) == list(range(40))


def test_epochs_of_tasks_and_of_the_driver_know_of_each_other(
    kafka: EmbeddedKafka, direct: DirectEpochs
) -> None:
    topic = kafka.topic()
    assert by_tasks(kafka, topic, 0) == 10
    assert write(direct, kafka, topic, 0) is None
    assert write(direct, kafka, topic, 1) == 10
    direct.leave()
    assert by_tasks(kafka, topic, 1) == 0
    assert by_tasks(kafka, topic, 2) == 10
    assert write(direct, kafka, topic, 3) == 10
    assert kafka.numbers(topic) == list(range(40))


@pytest.mark.parametrize("by", ["driver", "tasks"])
def test_a_driver_that_another_one_has_shut_out_writes_nothing(
    kafka: EmbeddedKafka, direct: DirectEpochs, by: str
) -> None:
    topic, other = kafka.topic(), DirectEpochs()
    write(direct, kafka, topic, 0)
    if by == "driver":
        write(other, kafka, topic, 1)
        other.leave()
    else:
        by_tasks(kafka, topic, 1)
    with pytest.raises(SupersededError, match="another query or job"):
        write(direct, kafka, topic, 1)
    assert kafka.numbers(topic) == list(range(20))
    assert write(direct, kafka, topic, 1) is None  # it begins anew, and finds out


def test_an_epoch_that_was_open_when_another_driver_began_is_not_published(
    kafka: EmbeddedKafka, direct: DirectEpochs
) -> None:
    topic, other = kafka.topic(), DirectEpochs()
    plan = plan_of(kafka, topic, 0)

    def interrupted() -> Iterator[pa.RecordBatch]:
        yield rows(0)[0]
        write(other, kafka, topic, 0)
        yield rows(0)[1]

    with pytest.raises((SupersededError, RowError)):
        direct.write(plan, plan.epoch, interrupted())
    other.leave()
    assert kafka.numbers(topic) == list(range(10))


def test_a_row_that_is_refused_leaves_nothing(kafka: EmbeddedKafka, direct: DirectEpochs) -> None:
    topic = kafka.topic()
    plan = plan_of(kafka, topic, 0)
    bad = [*rows(0), pa.RecordBatch.from_pydict({"value": ["x" * 2_000_000]})]
    with pytest.raises(RowError, match="row 10: RecordTooLargeError"):
        direct.write(plan, plan.epoch, bad)
    assert kafka.numbers(topic) == []
    assert write(direct, kafka, topic, 0) == 10
    assert kafka.numbers(topic) == list(range(10))


@pytest.mark.parametrize("unknown", [KafkaTimeoutError, CommitOutcomeUnknownError])
def test_a_commit_without_an_answer_is_found_out_by_the_next_call(
    kafka: EmbeddedKafka,
    direct: DirectEpochs,
    monkeypatch: pytest.MonkeyPatch,
    unknown: type[KafkaError],
) -> None:
    topic = kafka.topic()
    write(direct, kafka, topic, 0)
    producer: Any = direct._producer
    real = producer.commit_transaction

    def lost() -> None:
        real()
        raise unknown("no answer")

    monkeypatch.setattr(producer, "commit_transaction", lost)
    with pytest.raises(DecisionUnknownError, match="whether epoch 1 is decided is not known"):
        write(direct, kafka, topic, 1)
    assert write(direct, kafka, topic, 1) is None
    assert kafka.numbers(topic) == list(range(20))


class Frame:
    """A DataFrame, as far as the driver's way uses it."""

    schema = SCHEMA
    sparkSession = "the session of a query"  # noqa: N815

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._table = pa.Table.from_batches(batches)

    def sameSemantics(self, other: Frame) -> bool:  # noqa: N802
        return bool(self._table == other._table)

    def limit(self, count: int) -> Frame:
        return Frame(self._table.slice(0, count).to_batches())

    def toArrow(self) -> pa.Table:  # noqa: N802
        return self._table


@pytest.mark.parametrize("guarantee", ["at-least-once", "task-transactions", "exactly-once"])
def test_small_batches_are_written_by_the_driver_and_reported(
    kafka: EmbeddedKafka, guarantee: str
) -> None:
    topic = kafka.topic()
    options = options_of(kafka, topic, guarantee)
    reports: list[BatchReport] = []
    writer: Any = batch_writer(options, query=topic, on_batch=reports.append)
    for epoch in (0, 1, 1):
        writer(Frame(rows(epoch)), epoch)
    again = guarantee != "exactly-once"
    assert [(each.batch, each.by_driver, each.rows) for each in reports] == [
        (0, True, 10),
        (1, True, 10),
        (1, True, 10 if again else 0),
    ]
    assert all(each.seconds > 0 for each in reports)
    assert kafka.numbers(topic) == sorted([*range(20), *(range(10, 20) if again else ())])
    if writer._direct is not None:
        writer._direct.leave()


@pytest.mark.parametrize("guarantee", ["at-least-once", "task-transactions", "exactly-once"])
def test_other_rows_of_a_batch_are_written_or_refused(kafka: EmbeddedKafka, guarantee: str) -> None:
    topic = kafka.topic()
    writer: Any = batch_writer(options_of(kafka, topic, guarantee), query=topic)
    writer(Frame(rows(0)), 7)
    if guarantee == "exactly-once":
        with pytest.raises(IllegalStateError, match="with other rows of it would write nothing"):
            writer(Frame(rows(1)), 7)
        writer._direct.leave()
        another: Any = batch_writer(options_of(kafka, topic, guarantee), query=topic)
        with pytest.raises(IllegalStateError, match="with other rows of it would write nothing"):
            another(Frame(rows(1)), 7)
    else:
        writer(Frame(rows(1)), 7)
        assert kafka.numbers(topic) == list(range(20))


def test_a_query_may_write_its_batches_to_several_topics(kafka: EmbeddedKafka) -> None:
    topics = [kafka.topic(), kafka.topic()]
    writers: list[Any] = [
        batch_writer(options_of(kafka, topic, "exactly-once"), query=topics[0]) for topic in topics
    ]
    for epoch in (0, 1):
        for each in writers:
            each(Frame(rows(epoch)), epoch)
    assert [kafka.numbers(topic) for topic in topics] == [list(range(20))] * 2
    for each in writers:
        each._direct.leave()


def test_a_batch_of_a_query_that_was_started_again_is_skipped_and_says_so(
    kafka: EmbeddedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic()
    writer: Any = batch_writer(options_of(kafka, topic, "exactly-once"), query=topic)
    writer(Frame(rows(0)), 7)
    assert not caplog.messages
    again: Any = Frame(rows(1))  # the plan is another one, even if its rows are the same
    again.sparkSession = "another session"
    writer(again, 7)
    assert "is in Kafka already, nothing was written" in caplog.text
    assert kafka.numbers(topic) == list(range(10))
    writer._direct.leave()


@pytest.mark.parametrize("guarantee", ["at-least-once", "task-transactions", "exactly-once"])
def test_the_producer_of_the_first_batch_writes_the_others(
    kafka: EmbeddedKafka, guarantee: str
) -> None:
    topic = kafka.topic()
    options = options_of(kafka, topic, guarantee)
    writer: Any = batch_writer(options, query=topic)
    writer(Frame(rows(0)), 0)
    another = kafka.faults.drop(ApiKey.INIT_PRODUCER_ID, apply=True)
    for number in (1, 2):
        writer(Frame(rows(number)), number)
    kafka.faults.remove(another)
    assert another.struck == 0
    assert kafka.numbers(topic) == list(range(30))
    if writer._direct is not None:
        writer._direct.leave()


def test_a_writer_that_is_dropped_closes_its_producer(kafka: EmbeddedKafka) -> None:
    topic = kafka.topic()
    options = options_of(kafka, topic, "exactly-once")
    writer: Any = batch_writer(options, query=topic)
    writer(Frame(rows(0)), 0)
    producer = writer._direct._producer
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        del writer
        gc.collect()  # CPython 3.13 keeps the frames of cancelled tasks until then
    assert "closed" in repr(producer)


def test_large_batches_are_written_by_tasks_and_the_driver_tries_again_later(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"kafka.bootstrap.servers": kafka.servers, "topic": kafka.topic()}
    writer: Any = batch_writer(options, max_rows=9)
    tried: list[int] = []
    by_tasks = BatchReport(0, False, None, None, None, None, 0.0)
    monkeypatch.setattr(type(writer), "_by_tasks", lambda *_: by_tasks)
    real = Frame.limit
    monkeypatch.setattr(Frame, "limit", lambda self, n: (tried.append(number), real(self, n))[1])
    for number in range(12):
        writer(Frame(rows(number)), number)
    assert tried == [0, 1, 3, 7]
    writer(Frame(rows(0)[:1]), 12)


class FailingFrame(Frame):
    """A DataFrame that Spark does not give to the driver."""

    def __init__(self, reason: str) -> None:
        super().__init__(rows(0))
        self._reason = reason

    def limit(self, count: int) -> Frame:
        return self

    def toArrow(self) -> pa.Table:  # noqa: N802
        raise RuntimeError(self._reason)


def test_batches_beyond_the_driver_s_largest_result_are_written_by_tasks(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"kafka.bootstrap.servers": kafka.servers, "topic": kafka.topic()}
    writer: Any = batch_writer(options)
    given: list[int] = []
    by_tasks = BatchReport(0, False, None, None, None, None, 0.0)
    monkeypatch.setattr(
        type(writer), "_by_tasks", lambda _, __, number: given.append(number) or by_tasks
    )
    with pytest.raises(RuntimeError, match="a task failed"):
        writer(FailingFrame("a task failed"), 0)
    reason = (
        "Job aborted due to stage failure: Total size of serialized results of 2 tasks (1.2 GiB) "
        "is bigger than spark.driver.maxResultSize (1024.0 MiB)"
    )
    writer(FailingFrame(reason), 0)
    assert given == [0]


def test_a_writer_pickles_without_its_connections(kafka: EmbeddedKafka) -> None:
    topic = kafka.topic()
    options = options_of(kafka, topic, "exactly-once")
    writer: Any = batch_writer(options, query=topic)
    writer(Frame(rows(0)), 0)
    copy: Any = pickle.loads(pickle.dumps(writer))
    copy(Frame(rows(0)), 0)
    copy(Frame(rows(1)), 1)
    assert kafka.numbers(topic) == list(range(20))
    for each in (writer, copy):
        with suppress(KafkaError):
            each._direct.leave()


_STEPS = ["INIT_PRODUCER_ID", "PRODUCE", "TXN_OFFSET_COMMIT", "END_TXN"]


@pytest.mark.parametrize("after_the_work", [False, True])
@pytest.mark.parametrize("step", _STEPS)
def test_a_driver_that_restarts_after_a_lost_connection_writes_each_batch_once(
    kafka: EmbeddedKafka, step: str, after_the_work: bool
) -> None:
    topic = kafka.topic(1)
    options = options_of(kafka, topic, "exactly-once")
    for number in range(3):
        fault = kafka.faults.drop(ApiKey[step], apply=after_the_work)
        for _ in range(2):  # Spark gives the batch to another driver, whether it failed or not
            writer: Any = batch_writer(options, query=topic)
            with suppress(KafkaError):
                writer(Frame(rows(number)), number)
            if writer._direct is not None:
                writer._direct.leave()
        assert fault.struck == 1
    assert kafka.numbers(topic) == list(range(30))
