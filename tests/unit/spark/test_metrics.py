"""Micro-batches for Prometheus and OpenTelemetry."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.spark.foreach import BatchReport

pytest.importorskip("pyspark", reason="needs pyspark (the extra `spark`)")

REPORT = BatchReport(3, True, 10, 200, 1, 2, 0.5, {"RecordTooLargeError": 2})
BY_TASKS = BatchReport(4, False, 5, None, None, None, 0.25)


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


def test_prometheus_counts() -> None:
    prometheus = pytest.importorskip("prometheus_client", reason="needs the extra `metrics`")
    from aioproducer.spark.metrics import prometheus_feed

    registry = prometheus.CollectorRegistry()
    feed = prometheus_feed(registry)
    feed("q", REPORT)
    feed("q", BY_TASKS)

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


def test_opentelemetry_counts() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.metrics", reason="needs opentelemetry-sdk")
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from aioproducer.spark.metrics import opentelemetry_feed

    reader = InMemoryMetricReader()
    feed = opentelemetry_feed(sdk.MeterProvider([reader]))
    feed("q", REPORT)
    feed("q", BY_TASKS)
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
