"""Whole batches: their waits, refusals and partitions are those of a record of `send()`."""

from __future__ import annotations

import asyncio

import pytest
from support.stage import Stage, play

from aioproducer.errors import (
    IllegalStateError,
    ProducerClosedError,
    RecordTooLargeError,
    TransactionAbortableError,
)
from aioproducer.runtime.send.appender import WholeRecord


def batch_of(*values: bytes, key: bytes | None = None) -> list[WholeRecord]:
    return [(key, value, (), None) for value in values]


async def started(stage: Stage, *topics: str) -> None:
    await stage.producer.start()
    await stage.producer.warm_up(topics or ["t"])


async def append_six(stage: Stage) -> None:
    """Append batches of 100,000 bytes in one turn of the loop, the last of them in the next one."""
    for _ in range(6):
        await stage.engine.appender.append_whole("t", batch_of(bytes(100_000)), 0)


def test_the_partitioner_is_asked_once_for_a_batch_and_sees_no_record() -> None:
    asked: list[tuple[bytes | None, bytes | None]] = []

    def choose(topic: str, key: bytes | None, value: bytes | None, cluster: object) -> int | None:
        asked.append((key, value))
        return 2 if len(asked) == 1 else None

    async def act(stage: Stage) -> None:
        stage.create_topic("wide", leaders=(1, 1, 1))
        await started(stage, "wide")
        append = stage.engine.appender.append_whole
        await append("wide", batch_of(b"1", b"2", key=b"k"), None)
        await append("wide", batch_of(b"3", b"4", key=b"k"), None)
        await append("wide", batch_of(b"5", b"6", key=b"k"), 0)
        await stage.producer.close()
        assert asked == [(None, None)] * 2
        assert stage.values("wide", 2)[:2] == [b"1", b"2"]
        assert b"5" in stage.values("wide", 0)

    play(act, partitioner=choose)


def test_batches_without_partition_are_spread_over_all_partitions() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("wide", leaders=(1, 1, 1))
        await started(stage, "wide")
        for number in range(30):
            values = [b"%d" % (2 * number), b"%d" % (2 * number + 1)]
            await stage.engine.appender.append_whole("wide", batch_of(*values), None)
        await stage.producer.close()
        read = [stage.values("wide", partition) for partition in range(3)]
        assert min(map(len, read)) > 5
        for values in read:
            numbers = [*map(int, values)]
            assert [number + 1 for number in numbers[::2]] == numbers[1::2]

    play(act, batch_size=100, buffer_memory=100_000)


def test_a_batch_larger_than_the_memory_is_refused_at_once() -> None:
    async def act(stage: Stage) -> None:
        await started(stage)
        stage.broker.freeze()
        first = await stage.producer.send("t", bytes(600))
        waiting = asyncio.create_task(stage.producer.send("t", bytes(600)))
        await asyncio.sleep(1)
        began = stage.loop.time()
        records = batch_of(bytes(500), bytes(500))
        with pytest.raises(RecordTooLargeError, match="buffer_memory of 1000 bytes"):
            await stage.engine.appender.append_whole("t", records, 0)
        assert stage.loop.time() == began
        stage.broker.thaw()
        await asyncio.gather(first, await waiting)
        await stage.producer.close()

    play(act)


def test_a_batch_waits_while_buffer_max_records_are_buffered() -> None:
    async def act(stage: Stage) -> None:
        await started(stage)
        stage.broker.freeze()
        for _ in range(2):
            await stage.producer.send("t", b"sent")
        append = stage.engine.appender.append_whole("t", batch_of(b"whole"), 0)
        call = asyncio.create_task(append)
        await asyncio.sleep(1)
        assert not call.done()
        stage.broker.thaw()
        await call
        await stage.producer.close()
        assert stage.values("t") == [b"sent", b"sent", b"whole"]

    play(act, buffer_max_records=2)


def test_a_refused_batch_fails_the_transaction() -> None:
    async def act(stage: Stage) -> None:
        await started(stage)
        await stage.producer.begin_transaction()
        with pytest.raises(RecordTooLargeError):
            await stage.engine.appender.append_whole("t", batch_of(b"v", bytes(5000)), 0)
        with pytest.raises(TransactionAbortableError):
            await stage.producer.commit_transaction()
        await stage.producer.close()

    play(act, transactional_id="tx")


@pytest.mark.parametrize("is_short", [True, False], ids=["memory", "turn"])
def test_a_batch_does_not_outlive_the_transaction_that_ends_while_it_waits(is_short: bool) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await started(stage)
        await producer.begin_transaction()
        if is_short:
            stage.broker.freeze()
        call = asyncio.create_task(append_six(stage))
        if is_short:
            await asyncio.sleep(1)
        abort = asyncio.create_task(producer.abort_transaction())
        stage.broker.thaw()
        with pytest.raises(IllegalStateError):
            await call
        await abort
        await producer.begin_transaction()
        await producer.send("t", b"next")
        await producer.commit_transaction()
        assert stage.engine.pool.available == stage.engine.pool.total
        await producer.close()
        assert stage.values("t")[-1:] == [b"next"]

    play(act, transactional_id="tx", buffer_memory=530_000 if is_short else 1 << 21)


def test_a_batch_that_waits_for_memory_ends_with_the_close() -> None:
    async def act(stage: Stage) -> None:
        await started(stage)
        stage.lose()
        for _ in range(2):
            await stage.producer.send("t", bytes(400))
        append = stage.engine.appender.append_whole("t", batch_of(bytes(400)), 0)
        call = asyncio.create_task(append)
        await asyncio.sleep(1)
        closing = asyncio.create_task(stage.producer.close(0))
        with pytest.raises(ProducerClosedError):
            await call
        await closing

    play(act)


def test_bulk_call_waits_while_a_whole_batch_exceeds_the_limit_of_records() -> None:
    async def act(stage: Stage) -> None:
        await started(stage)
        stage.broker.freeze()
        await stage.engine.appender.append_whole("t", batch_of(b"1", b"2", b"3"), 0)
        bulk = asyncio.ensure_future(stage.producer.send_many("t", [b"4", b"5"], partition=0))
        await asyncio.sleep(0.1)
        assert not bulk.done()
        stage.broker.thaw()
        assert (await bulk).delivered == 2
        await stage.producer.close()
        assert stage.values("t", 0) == [b"1", b"2", b"3", b"4", b"5"]

    play(act, buffer_max_records=2)
