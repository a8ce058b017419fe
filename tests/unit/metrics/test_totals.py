"""Totals, and the rates, means, peaks and percentiles made of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.metrics.totals import (
    DurationCounts,
    Durations,
    FailedBatch,
    IOStats,
    NodeIOStats,
    ProducerStats,
    Sampled,
    Sampling,
    TopicStats,
)
from aioproducer.types import TopicPartition

WINDOW_S = 10.0


# -- samples ---


@dataclass(slots=True, eq=False)
class Deeds(Sampled):
    PEAKS: ClassVar[tuple[str, ...]] = ("longest",)

    done: int = 0
    took: float = 0.0
    longest: float = 0.0

    def do(self, took: float, now: float) -> None:
        self.tick(now)
        self.done += 1
        self.took += took
        self.longest = max(self.longest, took)


def deeds(samples: int = 2, window: float = 30.0) -> Deeds:
    return Deeds(sampling=Sampling(samples, window))


def test_rates_and_means_are_those_of_the_samples_kept():
    it = deeds()
    for second in range(60):
        it.do(0.5, second)
    assert it.rate("done", 59) == pytest.approx(60 / 59)
    assert it.mean("took", "done", 59) == 0.5
    it.do(3.5, 61)
    assert it.rate("done", 61) == pytest.approx(31 / 31)
    assert it.mean("took", "done", 61) == pytest.approx((30 * 0.5 + 3.5) / 31)
    assert (it.done, it.took) == (61, 33.5)


def test_a_peak_is_dropped_with_its_sample():
    it = deeds()
    it.do(9, 0)
    it.do(1, 31)
    assert it.peak("longest", 59) == 9
    assert it.peak("longest", 61) == 1
    assert it.peak("longest", 200) == 0


def test_after_a_long_silence_rates_and_means_are_zero_and_totals_stay():
    it = deeds()
    it.do(2, 0)
    assert it.rate("done", 1000) == it.mean("took", "done", 1000) == 0
    assert it.done == 1


def test_the_first_second_does_not_make_a_huge_rate():
    it = deeds()
    for _ in range(10):
        it.do(0, 5.0)
    assert it.rate("done", 5.001) == 10


@given(
    gaps=st.lists(st.floats(0, 50), max_size=60),
    samples=st.integers(1, 4),
    window=st.floats(0, 40),
)
def test_samples_are_bounded_and_say_nothing_that_was_not_counted(
    gaps: list[float], samples: int, window: float
):
    it, now = deeds(samples, window), 0.0
    for gap in gaps:
        now += gap
        it.do(gap, now)
    assert len(it._samples) <= samples
    assert 0 <= it.rate("done", now) <= len(gaps)
    assert 0 <= it.mean("took", "done", now) <= max(gaps, default=0) + 1e-6
    assert it.peak("longest", now) in {0.0, *gaps}


# -- durations ---


@given(
    st.lists(st.floats(1e-4, 900), min_size=1, max_size=200),
    st.floats(0, 1, exclude_min=True),
)
def test_a_percentile_is_at_most_a_tenth_above_the_true_one(
    seconds: list[float], share: float
) -> None:
    durations = Durations()
    for each in seconds:
        durations.add(each)
    true = sorted(seconds)[math.ceil(share * len(seconds)) - 1]
    found = durations.snapshot().percentile(share)
    assert found is not None
    assert true * 0.999999 <= found <= true * 1.100001


def test_what_is_shorter_or_longer_than_any_bucket_is_in_the_nearest_one() -> None:
    durations = Durations()
    durations.add(0.0, 3)
    durations.add(-1.0)
    durations.add(1e9, 2)
    counts = durations.snapshot()
    assert (counts.total, counts.counts[0], counts.counts[-1]) == (6, 4, 2)
    assert counts.percentile(1) == pytest.approx(1000, rel=0.1)


def test_two_snapshots_give_the_percentiles_of_the_time_between_them() -> None:
    durations = Durations()
    durations.add(5.0, 1000)
    earlier = durations.snapshot()
    durations.add(0.01, 10)
    recent = durations.snapshot().since(earlier)
    assert recent.total == 10
    assert recent.percentile(0.99) == pytest.approx(0.01, rel=0.1)


def test_nothing_has_no_percentile() -> None:
    assert DurationCounts().percentile(0.5) is None


@pytest.mark.parametrize("share", [0, -0.1, 1.1, 99])
def test_a_share_is_no_percentage(share: float) -> None:
    with pytest.raises(ValueError, match="at most 1"):
        DurationCounts().percentile(share)


# -- a producer and its topics ---


def totals_of(*topics: str, now: float = 0.0, **counted: Any) -> ProducerStats:
    """Totals with a batch of each topic."""
    totals = ProducerStats(sampling=Sampling(1, WINDOW_S))
    for topic in topics:
        send(totals, topic, now=now, **counted)
    return totals


def send(totals: ProducerStats, topic: str, records: int = 1, **counted: Any) -> None:
    usual = {"size": 0, "uncompressed": 0, "largest": 0, "queued_s": 0.0, "now": 0.0}
    totals.on_batch_sent(topic, records, **{**usual, "is_retry": False, **counted})


def test_sent_batch_counts_for_its_topic_and_for_the_producer() -> None:
    totals = totals_of()
    send(totals, "a", 2, size=70, uncompressed=130, largest=60, queued_s=0.5)
    send(totals, "b", 3, size=90, uncompressed=90, largest=20, queued_s=0.25)
    assert [totals.topics[name].records_sent for name in "ab"] == [2, 3]
    assert (totals.records_sent, totals.batches_sent) == (5, 2)
    assert (totals.topics["a"].bytes_sent, totals.topics["a"].uncompressed_bytes) == (70, 130)
    assert (totals.bytes_sent, totals.uncompressed_bytes) == (160, 220)
    assert (totals.batch_size_max, totals.record_size_max) == (90, 60)
    assert (totals.queue_time, totals.queue_time_max) == (0.75, 0.5)


def test_what_a_topic_is_sent_after_a_long_silence_is_in_the_rate() -> None:
    totals = totals_of()
    for now in (0.0, 5 * WINDOW_S):
        send(totals, "a", now=now)
        assert totals.rate("records_sent", now + 1) == 1
        assert totals.topics["a"].rate("records_sent", now + 1) == 1


def test_description_of_the_totals_has_no_samples_and_no_callable() -> None:
    text = repr(ProducerStats())
    assert "records_sent=0" in text
    assert not [
        name
        for name in ("count_appended", "delivery_times", "recent_failures", " topics=")
        if name in text
    ]


def test_time_that_brokers_throttled_adds_up() -> None:
    totals = ProducerStats()
    for throttled_ms in (500, 0, 250):
        totals.on_response(0.1, throttled_ms, 0.1)
    assert (totals.throttle_time, totals.throttle_time_max) == (0.75, 0.5)
    assert totals.responses == 3


def test_time_that_brokers_took_to_respond_adds_up() -> None:
    totals = ProducerStats()
    for took_s in (0.5, 2.0, 0.25):
        totals.on_response(took_s, 0, 1.0)
    assert (totals.latency, totals.latency_max) == (2.75, 2.0)


def test_records_sent_again_count_for_their_topic_and_for_the_producer() -> None:
    totals = totals_of()
    send(totals, "a", 2, size=70, uncompressed=80)
    send(totals, "a", 2, size=70, uncompressed=80, is_retry=True)
    send(totals, "b", 3, is_retry=True)
    assert [totals.topics[name].records_retried for name in "ab"] == [2, 3]
    assert totals.records_retried == 5
    assert totals.topics["a"].bytes_sent == 140
    assert totals.topics["a"].uncompressed_bytes == 160


def test_failed_batch_counts_for_its_topic_and_for_the_producer() -> None:
    totals = ProducerStats()
    for name, count in (("a", 2), ("b", 3), ("a", 4)):
        totals.on_batch_failed(FailedBatch(TopicPartition(name, 0), count, 1.0, "no"), 2.0)
    assert [totals.topics[name].records_failed for name in "ab"] == [6, 3]
    assert totals.records_failed == 9
    assert [failed.records for failed in totals.recent_failures] == [2, 3, 4]


def test_failures_after_a_long_silence_are_in_the_rate() -> None:
    totals = totals_of()
    for now in (0.0, 5 * WINDOW_S):
        totals.on_batch_failed(FailedBatch(TopicPartition("a", 0), 1, 0.0, "no"), now)
        assert totals.rate("records_failed", now + 1) == 1
        assert totals.topics["a"].rate("records_failed", now + 1) == 1


def test_a_failure_without_a_time_is_in_the_total() -> None:
    totals = totals_of()
    totals.on_batch_failed(FailedBatch(TopicPartition("a", 0), 2, 0.0, "no"), None)
    assert totals.records_failed == totals.topics["a"].records_failed == 2


def test_the_last_twenty_failures_are_kept() -> None:
    totals = ProducerStats()
    for count in range(1, 23):
        totals.on_batch_failed(FailedBatch(TopicPartition("a", 0), count, 1.0, "no"), 2.0)
    assert [failed.records for failed in totals.recent_failures] == list(range(3, 23))


def test_time_to_an_acknowledgement_counts_once_for_each_record() -> None:
    totals = ProducerStats()
    totals.on_batch_acknowledged(3, 0.1, 1.1)
    totals.on_batch_acknowledged(1, 10.0, 11.0)
    times = totals.delivery_times.snapshot()
    assert (totals.records_acknowledged, times.total) == (4, 4)
    assert times.percentile(0.75) == pytest.approx(0.1, rel=0.1)
    assert times.percentile(1.0) == pytest.approx(10.0, rel=0.1)


def test_topics_without_metadata_lose_their_totals() -> None:
    totals = totals_of("a", "b", "c")
    totals.retain({"b", "d"})
    assert [*totals.topics] == ["b"]
    assert totals.records_sent == 3


def test_new_totals_are_zero() -> None:
    shared = {field.name for field in fields(Sampled)}
    for totals in (ProducerStats(), TopicStats()):
        numbers = {
            field.name: getattr(totals, field.name)
            for field in fields(totals)
            if field.name not in shared
        }
        assert not [name for name, n in numbers.items() if isinstance(n, int | float) and n != 0]


# -- brokers and connections ---


@pytest.mark.parametrize(
    ("count", "total"),
    [
        (lambda stats, now: stats.on_connected(now), "connections_created"),
        (lambda stats, now: stats.on_closed(now), "connections_closed"),
        (lambda stats, now: stats.on_authenticated(now, endless=False), "authentications"),
        (lambda stats, now: stats.on_authenticated(now, endless=True), "endless_authentications"),
        (lambda stats, now: stats.on_renewed(1.0, now), "renewals"),
        (lambda stats, now: stats.on_refused(now, renewal=False), "failed_authentications"),
        (lambda stats, now: stats.on_refused(now, renewal=True), "failed_renewals"),
    ],
)
def test_what_is_counted_after_a_long_silence_is_in_the_rate(
    count: Callable[[IOStats, float], None], total: str
) -> None:
    stats = IOStats(sampling=Sampling(1, WINDOW_S))
    for now in (0.0, 5 * WINDOW_S):
        count(stats, now)
        assert stats.rate(total, now + 1) == 1
    assert getattr(stats, total) == 2


@pytest.mark.parametrize(
    ("count", "total"),
    [
        (lambda stats, now: stats.on_request(9, now), "requests"),
        (lambda stats, now: stats.on_response(9, 0.5, now), "responses"),
    ],
)
def test_what_a_broker_is_sent_after_a_long_silence_is_in_the_rate(
    count: Callable[[NodeIOStats, float], None], total: str
) -> None:
    stats = NodeIOStats(sampling=Sampling(1, WINDOW_S))
    for now in (0.0, 5 * WINDOW_S):
        count(stats, now)
        assert stats.rate(total, now + 1) == 1
    assert getattr(stats, total) == 2


def test_authentications_count_by_their_kind() -> None:
    stats = IOStats()
    stats.on_authenticated(0, endless=True)
    stats.on_authenticated(0, endless=False)
    stats.on_refused(0, renewal=False)
    assert (stats.authentications, stats.endless_authentications) == (2, 1)
    assert (stats.failed_authentications, stats.failed_renewals) == (1, 0)
    stats.on_refused(0, renewal=True)
    assert (stats.failed_authentications, stats.failed_renewals) == (1, 1)


def test_the_longest_renewal_is_that_of_the_samples_kept() -> None:
    stats = IOStats(sampling=Sampling(1, WINDOW_S))
    for took_s in (2.0, 3.0, 1.0):
        stats.on_renewed(took_s, 0)
    assert stats.renewal_time == 6
    assert stats.peak("renewal_time_max", 1) == 3
    stats.on_renewed(1.0, 2 * WINDOW_S)
    assert stats.peak("renewal_time_max", 2 * WINDOW_S) == 1


def test_the_largest_request_and_the_longest_latency_of_a_broker_are_kept() -> None:
    stats = NodeIOStats()
    for size, latency_s in ((10, 0.5), (30, 2.0), (20, 1.0)):
        stats.on_request(size, 0)
        stats.on_response(size, latency_s, 0)
    assert (stats.bytes_out, stats.bytes_in, stats.latency) == (60, 60, 3.5)
    assert (stats.peak("request_size_max", 1), stats.peak("latency_max", 1)) == (30, 2)


def test_open_connections_are_those_that_were_not_closed() -> None:
    stats = IOStats()
    for now in range(3):
        stats.on_connected(now)
    stats.on_closed(4)
    assert stats.open_connections == 2
