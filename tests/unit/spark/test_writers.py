"""The writers as Spark calls them, pickled on the way, without a JVM."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from support.spark import EmbeddedKafka, embedded_kafka

from aioproducer.blocking import Producer
from aioproducer.errors import (
    ConfigError,
    GroupAuthorizationFailedError,
    KafkaError,
    NotLeaderOrFollowerError,
    SerializationError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aioproducer.spark.errors import EpochNotPreparedError, EpochOverError, SupersededError
from aioproducer.spark.exactly_once.calls import CALLERS
from aioproducer.spark.pool import POOL, new_task_id
from aioproducer.spark.reports.epochs import BatchReport, QueryReport, TransactionCounts
from aioproducer.spark.rows import RowError
from aioproducer.testing.admin import create_topic, delete_topic
from aioproducer.wire.api_keys import ApiKey

types: Any = pytest.importorskip("pyspark.sql.types", reason="needs pyspark (the extra `spark`)")

SCHEMA = types.StructType([types.StructField("value", types.StringType())])
EXACTLY_ONCE = {"delivery.guarantee": "exactly-once"}


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with embedded_kafka() as kafka:
        yield kafka
        POOL.close()
        CALLERS.close()


def source(kafka: EmbeddedKafka, topic: str, **options: str) -> Any:
    from aioproducer.spark import AioproducerSource

    given = {"kafka.bootstrap.servers": kafka.servers, "topic": topic}
    return AioproducerSource(given | options)


def batch(start: int, stop: int) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"value": [str(each) for each in range(start, stop)]})


def copied(writer: Any) -> Any:
    return pickle.loads(pickle.dumps(writer))


def test_a_batch_job_at_least_once(kafka: EmbeddedKafka) -> None:
    topic = kafka.topic()
    writer = source(kafka, topic).writer(SCHEMA, False)
    messages = [copied(writer).write(batch(10 * each, 10 * each + 10)) for each in range(3)]
    copied(writer).commit([copied(each) for each in messages])
    assert kafka.numbers(topic) == list(range(30))
    copied(writer).abort([None, messages[0]])
    assert kafka.numbers(topic) == list(range(30))


def test_an_exactly_once_job_shows_nothing_before_its_commit(kafka: EmbeddedKafka) -> None:
    topic = kafka.topic()
    writer = source(kafka, topic, **EXACTLY_ONCE).writer(SCHEMA, False)
    messages = [copied(writer).write(batch(10 * each, 10 * each + 10)) for each in range(3)]
    messages.append(copied(writer).write(iter(())))
    assert kafka.numbers(topic) == []
    copied(writer).commit(messages)
    assert kafka.numbers(topic) == list(range(30))


@pytest.mark.parametrize("guarantee", ["task-transactions", "exactly-once"])
def test_a_task_longer_than_its_transaction_names_the_timeout(
    kafka: EmbeddedKafka, guarantee: str
) -> None:
    def slow() -> Iterator[pa.RecordBatch]:
        yield from batch(0, 1)
        time.sleep(2.5)
        yield from batch(1, 2)

    topic = kafka.topic(1)
    options = {"delivery.guarantee": guarantee, "kafka.transaction.timeout.ms": "1000"}
    writer = source(kafka, topic, **options).writer(SCHEMA, False)
    with pytest.raises(RowError, match="InvalidProducerEpochError") as caught:
        copied(writer).write(slow())
    assert "longer than kafka.transaction.timeout.ms" in (caught.value.advice or "")
    copied(writer).abort([None])
    assert kafka.numbers(topic) == []


def test_an_epoch_committed_after_its_transactions_timed_out_names_the_timeout(
    kafka: EmbeddedKafka,
) -> None:
    topic = kafka.topic(1)
    options = EXACTLY_ONCE | {"kafka.transaction.timeout.ms": "1000"}
    writer = source(kafka, topic, **options).writer(SCHEMA, False)
    message = copied(writer).write(batch(0, 10))
    time.sleep(2.5)
    with pytest.raises(EpochNotPreparedError, match="epoch 0 was not decided") as caught:
        copied(writer).commit([message])
    assert "longer than kafka.transaction.timeout.ms" in (caught.value.advice or "")
    assert kafka.numbers(topic) == []


def test_an_exactly_once_job_that_is_aborted_leaves_nothing_open(kafka: EmbeddedKafka) -> None:
    topic = kafka.topic(1)
    writer = source(kafka, topic, **EXACTLY_ONCE).writer(SCHEMA, False)
    copied(writer).abort([copied(writer).write(batch(0, 10))])
    assert kafka.numbers(topic) == []
    after = source(kafka, topic).writer(SCHEMA, False)
    after.write(batch(10, 20))
    assert kafka.numbers(topic) == list(range(10, 20))


@pytest.mark.parametrize("is_committed", [False, True])
def test_an_abort_says_whether_the_commit_has_written_the_epoch(
    kafka: EmbeddedKafka, caplog: pytest.LogCaptureFixture, is_committed: bool
) -> None:
    topic = kafka.topic(1)
    writer = source(kafka, topic, **EXACTLY_ONCE).writer(SCHEMA, False)
    messages = [copied(writer).write(batch(0, 10))]
    if is_committed:
        copied(writer).commit(messages)  # whose process is killed before it can say so
    copied(writer).abort(messages)
    said = "epoch 0 written, although its commit failed: 1 tasks, 10 rows"
    assert (said in caplog.text) == is_committed == ("epoch 0 not written" not in caplog.text)
    assert kafka.numbers(topic) == list(range(10 * is_committed))


def test_a_task_that_begins_when_its_job_was_aborted_holds_no_other_job_up(
    kafka: EmbeddedKafka,
) -> None:
    topic = kafka.topic(1)
    writer = source(kafka, topic, **EXACTLY_ONCE).writer(SCHEMA, False)
    straggler = copied(writer)
    copied(writer).abort([None, None])
    with pytest.raises(EpochOverError, match="the attempt has written nothing"):
        straggler.write(batch(0, 10))
    after = source(kafka, topic, **EXACTLY_ONCE).writer(SCHEMA, False)
    copied(after).commit([copied(after).write(batch(10, 20))])
    assert kafka.numbers(topic) == list(range(10, 20))


def test_a_job_that_was_done_is_not_done_again_and_says_so(
    kafka: EmbeddedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic()
    for _ in range(2):
        assert not caplog.messages
        job = source(kafka, topic, **EXACTLY_ONCE, **{"job.id": topic}).writer(SCHEMA, False)
        message = copied(job).write(batch(0, 10))
        copied(job).commit([message])
    assert kafka.numbers(topic) == list(range(10))
    (said,) = (each for each in caplog.records if each.levelname == "WARNING")
    assert said.message.startswith("epoch 0 is in Kafka already, nothing was written: 1 tasks")


def test_a_job_may_write_several_topics(kafka: EmbeddedKafka) -> None:
    topics = [kafka.topic(), kafka.topic()]
    for topic in topics:
        job = source(kafka, topic, **EXACTLY_ONCE, **{"job.id": topics[0]}).writer(SCHEMA, False)
        copied(job).commit([copied(job).write(batch(0, 10))])
    assert [kafka.numbers(topic) for topic in topics] == [list(range(10))] * 2


@pytest.mark.parametrize("api", [ApiKey.LIST_TRANSACTIONS, ApiKey.OFFSET_FETCH])
def test_only_a_job_with_a_name_asks_what_was_before_it(kafka: EmbeddedKafka, api: ApiKey) -> None:
    topic = kafka.topic()
    fault = kafka.faults.error(api, TransactionalIdAuthorizationFailedError, times=None)
    try:
        source(kafka, topic, **EXACTLY_ONCE).writer(SCHEMA, False)
        with pytest.raises(TransactionalIdAuthorizationFailedError):
            source(kafka, topic, **EXACTLY_ONCE, **{"job.id": topic}).writer(SCHEMA, False)
    finally:
        kafka.faults.remove(fault)


def test_rows_that_were_read_while_a_producer_failed_go_into_the_next_one(
    kafka: EmbeddedKafka,
) -> None:
    topic = kafka.topic()
    writer = source(kafka, topic, **EXACTLY_ONCE).writer(SCHEMA, False)
    messages = [copied(writer).write(batch(0, 10))]  # leaves its producer to the next task
    fault = kafka.faults.error(ApiKey.INIT_PRODUCER_ID, TransactionalIdAuthorizationFailedError)
    messages.append(copied(writer).write(batch(10, 20)))
    assert fault.is_spent
    copied(writer).commit(messages)
    assert kafka.numbers(topic) == list(range(20))


@pytest.mark.parametrize("guarantee", ["task-transactions", "exactly-once"])
def test_the_row_that_spoils_a_transaction_is_the_one_named(
    kafka: EmbeddedKafka, guarantee: str
) -> None:
    topic = kafka.topic()
    writer = source(kafka, topic, **{"delivery.guarantee": guarantee}).writer(SCHEMA, False)
    values = ["x" * 2_000_000 if each == 7 else str(each) for each in range(10)]
    with pytest.raises(RowError, match=r"Spark partition 0, row 7: RecordTooLargeError"):
        copied(writer).write(iter([pa.RecordBatch.from_pydict({"value": values})]))
    copied(writer).abort([])
    assert kafka.numbers(topic) == []


def test_what_killed_tasks_have_left_open_is_ended_with_the_job(kafka: EmbeddedKafka) -> None:
    topic = kafka.topic(1)
    options = {"delivery.guarantee": "task-transactions", "job.id": topic}
    writer = source(kafka, topic, **options).writer(SCHEMA, False)
    prefix = writer._plan.prefix
    settings = {"bootstrap_servers": kafka.servers, "transactional_id": new_task_id(prefix)}
    with Producer(**settings) as killed:
        killed.begin_transaction()
        killed.send_and_wait(topic, b"-5")
        message = copied(writer).write(batch(0, 10))
        assert kafka.numbers(topic) == []  # they follow what was left open
        copied(writer).commit([message])
        assert kafka.numbers(topic) == list(range(10))
        with pytest.raises(KafkaError):
            killed.commit_transaction()


def test_a_job_whose_rows_are_committed_succeeds_although_nothing_can_be_cleaned_up(
    kafka: EmbeddedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic(1)
    options = {"delivery.guarantee": "task-transactions", "kafka.max.block.ms": "500"}
    writer = source(kafka, topic, **options).writer(SCHEMA, False)
    message = copied(writer).write(batch(0, 10))
    fault = kafka.faults.swallow(ApiKey.LIST_TRANSACTIONS, times=None)
    try:
        copied(writer).commit([message])
    finally:
        kafka.faults.remove(fault)
    assert kafka.numbers(topic) == list(range(10))
    assert "transactions of killed tasks end at the brokers' timeout" in caplog.text


@pytest.mark.parametrize(
    "name", ["eu", "eu-0b9e1d5c-7a3f-4c1e-9b60-2f6d1c0a8e77", f"w{'0' * 16}-0-1"]
)
def test_transactions_of_others_with_the_same_beginning_are_left_alone(
    kafka: EmbeddedKafka, name: str
) -> None:
    topic = kafka.topic(1)
    options = {"delivery.guarantee": "task-transactions", "transactional.id.prefix": topic}
    made = source(kafka, topic, **options)
    with Producer(bootstrap_servers=kafka.servers, transactional_id=f"{topic}-{name}") as other:
        other.begin_transaction()
        other.send_and_wait(topic, b"1")
        copied(made.streamWriter(SCHEMA, False))  # as Spark does before the tasks of a micro-batch
        other.send_and_wait(topic, b"2")
        other.commit_transaction()
    assert kafka.numbers(topic) == [1, 2]


class Stream:
    """A query: what Spark does for one micro-batch."""

    def __init__(self, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source = made
        self.query = "query"
        self._monkeypatch = monkeypatch

    def planned(self, number: int, *, overwrite: bool = False) -> Any:
        from aioproducer.spark.plan import Epoch

        self._monkeypatch.setattr(
            "aioproducer.spark.writers._this_epoch", lambda: Epoch(number, self.query)
        )
        return copied(copied(self.source).streamWriter(SCHEMA, overwrite))

    def committer(self) -> Any:
        return copied(self.source).streamWriter(SCHEMA, False)


@pytest.mark.parametrize("guarantee", ["at-least-once", "task-transactions", "exactly-once"])
def test_a_stream_writes_its_batches(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, guarantee: str
) -> None:
    topic = kafka.topic()
    options = {"delivery.guarantee": guarantee, "checkpointLocation": f"/cp/{topic}"}
    stream = Stream(source(kafka, topic, **options), monkeypatch)
    for number in range(3):
        writer = stream.planned(number)
        first = 20 * number
        messages = [
            writer.write(batch(first, first + 10)),
            writer.write(batch(first + 10, first + 20)),
        ]
        stream.committer().commit(messages, number)
    assert kafka.numbers(topic) == list(range(60))


def test_a_stream_skips_a_batch_that_is_in_kafka_already(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic()
    options = EXACTLY_ONCE | {"checkpointLocation": f"/cp/{topic}"}
    stream = Stream(source(kafka, topic, **options), monkeypatch)
    for number in (0, 0, 1, 1):
        writer = stream.planned(number)
        message = writer.write(batch(10 * number, 10 * number + 10))
        stream.committer().commit([message], number)
    assert kafka.numbers(topic) == list(range(20))


def test_a_batch_that_was_aborted_is_written_again(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic()
    options = EXACTLY_ONCE | {"checkpointLocation": f"/cp/{topic}"}
    stream = Stream(source(kafka, topic, **options), monkeypatch)
    writer = stream.planned(0)
    stream.committer().abort([writer.write(batch(0, 10))], 0)
    writer = stream.planned(0)
    stream.committer().commit([writer.write(batch(0, 10))], 0)
    assert kafka.numbers(topic) == list(range(10))


def test_a_driver_that_was_superseded_publishes_nothing(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic()
    options = EXACTLY_ONCE | {"checkpointLocation": f"/cp/{topic}"}
    stream = Stream(source(kafka, topic, **options), monkeypatch)
    zombies = [stream.planned(0).write(batch(0, 10))]
    writer = stream.planned(0)
    stream.committer().commit([writer.write(batch(0, 10))], 0)
    try:
        stream.committer().commit(zombies, 0)
    except KafkaError:
        pass
    assert kafka.numbers(topic) == list(range(10))


@pytest.mark.parametrize("guarantee", ["at-least-once", "task-transactions", "exactly-once"])
@pytest.mark.parametrize("kind", ["job", "stream"])
def test_a_missing_topic_is_waited_for_as_long_as_was_asked_for(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, guarantee: str, kind: str
) -> None:
    options = {
        "delivery.guarantee": guarantee,
        "topic.timeout.ms": "1200",
        "kafka.allow.auto.create.topics": "false",
    }

    def write(topic: str) -> None:
        if kind == "stream":
            given = options | {"checkpointLocation": f"/cp/{topic}"}
            stream = Stream(source(kafka, topic, **given), monkeypatch)
            stream.committer().commit([stream.planned(0).write(batch(0, 10))], 0)
        else:
            writer = copied(source(kafka, topic, **options).writer(SCHEMA, False))
            writer.commit([writer.write(batch(0, 10))])

    topic = f"missing-{guarantee}-{kind}"
    began = time.monotonic()
    with pytest.raises(UnknownTopicOrPartitionError, match=rf"the topic '{topic}' does not exist"):
        write(topic)
    assert time.monotonic() - began < 10
    asyncio.run(create_topic(kafka.servers, topic, 1))
    write(topic)
    assert kafka.numbers(topic) == list(range(10))


def test_the_driver_says_once_that_workers_lack_the_native_core(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        "aioproducer.spark.task.missing_core", lambda: "the package in /venv has no native core"
    )
    topic = kafka.topic()
    for _ in range(2):
        writer = copied(source(kafka, topic).writer(SCHEMA, False))
        messages = [writer.write(batch(0, 10)), writer.write(batch(10, 20))]
        writer.commit(messages)
    lines = [each.getMessage() for each in caplog.records if "native core" in each.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith("the package in /venv has no native core -> install a wheel")


class Reports:
    """An accumulator."""

    def __init__(self) -> None:
        self.value: tuple[QueryReport, ...] = ()

    def add(self, term: tuple[QueryReport, ...]) -> None:
        self.value += term

    @property
    def reports(self) -> list[BatchReport]:
        return [each.report for each in self.value]


def reporting(
    kafka: EmbeddedKafka, topic: str, guarantee: str, monkeypatch: pytest.MonkeyPatch, **own: str
) -> tuple[Stream, Any, Reports]:
    """A query, the source that makes writers to commit with, and what it reports."""
    options = {"delivery.guarantee": guarantee, "checkpointLocation": f"/cp/{topic}"}
    given = source(kafka, topic, **options, **own)
    commits = copied(given)
    commits.reports = Reports()
    return Stream(given, monkeypatch), commits, commits.reports


@pytest.mark.parametrize(
    ("guarantee", "counts"),
    [
        ("at-least-once", None),
        ("task-transactions", TransactionCounts(2, 0, 2)),
        ("exactly-once", TransactionCounts(2, 2, 2)),
    ],
)
def test_the_commit_of_a_micro_batch_reports_what_its_tasks_counted(
    kafka: EmbeddedKafka,
    monkeypatch: pytest.MonkeyPatch,
    guarantee: str,
    counts: TransactionCounts | None,
) -> None:
    topic = kafka.topic(1)
    stream, commits, reports = reporting(kafka, topic, guarantee, monkeypatch)
    fault = kafka.faults.error(ApiKey.PRODUCE, NotLeaderOrFollowerError)
    for number in range(2):
        writer = stream.planned(number)
        messages = [copied(writer.write(batch(first, first + 10))) for first in (0, 10)]
        commits.streamWriter(SCHEMA, False).commit(messages, number)
    assert fault.is_spent
    first, second = reports.reports
    assert (first.batch, first.rows, first.is_aborted) == (0, 20, False)
    assert [each.query for each in reports.value] == ["query", "query"]
    assert (first.retries, second.retries) == (10, 0)  # the producer goes on to the next task
    assert [each.delivery_times and each.delivery_times.total for each in reports.reports] == [
        20,
        20,
    ]
    assert [each.transactions for each in reports.reports] == [counts, counts]


def test_an_aborted_micro_batch_reports_its_transactions(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic(1)
    stream, commits, reports = reporting(kafka, topic, "exactly-once", monkeypatch)
    writer = stream.planned(0)
    messages = [writer.write(batch(0, 10)), None]
    writer.write(batch(10, 20))  # reports nothing: its process was killed
    commits.streamWriter(SCHEMA, False).abort(messages, 0)
    (report,) = reports.reports
    assert report.is_aborted and reports.value[0].query == "query"
    assert report.transactions == TransactionCounts(1, 1, 0, aborted=2)


def test_transactions_that_were_found_open_are_reported_with_the_next_commit(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic(1)
    stream, commits, reports = reporting(kafka, topic, "exactly-once", monkeypatch)
    stream.planned(0).write(batch(0, 10))  # and the driver dies
    # The record of the commits is lost: whether they are done is not known to the next plan.
    writer = stream.planned(0)
    messages = [writer.write(batch(0, 5)), writer.write(batch(5, 10))]
    fault = kafka.faults.error(ApiKey.OFFSET_COMMIT, GroupAuthorizationFailedError)
    commits.streamWriter(SCHEMA, False).commit(messages, 0)
    assert fault.is_spent
    writer = stream.planned(1)
    commits.streamWriter(SCHEMA, False).commit([writer.write(batch(10, 20))], 1)
    writer = stream.planned(1)
    commits.streamWriter(SCHEMA, False).commit([writer.write(batch(10, 20))], 1)  # is skipped
    assert [each.transactions for each in reports.reports] == [
        TransactionCounts(2, 2, 2, aborted=1),
        TransactionCounts(1, 1, 1, in_doubt=2),
        TransactionCounts(),
    ]
    assert [each.rows for each in reports.reports] == [10, 10, 0]
    assert kafka.numbers(topic) == list(range(20))


def test_transactions_that_rejected_rows_have_ended_are_reported_as_aborted(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic(1, cleanup_policy="compact")
    own = {"dead.letter.topic": kafka.topic(1)}
    stream, commits, reports = reporting(kafka, topic, "exactly-once", monkeypatch, **own)
    message = stream.planned(0).write(batch(0, 3))  # without keys
    commits.streamWriter(SCHEMA, False).commit([message], 0)
    (report,) = reports.reports
    assert report.transactions == TransactionCounts(2, 1, 1, aborted=1)
    assert report.dead_letter_reasons == {"InvalidRecordError": 3}


def test_the_plan_for_tasks_has_no_accumulator(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, commits, _ = reporting(kafka, kafka.topic(1), "at-least-once", monkeypatch)
    assert copied(commits.streamWriter(SCHEMA, False))._reports is None


def test_two_queries_with_one_prefix_learn_of_each_other(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic()
    options = EXACTLY_ONCE | {"transactional.id.prefix": topic}
    first = Stream(source(kafka, topic, **options, checkpointLocation="/a"), monkeypatch)
    second = Stream(source(kafka, topic, **options, checkpointLocation="/b"), monkeypatch)
    writer = first.planned(0)
    messages = [writer.write(batch(0, 10))]
    second.planned(0)
    with pytest.raises(EpochOverError, match=f"another query or job with .*{topic}") as late:
        writer.write(batch(10, 20))
    with pytest.raises(SupersededError, match="another query or job with this ") as early:
        first.committer().commit(messages, 0)
    for caught in (late, early):
        assert "give each" in str(caught.value)
        assert "Run it again" not in str(caught.value)
    assert kafka.numbers(topic) == []


def test_two_queries_that_write_in_turns_with_one_prefix_are_warned_of_each_other(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic()
    options = EXACTLY_ONCE | {"transactional.id.prefix": topic}
    first = Stream(source(kafka, topic, **options, checkpointLocation="/a"), monkeypatch)
    second = Stream(source(kafka, topic, **options, checkpointLocation="/b"), monkeypatch)
    second.query = "another"
    for stream, epoch in ((first, 0), (first, 1), (second, 0), (first, 2)):
        writer = stream.planned(epoch)
        stream.committer().commit([writer.write(batch(0, 1))], epoch)
    warned = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert [each.partition(" another query")[0] for each in warned] == [
        "epoch 0 follows one of",
        "epoch 2 follows one of",
    ]


@pytest.mark.parametrize("guarantee", ["task-transactions", "exactly-once"])
def test_a_topic_that_was_created_anew_between_batches_is_named_as_the_cause(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, guarantee: str
) -> None:
    topic = kafka.topic(1)
    options = {"delivery.guarantee": guarantee, "checkpointLocation": f"/cp/{topic}"}
    stream = Stream(source(kafka, topic, **options), monkeypatch)
    writer = stream.planned(0)
    stream.committer().commit([writer.write(batch(0, 10))], 0)
    asyncio.run(delete_topic(kafka.servers, topic))
    asyncio.run(create_topic(kafka.servers, topic, 1))
    writer = stream.planned(1)
    with pytest.raises(RowError, match=f"row 0: the topic {topic} was created anew") as caught:
        writer.write(batch(10, 20))
    assert "start the query or job again" in str(caught.value)
    stream.committer().abort([], 1)
    writer = stream.planned(1)
    stream.committer().commit([writer.write(batch(10, 20))], 1)
    assert kafka.numbers(topic) == list(range(10, 20))


def test_options_of_a_table_count_where_no_servers_are_given(kafka: EmbeddedKafka) -> None:
    from aioproducer.spark import AioproducerSource

    topic, other = kafka.topic(), kafka.topic()
    kept = {"kafka.bootstrap.servers": kafka.servers, "topic": topic, "startingOffsets": "latest"}
    field = types.StructField("value", types.StringType(), metadata={"aioproducer.options": kept})
    schema = types.StructType([field])
    AioproducerSource({}).writer(schema, False).write(batch(0, 10))
    source(kafka, other).writer(schema, False).write(batch(10, 20))
    given = {"kafka.bootstrap.servers": kafka.servers}
    with pytest.raises(SerializationError, match="where the rows go"):
        AioproducerSource(given).writer(schema, False)
    assert kafka.numbers(topic) == list(range(10))
    assert kafka.numbers(other) == list(range(10, 20))


def test_options_of_register_for_writes_do_not_disturb_reads(kafka: EmbeddedKafka) -> None:
    from aioproducer.spark import AioproducerSource

    class Source(AioproducerSource):
        defaults = {"delivery.guarantee": "at-least-once", "topic": "t"}  # noqa: RUF012

    assert str(Source({"kafka.bootstrap.servers": "a:1"}).schema()).startswith("key BINARY")


def test_a_task_without_a_batch_number_says_so(kafka: EmbeddedKafka) -> None:
    topic = kafka.topic()
    options = EXACTLY_ONCE | {"checkpointLocation": f"/cp/{topic}"}
    writer = copied(source(kafka, topic, **options).streamWriter(SCHEMA, False))
    with pytest.raises(KafkaError, match="no number of its micro-batch"):
        writer.write(batch(0, 10))


def test_overwriting_is_refused(kafka: EmbeddedKafka) -> None:
    with pytest.raises(ConfigError, match="cannot be overwritten"):
        source(kafka, "t").writer(SCHEMA, True)


def test_complete_mode_appends_the_whole_result(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic()
    stream = Stream(source(kafka, topic, checkpointLocation=f"/cp/{topic}"), monkeypatch)
    for number in range(2):
        writer = stream.planned(number, overwrite=True)
        messages = [writer.write(batch(0, 10))]
        copied(stream.source).streamWriter(SCHEMA, True).commit(messages, number)
    assert kafka.numbers(topic) == sorted([*range(10), *range(10)])


def test_options_of_register_hold_unless_others_are_given(kafka: EmbeddedKafka) -> None:
    from aioproducer.spark import register

    registered: list[Any] = []
    source_of_session = SimpleNamespace(register=registered.append)
    session: Any = type("Session", (), {"dataSource": source_of_session})()
    topic, other = kafka.topic(), kafka.topic()
    shared = {"Kafka.bootstrap.servers": kafka.servers, "topic": topic}
    register(session, options=shared | {"startingOffsets": "latest"})
    made = registered[0]
    for given in ({}, {"topic": other}):
        made(given).writer(SCHEMA, False).write(batch(0, 10))
    assert kafka.numbers(topic) == kafka.numbers(other) == list(range(10))


def test_a_topic_is_read_back(kafka: EmbeddedKafka) -> None:
    topic = kafka.topic(3)
    source(kafka, topic).writer(SCHEMA, False).write(batch(0, 1000))
    reading = source(kafka, topic)
    assert reading.schema().startswith("key BINARY, value BINARY, topic STRING")
    schema = types.StructType(
        [
            types.StructField("value", types.BinaryType()),
            types.StructField("offset", types.LongType()),
        ]
    )
    reader = copied(reading.reader(schema))
    ranges = [copied(each) for each in reader.partitions()]
    rows = [row for each in ranges for row in copied(reader).read(each)]
    assert sorted(int(value) for value, _ in rows) == list(range(1000))


def test_discovery_finds_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib
    from pathlib import Path

    import aioproducer.spark

    home = Path(aioproducer.spark.__file__).parent / "discovery"
    monkeypatch.syspath_prepend(str(home))
    found = importlib.import_module("pyspark_aioproducer")
    assert found.DefaultSource is aioproducer.spark.AioproducerSource
    assert found.DefaultSource.name() == "aioproducer"
