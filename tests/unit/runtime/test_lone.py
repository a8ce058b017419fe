"""Records that are alone leave in their `send()`; nobody can tell from what they leave behind."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import fields
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer import Producer
from aioproducer.core.incomplete import IncompleteBatches
from aioproducer.core.producer_batch import ProducerBatch
from aioproducer.core.stats import ProducerStats
from aioproducer.errors import KafkaError, ProducerFencedError, UnsupportedVersionError
from aioproducer.net.frame_tap import FrameTap
from aioproducer.records.batch import read_batches
from aioproducer.runtime.engine import ProducerEngine
from aioproducer.testing import TopicSpec
from aioproducer.testing.virtual import VirtualKafka, run_virtual
from aioproducer.types import TopicPartition

BATCH_SIZE = 1000
COUNTED = {*ProducerStats().__dataclass_fields__} - {"count_appended", "delivery_times"}
"""What the statistics count; the rest is a callback and an object, compared by itself."""
# Some about as large as a batch, and some that are not copied into their request.
SIZES = st.sampled_from([0, 30, 300, 900, 1500, 5000]) | st.integers(900, 940)
RECORDS = st.builds(
    dict,
    size=SIZES,
    partition=st.sampled_from([None, None, 0, 1]),
    pause=st.sampled_from([None, 0, 0, 0.0005, 0.01, 0.01]),
    awaited=st.sampled_from([True, True, True, False]),
)
OVERLAPPING = st.builds(
    dict,
    size=st.just(0) | SIZES,
    partition=st.sampled_from([None, 0, 1]),
    pause=st.sampled_from([None, 0.00003, *[0.0001, 0.0002, 0.0005] * 3, 0.002, 0.01]),
    awaited=st.sampled_from([True] + [False] * 5),
)
"""They are sent while the last ones are in the air."""
EVENTS = st.sampled_from(
    [
        ("Produce", "answers", "NOT_LEADER_OR_FOLLOWER"),
        ("Produce", "answers", "MESSAGE_TOO_LARGE"),
        ("Produce", "answers", "OUT_OF_ORDER_SEQUENCE_NUMBER"),
        ("Produce", "answers", "UNKNOWN_PRODUCER_ID"),
        ("Produce", "answers", "REQUEST_TIMED_OUT"),
        ("Produce", "answers", "PRODUCER_FENCED"),
        ("Produce", "drops_the_connection"),
        ("Produce", "is_never_answered"),
        ("Produce", "is_throttled", 70),
        ("Produce", "is_throttled", 300),
        ("Produce", "is_answered_late", 20),
        ("Metadata", "is_answered_late", 20),
        ("stop",),
        ("start",),
        ("move", 1),
        ("move", 2),
        ("look",),
        ("look",),
        ("look at memory",),
        ("look at traffic",),
        ("look at health",),
        ("look at metrics",),
        ("send_many",),
        ("flush",),
        ("purge",),
        ("update",),
        ("wait", 0.06),
        ("wait", 0.2),
        ("wait", 400.0),
    ]
)
OPTIONS = st.fixed_dictionaries(
    {
        "max_in_flight_requests_per_connection": st.sampled_from([1, 2, 5]),
        "enable_idempotence": st.booleans(),
        "acks": st.just("all"),
        "delivery_timeout_ms": st.sampled_from([600, 1000, 120_000]),
        "request_timeout_ms": st.just(500),
        "max_block_ms": st.just(3000),
        "partitioner_availability_timeout_ms": st.sampled_from([0, 50]),
        # Queues are weighed at most once in 0.2 ms, and for what is lent when it is made ready.
        "partitioner_adaptive_partitioning_enable": st.just(False),
        "buffer_memory": st.sampled_from([1600, 2000, 3000, 32 * 1024 * 1024]),
        "max_request_size": st.just(1600),
        "connections_max_idle_ms": st.sampled_from([300, 540_000]),
        "retries": st.sampled_from([1, 2**31 - 1]),
    }
)


def counted(producer: Producer) -> list[Any]:
    """What the producer has counted so far."""
    engine = producer._engine
    assert engine is not None
    stats = engine.stats
    totals = [(f.name, getattr(stats, f.name)) for f in fields(stats) if f.name in COUNTED]
    return [repr(totals), repr(stats.delivery_times.snapshot()), repr(engine.client.traffic.nodes)]


async def look(producer: Producer, what: str) -> list[Any]:
    """Asks the producer, or has it do, something that concerns all records."""
    engine = producer._engine
    assert engine is not None
    match what:
        case "look":
            return [*counted(producer), engine.accumulator.quiet, engine.accumulator.held]
        case "look at memory":
            return [engine.pool.available]
        case "look at traffic":
            return [repr(engine.client.traffic.nodes)]
        case "look at health":
            return [producer.health()]
        case "look at metrics":
            return sorted(
                f"{metric.group} {metric.name} {metric.tags} {metric.value}"
                for metric in producer.all_metrics()
                if not {"age", "time", "rate"} & {*metric.name.split("-")}
            )
        case "send_many":
            result = await producer.send_many("t", [b"row %d" % row for row in range(5)])
            return [result.count, result.delivered, *result.failed]
        case "flush":
            return [await producer.flush(timeout=0.3)]
        case "purge":
            return [producer.purge(in_flight=True)]
        case "update":
            engine.metadata.request_update(asyncio.get_running_loop().time())
            engine.metadata_task.wake()
    return []


async def carry_out(kafka: VirtualKafka, step: tuple[Any, ...]) -> None:
    match step:
        case ("stop",) if kafka.world.cluster.is_working(1):
            kafka.stop_broker(1)
        case ("start",) if not kafka.world.cluster.is_working(1):
            kafka.start_broker(1)
        case ("move", node_id) if kafka.world.cluster.is_working(1):
            with contextlib.suppress(ValueError):  # it is not in sync
                kafka.world.cluster.move_leader("t", 0, node_id)
        case ("wait", seconds):
            await asyncio.sleep(seconds)
        case ("Produce" | "Metadata" as request, what, *how):
            getattr(kafka.faults.next(request), what)(*how)


def story(steps: list[Any], options: dict[str, Any], *, alone: bool, fragments: bool) -> list[Any]:
    """What becomes of records, and what stands in the logs, byte for byte."""
    given = {"client_id": "lone", "linger_ms": 0, "batch_size": BATCH_SIZE} | options

    async def run(kafka: VirtualKafka) -> list[Any]:
        seen: list[Any] = []
        kafka.world.network.fragments = fragments
        async with kafka.producer(**given) as producer:
            assert producer._engine is not None
            assert producer._engine.sender_task.lone is not None
            if not alone:
                producer._engine.appender.placing._lone = None
            deliveries = []
            for number, step in enumerate(steps):
                if isinstance(step, tuple):
                    await carry_out(kafka, step)
                    try:
                        seen += await look(producer, step[0])
                    except KafkaError as error:
                        seen.append(error)
                    continue
                value = b"%d" % number + bytes(step["size"])
                try:
                    delivery = await producer.send("t", value, partition=step["partition"])
                except KafkaError as error:
                    seen.append(error)
                    continue
                deliveries.append(delivery)
                if step["awaited"]:
                    with contextlib.suppress(KafkaError):
                        await delivery
                if step["pause"] is not None:
                    await asyncio.sleep(step["pause"])
            await carry_out(kafka, ("start",))
            seen += await asyncio.gather(*deliveries, return_exceptions=True)
            seen += [*counted(producer), kafka.now]
            seen.append(producer._engine.pool.available)
            seen += [producer._engine._latencies.is_available(node) for node in (1, 2)]
        for partition in range(2):
            found = kafka.world.cluster.partition("t", partition)
            assert found is not None
            seen.append([bytes(each.data) for each in found.log.batches])
        # What was made ready for a record that did not come had one of those.
        return [re.sub(r"correlation id \d+ came where \d+", "", repr(each)) for each in seen]

    random.seed(1)
    return run_virtual(run, brokers=2, topics={"t": TopicSpec(2, 2)})


@given(steps=st.lists(RECORDS | EVENTS, max_size=12), options=OPTIONS, fragments=st.booleans())
@settings(max_examples=60, deadline=None)
def test_nobody_can_tell_whether_a_record_went_alone(
    steps: list[Any], options: dict[str, Any], fragments: bool
) -> None:
    usual = story(steps, options, alone=False, fragments=fragments)
    assert story(steps, options, alone=True, fragments=fragments) == usual


@given(
    steps=st.lists(st.one_of([OVERLAPPING] * 8 + [EVENTS]), min_size=4, max_size=20),
    options=OPTIONS,
)
@settings(max_examples=60, deadline=None)
def test_nobody_can_tell_whether_records_in_the_air_went_alone(
    steps: list[Any], options: dict[str, Any]
) -> None:
    one = {"size": 0, "pause": 0.01, "awaited": True}
    steps = [{**one, "partition": each} for each in (0, 1, 0, 1)] + steps
    usual = story(steps, options, alone=False, fragments=False)
    assert story(steps, options, alone=True, fragments=False) == usual


def test_what_a_burst_adds_to_a_partition_counts_for_the_lone_records_behind_it() -> None:
    def record(size: int, awaited: bool = True) -> dict[str, Any]:
        return {
            "size": size,
            "partition": None,
            "pause": 0.01 if awaited else None,
            "awaited": awaited,
        }

    lone, burst, behind = [record(0)] * 4, [record(150, awaited=False)] * 5, [record(300)] * 8
    steps = [*lone, *burst, record(0), *behind]
    usual = story(steps, {}, alone=False, fragments=False)
    assert story(steps, {}, alone=True, fragments=False) == usual


@pytest.mark.parametrize("partition", [None, 0])
@pytest.mark.parametrize("key", [None, b"k"])
def test_what_is_ready_for_a_lone_record_is_lent_to_the_fast_lane(
    key: bytes | None, partition: int | None
) -> None:
    async def run(kafka: VirtualKafka) -> None:
        kafka.world.network.fragments = False
        async with kafka.producer(linger_ms=0) as producer:
            await producer.warm_up(["t"])
            for _ in range(4):
                called: list[str] = []
                sys.setprofile(lambda frame, *_, to=called: to.append(frame.f_code.co_name))
                delivery = producer.send_nowait("t", b"v", key, partition=partition)
                sys.setprofile(None)
                await delivery
                await asyncio.sleep(0.01)
            assert "launch" in called
            assert not {"_append_checked", "_try_alone", "try_send"} & {*called}

    run_virtual(run, brokers=1, topics={"t": 1})


def test_headers_that_the_brokers_lack_do_not_pass_with_what_is_ready() -> None:
    async def run(kafka: VirtualKafka) -> None:
        kafka.world.network.fragments = False
        async with kafka.producer(linger_ms=0) as producer:
            await producer.send_and_wait("t", b"v")  # their versions are known then
            assert producer._engine is not None
            producer._engine.appender.takes_headers = False
            for _ in range(3):
                await producer.send_and_wait("t", b"v")
                await asyncio.sleep(0.01)
                with pytest.raises(UnsupportedVersionError):
                    await producer.send("t", b"v", headers=[("h", b"v")])

    run_virtual(run, brokers=1, topics={"t": 1})


@pytest.mark.parametrize("alone", [False, True])
def test_the_topic_of_a_lone_record_under_way_is_not_forgotten(
    alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer about the cluster that was asked for without the topic comes in between."""

    async def run(kafka: VirtualKafka) -> None:
        async with kafka.producer(linger_ms=0, metadata_max_idle_ms=5000) as producer:
            engine = producer._engine
            assert engine is not None
            for partition in (0, 1, 0, 1):
                await producer.send_and_wait("t", b"first", partition=partition)
            if not alone:
                engine.appender.placing._lone = None
            mine = next(each for each in (0, 1) if engine.metadata.leader("t", each) == 1)
            await asyncio.sleep(6)
            # Else the answer would wait for that of the record, on the same connection.
            monkeypatch.setattr(engine.client, "least_loaded_node", lambda now: 2)
            kafka.faults.next("Metadata").is_answered_late(200)
            engine.metadata.request_update(asyncio.get_running_loop().time())
            engine.metadata_task.wake()
            await asyncio.sleep(0.05)
            kafka.faults.next("Produce").is_answered_late(1000)
            kafka.faults.next("Metadata").is_answered_late(200)
            delivery = await producer.send("t", b"second", partition=mine)
            await asyncio.sleep(0.3)
            assert not delivery.done()
            assert engine.metadata.topic("t") is not None
            assert engine.stats.topics["t"].records_sent == 5
            third = producer.send_nowait("t", b"third", partition=mine)
            assert [(await each).partition for each in (delivery, third)] == [mine, mine]

    run_virtual(run, brokers=2, topics={"t": TopicSpec(2, 2)})


