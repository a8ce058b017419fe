"""What the live page shows, worked out from snapshots."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aioproducer.errors import BufferExhaustedError, BufferFullError
from aioproducer.metrics.durations import Durations
from aioproducer.runtime.observability.statistics import (
    BrokerStatistics,
    FailureStatistics,
    PartitionStatistics,
    Statistics,
)
from aioproducer.starlette.live_stats import WINDOW_S, LiveStats, Refusals
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


def test_percentiles_forget_what_is_older_than_the_window() -> None:
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


def test_samples_are_forgotten_with_the_window() -> None:
    figures = LiveStats()
    for second in range(1000):
        figures.take(NOW, {}, float(second))
    assert len(figures._samples) <= WINDOW_S + 2


def test_the_buffer_is_what_is_used_and_who_waits() -> None:
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


def test_a_broker_that_was_forgotten_meanwhile_sent_nothing_negative() -> None:
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
    found = LiveStats().take(replace(NOW, recent_failures=(lost,)), {}, 100.0, refusals)
    assert found["records"]["refused"] == 4
    rows = [(each["where"], each["records"], each["age_s"]) for each in found["failures"]]
    assert rows == [("", 1, 1.0), ("events-3", 12, 5.0), ("events", 3, 10.0)]
    assert "no room" in found["failures"][2]["error"]


def test_refusals_of_many_kinds_take_bounded_room() -> None:
    refusals = Refusals()
    for number in range(1000):
        refusals.note(BufferExhaustedError("no room", topic=f"topic-{number}"), float(number))
    rows = list(refusals.failures(1000.0))
    assert refusals.total == 1000
    assert len(rows) == 20
    assert rows[-1].where == "topic-999"
