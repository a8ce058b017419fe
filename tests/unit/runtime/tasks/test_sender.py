"""Sending times of batches: at once where nothing is in flight, else with the others."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest
from net.virtual import virtual_time

from aioproducer import Producer
from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.errors import ProducerFailedError
from aioproducer.runtime.tasks.encoder import BatchEncoder
from aioproducer.runtime.tasks.sender import Activity
from aioproducer.testing.virtual import VirtualKafka, run_virtual
from aioproducer.types import Persistence


async def warmed_up(kafka: VirtualKafka, **options: object) -> Producer:
    producer = kafka.producer(**options)
    await producer.start()
    await producer.send_and_wait("t", b"first")
    await asyncio.sleep(1.0)
    return producer


def requests_of(producer: Producer) -> int:
    assert producer._engine is not None
    return producer._engine.stats.requests_sent


def turns_of(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times of the sender's turns from now on, as they are added."""
    assert producer._engine is not None
    task = producer._engine.sender_task
    act = task._act
    turns: list[float] = []
    monkeypatch.setattr(task, "_act", lambda now: (turns.append(now), act(now)))
    return turns


def test_a_batch_leaves_in_the_turn_of_its_send_and_what_follows_gathers():
    async def run(kafka: VirtualKafka) -> None:
        producer = await warmed_up(kafka, linger_ms=0)
        before = requests_of(producer)
        deliveries = [producer.send_nowait("t", b"%d" % number) for number in range(100)]
        assert requests_of(producer) == before + 1
        offsets = [(await delivery).offset for delivery in deliveries]
        assert offsets == list(range(1, 101))
        assert requests_of(producer) == before + 2
        await producer.close()

    run_virtual(run, topics={"t": 1})


def slow_turns_of(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.001
) -> list[float]:
    """The times of the sender's turns from now on, in each of which time passes."""
    assert producer._engine is not None
    task, loop = producer._engine.sender_task, asyncio.get_running_loop()
    act = task._act
    turns: list[float] = []

    def act_slowly(now: float) -> None:
        turns.append(now)
        act(now)
        loop._now += seconds

    monkeypatch.setattr(task, "_act", act_slowly)
    return turns


def test_a_loop_of_sends_over_many_partitions_fills_batches_while_the_sender_rests(
    monkeypatch: pytest.MonkeyPatch,
):
    async def run(kafka: VirtualKafka) -> None:
        producer = await warmed_up(kafka, linger_ms=0)
        slow_turns_of(producer, monkeypatch)
        stats = producer._engine.stats
        batches = stats.batches_sent
        deliveries = [
            await producer.send("many", b"v", partition=number % 600) for number in range(3_000)
        ]
        for delivery in deliveries:
            await delivery
        assert stats.batches_sent - batches <= 1_000
        await producer.close()

    run_virtual(run, topics={"t": 1, "many": 600})


def test_sender_does_not_rest_while_a_flush_waits(monkeypatch: pytest.MonkeyPatch):
    async def run(kafka: VirtualKafka) -> None:
        producer = await warmed_up(kafka, linger_ms=0)
        await producer.warm_up(["many"])
        turns = slow_turns_of(producer, monkeypatch)

        async def send_without_end() -> None:
            for number in itertools.count():
                await producer.send("many", b"v", partition=number % 600)

        async def turns_within(iterations: int) -> int:
            before = len(turns)
            for _ in range(iterations):
                await asyncio.sleep(0)
            return len(turns) - before

        endless = asyncio.create_task(send_without_end())
        assert await turns_within(30) > 0
        assert await turns_within(10) == 0
        flush = asyncio.create_task(producer.flush())
        assert await turns_within(10) > 0
        endless.cancel()
        await flush
        await producer.close()

    run_virtual(run, topics={"t": 1, "many": 600})


@pytest.mark.parametrize(("took_s", "rests_s"), [(0.001, 0.006), (5.0, 1.0)])
def test_sender_rests_six_times_as_long_as_its_actions_took_and_at_most_a_second(
    monkeypatch: pytest.MonkeyPatch, took_s: float, rests_s: float
) -> None:
    async def run(kafka: VirtualKafka) -> None:
        producer = await warmed_up(kafka, linger_ms=0)
        await producer.warm_up(["many"])
        turns = slow_turns_of(producer, monkeypatch, took_s)
        loop = asyncio.get_running_loop()

        async def send_without_end() -> None:
            for number in itertools.count():
                await producer.send("many", b"v", partition=number % 600)

        async def has_turn_after(seconds: float) -> bool:
            before = len(turns)
            loop._now += seconds
            for _ in range(30):
                await asyncio.sleep(0)
            return len(turns) > before

        endless = asyncio.create_task(send_without_end())
        assert await has_turn_after(0.0)
        assert not await has_turn_after(0.9 * rests_s)
        assert await has_turn_after(0.2 * rests_s)
        endless.cancel()
        await producer.close()

    run_virtual(run, topics={"t": 1, "many": 600})


def test_what_lingers_does_not_leave_at_once():
    async def run(kafka: VirtualKafka) -> None:
        producer = await warmed_up(kafka, linger_ms=5)
        before = requests_of(producer)
        delivery = producer.send_nowait("t", b"v")
        await asyncio.sleep(0.004)
        assert requests_of(producer) == before
        await delivery
        assert requests_of(producer) == before + 1
        await producer.close()

    run_virtual(run, topics={"t": 1})


