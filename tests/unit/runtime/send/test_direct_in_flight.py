"""Directly sent records that follow others which are in flight."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from math import inf
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer.errors import KafkaError
from aioproducer.net.response_protocol import ResponseProtocol
from aioproducer.records.batch import read_batches
from aioproducer.runtime.tasks.sender import _NAGLE_WINDOW_S
from aioproducer.testing import TopicSpec
from aioproducer.testing.virtual import VirtualKafka, run_virtual

from .direct_sends import transport_of


@asynccontextmanager
async def after_single_records(kafka: VirtualKafka, **options: Any) -> AsyncIterator[Producer]:
    """A producer that has sent some to each partition, and has nothing under way."""
    kafka.world.network.fragments = False
    async with kafka.producer(**{"linger_ms": 0, **options}) as producer:
        for partition in (0, 1) * 2:
            await producer.send_and_wait("t", b"first", partition=partition)
            await asyncio.sleep(0.01)
        yield producer


def batches_of(kafka: VirtualKafka, partition: int) -> list[list[bytes | None]]:
    """The values in each batch of the log, after the first two."""
    found = kafka.world.cluster.partition("t", partition)
    assert found is not None
    batches = [read_batches(bytes(each.data)) for each in found.log.batches]
    return [[record.value for record in batch.records()] for (batch,) in batches[2:]]


@pytest.mark.parametrize("others", [[0, 0, 0], [1, 1, 1], [1, 0, 1]])
def test_records_follow_one_that_is_in_the_air_without_a_turn(others: list[int]) -> None:
    async def run(kafka: VirtualKafka) -> None:
        called: list[str] = []
        async with after_single_records(kafka) as producer:
            deliveries = []
            kafka.faults.next("Produce").is_answered_late(5)
            sys.setprofile(lambda frame, *_: called.append(frame.f_code.co_name))
            for partition in (0, *others):
                deliveries.append(producer.send_nowait("t", b"%d" % partition, partition=partition))
                await asyncio.sleep(0.0002)
            for delivery in deliveries:
                await delivery
            await asyncio.sleep(0.01)
            sys.setprofile(None)
            assert producer._engine is not None
            assert producer._engine.pool.available == producer._engine.pool.total
        assert "_direct_request" in called
        assert not {"try_send_immediately", "enqueue"} & {*called}
        for partition in (0, 1):
            sent = [[b"%d" % each] for each in (0, *others) if each == partition]
            assert batches_of(kafka, partition) == sent

    run_virtual(run, brokers=2, topics={"t": TopicSpec(2, 2)})


def test_an_answered_awaiter_sends_while_others_are_in_flight() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with after_single_records(kafka) as producer:

            async def go_on(delay: float) -> None:
                await asyncio.sleep(delay)
                for _ in range(20):
                    await producer.send_and_wait("t", b"v", partition=0)
                    engine.sender_task._activity.last_at = -inf  # what he does next takes a while

            engine = producer._engine
            assert engine is not None
            await asyncio.gather(*(go_on(number * 0.0003) for number in range(3)))
            assert engine.stats.records_retried == 0
        assert batches_of(kafka, 0) == [[b"v"]] * 60

    run_virtual(run, brokers=1, topics={"t": 2})


def test_a_burst_after_a_single_record_gathers() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with after_single_records(kafka) as producer:
            values = [b"%d" % number for number in range(9)]
            for value in values:
                await producer.send("t", value, partition=0)
        assert batches_of(kafka, 0) == [values[:1], values[1:]]

    run_virtual(run, brokers=2, topics={"t": TopicSpec(2, 2)})


def test_a_burst_right_after_an_answer_gathers_while_others_are_in_flight() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with after_single_records(kafka) as producer:
            leaders = [each.leader for each in await producer.partitions_for("t")]
            assert len({*leaders}) == 2
            kafka.faults.next("Produce", node_id=leaders[1]).is_answered_late(50)
            late = producer.send_nowait("t", b"late", partition=1)
            await asyncio.sleep(0.0002)
            await producer.send_nowait("t", b"first", partition=0)
            assert not late.done()
            deliveries = [producer.send_nowait("t", b"v", partition=0) for _ in range(3)]
            for delivery in deliveries:
                await delivery
        assert batches_of(kafka, 0) == [[b"first"], [b"v"] * 3]

    run_virtual(run, brokers=2, topics={"t": TopicSpec(2, 2)})


def test_a_burst_gathers_however_long_its_second_record_takes() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with after_single_records(kafka) as producer:
            engine, readings = producer._engine, count()
            assert engine is not None
            # Between two clock readings a machine that is busy spends more than half a burst.
            engine.sender_task._activity.time = lambda: next(readings) * 0.6 * _NAGLE_WINDOW_S
            for number in range(9):
                await producer.send("t", b"%d" % number, partition=0)
        assert [len(batch) for batch in batches_of(kafka, 0)] == [1, 8]

    run_virtual(run, brokers=2, topics={"t": TopicSpec(2, 2)})


@pytest.mark.parametrize("idle_s", [2.0, 7200.0])
def test_after_an_idle_time_none_follows_until_the_first_is_acknowledged(idle_s: float) -> None:
    async def run(kafka: VirtualKafka) -> None:
        cluster = kafka.world.cluster
        cluster.settings = replace(
            cluster.settings,
            producer_id_expiration_ms=1500,
            producer_id_expiration_check_interval_ms=100,
        )
        async with after_single_records(kafka) as producer:
            await asyncio.sleep(idle_s)
            kafka.faults.next("Produce").answers("NOT_ENOUGH_REPLICAS")
            deliveries = []
            for number in range(4):
                deliveries.append(await producer.send("t", b"%d" % number, partition=0))
                await asyncio.sleep(0.0002)
            places = [(await delivery).offset for delivery in deliveries]
            assert places == sorted(places)
        values = [value for batch in batches_of(kafka, 0) for value in batch]
        assert values == [b"0", b"1", b"2", b"3"]

    run_virtual(run, brokers=1, topics={"t": 2})


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_no_more_are_in_the_air_than_may_be_in_flight(limit: int) -> None:
    async def run(kafka: VirtualKafka) -> None:
        options = {"max_in_flight_requests_per_connection": limit}
        async with after_single_records(kafka, **options) as producer:
            assert producer._engine is not None
            kafka.faults.next("Produce").is_answered_late(50)
            values = [b"%d" % number for number in range(9)]
            for value in values:
                await producer.send("t", value, partition=0)
                await asyncio.sleep(0.0002)
            assert sum(map(producer._engine.client.in_flight, (1, 2))) == limit
            assert (
                not producer._engine.sender_task.try_send_immediately()
            )  # what waits may not leave yet
        assert batches_of(kafka, 0) == [*([each] for each in values[:limit]), values[limit:]]

    run_virtual(run, brokers=2, topics={"t": TopicSpec(2, 2)})


def test_answers_that_come_together_are_read_one_by_one() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with after_single_records(kafka) as producer:
            kafka.faults.next("Produce").is_answered_late(5)
            deliveries = []
            for number in range(4):
                deliveries.append(await producer.send("t", b"%d" % number, partition=0))
                await asyncio.sleep(0.0002)
            assert [(await each).offset for each in deliveries] == [2, 3, 4, 5]
            assert (await producer.send_and_wait("t", b"last", partition=0)).offset == 6

    run_virtual(run, brokers=1, topics={"t": 2})


@pytest.mark.parametrize("in_the_air", [1, 2, 3])
def test_records_in_flight_survive_a_later_write_that_fails(
    monkeypatch: pytest.MonkeyPatch, in_the_air: int
) -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with after_single_records(kafka) as producer:
            deliveries = []

            def fail(data: bytes) -> None:
                raise OSError("this socket is broken")

            transport = transport_of(producer)
            for number in range(in_the_air + 1):
                if number == in_the_air:
                    monkeypatch.setattr(transport, "write", fail)
                deliveries.append(await producer.send("t", b"%d" % number, partition=0))
                await asyncio.sleep(0.0002)
            offsets = [(await each).offset for each in deliveries]
            assert offsets == [*range(2, 3 + in_the_air)]
            assert producer._engine is not None
            assert producer._engine.pool.available == producer._engine.pool.total
        assert batches_of(kafka, 0) == [[b"%d" % each] for each in range(in_the_air + 1)]

    run_virtual(run, brokers=1, topics={"t": 2})


@pytest.mark.parametrize("cut_off", ["on_dispatched", "on_acknowledged"])
def test_an_interrupt_while_records_are_in_flight_ends_every_wait(
    monkeypatch: pytest.MonkeyPatch, cut_off: str
) -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with after_single_records(kafka) as producer:
            engine = producer._engine
            assert engine is not None
            kafka.faults.next("Produce").is_answered_late(100)
            deliveries = []

            async def send() -> None:
                deliveries.append(await producer.send("t", b"v", partition=0))
                await asyncio.sleep(0.0002)

            await send()
            await send()

            def interrupt(*_: object) -> None:
                monkeypatch.undo()
                raise KeyboardInterrupt

            monkeypatch.setattr(engine.sender, cut_off, interrupt)
            if cut_off == "on_acknowledged":
                connection = transport_of(producer).get_protocol()
                assert isinstance(connection, ResponseProtocol)
                take = connection._on_data

                passed = []

                def interrupted(data: bytes) -> int:
                    try:
                        return take(data)
                    except KeyboardInterrupt:
                        passed.append(data)
                        return len(data)

                monkeypatch.setattr(connection, "_on_data", interrupted)
                await asyncio.sleep(1)
                assert len(passed) == 1
            else:
                with pytest.raises(KeyboardInterrupt):
                    await send()
            began = kafka.now
            for delivery in deliveries:
                with pytest.raises(KafkaError):
                    await delivery
            assert kafka.now - began < 1

    run_virtual(run, brokers=1, topics={"t": 2})