@asynccontextmanager
async def after_lone_records(kafka: VirtualKafka, **options: Any) -> AsyncIterator[Producer]:
    """A producer that has sent some to each partition, and has nothing under way."""
    kafka.world.network.fragments = False
    async with kafka.producer(**{"linger_ms": 0, **options}) as producer:
        for partition in (0, 1) * 2:
            await producer.send_and_wait("t", b"first", partition=partition)
            await asyncio.sleep(0.01)
        yield producer


def batches_of(kafka: VirtualKafka, partition: int) -> list[list[bytes | None]]:
    """The values in each batch that stands in the log, behind those two."""
    found = kafka.world.cluster.partition("t", partition)
    assert found is not None
    batches = [read_batches(bytes(each.data)) for each in found.log.batches]
    return [[record.value for record in batch.records()] for (batch,) in batches[2:]]


@pytest.mark.parametrize("others", [[0, 0, 0], [1, 1, 1], [1, 0, 1]])
def test_records_follow_one_that_is_in_the_air_without_a_turn(others: list[int]) -> None:
    async def run(kafka: VirtualKafka) -> None:
        called: list[str] = []
        async with after_lone_records(kafka) as producer:
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
        assert "launch" in called
        assert not {"hurry", "take_note"} & {*called}
        for partition in (0, 1):
            sent = [[b"%d" % each] for each in (0, *others) if each == partition]
            assert batches_of(kafka, partition) == sent

    run_virtual(run, brokers=2, topics={"t": TopicSpec(2, 2)})


