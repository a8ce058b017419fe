"""Totals of the producer are the sums of those of its topics."""

from __future__ import annotations

from dataclasses import fields

from aioproducer.core import stats


def test_sent_batch_counts_for_its_topic_and_for_the_producer() -> None:
    totals = stats.ProducerStats()
    totals.on_batch_sent("a", 2, 100, 200, 60, 0.5, again=False)
    totals.on_batch_sent("b", 3, 10, 20, 6, 0.25, again=False)
    assert [totals.topics[name].records_sent for name in "ab"] == [2, 3]
    assert (totals.records_sent, totals.batches_sent) == (5, 2)
    assert (totals.bytes_sent, totals.uncompressed_bytes) == (110, 220)
    assert (totals.batch_size_max, totals.record_size_max) == (100, 60)
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
    for throttled_s in (0.5, 0.0, 0.25):
        totals.on_response(0.1, throttled_s)
    assert (totals.throttle_time, totals.throttle_time_max) == (0.75, 0.5)
    assert totals.responses == 3


def test_new_totals_are_zero() -> None:
    shared = {field.name for field in fields(stats.Sampled)}
    for totals in (stats.ProducerStats(), stats.TopicStats()):
        numbers = {
            field.name: getattr(totals, field.name)
            for field in fields(totals)
            if field.name not in shared
        }
        assert not [name for name, n in numbers.items() if isinstance(n, int | float) and n != 0]
