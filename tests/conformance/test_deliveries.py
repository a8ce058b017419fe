"""Deliveries under asyncio's own tools; cancelling one awaiter leaves the others and the record."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from aioproducer import Producer
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.wire.api_keys import ApiKey


def test_send_is_a_coroutine_function() -> None:
    assert inspect.iscoroutinefunction(Producer.send)
    assert inspect.iscoroutinefunction(Producer.send_and_wait)


@pytest.fixture
async def cluster():  # type: ignore[no-untyped-def]
    async with EmbeddedCluster(brokers=1, topics={"t": 1}) as cluster:
        yield cluster


async def test_send_runs_in_create_task_and_task_groups(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        task = asyncio.create_task(producer.send("t", b"1"))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(producer.send_and_wait("t", b"2")) for _ in range(3)]
        await (await task)
        assert sorted(t.result().offset or 0 for t in tasks) == [1, 2, 3]


async def test_gather_wait_and_as_completed_take_deliveries(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        first = [await producer.send("t", b"v") for _ in range(3)]
        assert [m.offset for m in await asyncio.gather(*first)] == [0, 1, 2]
        second = [await producer.send("t", b"v") for _ in range(3)]
        done, pending = await asyncio.wait(second)
        assert len(done) == 3
        assert not pending
        third = [await producer.send("t", b"v") for _ in range(3)]
        offsets = [(await each).offset for each in asyncio.as_completed(third)]
        assert sorted(o for o in offsets if o is not None) == [6, 7, 8]


async def test_wait_for_times_out_at_once_and_the_record_still_arrives(
    cluster: EmbeddedCluster,
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        fault = cluster.state.faults.delay(1500, ApiKey.PRODUCE)
        delivery = await producer.send("t", b"v")
        other = asyncio.create_task(_await(delivery))
        loop = asyncio.get_running_loop()
        started = loop.time()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(delivery, 0.05)
        assert loop.time() - started < 1.0
        assert not delivery.done()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(delivery, 0.05)
        assert (await other).offset == 0
        assert (await asyncio.wait_for(delivery, 60)).offset == 0
        assert not delivery.cancelled()
        assert fault.struck == 1


async def _await(delivery):  # type: ignore[no-untyped-def]
    return await delivery


async def test_a_cancelled_gather_ends_at_once_and_the_records_still_arrive(
    cluster: EmbeddedCluster,
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        cluster.state.faults.delay(1500, ApiKey.PRODUCE)
        deliveries = [await producer.send("t", b"v") for _ in range(3)]
        assert all(asyncio.isfuture(delivery) for delivery in deliveries)
        other = asyncio.create_task(_await(deliveries[0]))
        loop = asyncio.get_running_loop()
        started = loop.time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.gather(*deliveries)
        assert loop.time() - started < 1.0
        assert [metadata.offset for metadata in await asyncio.gather(*deliveries)] == [0, 1, 2]
        assert (await other).offset == 0
        assert not any(delivery.cancelled() for delivery in deliveries)


async def test_cancelling_one_awaiter_leaves_the_other(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=100) as producer:
        delivery = await producer.send("t", b"v")
        first, second = (asyncio.create_task(_await(delivery)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await second).offset == 0


async def test_callbacks_run_once_from_the_loop(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        called: list[object] = []
        delivery = await producer.send("t", b"v")
        delivery.add_done_callback(called.append)
        unwanted = called.clear
        delivery.add_done_callback(unwanted)  # type: ignore[arg-type]
        assert delivery.remove_done_callback(unwanted) == 1  # type: ignore[arg-type]
        assert called == []
        await delivery
        await asyncio.sleep(0)
        assert called == [delivery]
        delivery.add_done_callback(called.append)
        assert called == [delivery]
        await asyncio.sleep(0)
        assert called == [delivery, delivery]


async def test_a_pending_delivery_has_no_result_yet(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=100) as producer:
        delivery = await producer.send("t", b"v")
        with pytest.raises(asyncio.InvalidStateError):
            delivery.result()
        await delivery
        assert delivery.exception() is None
        assert "acknowledged" in repr(delivery)