def test_who_is_answered_sends_while_others_are_in_the_air() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with after_lone_records(kafka) as producer:

            async def go_on(delay: float) -> None:
                await asyncio.sleep(delay)
                for _ in range(20):
                    await producer.send_and_wait("t", b"v", partition=0)
                    engine.sender_task._alarm.acted_at = -inf  # what he does next takes a while

            engine = producer._engine
            assert engine is not None
            await asyncio.gather(*(go_on(number * 0.0003) for number in range(3)))
            assert engine.stats.records_retried == 0
        assert batches_of(kafka, 0) == [[b"v"]] * 60

    run_virtual(run, brokers=1, topics={"t": 2})


def test_a_burst_behind_a_lone_record_gathers() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with after_lone_records(kafka) as producer:
            values = [b"%d" % number for number in range(9)]
            for value in values:
                await producer.send("t", value, partition=0)
        assert batches_of(kafka, 0) == [values[:1], values[1:]]

    run_virtual(run, brokers=2, topics={"t": TopicSpec(2, 2)})


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_no_more_are_in_the_air_than_may_be_in_flight(limit: int) -> None:
    async def run(kafka: VirtualKafka) -> None:
        options = {"max_in_flight_requests_per_connection": limit}
        async with after_lone_records(kafka, **options) as producer:
            assert producer._engine is not None
            kafka.faults.next("Produce").is_answered_late(50)
            values = [b"%d" % number for number in range(9)]
            for value in values:
                await producer.send("t", value, partition=0)
                await asyncio.sleep(0.0002)
            assert sum(map(producer._engine.client.in_flight, (1, 2))) == limit
            assert not producer._engine.sender_task.hurry()  # what waits may not leave yet
        assert batches_of(kafka, 0) == [*([each] for each in values[:limit]), values[limit:]]

    run_virtual(run, brokers=2, topics={"t": TopicSpec(2, 2)})


