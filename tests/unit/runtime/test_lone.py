"""Records that are alone leave in their `send()`; nobody can tell from what they leave behind."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import fields
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer import Producer
from aioproducer.core.stats import ProducerStats
from aioproducer.errors import KafkaError
from aioproducer.net.frame_tap import FrameTap
from aioproducer.testing import TopicSpec
from aioproducer.testing.virtual import VirtualKafka, run_virtual

BATCH_SIZE = 1000
COUNTED = {*ProducerStats().__dataclass_fields__} - {"count_appended", "delivery_times"}
"""What the statistics count; the rest is a callback and an object, compared by itself."""
STEPS = st.one_of(
    st.builds(
        dict,
        size=st.sampled_from([0, 30, 300, 900, 1500]),
        partition=st.sampled_from([None, None, 0, 1]),
        pause=st.sampled_from([0, 0, 0.0005, 0.01]),
        awaited=st.sampled_from([True, True, True, False]),
    ),
    st.sampled_from(
        [
            ("Produce", "answers", "NOT_LEADER_OR_FOLLOWER"),
            ("Produce", "answers", "MESSAGE_TOO_LARGE"),
            ("Produce", "answers", "OUT_OF_ORDER_SEQUENCE_NUMBER"),
            ("Produce", "answers", "UNKNOWN_PRODUCER_ID"),
            ("Produce", "drops_the_connection"),
            ("Produce", "is_never_answered"),
            ("Produce", "is_throttled", 70),
            ("Produce", "is_answered_late", 20),
            ("Metadata", "is_answered_late", 20),
            ("stop",),
            ("start",),
            ("move", 1),
            ("move", 2),
            ("wait", 0.2),
            ("wait", 400.0),
        ]
    ),
)


async def carry_out(kafka: VirtualKafka, step: tuple[Any, ...]) -> None:
    match step:
        case ("stop",) if kafka.world.cluster.is_working(1):
            kafka.stop_broker(1)
        case ("start",) if not kafka.world.cluster.is_working(1):
            kafka.start_broker(1)
        case ("move", node_id) if kafka.world.cluster.is_working(1):
            kafka.world.cluster.move_leader("t", 0, node_id)
        case ("wait", seconds):
            await asyncio.sleep(seconds)
        case ("Produce" | "Metadata" as request, what, *how):
            getattr(kafka.faults.next(request), what)(*how)


def story(steps: list[Any], options: dict[str, Any], *, alone: bool) -> list[Any]:
    """What becomes of records, and what stands in the logs, byte for byte."""
    given = {"client_id": "lone", "linger_ms": 0, "batch_size": BATCH_SIZE} | options

    async def run(kafka: VirtualKafka) -> list[Any]:
        seen: list[Any] = []
        async with kafka.producer(**given) as producer:
            assert producer._engine is not None
            assert producer._engine.sender_task.lone is not None
            if not alone:
                producer._engine.appender.placing._lone = None
            deliveries = []
            for number, step in enumerate(steps):
                if isinstance(step, tuple):
                    await carry_out(kafka, step)
                    continue
                value = b"%d" % number + bytes(step["size"])
                try:
                    delivery = await producer.send("t", value, partition=step["partition"])
                except KafkaError as error:
                    seen.append(error)
                    continue
                deliveries.append(delivery)
                if step["awaited"]:
                    await asyncio.gather(delivery, return_exceptions=True)
                await asyncio.sleep(step["pause"])
            await carry_out(kafka, ("start",))
            seen += await asyncio.gather(*deliveries, return_exceptions=True)
            stats = producer._engine.stats
            counted = [(f.name, getattr(stats, f.name)) for f in fields(stats) if f.name in COUNTED]
            traffic = producer._engine.client.traffic.nodes
            seen += [counted, stats.delivery_times.snapshot(), traffic, kafka.now]
            seen.append(producer._engine.pool.available)
            seen += [producer._engine._latencies.is_available(node) for node in (1, 2)]
        for partition in range(2):
            found = kafka.world.cluster.partition("t", partition)
            assert found is not None
            seen.append([bytes(each.data) for each in found.log.batches])
        return [repr(each) for each in seen]

    random.seed(1)
    return run_virtual(run, brokers=2, topics={"t": TopicSpec(2, 2)})


@given(
    steps=st.lists(STEPS, max_size=12),
    options=st.fixed_dictionaries(
        {
            "max_in_flight_requests_per_connection": st.sampled_from([1, 5]),
            "enable_idempotence": st.booleans(),
            "acks": st.just("all"),
            "delivery_timeout_ms": st.sampled_from([1000, 120_000]),
            "request_timeout_ms": st.just(500),
            "max_block_ms": st.just(3000),
            "partitioner_availability_timeout_ms": st.sampled_from([0, 50]),
        }
    ),
)
@settings(max_examples=60, deadline=None)
def test_nobody_can_tell_whether_a_record_went_alone(
    steps: list[Any], options: dict[str, Any]
) -> None:
    assert story(steps, options, alone=True) == story(steps, options, alone=False)


def transport_of(producer: Producer) -> asyncio.WriteTransport:
    """What the producer writes to for broker 1."""
    assert producer._engine is not None
    link = producer._engine.client.link(1)
    assert link is not None
    connection = link.ready_connection(asyncio.get_running_loop().time())
    assert connection is not None
    return connection._transport


def test_a_request_that_cannot_be_written_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with kafka.producer(linger_ms=0) as producer:
            await producer.send_and_wait("t", b"first")
            assert producer._engine is not None

            def fail(data: bytes) -> None:
                raise OSError("this socket is broken")

            monkeypatch.setattr(transport_of(producer), "write", fail)
            delivery = await producer.send("t", b"second")
            assert (await delivery).offset == 1
            assert (await producer.send_and_wait("t", b"third")).offset == 2
            assert producer._engine.pool.available == producer._engine.pool.total

    run_virtual(run, brokers=1, topics={"t": 1})


@pytest.mark.parametrize("in_flight", [1, 5])
def test_who_hears_of_a_write_that_failed_may_send(
    monkeypatch: pytest.MonkeyPatch, in_flight: int
) -> None:
    """A done callback sends, which fails; that resumes an awaiter, who sends as well."""

    async def run(kafka: VirtualKafka) -> None:
        options = {"linger_ms": 0, "max_in_flight_requests_per_connection": in_flight}
        async with kafka.producer(**options) as producer:
            for _ in range(3):
                await producer.send_and_wait("t", b"first")
            transport = transport_of(producer)
            tap = transport.get_protocol()
            assert isinstance(tap, FrameTap)
            monkeypatch.setattr(tap, "_take", lambda data: 0)  # as if all answers came in pieces
            sent = []

            def fail(data: bytes) -> None:
                raise OSError("this socket is broken")

            def send(_: object) -> None:
                monkeypatch.setattr(transport, "write", fail)
                sent.append(producer.send_nowait("t", b"outer"))

            delivery = await producer.send("t", b"x")
            delivery.add_done_callback(send)

            async def wait() -> None:
                await delivery
                sent.append(await producer.send("t", b"inner"))

            await asyncio.create_task(wait())
            began = kafka.now
            assert sorted([(await each).offset for each in sent]) == [4, 5]
            assert kafka.now - began < 1

    run_virtual(run, brokers=1, topics={"t": 1})


def test_a_lone_record_expires_as_any_other() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with kafka.producer(linger_ms=0, delivery_timeout_ms=40_000) as producer:
            await producer.send_and_wait("t", b"first")
            await asyncio.sleep(100)
            assert producer._engine is not None
            task = producer._engine.sender_task
            assert task.sleeping_until == inf
            kafka.faults.next("Produce").is_answered_late(50)
            delivery = await producer.send("t", b"second")
            assert task.sleeping_until == pytest.approx(asyncio.get_running_loop().time() + 40)
            await delivery

    run_virtual(run, brokers=1, topics={"t": 1})


def test_an_interrupt_in_a_write_ends_the_producer_and_nobody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run(kafka: VirtualKafka) -> None:
        producer = kafka.producer(linger_ms=0)
        await producer.start()
        await producer.send_and_wait("t", b"first")

        writes = []

        def interrupt(data: bytes) -> None:
            writes.append(data)
            raise KeyboardInterrupt

        monkeypatch.setattr(transport_of(producer), "write", interrupt)
        for _ in range(2):
            with contextlib.suppress(KeyboardInterrupt):
                await producer.send("t", b"second")
        assert len(writes) == 1
        began = kafka.now
        await producer.close()
        assert kafka.now - began < 1

    run_virtual(run, brokers=1, topics={"t": 1})


def test_what_is_counted_behind_the_back_of_an_awaiter_is_counted_when_he_looks() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with kafka.producer(linger_ms=0) as producer:
            for number in range(1, 4):
                await producer.send_and_wait("t", b"12345")
                assert producer._engine is not None
                stats = producer._engine.stats
                assert stats.requests_sent == stats.records_acknowledged == number

    run_virtual(run, brokers=1, topics={"t": 1})
