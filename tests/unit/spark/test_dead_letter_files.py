"""Refused rows go to files of JSON lines, and all others are written once."""

from __future__ import annotations

import json
import pickle
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.spark import EmbeddedKafka, embedded_kafka

from aioproducer.errors import ConfigError, RecordTooLargeError, SerializationError
from aioproducer.loader.dead_letter_file import DeadLetterFile
from aioproducer.loader.errors import DeadLetterError
from aioproducer.spark.dead_letter_files import DeadLetterPart
from aioproducer.spark.direct import DirectEpochs
from aioproducer.spark.exactly_once.calls import CALLERS
from aioproducer.spark.options import SourceOptions
from aioproducer.spark.plan import SinkPlan, TaskPlace
from aioproducer.spark.pool import POOL
from aioproducer.spark.reports.tasks import TaskReport
from aioproducer.spark.rows import RefusedRow, Row, RowError
from aioproducer.spark.task import abort, commit, write_task

GUARANTEES = ["at-least-once", "task-transactions", "exactly-once"]
FIELDS = [("key", "string"), ("value", "string"), ("timestamp", "bigint")]
ROW = Row("t", 1, b"k", b"\xff", (("h", b"1"), ("n", None)), 5)


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with embedded_kafka() as kafka:
        yield kafka
        POOL.close()
        CALLERS.close()


def plan_of(kafka: EmbeddedKafka, topic: str, guarantee: str, folder: Path, **own: str) -> SinkPlan:
    options = {"kafka.bootstrap.servers": kafka.servers, "topic": topic}
    options |= {"delivery.guarantee": guarantee, "dead.letter.path": str(folder)} | own
    plan = SinkPlan.of_batch(options, FIELDS, overwrite=False).begun()
    return pickle.loads(pickle.dumps(plan))  # type: ignore[no-any-return]


def rows_without_keys(keyless: set[int], early: set[int], count: int = 20) -> pa.RecordBatch:
    numbers = range(count)
    columns = {
        "key": pa.array([None if n in keyless else f"k{n}" for n in numbers], pa.string()),
        "value": [str(n) for n in numbers],
        "timestamp": pa.array([-5 if n in early else 1000 + n for n in numbers]),
    }
    return pa.RecordBatch.from_pydict(columns)


def entries(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted(folder.glob("part-*.ndjson"))
        for line in path.read_text().splitlines()
    ]


def written(plan: SinkPlan, batch: pa.RecordBatch, attempt: int = 0) -> TaskReport:
    return write_task(plan, TaskPlace(3, attempt), plan.epoch, iter([batch]))


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_refused_rows_are_in_one_file_and_the_others_in_the_topic(
    kafka: EmbeddedKafka, guarantee: str, tmp_path: Path
) -> None:
    topic = kafka.topic(1, cleanup_policy="compact")
    plan = plan_of(kafka, topic, guarantee, tmp_path, **{"kafka.batch.size": "256"})
    report = written(plan, rows_without_keys({2, 19}, {7}))
    commit(plan, plan.epoch.epoch, [pickle.loads(pickle.dumps(report))])
    assert report.dead_letters == {"InvalidRecordError": 2, "SerializationError": 1}
    assert kafka.numbers(topic) == sorted(set(range(20)) - {2, 7, 19})
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("part-00003-0-")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = {each["row"]: each for each in entries(tmp_path)}
    assert {row: (each["stage"], each["raw"]) for row, each in found.items()} == {
        2: ("delivery", "2"),
        7: ("row", "7"),
        19: ("delivery", "19"),
    }
    assert (found[7]["key"], found[7]["topic"], found[7]["timestamp_ms"]) == ("k7", topic, -5)


