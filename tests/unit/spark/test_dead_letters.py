"""Rows that cannot be written go to the dead letter topic, and all others are written once."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
from collections.abc import Iterator
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from support.registry_server import serve_registry
from support.spark import EmbeddedKafka, embedded_kafka

from aioproducer.errors import InvalidRecordError
from aioproducer.spark.columns.encoding import ENCODERS
from aioproducer.spark.direct import DirectEpochs
from aioproducer.spark.exactly_once.calls import CALLERS
from aioproducer.spark.plan import SinkPlan, TaskPlace
from aioproducer.spark.pool import POOL
from aioproducer.spark.prefetch import PrefetchIterator
from aioproducer.spark.replay import (
    Refusal,
    Refused,
    Replay,
    RowsRefusedError,
    written_without_refused,
)
from aioproducer.spark.reports.tasks import TaskReport
from aioproducer.spark.rows import RowError
from aioproducer.spark.task import abort, commit, write_task
from aioproducer.testing.schema_registry import StubSchemaRegistry

GUARANTEES = ["at-least-once", "task-transactions", "exactly-once"]
FIELDS = [("key", "string"), ("value", "string"), ("timestamp", "bigint")]
ROWS = 3000


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with embedded_kafka() as kafka:
        yield kafka
        POOL.close()
        CALLERS.close()


def plan_of(
    kafka: EmbeddedKafka,
    topic: str,
    guarantee: str,
    fields: list[tuple[str, str]] = FIELDS,
    **options: str,
) -> SinkPlan:
    named = {name.replace("__", "."): value for name, value in options.items()}
    given = {"kafka.bootstrap.servers": kafka.servers, "topic": topic}
    given["delivery.guarantee"] = guarantee
    plan = SinkPlan.of_batch(given | named, fields, overwrite=False).begun()
    return pickle.loads(pickle.dumps(plan))  # type: ignore[no-any-return]


def written(plan: SinkPlan, batches: list[pa.RecordBatch], *, commits: bool = True) -> TaskReport:
    """Run a job of one task."""
    report = write_task(plan, TaskPlace(3, 0), plan.epoch, iter(batches))
    end = commit if commits else abort
    end(plan, plan.epoch.epoch, [pickle.loads(pickle.dumps(report))])
    return report


def batches(
    keyless: set[int] = frozenset(),  # type: ignore[assignment]
    large: set[int] = frozenset(),  # type: ignore[assignment]
    early: set[int] = frozenset(),  # type: ignore[assignment]
) -> list[pa.RecordBatch]:
    """Numbered rows; some have no key, are too large or were before all time."""
    made = []
    for start in range(0, ROWS, 500):
        numbers = range(start, start + 500)
        made.append(
            pa.RecordBatch.from_pydict(
                {
                    "key": pa.array([None if n in keyless else f"k{n}" for n in numbers]),
                    "value": [str(n) if n not in large else "x" * 2_000_000 for n in numbers],
                    "timestamp": pa.array([-5 if n in early else 1000 + n for n in numbers]),
                }
            )
        )
    return made


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_rows_that_the_producer_refuses_do_not_fail_a_transaction(
    kafka: EmbeddedKafka, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic, letters = kafka.topic(), kafka.topic(1)
    plan = plan_of(kafka, topic, guarantee, dead__letter__topic=letters)
    large, early = {0, 499, 2999}, {7, 8, 1600}
    with caplog.at_level(logging.INFO, logger="aioproducer.spark"):
        report = written(plan, batches(large=large, early=early))
    counts = {"RecordTooLargeError": 3, "SerializationError": 3}
    assert (report.rows, report.dead_letters) == (ROWS, counts)
    assert kafka.numbers(topic) == sorted(set(range(ROWS)) - large - early)
    found = {each.key: each for each in kafka.read(letters)[0]}
    assert found.keys() == {f"k{n}".encode() for n in large | early}
    assert dict(found[b"k0"].headers)["__aioproducer.value.omitted.bytes"] == b"2000000"
    assert found[b"k1600"].value == b"1600"
    wanted = "6 dead letters (RecordTooLargeError 3, SerializationError 3)"
    assert [each for each in caplog.messages if each.startswith("epoch 0") and wanted in each]
    assert "written again" not in caplog.text


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_rows_that_a_broker_refuses_are_left_out_of_another_transaction(
    kafka: EmbeddedKafka, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic, letters = kafka.topic(2, cleanup_policy="compact"), kafka.topic(1)
    plan = plan_of(kafka, topic, guarantee, dead__letter__topic=letters, kafka__batch__size="8192")
    keyless, early = {3, 4, 700, 1500, 2999}, {5, 2000}
    with caplog.at_level(logging.INFO, logger="aioproducer.spark"):
        report = written(plan, batches(keyless=keyless, early=early))
    assert report.dead_letters == {"InvalidRecordError": 5, "SerializationError": 2}
    assert report.rows == ROWS
    assert kafka.numbers(topic) == sorted(set(range(ROWS)) - keyless - early)
    values = sorted(int(each.value or b"") for each in kafka.read(letters)[0])
    assert values == sorted(keyless | early)
    assert ("written again" in caplog.text) == (guarantee != "at-least-once")


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_value_that_brokers_refuse_as_a_dead_letter_too_is_left_out(
    kafka: EmbeddedKafka, guarantee: str
) -> None:
    topic, letters = kafka.topic(1, max_message_bytes="1000"), kafka.topic(1)
    small = kafka.topic(1, max_message_bytes="1000")
    rows: dict[str, Any] = {"key": ["a", "b", "c", "d"], "timestamp": [1, 2, 3, -5]}
    rows["value"] = ["1", "x" * 3000, "y" * 3000, "-"]
    for named in (letters, small):
        options = {"dead__letter__topic": named, "kafka__compression__type": "none"}
        report = written(
            plan_of(kafka, topic, guarantee, FIELDS, **options), [pa.RecordBatch.from_pydict(rows)]
        )
        assert report.dead_letters == {"RecordTooLargeError": 2, "SerializationError": 1}
    assert [each.key for each in kafka.read(topic)[0]] == [b"a", b"a"]
    whole = {each.key: each.value for each in kafka.read(letters)[0]}
    assert whole == {b"b": b"x" * 3000, b"c": b"y" * 3000, b"d": b"-"}
    found = {each.key: each for each in kafka.read(small)[0]}
    assert {key: each.value for key, each in found.items()} == {b"b": None, b"c": None, b"d": b"-"}
    assert dict(found[b"c"].headers)["__aioproducer.value.omitted.bytes"] == b"3000"


def test_dead_letters_are_in_the_transaction_of_their_job(kafka: EmbeddedKafka) -> None:
    topic, letters = kafka.topic(1, cleanup_policy="compact"), kafka.topic(1)
    plan = plan_of(kafka, topic, "exactly-once", dead__letter__topic=letters)
    written(plan, batches(keyless={1}, early={2}), commits=False)
    assert (kafka.records(topic), kafka.records(letters)) == ([], [])
    name = {"job__id": topic, "dead__letter__topic": letters}
    for _ in range(2):
        written(plan_of(kafka, topic, "exactly-once", **name), batches(keyless={1}, early={2}))
    assert len(kafka.records(topic)) == ROWS - 2
    assert [each.value for each in kafka.records(letters)] == [b"1", b"2"]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_row_whose_headers_cannot_be_read_keeps_key_and_value(
    kafka: EmbeddedKafka, guarantee: str
) -> None:
    topic, letters = kafka.topic(1), kafka.topic(1)
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = [[None], [{"key": None, "value": b"v"}], [{"key": "h", "value": b"v"}]]
    batch = pa.RecordBatch.from_pydict(
        {"key": list("abc"), "value": list("123"), "headers": pa.array(headers, pa.list_(header))}
    )
    fields = [*FIELDS[:2], ("headers", "array<struct<key:string,value:binary>>")]
    plan = plan_of(kafka, topic, guarantee, fields, dead__letter__topic=letters)
    assert written(plan, [batch]).dead_letters == {"SerializationError": 2}
    assert [each.headers for each in kafka.records(topic)] == [(("h", b"v"),)]
    found = kafka.records(letters)
    assert [(each.key, each.value) for each in found] == [(b"a", b"1"), (b"b", b"2")]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_row_whose_time_brokers_refuse_has_the_time_of_its_dead_letter(
    kafka: EmbeddedKafka, guarantee: str
) -> None:
    topic, letters = kafka.topic(1), kafka.topic(1)
    plan = plan_of(kafka, topic, guarantee, dead__letter__topic=letters)
    columns = {"key": list("ab"), "value": list("12"), "timestamp": [2**60, 1000]}
    report = written(plan, [pa.RecordBatch.from_pydict(columns)])
    assert report.dead_letters == {"InvalidTimestampError": 1}
    assert kafka.numbers(topic) == [2]
    (letter,) = kafka.records(letters)
    assert (letter.key, letter.value) == (b"a", b"1")
    message = dict(letter.headers)["__connect.errors.exception.message"]
    assert str(2**60).encode() in (message or b"")


def test_the_driver_leaves_out_what_brokers_refuse(kafka: EmbeddedKafka) -> None:
    topic, letters = kafka.topic(1, cleanup_policy="compact"), kafka.topic(1)
    options = {"dead.letter.topic": letters, "job.id": topic, "job.epoch": "0"}
    options |= {"kafka.bootstrap.servers": kafka.servers, "topic": topic}
    options["delivery.guarantee"] = "exactly-once"
    plan, direct = SinkPlan.of_batch(options, FIELDS, overwrite=False), DirectEpochs()
    try:
        report = direct.write(plan, plan.epoch, batches(keyless={0, 2999}, large={5}))
    finally:
        direct.leave()
    assert report is not None
    assert report.dead_letters == {"InvalidRecordError": 2, "RecordTooLargeError": 1}
    assert kafka.numbers(topic) == sorted(set(range(ROWS)) - {0, 5, 2999})
    assert len(kafka.records(letters)) == 3


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_failure_of_the_cluster_is_no_dead_letter(kafka: EmbeddedKafka, guarantee: str) -> None:
    from aioproducer.errors import TopicAuthorizationFailedError
    from aioproducer.wire.api_keys import ApiKey

    topic, letters = kafka.topic(1), kafka.topic(1)
    plan = plan_of(kafka, topic, guarantee, dead__letter__topic=letters)
    fault = kafka.faults.error(ApiKey.PRODUCE, TopicAuthorizationFailedError, times=None)
    try:
        with pytest.raises(RowError, match="TopicAuthorizationFailedError"):
            written(plan, batches(early={1}))
    finally:
        kafka.faults.remove(fault)
    assert kafka.records(letters) == []


# -- rows that do not fit a schema -----------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer", "maximum": 5}}}


@pytest.fixture
def registry() -> Iterator[str]:
    pytest.importorskip("httpx", reason="needs the extra `schema-registry`")
    with serve_registry(StubSchemaRegistry()) as url:
        yield url
    ENCODERS.close()


def of_ids(*ids: int) -> pa.RecordBatch:
    columns = {
        "key": [f"k{each}" for each in ids],
        "id": pa.array(ids, pa.int64()),
        "raw": pa.array([b"\0\xff"] * len(ids), pa.binary()),
        "headers": pa.array([[("h", "1")]] * len(ids), pa.map_(pa.string(), pa.string())),
    }
    return pa.RecordBatch.from_pydict(columns)


KINDS = [("key", "string"), ("id", "bigint"), ("raw", "binary"), ("headers", "map<string,string>")]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_rows_that_do_not_fit_their_schema_are_dead_letters(
    kafka: EmbeddedKafka, registry: str, guarantee: str
) -> None:
    topic, letters = kafka.topic(1), kafka.topic(1)
    options = {
        "value__format": "json-schema",
        "value__schema": json.dumps({"properties": SCHEMA["properties"]}),
        "auto__register__schemas": "true",
        "schema__registry__url": registry,
        "dead__letter__topic": letters,
    }
    plan = plan_of(kafka, topic, guarantee, [*KINDS[:2], KINDS[3]], **options)
    given = [of_ids(6, 1, 2, 7), of_ids(8, 9), of_ids(3, 10, 4)]
    report = written(plan, [each.drop_columns("raw") for each in given])
    assert (report.rows, report.dead_letters) == (9, {"SerializationError": 5})
    ids = [json.loads((each.value or b"")[5:])["id"] for each in kafka.read(topic)[0]]
    assert ids == [1, 2, 3, 4]
    found = kafka.read(letters)[0]
    assert [(each.key, json.loads(each.value or b"")["id"]) for each in found] == [
        (f"k{n}".encode(), n) for n in (6, 7, 8, 9, 10)
    ]
    headers = dict(found[4].headers)
    assert (headers["h"], headers["__connect.errors.stage"]) == (b"1", b"VALUE_CONVERTER")
    assert headers["__aioproducer.spark.row"] == b"7"
    assert b"field id" in (headers["__connect.errors.exception.message"] or b"")


def test_a_row_whose_key_and_value_do_not_fit_keeps_both(
    kafka: EmbeddedKafka, registry: str
) -> None:
    topic, letters = kafka.topic(1), kafka.topic(1)
    options = {"schema__registry__url": registry, "auto__register__schemas": "true"}
    for part in ("key", "value"):
        options |= {f"{part}__format": "avro", f"{part}__schema": '"int"'}
    plan = plan_of(
        kafka, topic, "at-least-once", FIELDS[:2], **options, dead__letter__topic=letters
    )
    written(plan, [pa.RecordBatch.from_pydict({"key": ["k"], "value": ["v"]})])
    (letter,) = kafka.records(letters)
    assert (letter.key, letter.value) == (b'"k"', b'"v"')
    assert dict(letter.headers)["__connect.errors.stage"] == b"KEY_CONVERTER"


def test_a_key_that_does_not_fit_is_a_dead_letter_with_the_whole_row(
    kafka: EmbeddedKafka, registry: str
) -> None:
    topic, letters = kafka.topic(1), kafka.topic(1)
    options = {
        "key__format": "json-schema",
        "key__schema": json.dumps(SCHEMA),
        "auto__register__schemas": "true",
        "schema__registry__url": registry,
        "dead__letter__topic": letters,
    }
    kind = pa.struct([("id", pa.int64()), ("at", pa.date32())])
    keys = pa.array([{"id": 1}, {"id": 6}], kind)
    batch = pa.RecordBatch.from_arrays([keys, pa.array(["a", "b"])], ["key", "value"])
    fields = [("key", "struct<id:bigint,at:date>"), ("value", "string")]
    report = written(plan_of(kafka, topic, "exactly-once", fields, **options), [batch])
    assert report.dead_letters == {"SerializationError": 1}
    (letter,) = kafka.records(letters)
    assert (json.loads(letter.key or b""), letter.value) == ({"id": 6, "at": None}, b"b")
    assert dict(letter.headers)["__connect.errors.stage"] == b"KEY_CONVERTER"


def test_a_row_of_any_columns_is_a_dead_letter_in_json(kafka: EmbeddedKafka, registry: str) -> None:
    topic, letters = kafka.topic(1), kafka.topic(1)
    options = {
        "value__format": "json-schema",
        "value__schema": json.dumps(SCHEMA),
        "auto__register__schemas": "true",
        "schema__registry__url": registry,
        "dead__letter__topic": letters,
    }
    maps = {
        "days": (pa.date32(), [(date(2026, 1, 31), 0.5)]),
        "raws": (pa.binary(), [(b"\xff", float("nan"))]),
        "numbers": (pa.int32(), [(7, float("-inf"))]),
    }
    columns: dict[str, Any] = {"id": pa.array([6], pa.int64())}
    for name, (kind, content) in maps.items():
        columns[name] = pa.array([content], pa.map_(kind, pa.float64()))
    fields = [("id", "bigint"), *((name, f"map<{name},double>") for name in maps)]
    plan = plan_of(kafka, topic, "at-least-once", fields, **options)
    report = written(plan, [pa.RecordBatch.from_pydict(columns)])
    assert report.dead_letters == {"SerializationError": 1}

    def refused(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    (letter,) = kafka.read(letters)[0]
    assert json.loads(letter.value or b"", parse_constant=refused) == {
        "id": 6,
        "days": {"2026-01-31": 0.5},
        "raws": {"/w==": "nan"},
        "numbers": {"7": "-inf"},
    }


def test_a_registry_without_the_schema_is_no_dead_letter(
    kafka: EmbeddedKafka, registry: str
) -> None:
    topic, letters = kafka.topic(1), kafka.topic(1)
    options = {"value__format": "json-schema", "schema__registry__url": registry}
    plan = plan_of(kafka, topic, "at-least-once", KINDS, dead__letter__topic=letters, **options)
    with pytest.raises(RowError, match="SchemaNotFoundError"):
        written(plan, [of_ids(1)])
    assert kafka.records(letters) == []


# -- reading again ---------------------------------------------------------------------------------


async def test_items_are_read_again_as_long_as_they_are_kept() -> None:
    async def rest(items: Replay[int]) -> list[Any]:
        return [each async for each in _each(items)]

    with PrefetchIterator(iter([1, 2, 3])) as source:
        items = Replay(source, lambda item: item, limit=6)
        assert [await items.next(), items.rewind(), await rest(items)] == [1, True, [1, 2, 3]]
        assert [items.rewind(), await rest(items)] == [True, [1, 2, 3]]
    with PrefetchIterator(iter([1, 2, 3])) as source:
        items = Replay(source, lambda item: item, limit=5)
        assert [await rest(items), items.rewind()] == [[1, 2, 3], False]


async def _each(items: Replay[int]) -> Any:
    while (found := await items.next()) is not None:
        yield found
        await asyncio.sleep(0)


FAILURE = RowError("row 1 is refused")


def refusing(*passes: set[int]) -> Any:
    """Refuses these rows in its first calls, and notes what it is called without."""
    left, seen = list(passes), []

    def write(refused: Refused, _: int) -> list[set[int]]:
        seen.append(set(refused))
        if left:
            refusal = Refusal(InvalidRecordError("no key"))
            raise RowsRefusedError(dict.fromkeys(left.pop(0), refusal), FAILURE)
        return seen

    return write


def test_each_pass_leaves_out_what_was_refused_before() -> None:
    seen = written_without_refused(refusing({1}, {5, 7}, {2}), lambda: True)
    assert seen == [set(), {1}, {1, 5, 7}, {1, 2, 5, 7}]


def test_a_pass_may_find_that_a_dead_letter_does_not_fit_with_its_value() -> None:
    whole, cut = (
        {1: Refusal(InvalidRecordError("no key"), keeps_value=each)} for each in (True, False)
    )
    seen: list[Refused] = []

    def write(refused: Refused, number: int) -> None:
        seen.append(dict(refused))
        assert number == len(seen)
        if len(seen) <= 3:
            raise RowsRefusedError((whole, cut, cut)[len(seen) - 1], FAILURE)

    with pytest.raises(RowError, match="row 1 is refused"):
        written_without_refused(write, lambda: True)
    assert seen == [{}, whole, cut]


@pytest.mark.parametrize(
    ("passes", "rewinds", "advice"),
    [
        ([{1}], False, "more than 64 MiB"),
        ([{1}, {1}], True, None),
        ([{each} for each in range(30)], True, "in each of 20 transactions"),
    ],
)
def test_a_task_that_cannot_do_without_the_rows_fails(
    passes: list[set[int]], rewinds: bool, advice: str | None
) -> None:
    with pytest.raises(RowError, match="row 1 is refused") as caught:
        written_without_refused(refusing(*passes), lambda: rewinds)
    assert (advice or "") in (caught.value.advice or "")
    assert bool(caught.value.advice) == bool(advice)
