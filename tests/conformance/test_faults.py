"""Brokers that err, move, vanish or stall: the record arrives, or its error is truthful."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator

import pytest

from aioproducer import Persistence, Producer, Record, TopicPartition
from aioproducer.errors import (
    DeliveryTimeoutError,
    InvalidRecordError,
    InvalidTopicError,
    KafkaError,
    NotEnoughReplicasError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
)
from aioproducer.testing.broker import TopicSpec
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic
from aioproducer.wire.api_keys import ApiKey

QUICK = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 50, "reconnect_backoff_ms": 10}


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=3, topics={"t": 3}) as cluster:
        yield cluster


@pytest.mark.parametrize("code", [2, 3, 5, 6, 7, 9, 13, 19, 20, 56, 72, 74, 75, 89])
async def test_every_retriable_error_is_survived(cluster: EmbeddedCluster, code: int) -> None:
    fault = cluster.state.faults.error(ApiKey.PRODUCE, code, times=2)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, **QUICK) as producer:
        metadata = await producer.send_and_wait("t", b"v", partition=0)
        assert metadata.offset == 0
        assert producer.metrics()["record_retry_total"] == 2
    assert fault.struck == 2


async def test_a_final_error_names_record_and_persistence(cluster: EmbeddedCluster) -> None:
    cluster.state.faults.error(ApiKey.PRODUCE, 10)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with pytest.raises(RecordTooLargeError) as caught:
            await producer.send_and_wait("t", b"v", partition=1)
    error = caught.value
    assert (error.topic, error.partition) == ("t", 1)
    assert error.persistence is Persistence.NOT_PERSISTED
    assert error.node_id is not None


async def test_retries_0_gives_up_at_once(cluster: EmbeddedCluster) -> None:
    cluster.state.faults.error(ApiKey.PRODUCE, 19, times=None)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, retries=0) as producer:
        with pytest.raises(NotEnoughReplicasError):
            await producer.send_and_wait("t", b"v")


async def test_delivery_timeout_ends_endless_retries(cluster: EmbeddedCluster) -> None:
    cluster.state.faults.error(ApiKey.PRODUCE, 20, times=None)
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        delivery_timeout_ms=600,
        request_timeout_ms=500,
        **QUICK,
    ) as producer:
        with pytest.raises(KafkaError) as caught:
            await producer.send_and_wait("t", b"v")
    assert caught.value.persistence is Persistence.POSSIBLY_PERSISTED
    assert "NOT_ENOUGH_REPLICAS_AFTER_APPEND" in str(caught.value)


async def test_a_dropped_connection_is_survived(cluster: EmbeddedCluster) -> None:
    cluster.state.faults.drop(ApiKey.PRODUCE, times=2)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, **QUICK) as producer:
        result = await producer.send_many("t", [b"v"] * 50)
    assert result.delivered == 50


async def test_a_silent_broker_costs_a_request_timeout_not_the_record(
    cluster: EmbeddedCluster,
) -> None:
    cluster.state.faults.swallow(ApiKey.PRODUCE)
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=300, **QUICK
    ) as producer:
        assert (await producer.send_and_wait("t", b"v")).offset == 0


@pytest.mark.parametrize("size", [0, 3, 4, 9, 20])
async def test_an_answer_cut_short_is_survived(cluster: EmbeddedCluster, size: int) -> None:
    cluster.state.faults.cut(size, ApiKey.PRODUCE)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, **QUICK) as producer:
        metadata = await producer.send_and_wait("t", b"v", partition=0)
        assert producer.metrics()["record_retry_total"] == 1
    assert metadata.offset == 0  # the first attempt was written, the second is its duplicate
    read = await read_topic(cluster.bootstrap_servers, "t", timeout_s=20)
    assert [record.value for record in read[0]] == [b"v"]


async def test_garbage_instead_of_an_answer_is_survived(cluster: EmbeddedCluster) -> None:
    cluster.state.faults.garble(b"\x00\x00\x00\x08garbage!", ApiKey.PRODUCE)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, **QUICK) as producer:
        assert (await producer.send_and_wait("t", b"v")).offset == 0


async def test_a_moved_leader_is_followed(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, **QUICK) as producer:
        for round_ in range(6):
            metadata = await producer.send_and_wait("t", b"v", partition=0)
            assert metadata.offset == round_
            cluster.move_leader("t", 0)


async def test_a_stopped_broker_costs_no_record(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, **QUICK) as producer:
        deliveries = []
        for node_id in (1, 2, 3):
            deliveries += [await producer.send("t", b"v") for _ in range(300)]
            await cluster.stop_broker(node_id)
            deliveries += [await producer.send("t", b"v") for _ in range(300)]
            await asyncio.gather(*deliveries)
            await cluster.start_broker(node_id)
    read = await read_topic(cluster.bootstrap_servers, "t", timeout_s=20)
    assert sum(map(len, read.values())) >= 1800


async def test_all_brokers_gone_for_a_moment_costs_no_record(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, **QUICK) as producer:
        await producer.send_and_wait("t", b"before")
        for node_id in (1, 2, 3):
            await cluster.stop_broker(node_id)
        delivery = await producer.send("t", b"during")
        await asyncio.sleep(0.3)
        assert not delivery.done()
        for node_id in (1, 2, 3):
            await cluster.start_broker(node_id)
        await delivery


async def test_one_request_in_flight_keeps_order_without_idempotence(
    cluster: EmbeddedCluster,
) -> None:
    cluster.state.faults.error(ApiKey.PRODUCE, 6, times=5, skip=2)
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        enable_idempotence=False,
        max_in_flight_requests_per_connection=1,
        batch_size=500,
        linger_ms=0,
        **QUICK,
    ) as producer:
        for number in range(500):
            await producer.send("t", b"%d" % number, partition=0)
            if number % 100 == 50:
                await asyncio.sleep(0.01)
                cluster.move_leader("t", 0)
        await producer.flush()
    read = await read_topic(cluster.bootstrap_servers, "t", timeout_s=20)
    assert [record.value for record in read[0]] == [b"%d" % n for n in range(500)]


async def test_throttling_pauses_and_loses_nothing(cluster: EmbeddedCluster) -> None:
    fault = cluster.state.faults.throttle(300, ApiKey.PRODUCE)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        loop = asyncio.get_running_loop()
        await producer.send_and_wait("t", b"first", partition=0)
        started = loop.time()
        await producer.send_and_wait("t", b"second", partition=0)
        assert loop.time() - started > 0.2
    assert fault.struck == 1


@pytest.mark.parametrize(
    ("code", "expected"), [(17, InvalidTopicError), (29, TopicAuthorizationFailedError)]
)
async def test_a_hopeless_topic_fails_its_waiters_at_once(
    cluster: EmbeddedCluster, code: int, expected: type[KafkaError]
) -> None:
    cluster.state.faults.error(ApiKey.METADATA, code, topic="bad", times=None)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        loop = asyncio.get_running_loop()
        started = loop.time()
        with pytest.raises(expected):
            await producer.send("bad", b"v")
        assert loop.time() - started < 10
        await producer.send_and_wait("t", b"others go on")


async def test_records_for_a_leaderless_partition_wait_and_then_expire_with_the_reason(
    cluster: EmbeddedCluster,
) -> None:
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        delivery_timeout_ms=700,
        request_timeout_ms=600,
        **QUICK,
    ) as producer:
        cluster.create_topic("single", TopicSpec(partitions=3, replication_factor=1))
        infos = await producer.partitions_for("single")
        await cluster.stop_broker(infos[0].leader or 0)
        with pytest.raises(DeliveryTimeoutError) as caught:
            await producer.send_and_wait("single", b"v", partition=infos[0].partition)
        assert (await producer.send_and_wait("single", b"v", partition=1)).offset == 0
    assert "LEADER_NOT_AVAILABLE" in str(caught.value)
    assert caught.value.persistence is Persistence.NOT_PERSISTED


async def test_an_unretrieved_failure_is_logged_once_counted_and_passed_on(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.state.faults.error(ApiKey.PRODUCE, 29, times=None)
    reported: list[tuple[TopicPartition, int, KafkaError]] = []
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        on_delivery_error=lambda tp, count, error: reported.append((tp, count, error)),
    ) as producer:
        with caplog.at_level(logging.WARNING, "aioproducer"):
            for _ in range(5):
                await producer.send("t", b"secret payload", partition=0)
            await producer.flush()
            gc.collect()
            await asyncio.sleep(0)
        assert producer.metrics()["unretrieved_failure_total"] == 5
    ours = [record for record in caplog.records if record.name.startswith("aioproducer")]
    reported_at_once, at_the_end = (record.getMessage() for record in ours)
    assert "t-0: 5 of 5 record(s) of a batch failed" in reported_at_once
    assert at_the_end.startswith("the producer is closed; 5 record(s) failed")
    assert "secret" not in caplog.text
    (only,) = reported
    assert only[:2] == (TopicPartition("t", 0), 5)
    assert isinstance(only[2], TopicAuthorizationFailedError)


async def test_send_many_names_the_bad_record_and_delivers_the_others(
    cluster: EmbeddedCluster,
) -> None:
    cluster.state.create_topic("c", TopicSpec(1, configs={"cleanup.policy": "compact"}))
    records = [Record(b"%d" % n, None if n in {3, 4} else b"k%d" % n) for n in range(10)]
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        result = await producer.send_many("c", records)
        failed = {each.index: each.error for each in result.failed}
    assert (result.count, result.delivered, list(failed)) == (10, 8, [3, 4])
    assert result.offsets == {TopicPartition("c", 0): (0, 7)}
    assert all(isinstance(error, InvalidRecordError) for error in failed.values())
    assert {error.persistence for error in failed.values()} == {Persistence.NOT_PERSISTED}
    (found,) = (await read_topic(cluster.bootstrap_servers, "c")).values()
    assert [int(each.value or b"") for each in found] == [0, 1, 2, 5, 6, 7, 8, 9]


async def test_idle_connections_close_and_reopen_when_needed(cluster: EmbeddedCluster) -> None:
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, connections_max_idle_ms=200
    ) as producer:
        await producer.send_and_wait("t", b"v", partition=0)
        for _ in range(100):
            if not any(cluster.connection_count(node) for node in (1, 2, 3)):
                break
            await asyncio.sleep(0.02)
        assert not any(cluster.connection_count(node) for node in (1, 2, 3))
        await producer.send_and_wait("t", b"v", partition=0)


async def test_connections_dropped_while_idle_are_no_error(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, **QUICK) as producer:
        await producer.send_and_wait("t", b"v", partition=0)
        with caplog.at_level(logging.WARNING, "aioproducer"):
            cluster.drop_connections()
            await asyncio.sleep(0.05)
            await producer.send_and_wait("t", b"v", partition=0)
    assert caplog.records == []
