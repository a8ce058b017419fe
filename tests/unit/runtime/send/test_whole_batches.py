"""One call, whole batches: nothing leaves while a call adds records, and a user's batch is one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.stage import Stage, play
from support.turns import each_turn

from aioproducer import Producer
from aioproducer.compat.aiokafka import AIOKafkaProducer
from aioproducer.compat.aiokafka.errors import MessageSizeTooLargeError
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.wire.api_keys import ApiKey

MESSAGE_TOO_LARGE = 10


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=1, topics={"t": 1}) as cluster:
        yield cluster


def batches(cluster: EmbeddedCluster) -> list[int]:
    """The number of records of each record batch."""
    stored = cluster.state.topics["t"].partitions[0].log.batches
    return [batch.last_offset - batch.base_offset + 1 for batch in stored]


@pytest.mark.parametrize("count", [2, 100, 5_000])
async def test_a_bulk_call_without_linger_fills_one_batch(
    cluster: EmbeddedCluster, count: int
) -> None:
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, linger_ms=0, batch_size=1_000_000
    ) as producer:
        await producer.send_many("t", [b"v"] * count)
        await producer.send_and_wait("t", b"alone")
        await producer.send_and_wait("t", b"alone")
        await producer.send_many("t", [b"v"] * count)
    assert batches(cluster) == [count, 1, 1, count]


async def test_a_bulk_call_without_linger_sends_what_it_has_while_its_source_waits(
    cluster: EmbeddedCluster,
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:

        async def items() -> AsyncIterator[bytes]:
            for number in range(20):
                if number == 10:
                    async with asyncio.timeout(10):
                        while not batches(cluster):  # noqa: ASYNC110 - there is no event
                            await asyncio.sleep(0.001)
                yield b"v"

        await producer.send_many("t", items())
    assert batches(cluster) == [10, 10]


@pytest.mark.parametrize(
    "options", [{}, {"linger_ms": 20}, {"enable_idempotence": True}, {"compression_type": "gzip"}]
)
async def test_a_batch_of_the_users_is_one_record_batch(
    cluster: EmbeddedCluster, options: dict[str, Any]
) -> None:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
        await producer.send_and_wait("t", b"alone")
        before = await producer.send("t", b"before")
        batch = producer.create_batch()
        for _ in range(100):
            batch.append(key=b"k", value=b"v", timestamp=None)
        answer = await producer.send_batch(batch, "t", partition=0)
        after = await producer.send("t", b"after")
        assert (await answer).offset == 2
        await asyncio.gather(before, after)
    assert batches(cluster) == [1, 1, 100, 1]


async def test_a_batch_of_the_users_is_not_split_when_it_is_too_large(
    cluster: EmbeddedCluster,
) -> None:
    cluster.state.faults.error(ApiKey.PRODUCE, MESSAGE_TOO_LARGE)
    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True
    ) as producer:
        batch = producer.create_batch()
        for _ in range(10):
            batch.append(key=None, value=b"v", timestamp=None)
        answer = await producer.send_batch(batch, "t", partition=0)
        with pytest.raises(MessageSizeTooLargeError):
            await answer
    assert batches(cluster) == []


def test_a_loop_of_whole_batches_lets_other_tasks_run() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        stage.broker.freeze()
        appended = 0
        record = (None, b"v" * 100_000, (), None)
        with each_turn(lambda: appended) as between_turns:
            for _ in range(10):
                await stage.engine.appender.append_whole("t", [record], 0)
                appended += 1
        assert between_turns == [5]  # of 512 KiB
        stage.broker.thaw()
        await stage.producer.close()
        assert len(stage.batches("t")) == 10

    play(act, buffer_memory=1 << 21, linger_ms=20)


def test_a_whole_batch_waits_for_memory_after_the_calls_before_it() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        stage.broker.freeze()
        first = await stage.producer.send("t", b"first")
        calls: list[asyncio.Task[object]] = []
        for number in range(3):
            records = [(None, b"%d %d" % (number, index) * 20, (), None) for index in range(2)]
            append = stage.engine.appender.append_whole("t", records, 0)
            calls.append(asyncio.create_task(append))
            await asyncio.sleep(0)
        await asyncio.sleep(1)
        assert [call.done() for call in calls] == [True, False, False]
        assert stage.producer.health().waiting_for_memory == 2
        stage.broker.thaw()
        await asyncio.gather(first, *calls)
        await stage.producer.close()
        assert [batch.count for batch in stage.batches("t")] == [1, 2, 2, 2]
        values = [value[:3] for value in stage.values("t")]
        assert values == [b"fir", b"0 0", b"0 1", b"1 0", b"1 1", b"2 0", b"2 1"]
        assert stage.engine.pool.available == stage.engine.pool.total

    play(act, buffer_memory=500)


@pytest.mark.parametrize("count", [3, 5])
def test_a_whole_batch_waits_until_all_its_records_may_be_buffered(count: int) -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        stage.broker.freeze()
        appender, record = stage.engine.appender, (None, b"v", (), None)
        first = await stage.producer.send("t", b"first")
        await appender.append_whole("t", [record, record], 0)
        call = asyncio.create_task(appender.append_whole("t", [record] * count, 0))
        await asyncio.sleep(1)
        assert not call.done()
        stage.broker.thaw()
        await asyncio.gather(first, call)
        await stage.producer.close()
        assert [batch.count for batch in stage.batches("t")] == [1, 2, count]

    play(act, buffer_max_records=4)
