"""Memory is bounded, waiters are served in order, every wait is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aioproducer import Producer
from aioproducer.errors import BufferExhaustedError, RecordTooLargeError
from aioproducer.runtime.delivery import Delivery
from aioproducer.testing.embedded import EmbeddedCluster

VALUE = b"v" * 10_000


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=1, topics={"t": 1, "u": 1}) as cluster:
        yield cluster


def small(cluster: EmbeddedCluster, **options: object) -> Producer:
    return Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        buffer_memory=32_768,
        linger_ms=0,
        **options,  # type: ignore[arg-type]
    )


async def test_senders_wait_for_memory_and_are_served_in_order(cluster: EmbeddedCluster) -> None:
    async with small(cluster) as producer:
        await producer.warm_up(["t", "u"])
        cluster.freeze_broker(1)
        served: list[int] = []

        async def send(number: int) -> None:
            # Two topics: no task overtakes, whatever the partition.
            await producer.send("tu"[number % 2], VALUE)
            served.append(number)

        tasks = []
        for number in range(40):
            tasks.append(asyncio.create_task(send(number)))
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        assert len(served) < 40
        health = producer.health()
        assert health.waiting_for_memory == 40 - len(served)
        assert health.buffer_available >= 0
        cluster.thaw_broker(1)
        await asyncio.gather(*tasks)
        assert served == list(range(40))
        assert await producer.flush() == 0
        assert producer.health().buffer_available == 32_768
        assert producer.metrics()["bufferpool_wait_total"] > 0


async def test_a_task_that_was_just_served_queues_after_those_that_wait(
    cluster: EmbeddedCluster,
) -> None:
    async with small(cluster) as producer:
        await producer.warm_up(["t"])
        cluster.freeze_broker(1)
        for _ in range(2):
            await producer.send("t", b"v" * 16_200)
        served: list[str] = []

        async def send(name: str, count: int) -> None:
            for _ in range(count):
                await producer.send("t", b"v" * 1000)
                served.append(name)

        tasks = []
        for name, count in (("greedy", 8), ("second", 1), ("third", 1)):
            tasks.append(asyncio.create_task(send(name, count)))
            await asyncio.sleep(0)
        assert producer.health().waiting_for_memory == 3
        cluster.thaw_broker(1)
        await asyncio.gather(*tasks)
        assert served == ["greedy", "second", "third", *["greedy"] * 7]


async def test_waiting_for_memory_ends_after_max_block_ms(cluster: EmbeddedCluster) -> None:
    async with small(cluster, max_block_ms=300) as producer:
        await producer.warm_up(["t"])
        cluster.freeze_broker(1)
        accepted: list[Delivery] = []
        with pytest.raises(BufferExhaustedError, match="max_block_ms=300"):
            while len(accepted) < 10:
                accepted += [await producer.send("t", VALUE)]
        cluster.thaw_broker(1)
        for delivery in accepted:
            await delivery
        assert (await producer.send_and_wait("t", VALUE)).offset == len(accepted)


async def test_nothing_is_left_of_cancelled_waiters(cluster: EmbeddedCluster) -> None:
    async with small(cluster) as producer:
        await producer.warm_up(["t"])
        cluster.freeze_broker(1)
        tasks = [asyncio.create_task(producer.send("t", VALUE)) for _ in range(20)]
        await asyncio.sleep(0.05)
        for task in tasks[::2]:
            task.cancel()
        cluster.thaw_broker(1)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        deliveries = [o for o in outcomes if not isinstance(o, BaseException)]
        assert len(deliveries) >= 10
        await asyncio.gather(*deliveries)
        health = producer.health()
        assert health.buffer_available == health.buffer_total
        assert health.waiting_for_memory == 0


async def test_a_record_larger_than_all_memory_is_refused_at_once(cluster: EmbeddedCluster) -> None:
    async with small(cluster) as producer:
        with pytest.raises(RecordTooLargeError, match="buffer_memory"):
            await producer.send("t", b"v" * 40_000)


async def test_a_record_larger_than_all_memory_does_not_queue_for_it(
    cluster: EmbeddedCluster,
) -> None:
    async with small(cluster) as producer:
        await producer.warm_up(["t"])
        cluster.freeze_broker(1)
        tasks = [asyncio.create_task(producer.send("t", VALUE)) for _ in range(6)]
        await asyncio.sleep(0.01)
        assert producer.health().waiting_for_memory > 0
        async with asyncio.timeout(10):
            with pytest.raises(RecordTooLargeError, match="buffer_memory"):
                await producer.send("t", b"v" * 40_000)
        cluster.thaw_broker(1)
        await asyncio.gather(*tasks)


async def test_oversize_records_get_memory_pieced_together(cluster: EmbeddedCluster) -> None:
    async with small(cluster) as producer:
        sizes = (10_000, 10_000, 30_000, 100, 30_000, 100)
        deliveries = [await producer.send("t", b"v" * size) for size in sizes]
        assert [(await d).offset for d in deliveries] == list(range(6))


async def test_a_loop_of_sends_lets_the_sender_work(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.warm_up(["t"])
        for _ in range(5_000):
            await producer.send("t", b"v" * 100)
        assert producer.metrics()["batch_total"] > 0
        assert await producer.flush() == 0


async def test_a_loop_of_sends_that_fit_everywhere_lets_others_work(
    cluster: EmbeddedCluster,
) -> None:
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, batch_size=1_000_000, linger_ms=5
    ) as producer:
        await producer.warm_up(["t"])
        done = False
        turns = 0

        async def other() -> None:
            nonlocal turns
            while not done:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        for _ in range(20_000):  # all of them fit into one batch
            await producer.send("t", b"v")
        done = True
        await beside
        assert turns >= 10


async def test_concurrent_sends_keep_the_order_of_their_calls(cluster: EmbeddedCluster) -> None:
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, batch_size=4096, linger_ms=5
    ) as producer:
        await producer.warm_up(["t"])
        calls = [asyncio.create_task(producer.send("t", b"%d" % n)) for n in range(5_000)]
        offsets = [(await (await call)).offset for call in calls]
        assert offsets == list(range(5_000))
