"""Batches that take their memory as they fill: `buffer_memory_allocation_strategy` (KIP-1332)."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from support.stage import Stage, play

MIB = 1 << 20
INCREMENTAL = {"buffer_memory_allocation_strategy": "incremental"}


@pytest.mark.parametrize(("strategy", "partitions"), [("full", 33), ("incremental", 1000)])
def test_a_thousand_partitions_with_a_record_each_fit_in_memory_if_batches_grow(
    strategy: str, partitions: int
):
    async def act(stage: Stage) -> None:
        stage.create_topic("wide", (1,) * partitions)
        async with stage.producer as producer:
            await producer.warm_up(["wide"])
            for number in range(partitions):
                await producer.send("wide", b"v", partition=number)
            waits = producer.metrics()["bufferpool_wait_total"]
            assert (waits > 0) == (strategy == "full")
            await producer.flush()
            available = producer.metrics()["buffer_available_bytes"]
            assert available == 32 * MIB

    play(
        act,
        batch_size=MIB,
        buffer_memory=32 * MIB,
        linger_ms=1000,
        buffer_memory_allocation_strategy=strategy,
    )


@pytest.mark.parametrize("way", ["send", "send_many"])
def test_batches_become_as_large_as_before(way: str):
    async def act(stage: Stage) -> None:
        rng = Random(1)
        values = [b"%06d" % n + b"x" * rng.randrange(300) for n in range(2000)]
        async with stage.producer as producer:
            if way == "send":
                for value in values:
                    await producer.send("t", value)
                await producer.flush()
            else:
                await producer.send_many("t", values)
            assert producer.metrics()["batch_size_max"] > 0.9 * 64 * 1024
            assert producer.metrics()["buffer_available_bytes"] == MIB
        assert stage.values("t") == values

    play(act, batch_size=64 * 1024, buffer_memory=MIB, linger_ms=1000, **INCREMENTAL)


def test_a_batch_that_cannot_grow_is_sent_as_it_is():
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.warm_up(["t", "u"])
            values = [b"%04d" % n + b"x" * 200 for n in range(400)]
            async with asyncio.TaskGroup() as group:
                for topic in ("t", "u"):
                    group.create_task(producer.send_many(topic, values))
            assert producer.metrics()["buffer_available_bytes"] == 20_000
        assert stage.values("t") == stage.values("u") == values

    play(act, batch_size=16_384, buffer_memory=20_000, linger_ms=1000, **INCREMENTAL)


def test_a_record_larger_than_a_batch_still_gets_its_own_batch():
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            for value in (b"a", b"b" * 30_000, b"c"):
                await producer.send("t", value)
            await producer.flush()
        assert [len(value) for value in stage.values("t")] == [1, 30_000, 1]

    play(act, batch_size=16_384, buffer_memory=100_000, **INCREMENTAL)


def test_memory_smaller_than_a_batch_makes_smaller_batches():
    async def act(stage: Stage) -> None:
        values = [b"%04d" % n + b"x" * 1000 for n in range(100)]
        async with stage.producer as producer:
            for value in values:
                await producer.send("t", value)
            await producer.flush()
        assert stage.values("t") == values

    play(act, batch_size=100_000, buffer_memory=50_000, linger_ms=1000, **INCREMENTAL)
