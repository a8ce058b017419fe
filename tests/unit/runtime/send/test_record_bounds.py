"""Bounds of records and timestamps in seconds, on both paths and in bulk, without a cluster."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.errors import (
    BufferExhaustedError,
    BufferFullError,
    KafkaTimeoutError,
    ProducerClosedError,
)

from .fast_paths import Bench

pytestmark = pytest.mark.usefixtures("fast_path_form")


def bench(*, fast: bool, **options) -> Bench:
    """One that is warm: the fast path takes what it may from the first record on."""
    made = Bench(fast=fast, linger_ms=5_000, **options)
    made.know(t=2)
    return made


@pytest.fixture(params=[True, False], ids=["fast", "general"])
def fast(request: pytest.FixtureRequest) -> bool:
    return request.param


async def fill(made: Bench, count: int) -> None:
    for number in range(count):
        await made.producer.send("t", b"%d" % number, partition=number % 2)


async def test_so_many_records_are_buffered_and_no_more(fast: bool) -> None:
    made = bench(fast=fast, buffer_max_records=10, enqueue_timeout_ms=0)
    await fill(made, 10)
    with pytest.raises(BufferFullError, match="buffer_max_records is used up"):
        await made.producer.send("t", b"11", partition=0)
    with pytest.raises(BufferFullError, match="raise buffer_max_records"):
        made.producer.send_nowait("t", b"11", partition=0)
    assert made.complete_oldest().count == 5
    await fill(made, 5)
    with pytest.raises(BufferFullError):
        made.producer.send_nowait("t", b"16", partition=0)
    made.end()


async def test_nothing_is_counted_without_a_bound(fast: bool) -> None:
    made = bench(fast=fast)
    ceiling = made.fast_path.ceiling
    await fill(made, 100)
    made.complete_oldest()
    assert made.fast_path.ceiling == ceiling > 1 << 62
    made.end()


async def test_a_waiter_for_a_place_is_in_the_line_for_memory(fast: bool) -> None:
    made = bench(fast=fast, buffer_max_records=2, buffer_memory=40_000, batch_size=16_384)
    served: list[int] = []

    async def send(number: int, size: int) -> None:
        await made.producer.send("t", b"x" * size, partition=number % 2)
        served.append(number)

    await fill(made, 2)
    sizes = [10, 15_000, 10, 15_000, 10]
    tasks = [asyncio.create_task(send(n, size)) for n, size in enumerate(sizes)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert served == []
    assert made.appender.waiting == 5
    assert made.accumulator.expedited
    while made.complete_oldest() is not None:
        for _ in range(10):
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert served == list(range(5))
    assert made.pool.available == 40_000
    made.end()


async def test_the_wait_for_a_place_ends_at_its_bound(fast: bool) -> None:
    made = bench(fast=fast, buffer_max_records=1, enqueue_timeout_ms=20)
    await made.producer.send("t", b"1")
    with pytest.raises(BufferExhaustedError, match=r"enqueue_timeout_ms=20: buffer_max_records"):
        await made.producer.send("t", b"2")
    assert made.appender.waiting == 0
    assert made.pool.queued == 0
    made.complete_oldest()
    await made.producer.send("t", b"3")
    made.end()


async def test_buffer_error_counts_every_record_that_waits(fast: bool) -> None:
    made = bench(fast=fast, buffer_max_records=1, enqueue_timeout_ms=20)
    await made.producer.send("t", b"1")
    calls = [asyncio.create_task(made.producer.send("t", b"2")) for _ in range(3)]
    errors = await asyncio.gather(*calls, return_exceptions=True)
    texts = [str(error) for error in errors]
    assert "3 records wait for memory, this one included" in texts[0]
    assert "1 record waits for memory, this one" in texts[2]
    made.end()


async def test_a_wait_without_bound_ends_with_the_producer(fast: bool) -> None:
    made = bench(fast=fast, buffer_max_records=1, enqueue_timeout_ms=-1, max_block_ms=1)
    await made.producer.send("t", b"1")
    waiting = [asyncio.create_task(made.producer.send("t", b"2")) for _ in range(3)]
    await asyncio.sleep(0.05)
    assert not any(task.done() for task in waiting)
    made.pool.close(ProducerClosedError("over"))
    for task in waiting:
        with pytest.raises(ProducerClosedError):
            await task
    made.end()


async def test_a_waiter_that_gives_up_leaves_its_place_to_the_next(fast: bool) -> None:
    made = bench(fast=fast, buffer_max_records=1)
    await made.producer.send("t", b"1")
    first, second = (asyncio.create_task(made.producer.send("t", b"2")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    made.complete_oldest()
    await second
    assert [content[3] for content in made.contents()] == [1]
    made.end()


async def test_metadata_are_waited_for_whatever_the_buffer_allows(fast: bool) -> None:
    made = bench(fast=fast, enqueue_timeout_ms=0)
    with pytest.raises(TimeoutError) as failure:
        await made.producer.send("unknown", b"x")
    assert not isinstance(failure.value, KafkaTimeoutError)  # the stub's own
    made.end()


async def test_a_batch_is_full_with_so_many_records(fast: bool) -> None:
    made = bench(fast=fast, batch_max_records=3)
    for number in range(7):
        await made.producer.send("t", b"%d" % number, partition=0)
    assert [batch.count for batch in made.incomplete()] == [3, 3, 1]
    assert [batch.full for batch in made.incomplete()] == [True, True, False]
    made.end()


async def test_a_full_batch_is_due_at_once(fast: bool) -> None:
    made = bench(fast=fast, batch_max_records=2)
    await made.producer.send("t", b"1", partition=0)
    assert made.accumulator.readiness.next_at > made.loop.time() + 1
    await made.producer.send("t", b"2", partition=0)
    assert made.accumulator.readiness.next_at <= made.loop.time()
    made.end()


async def test_a_batch_may_be_of_one_record(fast: bool) -> None:
    made = bench(fast=fast, batch_max_records=1)
    await fill(made, 4)
    assert [batch.count for batch in made.incomplete()] == [1] * 4
    made.end()


async def test_timestamps_in_seconds_are_warned_of_once_per_producer(
    fast: bool, caplog: pytest.LogCaptureFixture
) -> None:
    made = bench(fast=fast)
    for timestamp_ms in (0, 10**9 - 1, 10**10, 1_764_110_000_123):
        await made.producer.send("t", b"v", timestamp_ms=timestamp_ms)
    assert not caplog.records
    for seconds in (1_764_110_000, 1_764_110_001):
        delivery = await made.producer.send("t", b"v", timestamp_ms=seconds)
        assert delivery._timestamp_ms == seconds
    [warning] = caplog.records
    assert "timestamp_ms=1764110000" in warning.getMessage()
    assert "looks like seconds" in warning.getMessage()
    made.end()
