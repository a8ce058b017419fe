"""Totals of the producer are the sums of those of its topics."""

from __future__ import annotations

from dataclasses import fields

import pytest

from aioproducer.core import stats
from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.core.batching.outgoing import OutgoingRecord
from aioproducer.records.batch import encode_batch
from aioproducer.types import TopicPartition


def batch_of(topic: str, *sizes: int, now: float = 0.0, attempt_at: float = 0.0) -> ProducerBatch:
    """A batch with a value of each size that was sent for the first time."""
    batch = ProducerBatch(TopicPartition(topic, 0), bytearray(1000), 1000, now=now)
    for size in sizes:
        assert batch.try_append(OutgoingRecord(None, 0, 1, None, b"v" * size, (), size))  # type: ignore[arg-type]
    batch.on_attempt(attempt_at, 0)
    return batch


def test_sent_batch_counts_for_its_topic_and_for_the_producer() -> None:
    totals = stats.ProducerStats()
    first, second = batch_of("a", 50, 10, attempt_at=0.5), batch_of("b", 1, 2, 3, attempt_at=0.25)
    compressed = encode_batch(b"x" * 5, count=2, base_timestamp=1, max_timestamp=1)
    sizes = (first.uncompressed_size, second.uncompressed_size)
    first.encoded = compressed
    totals.on_request_sent([first, second])
    assert [totals.topics[name].records_sent for name in "ab"] == [2, 3]
    assert (totals.records_sent, totals.batches_sent, totals.requests_sent) == (5, 2, 1)
    assert totals.topics["a"].bytes_sent == compressed.size
    assert (totals.bytes_sent, totals.uncompressed_bytes) == (
        compressed.size + sizes[1],
        sum(sizes),
    )
    assert totals.batch_size_max == max(compressed.size, sizes[1])
    assert totals.record_size_max == first.largest_record > 50
    assert (totals.queue_time, totals.queue_time_max) == (0.75, 0.5)


def test_description_of_the_totals_has_no_samples_and_no_callable() -> None:
    text = repr(stats.ProducerStats())
    assert "records_sent=0" in text
    assert not [
        name
        for name in ("count_appended", "delivery_times", "recent_failures", " topics=")
        if name in text
    ]


def test_time_that_brokers_throttled_adds_up() -> None:
    totals = stats.ProducerStats()
    for throttled_ms in (500, 0, 250):
        totals.on_response(batch_of("a", 1), throttled_ms, 0.1)
    assert (totals.throttle_time, totals.throttle_time_max) == (0.75, 0.5)
    assert totals.responses == 3


def test_time_that_brokers_took_to_respond_adds_up() -> None:
    totals = stats.ProducerStats()
    for took_s in (0.5, 2.0, 0.25):
        totals.on_response(batch_of("a", 1, attempt_at=1.0), 0, 1.0 + took_s)
    assert (totals.latency, totals.latency_max) == (2.75, 2.0)


def test_records_sent_again_count_for_their_topic_and_for_the_producer() -> None:
    totals = stats.ProducerStats()
    first, second = batch_of("a", 1, 1), batch_of("b", 1, 1, 1)
    totals.on_request_sent([first])
    for batch in (first, second):
        batch.on_attempt(1.0, 0)
    totals.on_request_sent([first, second])
    assert [totals.topics[name].records_retried for name in "ab"] == [2, 3]
    assert totals.records_retried == 5
    assert totals.topics["a"].bytes_sent == 2 * first.wire_size
    assert totals.topics["a"].uncompressed_bytes == 2 * first.uncompressed_size


def test_failed_batch_counts_for_its_topic_and_for_the_producer() -> None:
    totals = stats.ProducerStats()
    for name, count in (("a", 2), ("b", 3), ("a", 4)):
        totals.on_batch_failed(stats.FailedBatch(TopicPartition(name, 0), count, 1.0, "no"))
    assert [totals.topics[name].records_failed for name in "ab"] == [6, 3]
    assert totals.records_failed == 9
    assert [failed.records for failed in totals.recent_failures] == [2, 3, 4]


def test_the_last_twenty_failures_are_kept() -> None:
    totals = stats.ProducerStats()
    for count in range(1, 23):
        totals.on_batch_failed(stats.FailedBatch(TopicPartition("a", 0), count, 1.0, "no"))
    assert [failed.records for failed in totals.recent_failures] == list(range(3, 23))


def test_time_to_an_acknowledgement_counts_once_for_each_record() -> None:
    totals = stats.ProducerStats()
    totals.on_batch_acknowledged(batch_of("a", 1, 1, 1, now=1.0), 1.1)
    totals.on_batch_acknowledged(batch_of("a", 1, now=1.0), 11.0)
    times = totals.delivery_times.snapshot()
    assert (totals.records_acknowledged, times.total) == (4, 4)
    assert times.percentile(0.75) == pytest.approx(0.1, rel=0.1)
    assert times.percentile(1.0) == pytest.approx(10.0, rel=0.1)


def test_topics_without_metadata_lose_their_totals() -> None:
    totals = stats.ProducerStats()
    totals.on_request_sent([batch_of(name, 1) for name in "abc"])
    totals.retain({"b", "d"})
    assert [*totals.topics] == ["b"]
    assert totals.records_sent == 3


def test_new_totals_are_zero() -> None:
    shared = {field.name for field in fields(stats.Sampled)}
    for totals in (stats.ProducerStats(), stats.TopicStats()):
        numbers = {
            field.name: getattr(totals, field.name)
            for field in fields(totals)
            if field.name not in shared
        }
        assert not [name for name, n in numbers.items() if isinstance(n, int | float) and n != 0]