def test_answers_that_come_together_are_read_one_by_one() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with after_lone_records(kafka) as producer:
            kafka.faults.next("Produce").is_answered_late(5)
            deliveries = []
            for number in range(4):
                deliveries.append(await producer.send("t", b"%d" % number, partition=0))
                await asyncio.sleep(0.0002)
            assert [(await each).offset for each in deliveries] == [2, 3, 4, 5]
            assert (await producer.send_and_wait("t", b"last", partition=0)).offset == 6

    run_virtual(run, brokers=1, topics={"t": 2})


@pytest.mark.parametrize("in_the_air", [1, 2, 3])
def test_records_in_the_air_survive_a_write_that_fails_behind_them(
    monkeypatch: pytest.MonkeyPatch, in_the_air: int
) -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with after_lone_records(kafka) as producer:
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


def test_an_interrupt_while_records_in_the_air_are_noted_leaves_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with after_lone_records(kafka) as producer:
            engine = producer._engine
            assert engine is not None
            kafka.faults.next("Produce").is_answered_late(100)
            deliveries = []
            for number in range(3):
                deliveries.append(await producer.send("t", b"%d" % number, partition=0))
                await asyncio.sleep(0.0002)
            assert engine.sender_task.lone is not None

            def interrupt(*_: object) -> None:
                monkeypatch.undo()
                raise KeyboardInterrupt

            monkeypatch.setattr(engine.sender_task.lone, "_track", interrupt)
            with pytest.raises(KeyboardInterrupt):
                engine.accumulator.settle()
            began = kafka.now
            for delivery in deliveries:
                with pytest.raises(KafkaError):
                    await delivery
            assert kafka.now - began < 1

    run_virtual(run, brokers=1, topics={"t": 2})


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


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("in_flight", [1, 5])
def test_who_hears_of_a_write_that_failed_may_send(
    monkeypatch: pytest.MonkeyPatch, in_flight: int, alone: bool
) -> None:
    """A done callback sends, which fails; that resumes an awaiter, who sends as well."""

    async def run(kafka: VirtualKafka) -> None:
        options = {"linger_ms": 0, "max_in_flight_requests_per_connection": in_flight}
        async with kafka.producer(**options) as producer:
            for _ in range(3):
                await producer.send_and_wait("t", b"first")
            assert producer._engine is not None
            if not alone:
                producer._engine.appender.placing._lone = None
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


