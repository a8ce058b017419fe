"""Micro-batches for Prometheus and OpenTelemetry."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.spark.reports.epochs import (
    BatchReport,
    QueryReport,
    TransactionCounts,
    counts_of,
)

pytest.importorskip("pyspark", reason="needs pyspark (the extra `spark`)")

REPORT = BatchReport(3, True, 10, 200, 1, 2, 0.5, {"RecordTooLargeError": 2})
BY_TASKS = BatchReport(4, False, 5, None, None, None, 0.25)
COUNTS = TransactionCounts(2, 2, 2, aborted=1, in_doubt=4)
WHOLE = BatchReport(
    0, False, 5, 50, 3, 1, 0.25, {"SerializationError": 1}, counts_of({20: 99, 40: 1}), COUNTS
)
COMMITTED = WHOLE._replace(seconds=0.0)
FAILED = COMMITTED._replace(batch=1, rows=None, bytes=None, is_aborted=True)


def progress(batch: int, rows: int, observed: Any = None, name: str | None = "q") -> Any:
    return SimpleNamespace(
        progress=SimpleNamespace(
            name=name,
            id="the-id",
            runId="the-run",
            batchId=batch,
            sink=SimpleNamespace(numOutputRows=rows),
            observedMetrics={} if observed is None else {"aioproducer": observed},
            durationMs={"addBatch": 250},
        )
    )


def test_the_listener_feeds_each_micro_batch_once() -> None:
    from aioproducer.spark.metrics import QueryMetrics

    fed: list[tuple[str, BatchReport]] = []
    listener = QueryMetrics(lambda query, report: fed.append((query, report)))
    listener.onQueryProgress(progress(0, 5))
    listener.onQueryProgress(progress(0, 0))  # no data: Spark repeats the number
    listener.onQueryProgress(progress(1, 7, {"rows": 7, "bytes": 70}, name=None))
    listener.onQueryProgress(progress(2, -1))  # foreachBatch
    assert fed == [
        ("q", BatchReport(0, False, 5, None, None, None, 0.25)),
        ("the-id", BatchReport(1, False, 7, 70, None, None, 0.25)),
    ]


def test_the_listener_may_be_for_some_queries() -> None:
    from aioproducer.spark.metrics import QueryMetrics

    fed: list[str] = []
    listener = QueryMetrics(lambda query, _: fed.append(query), queries={"q"})
    for name in ("q", "other", None):
        listener.onQueryProgress(progress(0, 5, name=name))
    assert fed == ["q"]


class Session:
    """A session with what `register` needs of it."""

    def __init__(self) -> None:
        self.registered: list[Any] = []
        self.listeners: list[Any] = []
        self.reports = SimpleNamespace(value=())
        self.sparkContext = SimpleNamespace(accumulator=lambda *_: self.reports)
        self.dataSource = SimpleNamespace(register=self.registered.append)
        self.streams = SimpleNamespace(addListener=self.listeners.append)


def ended(run: str = "the-run") -> Any:
    return SimpleNamespace(id="the-id", runId=run, exception="failed")


def started(run: str = "the-run", name: str | None = "q") -> Any:
    return SimpleNamespace(id="the-id", runId=run, name=name)


def test_a_registered_listener_feeds_what_commits_report() -> None:
    from aioproducer.spark import register
    from aioproducer.spark.metrics import QueryMetrics

    fed: list[tuple[str, BatchReport]] = []
    session: Any = Session()
    listener = QueryMetrics(lambda query, report: fed.append((query, report)))
    register(session, metrics=listener, options={"Topic": "t"})
    (made,) = session.registered
    assert (made.reports, made.defaults) == (session.reports, {"topic": "t"})
    assert session.listeners == [listener]
    session.reports.value = (
        QueryReport("other", COMMITTED._replace(rows=7)),
        QueryReport("the-id", COMMITTED._replace(is_aborted=True, rows=7)),
        QueryReport("the-id", COMMITTED),
    )
    listener.onQueryProgress(progress(0, 5))
    listener.onQueryProgress(progress(1, 6, {"rows": 6, "bytes": 60}))  # its report is missing
    session.reports.value += (
        QueryReport("the-id", COMMITTED._replace(batch=2, rows=0)),
    )  # in Kafka already
    listener.onQueryProgress(progress(2, 6, {"rows": 6, "bytes": 60}))
    assert fed == [
        ("q", WHOLE),
        ("q", BatchReport(1, False, 6, 60, None, None, 0.25)),
        ("q", WHOLE._replace(batch=2, rows=0, bytes=60)),
    ]


def test_the_micro_batch_that_a_query_fails_with_is_fed_once() -> None:
    from aioproducer.spark.metrics import QueryMetrics

    fed: list[tuple[str, BatchReport]] = []
    session: Any = Session()
    listener = QueryMetrics(lambda query, report: fed.append((query, report)), queries={"q"})
    listener.listen(session)
    listener.onQueryStarted(started())
    session.reports.value = (QueryReport("the-id", COMMITTED),)
    listener.onQueryProgress(progress(0, 5))
    session.reports.value += (QueryReport("the-id", FAILED),)
    listener.onQueryTerminated(ended())
    listener.onQueryStarted(started("again"))
    listener.onQueryTerminated(ended("again"))  # no task of its first micro-batch succeeded
    session.reports.value += (QueryReport("the-id", FAILED._replace()),)
    listener.onQueryStarted(started("third"))
    listener.onQueryTerminated(ended("third"))
    unknown = BatchReport(-1, False, None, None, None, None, 0.0, is_aborted=True)
    assert fed == [("q", WHOLE), ("q", FAILED), ("q", unknown), ("q", FAILED)]


def test_a_failed_micro_batch_is_fed_without_a_report_of_it() -> None:
    from aioproducer.spark.metrics import QueryMetrics

    fed: list[BatchReport] = []
    listener = QueryMetrics(lambda _, report: fed.append(report))  # not registered
    listener.onQueryStarted(started())
    listener.onQueryProgress(progress(7, 5))
    listener.onQueryTerminated(ended())
    assert [(each.batch, each.is_aborted) for each in fed] == [(7, False), (8, True)]


def test_a_listener_that_was_added_twice_feeds_each_micro_batch_once() -> None:
    from aioproducer.spark.metrics import QueryMetrics

    fed: list[tuple[str, int]] = []
    listener = QueryMetrics(lambda query, report: fed.append((query, report.batch)))
    for run in ("one", "two"):
        for _ in range(2):
            listener.onQueryStarted(started(run))
        for _ in range(2):
            listener.onQueryTerminated(ended(run))
    assert fed == [("q", -1), ("q", -1)]


def test_a_query_that_was_stopped_has_no_failed_micro_batch() -> None:
    from aioproducer.spark.metrics import QueryMetrics

    fed: list[BatchReport] = []
    listener = QueryMetrics(lambda _, report: fed.append(report))
    listener.onQueryStarted(started())
    stopped = ended()
    stopped.exception = None
    listener.onQueryTerminated(stopped)
    assert fed == []


def test_a_query_that_is_not_chosen_feeds_no_failed_micro_batch() -> None:
    from aioproducer.spark.metrics import QueryMetrics

    fed: list[str] = []
    session: Any = Session()
    listener = QueryMetrics(lambda query, _: fed.append(query), queries={"q"})
    listener.listen(session)
    session.reports.value = (QueryReport("the-id", FAILED),)
    listener.onQueryStarted(started(name="other"))
    listener.onQueryTerminated(ended())
    assert fed == []


def test_prometheus_counts() -> None:
    prometheus = pytest.importorskip("prometheus_client", reason="needs the extra `metrics`")
    from aioproducer.spark.metrics import prometheus_feed

    registry = prometheus.CollectorRegistry()
    feed = prometheus_feed(registry)
    feed("q", REPORT)
    feed("q", BY_TASKS)
    feed("failed", FAILED)

    def value(name: str) -> float | None:
        found: float | None = registry.get_sample_value(f"aioproducer_spark_{name}", {"query": "q"})
        return found

    assert value("rows_total") == 15
    assert value("bytes_total") == 200
    assert value("retries_total") == 1
    assert value("dead_letters_total") == 2
    labels = {"query": "q", "reason": "RecordTooLargeError"}
    name = "aioproducer_spark_dead_letters_by_reason_total"
    assert registry.get_sample_value(name, labels) == 2
    assert value("batch_seconds_count") == 2
    assert value("batch_seconds_sum") == 0.75
    assert value("delivery_p99_seconds_count") is None
    assert value("batches_aborted_total") == 0

    def failed(name: str, **labels: str) -> float | None:
        found: float | None = registry.get_sample_value(
            f"aioproducer_spark_{name}", {"query": "failed", **labels}
        )
        return found

    states = {state: failed("transactions_total", state=state) for state in COUNTS._fields}
    assert states == COUNTS._asdict()
    assert failed("batches_aborted_total") == 1
    assert failed("batch_seconds_count") is None
    assert failed("retries_total") == 3
    assert failed("rows_total") is None
    assert failed("delivery_p99_seconds_count") == 1
    p99 = failed("delivery_p99_seconds_sum")
    assert p99 is not None and 0.0005 < p99 < 0.001


def test_opentelemetry_counts() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.metrics", reason="needs opentelemetry-sdk")
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from aioproducer.spark.metrics import opentelemetry_feed

    reader = InMemoryMetricReader()
    feed = opentelemetry_feed(sdk.MeterProvider([reader]))
    feed("q", REPORT)
    feed("q", BY_TASKS)
    feed("failed", FAILED)
    data: Any = reader.get_metrics_data()
    metrics = data.resource_metrics[0].scope_metrics[0].metrics
    points = {metric.name: metric.data.data_points[0] for metric in metrics}
    assert points["aioproducer.spark.rows"].value == 15
    assert points["aioproducer.spark.retries"].value == 1
    reasons = points["aioproducer.spark.dead_letters_by_reason"]
    assert dict(reasons.attributes) == {"query": "q", "reason": "RecordTooLargeError"}
    assert reasons.value == 2
    assert points["aioproducer.spark.batch.duration"].sum == 0.75
    assert dict(points["aioproducer.spark.rows"].attributes) == {"query": "q"}
    transactions = next(m for m in metrics if m.name == "aioproducer.spark.transactions")
    states = {each.attributes["state"]: each.value for each in transactions.data.data_points}
    assert states == COUNTS._asdict()
    aborted = next(m for m in metrics if m.name == "aioproducer.spark.batches_aborted")
    assert [each.value for each in aborted.data.data_points] == [0, 1]
    assert points["aioproducer.spark.delivery.p99"].count == 1
