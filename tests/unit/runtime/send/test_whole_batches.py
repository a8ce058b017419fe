"""One call, whole batches: nothing leaves while a call adds records, and a user's batch is one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

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