def test_rows_of_a_call_do_not_follow_the_first_one_into_a_batch_that_is_gone() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with kafka.producer(linger_ms=0) as producer:
            await producer.send_and_wait("t", b"first")
            result = await producer.send_many("t", [b"%d" % row for row in range(20)])
            assert result.delivered == 20
        values = [record.value for record in kafka.records("t")]
        assert values == [b"first", *(b"%d" % row for row in range(20))]

    run_virtual(run, brokers=1, topics={"t": 1})


def test_a_record_that_is_sent_at_once_behind_a_fatal_answer_does_not_put_off_the_end() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with kafka.producer(linger_ms=0) as producer:
            for partition in (0, 1, 0, 1):
                await producer.send_and_wait("t", b"first", partition=partition)
            kafka.faults.next("Produce").answers("PRODUCER_FENCED")

            async def go_on() -> None:
                with contextlib.suppress(ProducerFencedError):
                    await producer.send_and_wait("t", b"second", partition=0)
                with pytest.raises(ProducerFencedError):
                    await producer.send_and_wait("t", b"third", partition=1)

            await asyncio.create_task(go_on())

    run_virtual(run, brokers=1, topics={"t": 2})


def test_a_metric_that_somebody_keeps_counts_the_record_he_awaited() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with kafka.producer(linger_ms=0) as producer:
            await producer.send_and_wait("t", b"first")
            kept = [
                metric
                for metric in producer._registry.live(producer._engine)
                if (metric.group, metric.name)
                in {
                    ("producer-topic-metrics", "record-send-total"),
                    ("producer-node-metrics", "response-total"),
                }
            ]
            assert len(kept) >= 2

            async def go_on() -> None:
                for _ in range(20):  # some answers come in pieces
                    before = sum(metric.measured().value for metric in kept)
                    await producer.send_and_wait("t", b"second")
                    assert sum(metric.measured().value for metric in kept) == before + 2

            await asyncio.create_task(go_on())

    run_virtual(run, brokers=1, topics={"t": 1})


