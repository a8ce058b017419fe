"""Waits for memory: what they report, what they hasten, and how they fail."""

from __future__ import annotations

import asyncio

import pytest
from support.stage import Stage, play

from aioproducer.core.batching.buffer_pool import BufferPool
from aioproducer.errors import BufferExhaustedError, KafkaError, ProducerClosedError
from aioproducer.metrics.totals import ProducerStats
from aioproducer.runtime.send.memory import BufferMemory

MORE_THAN_A_PROCESS_HAS = 1 << 61


def memory_of(pool: BufferPool) -> BufferMemory:
    return BufferMemory(pool, asyncio.get_running_loop(), ProducerStats(), lambda: None)


async def waiting_call(memory: BufferMemory, size: int) -> asyncio.Task[bytearray]:
    """A call that waits for memory."""
    call = asyncio.create_task(memory.allocate(size))
    await asyncio.sleep(0)
    assert memory.pool.queued == 1
    return call


def test_a_record_that_waits_for_memory_ends_the_linger_and_its_wait_is_counted() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("wide", (1,) * 5)
        async with stage.producer as producer:
            await producer.warm_up(["t", "wide"])
            for waits in (1, 2):
                for partition in range(5):  # a batch each, which are the whole memory
                    await producer.send("wide", b"v", partition=partition)
                before = producer.metrics()
                assert before["bufferpool_wait_total"] == waits - 1
                stage.faults.delay(400)
                began = stage.loop.time()
                await producer.send("t", b"v")
                waited = stage.loop.time() - began
                assert 0.4 < waited < 1
                metrics = producer.metrics()
                assert metrics["bufferpool_wait_total"] == waits
                key = "bufferpool_wait_time_ns_total"
                assert metrics[key] - before[key] == pytest.approx(waited * 1e9)
                await producer.flush()

    play(act, linger_ms=20_000)


def test_a_wait_that_ends_without_memory_is_counted() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("wide", (1,) * 5)
        async with stage.producer as producer:
            await producer.warm_up(["t", "wide"])
            stage.faults.delay(3000)
            for partition in range(5):  # a batch each, which are the whole memory
                await producer.send("wide", b"v", partition=partition)
            with pytest.raises(BufferExhaustedError):
                await producer.send("t", b"v")
            metrics = producer.metrics()
            assert metrics["bufferpool_wait_total"] == 1
            assert metrics["bufferpool_wait_time_ns_total"] == pytest.approx(1e9)
            assert metrics["bufferpool_wait_ratio"] > 0

    play(act, max_block_ms=1000)


async def test_a_wait_raises_a_copy_of_the_error_with_which_the_memory_was_closed() -> None:
    pool = BufferPool(100, 100)
    memory = memory_of(pool)
    assert await memory.allocate(100)
    call = await waiting_call(memory, 100)
    error = ProducerClosedError("over")
    pool.close(error)
    with pytest.raises(ProducerClosedError, match="over") as caught:
        await call
    assert caught.value is not error
    assert error.__traceback__ is None


async def test_a_wait_raises_that_the_process_has_not_so_much_memory() -> None:
    pool = BufferPool(MORE_THAN_A_PROCESS_HAS, 100)
    memory = memory_of(pool)
    await memory.allocate(100)
    call = await waiting_call(memory, MORE_THAN_A_PROCESS_HAS)
    pool.deallocate(bytearray(100), 100)
    with pytest.raises(MemoryError) as caught:
        await call
    assert not isinstance(caught.value, KafkaError)
    assert pool.available == MORE_THAN_A_PROCESS_HAS
    assert len(await memory.allocate(100)) == 100
