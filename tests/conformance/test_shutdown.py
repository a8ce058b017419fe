"""Closing under adverse conditions: it ends, and leaves neither tasks, sockets nor memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.waiting import until

from aioproducer import Producer
from aioproducer.errors import ProducerFailedError, WrongLoopError
from aioproducer.testing.embedded import EmbeddedCluster

TURNS = 12
"""Loop turns a close without anything to wait for takes, and a few more."""


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=1, topics={"t": 1}) as cluster:
        yield cluster


def tasks_left(role: str = "") -> list[asyncio.Task[object]]:
    return [t for t in asyncio.all_tasks() if t.get_name().startswith(f"aioproducer-{role}")]


async def test_close_ends_when_the_sender_task_is_cancelled_meanwhile(
    cluster: EmbeddedCluster,
) -> None:
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0)
    await producer.start()
    await producer.send_and_wait("t", b"v")
    cluster.freeze_broker(1)
    delivery = await producer.send("t", b"v")
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0.05)
    (sender,) = tasks_left("sender")
    sender.cancel()
    async with asyncio.timeout(10):
        await closing
    assert isinstance(delivery.exception(), ProducerFailedError)
    assert tasks_left() == []


async def test_close_ends_when_the_sender_task_fails_with_a_bug_meanwhile(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0)
    await producer.start()
    await producer.send_and_wait("t", b"v")
    cluster.freeze_broker(1)
    delivery = await producer.send("t", b"v")
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0.05)
    engine = producer._engine
    assert engine is not None

    def broken(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(engine.sender, "poll", broken)
    engine.sender_task.wake()
    async with asyncio.timeout(10):
        await closing
    with pytest.raises(ProducerFailedError, match="a bug"):
        delivery.result()
    assert tasks_left() == []


async def test_a_close_cancelled_at_any_moment_leaves_nothing_after_the_second_one(
    cluster: EmbeddedCluster,
) -> None:
    for turns in range(TURNS):
        producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
        await producer.start()
        await producer.send_and_wait("t", b"v")
        closing = asyncio.create_task(producer.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        async with asyncio.timeout(10):
            await producer.close()
        assert tasks_left() == [], f"cancelled after {turns} turn(s)"
        await until(lambda: cluster.connection_count(1) == 0)


async def test_a_close_during_compression_returns_all_memory(cluster: EmbeddedCluster) -> None:
    for turns in range(TURNS):
        producer = Producer(
            bootstrap_servers=cluster.bootstrap_servers,
            compression_type="gzip",
            compression_threads_threshold_bytes=1000,
            batch_size=500_000,
            linger_ms=0,
        )
        await producer.start()
        await producer.send_and_wait("t", b"v")
        delivery = await producer.send("t", b"v" * 100_000)
        for _ in range(turns):
            await asyncio.sleep(0)
        await producer.close(0)
        assert delivery.done()
        await until(lambda p=producer: p.health().buffer_available == p.health().buffer_total)


async def test_close_from_another_loop_is_refused_and_changes_nothing(
    cluster: EmbeddedCluster,
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with pytest.raises(WrongLoopError):
            await asyncio.to_thread(lambda: asyncio.run(producer.close()))
        assert producer.health().state == "running"
        assert (await producer.send_and_wait("t", b"v")).offset == 0
    assert tasks_left() == []


async def test_a_cancelled_metadata_task_leaves_a_producer_that_fails_fast(
    cluster: EmbeddedCluster,
) -> None:
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
    await producer.start()
    await producer.send_and_wait("t", b"v")
    (task,) = tasks_left("metadata")
    task.cancel()
    await until(task.done)
    health = producer.health()
    assert (health.ready, health.state) == (False, "failed")
    for topic in ("t", "other"):
        with pytest.raises(ProducerFailedError, match="cancelled"):
            await producer.send(topic, b"v")
    await producer.close()
    assert tasks_left() == []
