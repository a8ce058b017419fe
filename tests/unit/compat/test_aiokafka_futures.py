"""The futures of the aiokafka drop-in are asyncio's to every awaiter."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from aioproducer.compat.aiokafka import AIOKafkaProducer, TopicPartition
from aioproducer.compat.aiokafka.errors import KafkaError
from aioproducer.errors import WrongLoopError
from aioproducer.testing.embedded import EmbeddedCluster, TopicSpec


@pytest.fixture
async def producer() -> AsyncIterator[AIOKafkaProducer]:
    async with (
        EmbeddedCluster(topics={"t": 2}) as cluster,
        AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=30) as started,
    ):
        yield started


async def test_futures_of_one_batch_have_each_their_own_result(producer: AIOKafkaProducer) -> None:
    futures = [
        await producer.send("t", b"%d" % number, partition=number % 2, timestamp_ms=1000 + number)
        for number in range(6)
    ]
    done = await asyncio.gather(*futures)
    for number, metadata in enumerate(done):
        assert metadata is not None
        assert metadata[:4] == ("t", number % 2, TopicPartition("t", number % 2), number // 2)
        assert (metadata.timestamp, metadata.timestamp_type) == (1000 + number, 0)
        assert metadata == futures[number].result() == await futures[number]


async def test_batch_counts_as_awaited_while_the_future_of_its_record_is(
    producer: AIOKafkaProducer,
) -> None:
    future = await producer.send("t", b"v", partition=0)
    (batch,) = producer._own_futures._open
    assert batch.watchers == 0
    waiting = asyncio.create_task(_awaited(future))
    await asyncio.sleep(0)
    assert batch.watchers == 1
    waiting.cancel()
    await asyncio.wait([waiting])
    assert batch.watchers == 0


async def _awaited(future: asyncio.Future[Any]) -> Any:
    return await future


async def test_results_have_the_time_at_which_the_broker_appended() -> None:
    topic = TopicSpec(1, 1, {"message.timestamp.type": "LogAppendTime"})
    async with EmbeddedCluster() as cluster:
        cluster.create_topic("t", topic)
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            awaited = await producer.send_and_wait("t", b"1", timestamp_ms=1000)
            later = await (await producer.send("t", b"2", timestamp_ms=1000))
    for metadata in (awaited, later):
        assert metadata is not None
        assert metadata.timestamp is not None
        assert metadata.timestamp > 1000
        assert metadata.timestamp_type == 1


async def test_any_number_of_tasks_may_await_one(producer: AIOKafkaProducer) -> None:
    future = await producer.send("t", b"v")

    async def offset() -> int:
        metadata = await future
        assert metadata is not None
        return metadata.offset

    assert await asyncio.gather(*(offset() for _ in range(3))) == [0, 0, 0]


first_and_second = pytest.mark.parametrize(
    "place", [0, 1], ids=["first of its batch", "second of its batch"]
)


@first_and_second
async def test_cancelling_an_await_cancels_the_future_and_sends_the_record(
    producer: AIOKafkaProducer, place: int
) -> None:
    future = [await producer.send("t", b"1", partition=0) for _ in range(place + 1)][place]

    async def wait(awaited: Any) -> Any:
        return await awaited

    first, second = asyncio.create_task(wait(future)), asyncio.create_task(wait(future))
    await asyncio.sleep(0)
    first.cancel()
    for task in (first, second):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert future.cancelled()
    metadata = await producer.send_and_wait("t", b"2", partition=0)
    assert metadata is not None
    assert metadata.offset == place + 1


@first_and_second
async def test_cancelling_the_future_ends_those_that_await_it(
    producer: AIOKafkaProducer, place: int
) -> None:
    future = [await producer.send("t", b"1") for _ in range(place + 1)][place]

    async def wait() -> Any:
        return await future

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    assert future.cancel()
    assert not future.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_another_loop_cannot_await_it(producer: AIOKafkaProducer) -> None:
    future = await producer.send("t", b"1")

    async def wait() -> Any:
        return await future

    def elsewhere() -> None:
        with pytest.raises((RuntimeError, WrongLoopError)):
            asyncio.run(wait())

    with ThreadPoolExecutor() as pool:
        pool.submit(elsewhere).result(10)  # meanwhile this loop is blocked: it is not delivered
    await asyncio.wait([future], timeout=5)
    assert future.result() is not None


async def test_a_wait_with_a_timeout_ends_in_time(producer: AIOKafkaProducer) -> None:
    future = await producer.send("t", b"1")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(future), 0.001)
    done, pending = await asyncio.wait([future], timeout=5)
    assert (done, pending) == ({future}, set())
    assert future.result() is not None


async def test_callbacks_are_called_once(producer: AIOKafkaProducer) -> None:
    future = await producer.send("t", b"1")
    seen: list[Any] = []
    future.add_done_callback(seen.append)
    await future
    await asyncio.sleep(0)
    assert seen == [future]


async def test_a_future_that_is_made_after_the_outcome_is_done_at_once() -> None:
    async with (
        EmbeddedCluster(topics={"t": 1}) as cluster,
        AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks=0) as producer,
    ):
        assert await (await producer.send("t", b"1")) is None


async def test_a_future_that_fails_unseen_is_reported_by_asyncio() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000)
        await producer.start()
        future = await producer.send("t", b"2")
        producer._own_connection.purge()  # type: ignore[union-attr]
        await asyncio.sleep(0.01)
        assert future.done()
        del future
        gc.collect()
        await producer.stop()
    assert [context["message"] for context in reported] == [
        "RecordFuture exception was never retrieved"
    ]


async def test_futures_that_fail_unseen_with_the_producer_are_not_each_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000)
        await producer.start()
        futures = [await producer.send("t", b"v") for _ in range(3)]
        for task in asyncio.all_tasks():  # as asyncio.run() does at its end
            if task.get_name().startswith("aioproducer-sender"):
                task.cancel()
        done, _ = await asyncio.wait(futures)
        assert len(done) == 3
        del futures, done
        gc.collect()
        with suppress(KafkaError):
            await producer.stop()
    assert reported == []
    assert caplog.text.count("the producer's sender task was cancelled from outside") == 1
