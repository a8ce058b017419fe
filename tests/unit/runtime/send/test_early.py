"""Records of a producer that connects in the background, before their topic has metadata."""

from __future__ import annotations

import asyncio

import pytest
from support.stage import Stage, play
from support.turns import each_turn

from aioproducer.errors import DeliveryTimeoutError, InvalidPartitionError, ProducerClosedError


async def connecting(stage: Stage) -> None:
    """Start the producer while there is no cluster."""
    stage.crash()
    await stage.producer.start(wait=False)


def test_a_record_that_expires_does_not_take_later_ones_with_it() -> None:
    async def act(stage: Stage) -> None:
        await connecting(stage)
        first = await stage.producer.send("t", b"first")
        await asyncio.sleep(3)
        second = await stage.producer.send("t", b"second")
        await asyncio.sleep(3)
        with pytest.raises(DeliveryTimeoutError):
            await first
        stage.revive()
        assert (await second).offset == 0
        assert stage.values("t") == [b"second"]
        await stage.producer.close()

    play(act, delivery_timeout_ms=5_000, request_timeout_ms=1_000)


def test_records_go_to_the_partitions_that_were_given_and_fill_few_batches() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("wide", (1, 1))
        await connecting(stage)
        sent = [
            await stage.producer.send("wide", b"%06d" % number, partition=number % 2)
            for number in range(10)
        ]
        stage.revive()
        for number, delivery in enumerate(sent):
            assert (await delivery).partition == number % 2
        for partition in range(2):
            expected = [b"%06d" % number for number in range(partition, 10, 2)]
            assert stage.values("wide", partition) == expected
            assert [batch.count for batch in stage.batches("wide", partition)] == [5]
        await stage.producer.close()

    play(act, batch_size=400)


def test_a_record_for_a_missing_partition_fails_alone() -> None:
    async def act(stage: Stage) -> None:
        await connecting(stage)
        sent = [await stage.producer.send("t", b"v", partition=given) for given in (0, 3, None)]
        stage.revive()
        assert [(await sent[0]).offset, (await sent[2]).offset] == [0, 1]
        with pytest.raises(InvalidPartitionError) as caught:
            await sent[1]
        assert (caught.value.topic, caught.value.partition) == ("t", 3)
        assert (sent[1].topic, sent[1].partition) == ("t", 3)
        await stage.producer.close()

    play(act)


def test_records_that_waited_for_memory_share_a_batch() -> None:
    async def act(stage: Stage) -> None:
        await connecting(stage)
        first = [await stage.producer.send("t", b"v" * 100) for _ in range(2)]
        await asyncio.sleep(2)
        waiting = [asyncio.create_task(stage.producer.send("t", b"w")) for _ in range(2)]
        await asyncio.sleep(1)
        assert stage.producer.health().waiting_for_memory == 2
        for delivery in first:
            with pytest.raises(DeliveryTimeoutError):
                await delivery
        for task in waiting:
            await task
        assert stage.producer.health().buffer_available == 200
        stage.revive()
        await stage.producer.close()
        assert stage.values("t") == [b"w", b"w"]

    play(act, buffer_memory=400, delivery_timeout_ms=5_000, request_timeout_ms=1_000)


def test_a_loop_of_sends_lets_other_tasks_run_and_takes_no_time() -> None:
    async def act(stage: Stage) -> None:
        await connecting(stage)
        began, accepted = stage.loop.time(), 0
        with each_turn(lambda: accepted) as between_turns:
            for _ in range(3_500):
                await stage.producer.send("t", b"v")
                accepted += 1
        assert between_turns[:3] == [1_000, 2_000, 3_000]
        assert stage.loop.time() == began
        await stage.producer.close(0)

    play(act, batch_size=16_384, buffer_memory=1 << 20)


def test_a_send_that_lets_other_tasks_run_is_not_accepted_after_a_close_among_them() -> None:
    async def act(stage: Stage) -> None:
        await connecting(stage)
        sent = [await stage.producer.send("t", b"v") for _ in range(1_000)]
        closing = asyncio.create_task(stage.producer.close(0))
        with pytest.raises(ProducerClosedError):
            await stage.producer.send("t", b"v")
        await closing
        for delivery in sent:
            with pytest.raises(ProducerClosedError):
                await delivery

    play(act, batch_size=16_384, buffer_memory=1 << 20)