def test_a_task_of_refused_rows_alone_commits_without_a_transaction(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    topic = kafka.topic(1)
    plan = plan_of(kafka, topic, "exactly-once", tmp_path, **{"job.id": topic})
    report = written(plan, rows_without_keys(set(), {0, 1}, 2))
    commit(plan, plan.epoch.epoch, [report])
    assert (kafka.records(topic), len(entries(tmp_path))) == ([], 2)


def test_a_retried_task_writes_its_dead_letters_again_and_its_rows_once(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    topic, batch = kafka.topic(1), rows_without_keys(set(), {4})
    plan = plan_of(kafka, topic, "exactly-once", tmp_path, **{"job.id": topic})
    lost, counted = written(plan, batch, 0), written(plan, batch, 1)
    assert lost.result != counted.result
    commit(plan, plan.epoch.epoch, [counted])
    # An epoch that is decided is skipped, so its dead letters are not written again either.
    again = plan_of(kafka, topic, "exactly-once", tmp_path, **{"job.id": topic})
    commit(again, again.epoch.epoch, [written(again, batch)])
    assert kafka.numbers(topic) == sorted(set(range(20)) - {4})
    assert [each["row"] for each in entries(tmp_path)] == [4, 4]
    assert len(list(tmp_path.iterdir())) == 2


def test_dead_letters_of_an_epoch_that_is_given_up_stay(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    topic = kafka.topic(1)
    plan = plan_of(kafka, topic, "exactly-once", tmp_path)
    abort(plan, plan.epoch.epoch, [written(plan, rows_without_keys(set(), {4}))])
    assert (kafka.records(topic), len(entries(tmp_path))) == ([], 1)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_an_attempt_that_fails_leaves_no_file(
    kafka: EmbeddedKafka, guarantee: str, tmp_path: Path
) -> None:
    from aioproducer.errors import TopicAuthorizationFailedError
    from aioproducer.wire.api_keys import ApiKey

    plan = plan_of(kafka, kafka.topic(1), guarantee, tmp_path)
    fault = kafka.faults.error(ApiKey.PRODUCE, TopicAuthorizationFailedError, times=None)
    try:
        with pytest.raises(RowError, match="TopicAuthorizationFailedError"):
            written(plan, rows_without_keys(set(), {4}))
    finally:
        kafka.faults.remove(fault)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("guarantee", ["task-transactions", "exactly-once"])
def test_nothing_is_committed_if_the_file_cannot_be_published(
    kafka: EmbeddedKafka, guarantee: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("aioproducer.spark.dead_letter_files.os.fsync", full)
    topic = kafka.topic(1)
    plan = plan_of(kafka, topic, guarantee, tmp_path)
    with pytest.raises(DeadLetterError, match="No space left on device"):
        written(plan, rows_without_keys(set(), {4}))
    abort(plan, plan.epoch.epoch, [None])
    assert (kafka.records(topic), list(tmp_path.iterdir())) == ([], [])


def test_the_driver_writes_files_as_well(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    topic = kafka.topic(1, cleanup_policy="compact")
    options = {"kafka.bootstrap.servers": kafka.servers, "topic": topic, "job.id": topic}
    options |= {"delivery.guarantee": "exactly-once", "dead.letter.path": str(tmp_path)}
    plan, direct = SinkPlan.of_batch(options, FIELDS, overwrite=False), DirectEpochs()
    try:
        report = direct.write(plan, plan.epoch, [rows_without_keys({0}, {5})])
    finally:
        direct.leave()
    assert report is not None
    assert report.dead_letters == {"InvalidRecordError": 1, "SerializationError": 1}
    assert [each["row"] for each in entries(tmp_path)] == [0, 5]
    assert kafka.numbers(topic) == sorted(set(range(20)) - {0, 5})


def test_a_missing_directory_fails_the_task_before_any_row_is_sent(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    topic, folder = kafka.topic(1), tmp_path / "gone"
    folder.mkdir()
    plan = plan_of(kafka, topic, "at-least-once", folder)
    folder.rmdir()
    with pytest.raises(DeadLetterError, match="is not a directory that this worker can write to"):
        written(plan, rows_without_keys(set(), set()))
    assert kafka.records(topic) == []


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_missing_directory_fails_the_plan_before_any_task(guarantee: str, tmp_path: Path) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    options |= {"delivery.guarantee": guarantee, "dead.letter.path": str(tmp_path / "none")}
    batch = SinkPlan.of_batch(options, FIELDS, overwrite=False)
    stream = SinkPlan.of_stream(options | {"checkpointLocation": "/cp"}, FIELDS)
    for plan in (batch, stream):  # no broker is asked: there is none
        with pytest.raises(DeadLetterError, match="not a directory that the driver can write to"):
            plan.begun()


def test_lines_have_the_format_of_the_loaders_dead_letters(tmp_path: Path) -> None:
    with DeadLetterPart(str(tmp_path), "default", 4, 1) as part:
        part.write([(9, RefusedRow(RecordTooLargeError("too large"), ROW))])
        part.write([(10, RefusedRow(SerializationError("no"), Row()))])
        assert not part.path.exists()
        part.publish()
    first, second = entries(tmp_path)
    assert first.pop("reason").startswith("RecordTooLargeError: MESSAGE_TOO_LARGE (10): too large")
    assert first == {
        "file": "spark partition 4",
        "member": None,
        "row": 9,
        "stage": "delivery",
        "raw_base64": "/w==",
        "key": "k",
        "topic": "t",
        "partition": 1,
        "timestamp_ms": 5,
        "headers": [{"name": "h", "value": "1"}, {"name": "n", "value": None}],
    }
    assert (second["raw"], second["topic"], second["stage"]) == (None, "default", "row")
    DeadLetterFile(part.path).close()  # takes it for a dead-letter file


def test_a_task_without_refused_rows_makes_no_file(tmp_path: Path) -> None:
    with DeadLetterPart(str(tmp_path), "t", 0, 0) as part:
        part.publish()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dead.letter.path": "bad"}, "must be an absolute path"),
        ({"dead.letter.path": "s3://bucket/bad"}, "must be an absolute path"),
        ({"dead.letter.path": ""}, "dead.letter.path is empty"),
        ({"dead.letter.path": "/bad", "dead.letter.topic": "t"}, "cannot be given together"),
    ],
)
def test_a_path_that_cannot_work_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SourceOptions.parse({"kafka.bootstrap.servers": "a:1", "topic": "t"} | options, "write")
