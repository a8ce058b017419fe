"""A producer that runs for long: its reports while idle, expired state, and requests to brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.waiting import until

from aioproducer import Producer
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic
from aioproducer.wire.api_keys import ApiKey


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=3, topics={"t": 3}) as cluster:
        yield cluster


async def test_a_started_producer_is_ready_before_it_sends(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        assert producer.health().ready
    assert not producer.health().ready


async def test_a_producer_whose_idle_connections_were_closed_is_still_ready(
    cluster: EmbeddedCluster,
) -> None:
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        connections_max_idle_ms=50,
        request_timeout_ms=1000,
    ) as producer:
        await producer.send_and_wait("t", b"v")
        await until(lambda: not any(map(cluster.connection_count, (1, 2, 3))))
        assert producer.health().ready
        await producer.send_and_wait("t", b"v")


async def test_a_producer_that_lost_all_brokers_is_not_ready(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for node_id in (1, 2, 3):
            await cluster.stop_broker(node_id)
        await until(lambda: not producer.health().ready)
        for node_id in (1, 2, 3):
            await cluster.start_broker(node_id)
        await producer.send_and_wait("t", b"v")
        assert producer.health().ready


async def test_nothing_is_kept_of_topics_that_are_no_longer_used(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        engine = producer._engine
        assert engine is not None
        names = [f"short-lived-{number}" for number in range(20)]
        for name in names:
            await producer.send_and_wait(name, b"v")
        monkeypatch.setattr(engine.metadata, "_max_idle", 0.001)
        await asyncio.sleep(0.01)
        engine.metadata.request_update()
        engine.metadata_task.wake()
        await until(lambda: engine.metadata.topic(names[0]) is None)
        assert not any(engine.accumulator.queue(name, 0) for name in names)
        assert not engine.appender.batch_appender._sticky_partitioners._partitioners
        monkeypatch.undo()
        assert (await producer.send_and_wait(names[0], b"v")).offset == 1


async def test_an_answer_counts_although_the_topic_left_the_metadata_meanwhile(
    cluster: EmbeddedCluster,
) -> None:
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, linger_ms=0, enable_idempotence=False
    ) as producer:
        for partition in (1, 2, 0):  # so that metadata is fetched beside the waiting request
            await producer.send_and_wait("t", b"warm", partition=partition)
        engine = producer._engine
        assert engine is not None
        fault = cluster.state.faults.delay(1000, ApiKey.PRODUCE)
        delivery = await producer.send("t", b"once", partition=0)
        await until(lambda: fault.struck == 1)
        # A broker that lags behind denies the topic, whose id the Produce answer names.
        denial = cluster.state.faults.error(ApiKey.METADATA, 3, topic="t", times=None)
        engine.metadata.request_update()
        engine.metadata_task.wake()
        await until(lambda: denial.struck > 0 and engine.metadata.topic("t") is None)
        assert not delivery.done()
        await until(delivery.done)
        cluster.state.faults.remove(denial)
        assert delivery.result().offset == 1
        assert producer.metrics()["record_retry_total"] == 0
    records = (await read_topic(cluster.bootstrap_servers, "t", timeout_s=20))[0]
    assert [record.value for record in records] == [b"warm", b"once"]


async def test_an_unreachable_broker_is_left_alone_once_nothing_waits_for_it(
    cluster: EmbeddedCluster,
) -> None:
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        linger_ms=0,
        request_timeout_ms=200,
        delivery_timeout_ms=400,
        reconnect_backoff_ms=10,
        reconnect_backoff_max_ms=20,
        retry_backoff_ms=10,
        retry_backoff_max_ms=20,
    ) as producer:
        await producer.send_and_wait("t", b"v", partition=0)
        engine = producer._engine
        assert engine is not None
        leader = engine.metadata.cluster.leader("t", 0)
        assert leader is not None
        # Its port refuses, but the others go on naming it as the leader.
        await cluster._servers[leader].stop(keep_port=True)
        delivery = await producer.send("t", b"v", partition=0)
        await until(delivery.done)
        assert delivery.exception() is not None
        await asyncio.sleep(0.1)
        link = engine.client._brokers[leader]
        last_attempt, version = link.last_attempt_at, engine.metadata.version
        await asyncio.sleep(0.5)
        assert link.last_attempt_at == last_attempt
        assert engine.metadata.version == version
        await cluster._servers[leader].start("127.0.0.1", cluster.state.brokers[leader].port)
        await producer.send_and_wait("t", b"v", partition=0)
