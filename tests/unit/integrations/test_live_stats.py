"""The numbers of the live page, computed from snapshots."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aioproducer.errors import BufferExhaustedError, BufferFullError
from aioproducer.metrics.totals import DurationCounts, Durations, TopicStats
from aioproducer.runtime.observability.statistics import (
    BrokerStatistics,
    FailureStatistics,
    PartitionStatistics,
    Statistics,
)
from aioproducer.starlette.live_stats import (
    POINTS_KEPT,
    TOPICS_SHOWN,
    WINDOW_S,
    History,
    LiveStats,
    Refusals,
)
from aioproducer.types import TopicPartition

PLACE = TopicPartition("events", 3)
BROKER = BrokerStatistics("kafka", 9092, None, "ready", 2, 10, 8, 4_000, 900, 1.5, 4.0)
NOW = Statistics("gateway", "running", 60.0, buffer_total=1000, buffer_available=1000)


def acknowledged(count: float) -> dict[str, float]:
    return {"record_acknowledged_total": count}


def test_the_rate_is_that_since_the_sample_before() -> None:
    figures = LiveStats()
    assert figures.take(NOW, acknowledged(100), 10.0)["records"]["per_second"] is None
    records = figures.take(NOW, acknowledged(300), 12.0)["records"]
    assert (records["per_second"], records["acknowledged"]) == (100, 300)
    assert figures.take(NOW, acknowledged(300), 12.0)["records"]["per_second"] is None


def test_percentiles_leave_out_what_is_older_than_the_window() -> None:
    figures, durations = LiveStats(), Durations()

    def take(now: float) -> float | None:
        sample = replace(NOW, delivery_times=durations.snapshot())
        latency: float | None = figures.take(sample, {}, now)["latency_ms"]["p99"]
        return latency

    assert take(0.0) is None
    durations.add(2.0, 100)
    assert take(1.0) == pytest.approx(2000, rel=0.1)
    durations.add(0.005, 100)
    assert take(2.0) == pytest.approx(2000, rel=0.1)
    assert take(2.0 + WINDOW_S / 2) == pytest.approx(2000, rel=0.1)
    assert take(1.5 + WINDOW_S) == pytest.approx(5, rel=0.1)
    assert take(3.0 + WINDOW_S) is None


def test_samples_are_dropped_with_the_window() -> None:
    figures = LiveStats()
    for second in range(1000):
        figures.take(NOW, {}, float(second))
    assert len(figures._samples) <= WINDOW_S + 2


def test_the_buffer_is_what_is_used_and_how_many_wait() -> None:
    busy = replace(
        NOW,
        buffer_available=250,
        waiting_for_memory=4,
        records_queued=7,
        records_in_flight=5,
        partitions={PLACE: PartitionStatistics(1, oldest_s=2.5)},
    )
    assert LiveStats().take(busy, {}, 0.0)["buffer"] == {
        "used": 750,
        "total": 1000,
        "waiting": 4,
        "queued": 7,
        "in_flight": 5,
        "oldest_s": 2.5,
    }


def test_brokers_come_by_id_with_what_they_were_sent_since() -> None:
    figures = LiveStats()
    figures.take(replace(NOW, brokers={2: BROKER}), {}, 0.0)
    later = replace(BROKER, bytes_out=6_000, state="backing_off")
    rows = figures.take(replace(NOW, brokers={2: later, 1: BROKER}), {}, 2.0)["brokers"]
    assert [row["id"] for row in rows] == [1, 2]
    assert [row["bytes_per_second"] for row in rows] == [0, 1_000]
    assert (rows[1]["state"], rows[1]["address"]) == ("backing_off", "kafka:9092")


def test_an_address_of_ipv6_has_brackets() -> None:
    broker = replace(BROKER, host="2001:db8::1")
    (row,) = LiveStats().take(replace(NOW, brokers={1: broker}), {}, 0.0)["brokers"]
    assert row["address"] == "[2001:db8::1]:9092"


def test_a_broker_that_was_dropped_meanwhile_sent_nothing_negative() -> None:
    figures = LiveStats()
    figures.take(replace(NOW, brokers={1: BROKER}), {}, 0.0)
    rows = figures.take(replace(NOW, brokers={1: replace(BROKER, bytes_out=1)}), {}, 1.0)["brokers"]
    assert rows[0]["bytes_per_second"] == 0


def test_failures_of_batches_and_refusals_are_one_list_newest_first() -> None:
    refusals = Refusals()
    for _ in range(3):
        refusals.note(BufferExhaustedError("no room", topic="events"), 90.0)
    refusals.note(BufferFullError("no wait"), 99.0)
    lost = FailureStatistics(PLACE, 12, 5.0, "late")
    early = FailureStatistics(TopicPartition("events", -1), 1, 7.0, "not connected")
    found = LiveStats().take(replace(NOW, recent_failures=(lost, early)), {}, 100.0, refusals)
    assert found["records"]["refused"] == 4
    rows = [(each["where"], each["records"], each["age_s"]) for each in found["failures"]]
    without_partition = [("events", 1, 7.0), ("events", 3, 10.0)]
    assert rows == [("", 1, 1.0), ("events-3", 12, 5.0), *without_partition]
    assert "no room" in found["failures"][3]["error"]


def test_refusals_of_many_kinds_take_bounded_room() -> None:
    refusals = Refusals()
    for number in range(1000):
        refusals.note(BufferExhaustedError("no room", topic=f"topic-{number}"), float(number))
    rows = list(refusals.failures(1000.0))
    assert refusals.total == 1000
    assert len(rows) == 20
    assert rows[-1].where == "topic-999"


def test_a_topic_has_a_row_with_its_rates_and_pending_records() -> None:
    figures = LiveStats()
    pending = PartitionStatistics(1, queued_records=3, in_flight_records=2, oldest_s=1.5)
    busy = replace(NOW, partitions={PLACE: pending, TopicPartition("events", 4): pending})
    figures.take(NOW, {}, 0.0, topics={"events": TopicStats(records_sent=10, bytes_sent=100)})
    sent = TopicStats(records_sent=50, bytes_sent=900, records_retried=4, records_failed=1)
    topics = {"orders": TopicStats(records_sent=6), "events": sent}
    events, orders = figures.take(busy, {}, 2.0, topics=topics)["topics"]  # sorted by name
    assert events == {
        "name": "events",
        "per_second": 20,
        "bytes_per_second": 400,
        "queued": 6,
        "in_flight": 4,
        "oldest_s": 1.5,
        "retried": 4,
        "failed": 1,
    }
    assert (orders["name"], orders["per_second"], orders["queued"]) == ("orders", 3, 0)


def test_of_many_topics_the_busiest_and_those_with_pending_records_are_shown() -> None:
    figures = LiveStats()
    figures.take(NOW, {}, 0.0, topics={f"t{n:03}": TopicStats() for n in range(100)})
    topics = {f"t{n:03}": TopicStats(records_sent=n) for n in range(100)}
    waits = replace(NOW, partitions={TopicPartition("t000", 0): PartitionStatistics(1)})
    shown = figures.take(waits, {}, 1.0, topics=topics)
    names = [row["name"] for row in shown["topics"]]
    assert names == ["t000", *(f"t{n:03}" for n in range(101 - TOPICS_SHOWN, 100))]
    assert shown["topics_left_out"] == 100 - TOPICS_SHOWN


def test_history_has_rate_latency_and_buffer_of_each_second() -> None:
    history, durations = History(), Durations()
    history.add(10.0, 100, durations.snapshot(), 0.25)
    durations.add(0.005, 40)
    history.add(12.0, 140, durations.snapshot(), 0.5)
    found = history.since(0)
    assert found["span_s"] == 2.0
    assert found["per_second"] == [None, 20.0]
    assert found["buffer"] == [0.25, 0.5]
    assert found["p99_ms"] == [None, pytest.approx(5, rel=0.1)]
    history.add(30.0, 140, durations.snapshot(), 0.0)
    history.add(41.0, 140, durations.snapshot(), 0.0)
    assert history.since(3)["p99_ms"] == [None]  # no record in the window


def test_history_gives_only_the_points_that_a_viewer_has_not_seen() -> None:
    history = History()
    for second in range(5):
        history.add(float(second), second, DurationCounts(), 0.0)
    assert history.added == 5
    assert len(history.since(3)["per_second"]) == 2
    assert history.since(5)["per_second"] == []
    assert history.since(5)["span_s"] == 4.0


def test_history_keeps_a_bounded_number_of_points() -> None:
    history = History()
    for second in range(5 * POINTS_KEPT):
        history.add(float(second), second, DurationCounts(), 0.0)
    found = history.since(0)
    assert len(found["per_second"]) == found["kept"] == POINTS_KEPT
    assert found["span_s"] == POINTS_KEPT - 1
    assert len(history._times) <= WINDOW_S + 2
    assert len(history.since(history.added - 1)["buffer"]) == 1
