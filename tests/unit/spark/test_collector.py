"""Objects that Spark's worker processes keep from the garbage collector."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from aioproducer.spark import task
from aioproducer.spark.columns.schema import plan_columns
from aioproducer.spark.options import SourceOptions
from aioproducer.spark.plan import SinkPlan

SERVERS = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}


@pytest.fixture
def freezes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(1))
    monkeypatch.setattr(task, "_tasks", 0)
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    return calls


def test_the_second_request_of_a_reused_worker_freezes_once(freezes: list[int]) -> None:
    for expected in ([], [1], [1]):
        task.freeze_modules()
        assert freezes == expected


def test_a_worker_that_is_not_used_again_freezes_nothing(
    freezes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER")
    for _ in range(3):
        task.freeze_modules()
    assert freezes == []


@pytest.mark.parametrize("process", ["planner", "stream planner", "commit", "stream commit"])
def test_planners_and_committers_freeze_with_their_second_request(
    freezes: list[int], process: str
) -> None:
    types: Any = pytest.importorskip("pyspark.sql.types", reason="needs pyspark")
    from aioproducer.spark.source import AioproducerSource
    from aioproducer.spark.writers import BatchWriter

    schema = types.StructType([types.StructField("value", types.StringType())])
    source = AioproducerSource(dict(SERVERS))
    plan = SinkPlan(SourceOptions.parse(SERVERS, "write"), plan_columns([("value", "string")], "t"))
    for expected in ([], [1], [1]):
        if process == "planner":
            source.writer(schema, False)
        elif process == "commit":
            BatchWriter(plan).commit([])
        else:
            made = source.streamWriter(schema, False)
            if process == "stream commit":
                made.commit([], 0)
        assert freezes == expected