def test_records_that_are_alone_take_no_turn_of_the_sender(monkeypatch: pytest.MonkeyPatch):
    async def run(kafka: VirtualKafka) -> None:
        producer = await warmed_up(kafka, linger_ms=0)
        turns = turns_of(producer, monkeypatch)
        before = requests_of(producer)
        for _ in range(10):
            await producer.send_and_wait("t", b"v")
        assert requests_of(producer) == before + 10
        assert not turns
        await producer.close()

    run_virtual(run, topics={"t": 1})


def test_after_an_answer_that_leaves_nothing_to_do_the_sender_sleeps_on(
    monkeypatch: pytest.MonkeyPatch,
):
    async def run(kafka: VirtualKafka) -> None:
        producer = await warmed_up(kafka, linger_ms=0, compression_type="gzip")
        turns = turns_of(producer, monkeypatch)
        for _ in range(10):
            await producer.send_and_wait("t", b"v")
        assert len(turns) == 10
        await producer.close()

    run_virtual(run, topics={"t": 1})


def test_where_batches_linger_the_sender_checks_them_again_after_an_answer(
    monkeypatch: pytest.MonkeyPatch,
):
    """The tasks that were resumed by it may have been the last ones to send."""

    async def run(kafka: VirtualKafka) -> None:
        producer = await warmed_up(kafka, linger_ms=500)
        turns = turns_of(producer, monkeypatch)
        sent = await producer.send("t", b"sent")
        await asyncio.sleep(0.501)
        lingering = await producer.send("t", b"lingering")
        await sent
        before = len(turns)
        await asyncio.sleep(0.001)
        assert len(turns) > before
        assert not lingering.done()
        await producer.close()

    run_virtual(run, topics={"t": 1})


def test_a_defect_in_the_turn_of_a_send_fails_the_producer_and_not_that_send(
    monkeypatch: pytest.MonkeyPatch,
):
    async def run(kafka: VirtualKafka) -> None:
        producer = await warmed_up(kafka, linger_ms=0, compression_type="gzip")
        assert producer._engine is not None

        def stumble(now: float) -> None:
            monkeypatch.undo()  # once is enough
            raise ZeroDivisionError

        monkeypatch.setattr(producer._engine.sender_task, "_act", stumble)
        delivery = producer.send_nowait("t", b"v")
        with pytest.raises(ProducerFailedError, match="ZeroDivisionError"):
            await delivery
        await producer.close()

    run_virtual(run, topics={"t": 1})


def test_a_batch_that_cannot_be_encoded_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    encode_one = BatchEncoder.encode_one

    def encode_or_fail(encoder: BatchEncoder, batch: ProducerBatch, *rest: Any) -> object:
        if batch.topic_partition.partition == 0:
            raise MemoryError
        return encode_one(encoder, batch, *rest)

    async def run(kafka: VirtualKafka) -> None:
        async with kafka.producer(linger_ms=10) as producer:
            await producer.warm_up(["t"])
            monkeypatch.setattr(BatchEncoder, "encode_one", encode_or_fail)
            before = requests_of(producer)
            bad, good = [await producer.send("t", b"v", partition=number) for number in (0, 1)]
            assert (await good).offset == 0
            assert requests_of(producer) == before + 1
            with pytest.raises(ProducerFailedError, match="MemoryError") as caught:
                await bad
            assert caught.value.persistence is Persistence.NOT_PERSISTED
            monkeypatch.undo()
            assert (await producer.send_and_wait("t", b"v", partition=0)).offset == 0
            assert producer.health().buffer_available == producer.health().buffer_total

    run_virtual(run, brokers=1, topics={"t": 2})


def test_other_tasks_run_between_two_requests_of_the_sender() -> None:
    async def run(kafka: VirtualKafka) -> None:
        producer = await warmed_up(kafka, linger_ms=60_000, batch_size=200)
        before = requests_of(producer)
        for _ in range(4):
            producer.send_nowait("t", b"v" * 150)
        seen = []
        for _ in range(20):
            await asyncio.sleep(0)
            seen.append(requests_of(producer) - before)
        assert [sent for sent, _ in itertools.groupby(seen)] == [1, 2, 3]
        await producer.close()

    run_virtual(run, topics={"t": 1})


@pytest.mark.parametrize(("seconds", "is_recent"), [(0.00009, True), (0.0001, False), (0.5, False)])
@virtual_time
async def test_an_action_is_recent_for_a_tenth_of_a_millisecond(
    seconds: float, is_recent: bool
) -> None:
    loop = asyncio.get_running_loop()
    activity = Activity(loop)
    assert not activity.is_recent
    activity.on_acted()
    assert activity.last_at == loop.time()
    activity.time = lambda: seconds
    activity.last_at = 0.0
    assert activity.is_recent is is_recent


@virtual_time
async def test_actions_are_timed_by_the_clock_of_a_loop_with_a_fine_one() -> None:
    loop = asyncio.get_running_loop()
    assert Activity(loop).time() == loop.time()


def test_actions_are_timed_by_a_monotonic_clock_where_the_loop_s_own_may_be_coarse() -> None:
    class Coarse(asyncio.AbstractEventLoop):
        def time(self) -> float:
            return 0.0

    assert Activity(Coarse()).time is time.monotonic