SIGHTS: dict[str, tuple[Callable[[ProducerEngine], float], int, int]] = {
    "requests": (lambda engine: engine.client.traffic.nodes[1].requests, 1, 0),
    "answers": (lambda engine: engine.client.traffic.nodes[1].responses, 0, 1),
    "requests sent": (lambda engine: engine.stats.requests_sent, 1, 0),
    "records acknowledged": (lambda engine: engine.stats.records_acknowledged, 0, 1),
    "use": (lambda engine: engine.accumulator.held, 1, -1),
    "rest": (lambda engine: engine.accumulator.quiet, -1, 1),
    "memory": (lambda engine: engine.pool.available, -BATCH_SIZE, BATCH_SIZE),
    "in flight": (lambda engine: engine.client.in_flight(1), 1, -1),
}


@pytest.mark.parametrize("sight", SIGHTS)
def test_a_lone_record_is_seen_from_its_send_on_and_its_answer_when_it_is_awaited(
    sight: str,
) -> None:
    see, sent, answered = SIGHTS[sight]

    async def run(kafka: VirtualKafka) -> None:
        async with kafka.producer(linger_ms=0, batch_size=BATCH_SIZE) as producer:
            await producer.send_and_wait("t", b"first")
            engine = producer._engine
            assert engine is not None

            async def go_on() -> None:
                seen = see(engine)
                for _ in range(20):  # some answers come in pieces
                    delivery = await producer.send("t", b"looked at")
                    assert see(engine) == seen + sent
                    await delivery
                    seen += sent + answered
                    assert see(engine) == seen
                    await producer.send_and_wait("t", b"looked at afterwards")
                    seen += sent + answered
                    assert see(engine) == seen

            await asyncio.create_task(go_on())

    run_virtual(run, brokers=1, topics={"t": 1})


def test_what_is_kept_for_the_next_lone_record_is_there_for_one_that_has_to_queue() -> None:
    async def run(kafka: VirtualKafka) -> None:
        options = {"linger_ms": 0, "batch_size": BATCH_SIZE, "buffer_memory": BATCH_SIZE}
        async with kafka.producer(**options, max_request_size=BATCH_SIZE) as producer:
            assert producer._engine is not None
            await producer.send_and_wait("t", b"first")
            for _ in range(20):  # some answers come in pieces
                await producer.send_and_wait("t", b"alone")
                await asyncio.sleep(0.01)
                producer._engine.sender_task.wake()
                await producer.send_nowait("t", b"not alone, as the sender has a turn")

    run_virtual(run, brokers=1, topics={"t": 1})


QUESTIONS: dict[str, Callable[[IncompleteBatches], object]] = {
    "whether there are any": bool,
    "how many": len,
    "which": lambda batches: next(iter(batches), None),
    "whether one is there": lambda batches: None in batches,
    "when the first expires": lambda batches: batches.next_expiry_at,
    "what has expired": lambda batches: batches.expired(0.0),
    "to forget one": lambda batches: batches.discard(a_batch()),
    "to add one": lambda batches: batches.add(a_batch()),
}


def a_batch() -> ProducerBatch:
    return ProducerBatch(TopicPartition("t", 0), bytearray(100), 161, now=0.0)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_lone_record_is_noted_before_incomplete_batches_are_asked(question: str) -> None:
    batches = IncompleteBatches(30.0)
    noted = []

    def note() -> None:
        batches.before_look = None
        noted.append(len(batches))

    batches.before_look = note
    QUESTIONS[question](batches)
    assert noted == [0]


def test_a_record_that_is_alone_goes_to_the_leader_of_now() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with kafka.producer(linger_ms=0) as producer:
            for _ in range(3):
                await producer.send_and_wait("t", b"before", partition=0)
            kafka.world.cluster.move_leader("t", 0, 2)
            await look(producer, "update")
            await asyncio.sleep(1.0)
            await producer.send_and_wait("t", b"behind", partition=0)
            assert producer._engine is not None
            assert producer._engine.stats.requests_sent == 4

    run_virtual(run, brokers=2, topics={"t": TopicSpec(1, 2)})


def test_whoever_awaited_the_only_record_there_may_be_has_its_place_at_once() -> None:
    async def run(kafka: VirtualKafka) -> None:
        kafka.world.network.fragments = False
        async with kafka.producer(linger_ms=0, buffer_max_records=1) as producer:
            for _ in range(5):
                await producer.send_and_wait("t", b"first")
                await producer.send_nowait("t", b"second")

    run_virtual(run, brokers=1, topics={"t": 1})
