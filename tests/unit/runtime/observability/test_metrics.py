"""The registry of metrics and `statistics()`, on virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.stage import Stage, play

from aioproducer import Producer
from aioproducer.errors import BufferExhaustedError, KafkaError, NotLeaderOrFollowerError
from aioproducer.metrics import ApplicationMetric, Metric, MetricKind
from aioproducer.runtime.observability.statistics import PartitionStatistics
from aioproducer.testing.broker import ConnectionFault, ErrorAnswer, Fault
from aioproducer.types import TopicPartition
from aioproducer.wire.api_keys import ApiKey

ROOMY = {"buffer_memory": 1 << 20}


def tagged(metrics: list[Metric], group: str, tag: str) -> dict[str, float]:
    return {m.name: m.value for m in metrics if m.group == group and tag in dict(m.tags).values()}


def test_java_names_report_what_was_sent_how_long_it_waited_and_how_large_it_was():
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            for topic, count in (("t", 3), ("u", 1)):
                for delivery in [await producer.send(topic, b"v" * 10) for _ in range(count)]:
                    await delivery
                await asyncio.sleep(1)
            metrics = producer.metrics()
            assert metrics["record_send_total"] == metrics["record_acknowledged_total"] == 4
            assert metrics["batch_total"] == metrics["produce_request_total"] == 2
            assert metrics["records_per_request_avg"] == 2
            assert metrics["batch_size_max"] > metrics["batch_size_avg"] > 61
            assert 10 < metrics["record_size_max"] < 20
            assert metrics["request_size_max"] >= metrics["request_size_avg"] > 61
            assert metrics["network_io_total"] == 2 * metrics["request_total"]
            assert metrics["successful_authentication_total"] == 0
            assert metrics["compression_rate_avg"] == 1
            assert 4.9 <= metrics["record_queue_time_avg"] <= metrics["record_queue_time_max"] < 20
            assert 1 <= metrics["request_latency_avg"] <= metrics["request_latency_max"] < 50
            assert metrics["connection_count"] == metrics["connection_creation_total"] >= 1
            assert metrics["request_total"] == metrics["response_total"] > 2
            assert 0 < metrics["metadata_age"] < 10
            assert metrics["metadata_wait_time_ns_total"] > 0
            everything = list(producer.all_metrics())
            topic = tagged(everything, "producer-topic-metrics", "t")
            assert (topic["record-send-total"], topic["record-error-total"]) == (3, 0)
            assert topic["byte-total"] + tagged(everything, "producer-topic-metrics", "u")[
                "byte-total"
            ] == sum(m.value for m in everything if m.name == "batch-byte-total")
            node = tagged(everything, "producer-node-metrics", "node-1")
            assert node["request-latency-max"] >= node["request-latency-avg"] > 0
            assert 0 < node["outgoing-byte-total"] <= metrics["outgoing_byte_total"]
            await asyncio.sleep(61)
            later = producer.metrics()
            assert later["record_send_rate"] == later["request_latency_max"] == 0
            assert later["batch_total"] == 2

    play(act, **ROOMY)


def test_every_metric_has_a_unique_name_and_totals_are_counters():
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"v")
            metrics = list(producer.all_metrics())
        identities = [(m.group, m.name, m.tags) for m in metrics]
        assert len(set(identities)) == len(identities)
        for metric in metrics:
            assert (metric.kind is MetricKind.COUNTER) == metric.name.endswith("-total"), metric
            assert metric.description or metric.tags
        assert "start-time-ms" in {m.name for m in metrics}

    play(act, **ROOMY)


def test_every_metric_of_javas_producer_is_there_but_those_of_its_selector():
    """The file has what kafka-clients 4.4 registers for a transactional producer."""
    javas = Path(__file__).with_name("java_producer_metrics.txt").read_text().split()

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            ours = producer.metrics()
            missing = [name for name in javas if name.replace("-", "_") not in ours]
        assert missing
        assert all(name.startswith(("io-", "select-")) for name in missing)

    play(act, **ROOMY)


def test_retries_failures_throttling_and_splits_are_counted():
    async def act(stage: Stage) -> None:
        stage.faults.add(
            Fault(ErrorAnswer(NotLeaderOrFollowerError.code), api=ApiKey.PRODUCE, topic="t")
        )
        stage.faults.add(Fault(ErrorAnswer(87), api=ApiKey.PRODUCE, topic="u"))
        stage.faults.add(Fault(ConnectionFault(throttle_ms=500), api=ApiKey.PRODUCE, skip=2))
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"v")
            with pytest.raises(KafkaError):
                await producer.send_and_wait("u", b"v")
            await producer.send_and_wait("t", b"v")
            metrics, everything = producer.metrics(), list(producer.all_metrics())
        assert metrics["record_retry_total"] == metrics["record_error_total"] == 1
        assert metrics["record_error_rate"] > 0
        assert metrics["produce_throttle_time_max"] == 500
        assert tagged(everything, "producer-topic-metrics", "t")["record-retry-total"] == 1
        assert tagged(everything, "producer-topic-metrics", "u")["record-error-total"] == 1

    play(act, **ROOMY)


def test_statistics_show_what_is_queued_and_in_flight_per_partition():
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.warm_up(["t", "u"])
            await producer.send_and_wait("t", b"v")
            stage.faults.add(Fault(ConnectionFault(delay_ms=2000), api=ApiKey.PRODUCE))
            sent = await producer.send("t", b"v" * 50)
            await asyncio.sleep(0.1)
            waiting = [await producer.send("u", b"v" * 20) for _ in range(3)]
            now = producer.statistics()
            flying, queued = (now.partitions[TopicPartition(name, 0)] for name in "tu")
            assert (flying.in_flight_records, flying.queued_records, flying.leader) == (1, 0, 1)
            assert flying.in_flight_bytes > 50
            assert 0.1 <= flying.oldest_s < 0.2
            assert (queued.queued_batches, queued.queued_records) == (1, 3)
            assert queued.queued_bytes > 60
            assert flying.queued_batches == flying.queued_bytes == 0
            assert queued.in_flight_batches == queued.in_flight_bytes == 0
            assert (now.records_queued, now.records_in_flight, now.state) == (3, 1, "running")
            assert now.buffer_available < now.buffer_total == 1 << 20
            broker = now.brokers[1]
            assert (broker.state, broker.in_flight) == ("ready", 1)
            assert broker.requests == broker.responses + 1
            assert broker.latency_max_ms >= broker.latency_avg_ms > 0
            for delivery in (sent, *waiting):
                await delivery
            assert not producer.statistics().partitions

    play(act, **ROOMY)


def test_statistics_show_how_long_deliveries_took_and_the_last_failures():
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"v")
            before = producer.statistics().delivery_times
            stage.faults.add(Fault(ConnectionFault(delay_ms=2000), api=ApiKey.PRODUCE))
            for delivery in [await producer.send("t", b"v") for _ in range(3)]:
                await delivery
            added = producer.statistics().delivery_times.since(before)
            assert (before.total, added.total) == (1, 3)
            assert 2 < (added.percentile(0.99) or 0) < 2.3
            assert producer.statistics().recent_failures == ()
            stage.faults.add(Fault(ErrorAnswer(87), api=ApiKey.PRODUCE, topic="u"))
            with pytest.raises(KafkaError):
                await producer.send_and_wait("u", b"secret")
            await asyncio.sleep(1)
            (failure,) = producer.statistics().recent_failures
            assert failure.topic_partition == TopicPartition("u", 0)
            assert (failure.records, round(failure.age_s)) == (1, 1)
            assert "INVALID_RECORD" in failure.error
            assert "not persisted" in failure.error
            assert "secret" not in failure.error

    play(act, **ROOMY)


async def _use_up_memory(stage: Stage) -> None:
    await stage.producer.warm_up(["t"])
    stage.lose()
    with pytest.raises(BufferExhaustedError):
        while True:
            await stage.producer.send("t", b"v" * 150)


def test_a_refusal_for_want_of_memory_is_counted():
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await _use_up_memory(stage)
            assert producer.metrics()["buffer_exhausted_total"] == 1
            await producer.close(0)

    play(act, max_block_ms=100)


def test_a_refusal_for_want_of_memory_after_a_long_silence_is_in_the_rate():
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await _use_up_memory(stage)
            await asyncio.sleep(100)
            with pytest.raises(BufferExhaustedError):
                await producer.send("t", b"v" * 150)
            await asyncio.sleep(1)
            assert producer.metrics()["buffer_exhausted_rate"] == pytest.approx(1)
            await producer.close(0)

    play(act, max_block_ms=100, delivery_timeout_ms=600_000)


def test_waits_for_metadata_are_counted_in_nanoseconds():
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            stage.faults.delay(700, ApiKey.METADATA)
            before = producer.metrics()["metadata_wait_time_ns_total"]
            began = stage.loop.time()
            await producer.send("t", b"v")
            waited = stage.loop.time() - began
            assert waited > 0.7
            counted = producer.metrics()["metadata_wait_time_ns_total"] - before
            assert counted == pytest.approx(waited * 1e9)

    play(act, **ROOMY)


def test_waits_for_memory_are_counted_in_seconds_and_nanoseconds():
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.warm_up(["t"])
            stage.faults.delay(700, ApiKey.PRODUCE, times=None)
            waits = []
            for _ in range(12):
                began = stage.loop.time()
                await producer.send("t", b"v" * 150)
                waits.append(stage.loop.time() - began)
            waited = sum(waits)
            assert waited > 0.7
            metrics = producer.metrics()
            assert metrics["bufferpool_wait_total"] == sum(1 for wait in waits if wait)
            assert metrics["bufferpool_wait_time_seconds_total"] == pytest.approx(waited)
            assert metrics["bufferpool_wait_time_ns_total"] == pytest.approx(waited * 1e9)
            assert metrics["bufferpool_wait_ratio"] == pytest.approx(
                waited / producer.statistics().uptime_s
            )

    play(act)


def test_the_totals_of_a_topic_that_is_used_no_more_are_dropped():
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"v")
            assert set(stage.engine.stats.topics) == {"t"}
            await asyncio.sleep(20)
            await producer.send_and_wait("u", b"v")
            assert set(stage.engine.stats.topics) == {"u"}

    play(act, metadata_max_idle_ms=5_000, metadata_max_age_ms=6_000, **ROOMY)


def test_before_the_start_there_is_nothing_but_what_the_application_counts():
    producer = Producer(bootstrap_servers="localhost:9092")
    assert producer.metrics() == {}
    assert list(producer.all_metrics()) == []
    found = producer.statistics()
    assert (found.state, found.uptime_s) == ("not started", 0)
    assert found.buffer_total == found.buffer_available == found.waiting_for_memory == 0
    assert found.records_queued == found.records_in_flight == 0
    assert not (found.brokers or found.partitions or found.recent_failures)
    health = producer.health()
    assert (health.ready, health.state, health.error) == (False, "not started", None)
    assert health.buffer_total == health.buffer_available == health.waiting_for_memory == 0
    assert health.batches_pending == 0


def test_the_uptime_counts_from_the_start():
    async def act(stage: Stage) -> None:
        await asyncio.sleep(100)
        async with stage.producer as producer:
            began = stage.loop.time()
            await asyncio.sleep(5)
            assert producer.statistics().uptime_s == pytest.approx(stage.loop.time() - began, abs=1)

    play(act)


def test_the_time_in_flushes_is_added_up():
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        stage.crash()
        await producer.send("t", b"v")
        for seconds in (5, 2):
            await producer.flush(seconds)
        assert producer.metrics()["flush_time_ns_total"] == pytest.approx(7e9)
        await producer.close(0)

    play(act)


def test_what_is_measured_of_requests_is_zero_before_the_first():
    async def act(stage: Stage) -> None:
        await stage.producer.start(wait=False)
        found = stage.producer.metrics()
        measured = [name for name in found if name.startswith(("request", "response", "produce"))]
        assert len(measured) > 8
        assert {found[name] for name in measured} == {0}
        await stage.producer.close(0)

    play(act)


def test_statistics_of_a_partition_are_zero_unless_given():
    found = PartitionStatistics(leader=None)
    assert found == PartitionStatistics(None, 0, 0, 0, 0, 0, 0, 0.0)


def test_metric_that_is_not_registered_is_taken_away_without_complaint():
    producer = Producer(bootstrap_servers="localhost:9092")
    first, second = (
        ApplicationMetric("orders", "shop-metrics", lambda count=count: count)
        for count in (1.0, 2.0)
    )
    producer.unregister_metric(first)
    for metric in (first, second):  # the same name: the later one counts
        producer.register_metric(metric)
    assert [metric.value for metric in producer.all_metrics()] == [2.0]
    producer.unregister_metric(second)
    producer.unregister_metric(second)
    assert list(producer.all_metrics()) == []


def test_producer_without_transactions_has_spent_no_time_in_them():
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            metrics = producer.metrics()
            assert {n: v for n, v in metrics.items() if n.startswith("txn_") and v} == {}
            assert metrics["txn_commit_time_ns_total"] == 0

    play(act, **ROOMY)


def test_the_time_in_transactional_calls_is_counted_by_call():
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            async with producer.transaction():
                await producer.send("t", b"v")
            await producer.begin_transaction()
            await producer.abort_transaction()
            metrics = producer.metrics()
        millisecond = 1_000_000
        for call in ("init", "commit"):
            assert millisecond < metrics[f"txn_{call}_time_ns_total"] < 10_000 * millisecond
        assert metrics["txn_abort_time_ns_total"] < metrics["txn_commit_time_ns_total"]
        assert metrics["txn_send_offsets_time_ns_total"] == 0

    play(act, transactional_id="txn", **ROOMY)


def test_averages_and_shares_are_zero_before_anything_was_sent():
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            metrics = producer.metrics()
            for name in ("records_per_batch_avg", "records_per_request_avg"):
                assert metrics[name] == 0, name
        assert stage.values("t") == []

    play(act, **ROOMY)


def test_reporters_get_the_metrics_that_all_metrics_has():
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            producer.register_metric(
                ApplicationMetric("jobs", "shop", float, tags={"b": "", "a": ""})
            )
            await producer.send_and_wait("t", b"v")
            sources = producer._registry().sources(producer._engine)
            live = [each.measured() for source in sources for each in source.live()]
            assert live == producer.all_metrics()

    play(act, **ROOMY)
