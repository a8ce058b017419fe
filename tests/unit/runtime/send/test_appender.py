"""The slow path of `send()`: its waits and their bounds, and what has changed after a wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.stage import Stage, play
from support.turns import each_turn

from aioproducer import Record
from aioproducer.errors import (
    BufferExhaustedError,
    IllegalStateError,
    MetadataTimeoutError,
    NotConnectedError,
    ProducerClosedError,
    RecordTooLargeError,
    TransactionAbortableError,
    WouldBlockError,
)
from aioproducer.wire.api_keys import ApiKey

from .fast_paths import Bench

ROOMY: dict[str, Any] = {"batch_size": 16_384, "buffer_memory": 1 << 20}


@pytest.mark.parametrize("place", [{"topic": "missing"}, {"topic": "t", "partition": 1}])
def test_the_wait_for_metadata_is_bounded_by_max_block_ms_and_counted(
    place: dict[str, Any],
) -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.warm_up(["t"])
            for _ in range(2):
                before = producer.metrics()["metadata_wait_time_ns_total"]
                began = stage.loop.time()
                with pytest.raises(MetadataTimeoutError):
                    await producer.send(**place, value=b"v")
                waited = stage.loop.time() - began
                assert waited == pytest.approx(2)
                counted = producer.metrics()["metadata_wait_time_ns_total"] - before
                assert counted == pytest.approx(waited * 1e9)

    play(act, max_block_ms=2_000, allow_auto_create_topics=False)


def test_send_nowait_does_not_wait_for_a_partition_that_is_missing() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.warm_up(["t"])
            with pytest.raises(WouldBlockError):
                producer.send_nowait("t", b"v", partition=1)
            await producer.send_nowait("t", b"v", partition=0)

    play(act)


def test_a_record_that_waits_for_its_serializer_is_refused_at_the_close() -> None:
    async def encode(value: str) -> bytes:
        await asyncio.sleep(50)
        return value.encode()

    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        waiting = asyncio.create_task(producer.send("t", "v"))
        await asyncio.sleep(1)
        closing = asyncio.create_task(producer.close(20))
        with pytest.raises(ProducerClosedError):
            await waiting
        assert stage.loop.time() < 2
        await closing

    play(act, value_serializer=encode)


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_record_that_gets_its_memory_just_before_the_close_is_refused(
    is_connected: bool,
) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        if is_connected:
            await producer.start()
            await producer.warm_up(["t"])
        stage.crash()
        if not is_connected:
            await producer.start(wait=False)
        await asyncio.sleep(1)
        for _ in range(2):
            await producer.send("t", b"v" * 100)
        waiting = asyncio.create_task(producer.send("t", b"v" * 100))
        await asyncio.sleep(1)
        assert producer.health().waiting_for_memory == 1
        assert producer.purge() == 2
        await producer.close(0)
        with pytest.raises(ProducerClosedError):
            await waiting
        assert stage.engine.pool.available == 400

    play(act, buffer_memory=400, linger_ms=60_000)


@pytest.mark.parametrize("way", ["send", "send_nowait"])
def test_no_send_waits_for_the_cluster_where_that_is_refused(way: str) -> None:
    async def act(stage: Stage) -> None:
        stage.crash()
        producer = stage.producer
        await producer.start(wait=False)
        stage.engine.refuse_unconnected()
        with pytest.raises(NotConnectedError):
            sent = getattr(producer, way)("t", b"v")
            await sent
        assert stage.loop.time() == 0
        stage.revive()
        await asyncio.sleep(5)
        await producer.send_and_wait("t", b"v")
        await producer.close()

    play(act)


@pytest.mark.parametrize("waits_for_metadata", [True, False])
def test_the_waits_for_metadata_and_memory_share_max_block_ms(waits_for_metadata: bool) -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            stage.create_topic("far", (2,))
            await producer.warm_up(["far"] if waits_for_metadata else ["far", "t"])
            stage.lose(2)
            for _ in range(2):
                await producer.send("far", b"v" * 100)
            stage.faults.delay(1_500, ApiKey.METADATA)
            began = stage.loop.time()
            with pytest.raises(BufferExhaustedError, match="max_block_ms=2000"):
                await producer.send("t", b"v" * 100)
            assert stage.loop.time() - began == pytest.approx(2)
            await producer.close(0)

    play(act, brokers=2, buffer_memory=400, max_block_ms=2_000)


# -- transactions ----------------------------------------------------------------------------------


TOO_LARGE = b"v" * 2_000


@pytest.mark.parametrize(
    ("topic", "value", "kind"),
    [("t", TOO_LARGE, RecordTooLargeError), ("missing", b"v", MetadataTimeoutError)],
)
def test_a_record_that_is_refused_fails_its_transaction(
    topic: str, value: bytes, kind: type[Exception]
) -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.warm_up(["t"])
            await producer.begin_transaction()
            with pytest.raises(kind):
                await producer.send(topic, value)
            with pytest.raises(TransactionAbortableError):
                await producer.commit_transaction()
            await producer.abort_transaction()

    options: dict[str, Any] = {"max_request_size": 1_000, "max_block_ms": 2_000}
    play(act, transactional_id="tx", allow_auto_create_topics=False, **options)


def test_what_send_nowait_refuses_fails_the_transaction_unless_it_is_for_now() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.warm_up(["t"])
            await producer.begin_transaction()
            with pytest.raises(WouldBlockError):
                producer.send_nowait("u", b"v")
            await producer.commit_transaction()
            await producer.begin_transaction()
            with pytest.raises(RecordTooLargeError):
                producer.send_nowait("t", TOO_LARGE)
            with pytest.raises(TransactionAbortableError):
                await producer.commit_transaction()
            await producer.abort_transaction()

    play(act, transactional_id="tx", max_request_size=1_000)


def test_a_record_outside_a_transaction_is_refused() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.warm_up(["t"])
            with pytest.raises(IllegalStateError):
                await producer.send("t", b"v")
            with pytest.raises(IllegalStateError):
                producer.send_nowait("t", b"v")
        assert stage.values("t") == []

    play(act, transactional_id="tx")


def test_a_record_that_waits_for_its_topic_is_no_part_of_the_next_transaction() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.begin_transaction()
            waiting = asyncio.create_task(producer.send("later", b"v"))
            await asyncio.sleep(1)
            await producer.abort_transaction()
            await producer.begin_transaction()
            stage.create_topic("later")
            with pytest.raises(IllegalStateError, match="ended while"):
                await waiting
            await producer.abort_transaction()
        assert stage.values("later") == []

    play(act, transactional_id="tx", allow_auto_create_topics=False)


# -- fairness --------------------------------------------------------------------------------------


def test_a_loop_of_sends_lets_other_tasks_run_after_each_thousand_records() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.warm_up(["t"])
            sent = 0
            with each_turn(lambda: sent) as between_turns:
                for _ in range(3_500):
                    await producer.send("t", b"v")
                    sent += 1
            assert between_turns[:3] == [1_000, 2_000, 3_000]
            await producer.flush()

    play(act, linger_ms=1_000, **ROOMY)


async def test_a_send_that_let_other_tasks_run_queues_after_those_that_wait_for_memory() -> None:
    bench = Bench(batch_size=100_000, buffer_memory=100_000, max_request_size=100_000)
    bench.know(a=2)
    done: list[bytes] = []

    async def send(value: bytes, partition: int) -> None:
        await bench.producer.send("a", value, partition=partition)
        done.append(value[:1])

    tasks = [
        asyncio.create_task(send(b"1" * 50_000, 1)),  # there is no memory for its batch
        asyncio.create_task(send(b"2", 0)),  # its batch has room
    ]
    for _ in range(1_000):
        await bench.producer.send("a", b"v", partition=0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert (done, bench.appender.waiting) == ([], 2)
    while bench.complete_oldest() is not None:
        for _ in range(5):
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert done == [b"1", b"2"]
    bench.end()


# -- bulk calls ------------------------------------------------------------------------------------


def test_items_after_one_that_timed_out_share_a_batch() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.warm_up(["t"])
            items = [Record(b"v", topic="missing"), b"1", b"2", b"3"]
            result = await producer.send_many("t", items)
            assert (result.delivered, len(result.failed)) == (3, 1)
            assert [batch.count for batch in stage.batches("t")] == [3]

    play(act, linger_ms=0, max_block_ms=2_000, allow_auto_create_topics=False)
