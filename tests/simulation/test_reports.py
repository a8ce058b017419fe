"""Rules for reports: each finds the report that is not so, and no other."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.errors import ClusterAuthorizationFailedError, KafkaError, NotConnectedError
from aioproducer.metrics.totals import FailedBatch, IOStats, ProducerStats
from aioproducer.types import Node, TopicPartition
from simulation.reports import TopicTotals, reports_differ

_PLACE = TopicPartition("t", 0)


def _engine() -> Any:
    """Return a producer with one broker that is connected, and a batch with a request in flight."""
    link = SimpleNamespace(
        ready_since=1.0, last_error=None, _connection=SimpleNamespace(in_flight=1)
    )
    client = SimpleNamespace(
        _links=lambda: [link],
        link=lambda node_id: link,
        connection_failures=lambda node_id: None,
        state=lambda node_id: SimpleNamespace(name="READY"),
        in_flight=lambda node_id: 1,
        any_ready=lambda: True,
        io_stats=IOStats(),
    )
    sender = SimpleNamespace(
        producer_id=SimpleNamespace(failures=0, last_error=None), wait_of=lambda batch: "its turn"
    )
    batch = ProducerBatch(_PLACE, bytearray(100), 100, now=1.0)
    batch.on_wire = True
    stats = ProducerStats()
    stats.on_response(0.2, 500, 1.0)
    stats.on_response(0.1, 0, 1.0)
    client.io_stats.of(1).on_request(100, 1.0)
    client.io_stats.of(1).on_response(50, 0.1, 1.0)
    return SimpleNamespace(
        client=client,
        sender=sender,
        driver=SimpleNamespace(sender=sender),
        stats=stats,
        failure=None,
        obstacle=None,
        _start_error=None,
        _connector=None,
        transactions=None,
        accumulator=SimpleNamespace(incomplete=lambda: iter([batch])),
        pool=SimpleNamespace(available=0, total=100),
        appender=SimpleNamespace(waiting=0),
        metadata=SimpleNamespace(
            version=1,
            leader_of=lambda place: 1,
            cluster=SimpleNamespace(nodes={1: Node(1, "b", 9092)}),
            explain_failures=lambda: SimpleNamespace(text="", advice=None),
        ),
    )


def _set(engine: Any, path: str, value: object) -> None:
    *names, last = path.split(".")
    for name in names:
        engine = engine._links()[0] if name == "link" else getattr(engine, name)
    setattr(engine, last, value)


def test_true_reports_break_no_rule() -> None:
    assert list(reports_differ(_engine(), 2.0)) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("obstacle", NotConnectedError("not connected yet")),
        ("_start_error", NotConnectedError("not connected")),
        ("client.any_ready", lambda: False),
        ("client.link.ready_since", -inf),
        ("sender.producer_id.last_error", ClusterAuthorizationFailedError()),
        ("sender.producer_id.failures", 1),
        ("client.in_flight", lambda node_id: 2),
        ("sender.wait_of", Mock(side_effect=["the first of two answers", "another one"])),
        ("stats.throttle_time", 500.0),
        ("stats.latency_max", 0.1),
        ("stats.latency_max", 0.5),
    ],
)
def test_each_report_that_is_not_so_is_found(path: str, value: object) -> None:
    engine = _engine()
    _set(engine, path, value)
    assert len(list(reports_differ(engine, 2.0))) == 1


def test_a_producer_that_gets_no_id_is_not_ready() -> None:
    engine = _engine()
    engine.sender.producer_id = SimpleNamespace(failures=1, last_error=KafkaError("no id"))
    assert list(reports_differ(engine, 2.0)) == []


def test_a_peak_of_a_broker_that_is_missed_is_found() -> None:
    engine = _engine()
    engine.client.io_stats.of(1).request_size_max = 0.0
    assert len(list(reports_differ(engine, 2.0))) == 1


@pytest.mark.parametrize(("version", "of_topic", "found"), [(1, 3, 0), (1, 0, 1), (2, 0, 0)])
def test_failures_that_do_not_count_for_their_topic_are_found(
    version: int, of_topic: int, found: int
) -> None:
    engine, steps = _engine(), TopicTotals()
    assert list(steps.check(engine, 1.0)) == []
    engine.stats.on_batch_failed(FailedBatch(_PLACE, 3, 1.0, "expired"), 2.0)
    engine.stats.topics["t"].records_failed = of_topic
    engine.metadata.version = version
    assert len(list(steps.check(engine, 2.0))) == found
    assert list(steps.check(engine, 2.1)) == []
