"""Single records leave in their `send()`, and leave the same state as queued ones."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from itertools import pairwise
from math import inf
from typing import Any

import pytest

from aioproducer.errors import NodeDisconnectedError, ProducerFencedError, UnsupportedVersionError
from aioproducer.net.response_protocol import ResponseProtocol
from aioproducer.runtime.engine import ProducerEngine
from aioproducer.testing import TopicSpec
from aioproducer.testing.virtual import VirtualKafka, run_virtual
from aioproducer.types import Persistence, Record, TopicPartition

from .direct_sends import send_by_queue, transport_of

BATCH_SIZE = 1000


@pytest.mark.parametrize("partition", [None, 0])
@pytest.mark.parametrize("key", [None, b"k"])
def test_a_single_record_gets_into_the_spare_batch_on_the_fast_path(
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
            assert "send_spare" in called
            assert not {"append_checked", "try_open", "enqueue"} & {*called}

    run_virtual(run, brokers=1, topics={"t": 1})


def test_a_record_is_queued_where_the_time_until_a_broker_takes_data_counts() -> None:
    async def run(kafka: VirtualKafka) -> None:
        options = {"linger_ms": 0, "partitioner_availability_timeout_ms": 500}
        async with kafka.producer(**options) as producer:
            for _ in range(4):
                await producer.send_and_wait("t", b"v")
            engine = producer._engine
            assert engine is not None
            sent_at, ready_at = engine._latencies._waits[1]
            assert sent_at == ready_at > kafka.now - 0.5
            assert not engine.sender_task._routes

    run_virtual(run, brokers=1, topics={"t": 1})


def test_a_record_is_queued_where_brokers_do_not_acknowledge() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with kafka.producer(linger_ms=0, acks=0, enable_idempotence=False) as producer:
            for _ in range(4):
                assert (await producer.send_and_wait("t", b"v")).offset is None
                await asyncio.sleep(0.01)
            engine = producer._engine
            assert engine is not None
            assert not engine.sender_task._routes
            assert kafka.now < 5

    run_virtual(run, brokers=1, topics={"t": 1})


class Interceptor:
    def on_send(self, record: Record) -> Record:
        return record

    def on_acknowledgement(self, metadata: object, error: object, headers: object) -> None:
        pass


@pytest.mark.parametrize(
    "options",
    [{}, {"value_serializer": bytes.upper}, {"interceptor_classes": (Interceptor(),)}],
    ids=["bytes", "serializer", "interceptor"],
)
def test_a_task_that_awaits_each_record_sends_it_directly_in_spite_of_linger(
    options: dict[str, Any],
) -> None:
    async def run(kafka: VirtualKafka) -> None:
        kafka.world.network.fragments = False
        async with kafka.producer(linger_ms=50, **options) as producer:
            await producer.warm_up(["t"])
            took: list[float] = []
            called: list[str] = []
            for _ in range(3):
                before = kafka.now
                called.clear()
                sys.setprofile(lambda frame, *_: called.append(frame.f_code.co_name))
                await producer.send_and_wait("t", b"v")
                sys.setprofile(None)
                took.append(kafka.now - before)
                await asyncio.sleep(0.01)
            assert took[0] > 0.05 > max(took[1:])
            assert "try_hand_out" in called
            assert "enqueue" not in called

    run_virtual(run, brokers=1, topics={"t": 1})


def test_records_that_are_not_awaited_linger_after_some_that_are() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with kafka.producer(linger_ms=50) as producer:
            for _ in range(3):
                await producer.send_and_wait("t", b"awaited")
            before = kafka.now
            sent = [await producer.send("t", b"%d" % number) for number in range(5)]
            await asyncio.gather(*sent)
            assert kafka.now - before > 0.05
            assert producer._engine is not None
            assert producer._engine.stats.batches_sent == 4

    run_virtual(run, brokers=1, topics={"t": 1})


def test_records_that_only_an_interceptor_watches_linger() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with kafka.producer(linger_ms=100, interceptor_classes=(Interceptor(),)) as producer:
            await producer.send("t", b"alone")
            await asyncio.sleep(1)
            for number in range(8):
                await producer.send("t", b"%d" % number)
                await asyncio.sleep(0.02)
            await producer.flush()
            assert producer._engine is not None
            assert producer._engine.stats.batches_sent == 3

    run_virtual(run, brokers=1, topics={"t": 1})


def test_tasks_that_begin_after_a_single_one_share_a_batch() -> None:
    async def run(kafka: VirtualKafka) -> None:
        kafka.world.network.fragments = False
        async with kafka.producer(linger_ms=50) as producer:
            for _ in range(3):
                await producer.send_and_wait("t", b"one task")
                await asyncio.sleep(0.01)
            assert producer._engine is not None
            stats = producer._engine.stats
            batches = []
            for _ in range(2):
                before = stats.batches_sent
                await asyncio.gather(*[producer.send_and_wait("t", b"many") for _ in range(5)])
                batches.append(stats.batches_sent - before)
            assert batches == [2, 1]  # the first record of the first round is not waited for

    run_virtual(run, brokers=1, topics={"t": 1})


def test_headers_that_the_brokers_lack_do_not_get_into_a_spare_batch() -> None:
    async def run(kafka: VirtualKafka) -> None:
        kafka.world.network.fragments = False
        async with kafka.producer(linger_ms=0) as producer:
            for _ in range(3):
                await producer.send_and_wait("t", b"v")
                await asyncio.sleep(0.01)
            assert producer._engine is not None
            producer._engine.appender.takes_headers = False
            with pytest.raises(UnsupportedVersionError):
                await producer.send("t", b"v", headers=[("h", b"v")])
            for _ in range(3):
                await producer.send_and_wait("t", b"v")
                await asyncio.sleep(0.01)
                with pytest.raises(UnsupportedVersionError):
                    await producer.send("t", b"v", headers=[("h", b"v")])

    run_virtual(run, brokers=1, topics={"t": 1})


def test_headers_that_the_brokers_lack_do_not_get_into_an_open_batch() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with kafka.producer(linger_ms=1000) as producer:
            deliveries = [await producer.send("t", b"v", partition=0) for _ in range(2)]
            assert producer._engine is not None
            producer._engine.appender.takes_headers = False
            with pytest.raises(UnsupportedVersionError):
                await producer.send("t", b"v", headers=[("h", b"v")], partition=0)
            assert [(await each).offset for each in deliveries] == [0, 1]

    run_virtual(run, brokers=1, topics={"t": 1})


@pytest.mark.parametrize("alone", [False, True])
def test_the_topic_of_a_directly_sent_record_does_not_expire(
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
                send_by_queue(producer)
            mine = next(each for each in (0, 1) if engine.metadata.cluster.leader("t", each) == 1)
            await asyncio.sleep(6)
            # Else the answer would wait for that of the record, on the same connection.
            monkeypatch.setattr(engine.client, "least_loaded_node", lambda now: 2)
            kafka.faults.next("Metadata").is_answered_late(200)
            engine.metadata.request_update()
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


class HandlerError(Exception):
    """An exception of a signal handler, or any other that is not a socket's."""


@pytest.mark.parametrize("error", [OSError, RuntimeError, MemoryError, HandlerError])
@pytest.mark.parametrize("alone", [True, False])
def test_an_error_after_a_write_does_not_claim_that_nothing_was_written(
    monkeypatch: pytest.MonkeyPatch, alone: bool, error: type[Exception]
) -> None:
    async def run(kafka: VirtualKafka) -> None:
        monkeypatch.setattr(kafka.world.network, "lingers", lambda: True)  # what left arrives
        async with kafka.producer(linger_ms=0, retries=0) as producer:
            for _ in range(3):
                await producer.send_and_wait("t", b"first")
            if not alone:
                assert producer._engine is not None
                send_by_queue(producer)
            transport = transport_of(producer)
            write, writelines = transport.write, transport.writelines

            def write_and_fail(data: bytes) -> None:
                write(data)
                raise error("after the write")

            def write_lines_and_fail(data: list[bytes]) -> None:
                writelines(data)
                raise error("after the write")

            monkeypatch.setattr(transport, "write", write_and_fail)
            monkeypatch.setattr(transport, "writelines", write_lines_and_fail)
            delivery = await producer.send("t", b"second")
            with pytest.raises(NodeDisconnectedError, match="after the write") as caught:
                await delivery
            assert caught.value.persistence is Persistence.POSSIBLY_PERSISTED
            await asyncio.sleep(1)
            assert producer._engine is not None
            assert producer._engine.pool.available == producer._engine.pool.total
        assert [record.value for record in kafka.records("t")] == [b"first"] * 3 + [b"second"]

    run_virtual(run, brokers=1, topics={"t": 1})


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("in_flight", [1, 5])
def test_the_callback_of_a_write_that_failed_may_send(
    monkeypatch: pytest.MonkeyPatch, in_flight: int, alone: bool
) -> None:
    """A done callback sends, which fails; that resumes an awaiter, which sends as well."""

    async def run(kafka: VirtualKafka) -> None:
        options = {"linger_ms": 0, "max_in_flight_requests_per_connection": in_flight}
        async with kafka.producer(**options) as producer:
            for _ in range(3):
                await producer.send_and_wait("t", b"first")
            assert producer._engine is not None
            if not alone:
                send_by_queue(producer)
            transport = transport_of(producer)
            tap = transport.get_protocol()
            assert isinstance(tap, ResponseProtocol)
            monkeypatch.setattr(tap, "_on_data", lambda data: 0)  # as if all answers came in pieces
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


def test_a_directly_sent_record_expires_as_any_other() -> None:
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


def test_an_interrupt_in_a_write_ends_the_producer_and_every_wait(
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


def test_a_record_is_counted_before_its_awaiter_is_resumed() -> None:
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


def test_a_record_that_is_sent_right_after_a_fatal_answer_does_not_delay_the_end() -> None:
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


def test_a_metric_that_is_kept_counts_the_awaited_record() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with kafka.producer(linger_ms=0) as producer:
            await producer.send_and_wait("t", b"first")
            kept = [
                metric
                for source in producer._registry().sources(producer._engine)
                for metric in source.live()
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
    "requests": (lambda engine: engine.client.io_stats.nodes[1].requests, 1, 0),
    "answers": (lambda engine: engine.client.io_stats.nodes[1].responses, 0, 1),
    "requests sent": (lambda engine: engine.stats.requests_sent, 1, 0),
    "records acknowledged": (lambda engine: engine.stats.records_acknowledged, 0, 1),
    "use": (lambda engine: len(engine.accumulator.pinned), 1, -1),
    "rest": (lambda engine: engine.accumulator.is_idle, -1, 1),
    "memory": (lambda engine: engine.pool.available, -BATCH_SIZE, BATCH_SIZE),
    "in flight": (lambda engine: engine.client.in_flight(1), 1, -1),
}


@pytest.mark.parametrize("sight", SIGHTS)
def test_a_record_is_counted_from_its_send_on_and_its_answer_when_it_is_awaited(
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


def test_the_memory_of_the_spare_batch_is_there_for_a_record_that_has_to_queue() -> None:
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


def test_a_directly_sent_record_goes_to_the_leader_of_now() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with kafka.producer(linger_ms=0) as producer:
            for _ in range(3):
                await producer.send_and_wait("t", b"before", partition=0)
            assert producer._engine is not None
            kafka.world.cluster.move_leader("t", 0, 2)
            producer._engine.metadata.request_update()
            producer._engine.metadata_task.wake()
            await asyncio.sleep(1.0)
            await producer.send_and_wait("t", b"behind", partition=0)
            assert producer._engine.stats.requests_sent == 4

    run_virtual(run, brokers=2, topics={"t": TopicSpec(1, 2)})


def test_the_awaiter_of_the_only_record_that_fits_may_send_at_once() -> None:
    async def run(kafka: VirtualKafka) -> None:
        kafka.world.network.fragments = False
        async with kafka.producer(linger_ms=0, buffer_max_records=1) as producer:
            for _ in range(5):
                await producer.send_and_wait("t", b"first")
                await producer.send_nowait("t", b"second")

    run_virtual(run, brokers=1, topics={"t": 1})


def test_a_partition_that_has_moved_is_not_sent_to_its_old_leader() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with kafka.producer(linger_ms=0) as producer:
            for partition in (0, 1):
                await producer.send_and_wait("t", b"before", partition=partition)
            assert producer._engine is not None
            metadata = producer._engine.metadata
            other = 3 - (metadata.leader_of(TopicPartition("t", 1)) or 0)
            kafka.world.cluster.move_leader("t", 1, other)
            metadata.request_update()
            producer._engine.metadata_task.wake()
            await asyncio.sleep(1.0)
            for partition in (0, 1):
                await producer.send_and_wait("t", b"afterwards", partition=partition)
            assert producer._engine.stats.requests_sent == 4

    run_virtual(run, brokers=2, topics={"t": TopicSpec(2, 2)})


def test_single_records_of_two_topics_that_take_turns_are_written_to_their_topics() -> None:
    async def run(kafka: VirtualKafka) -> None:
        kafka.world.network.fragments = False
        async with kafka.producer(linger_ms=0) as producer:
            await producer.warm_up(["t", "u"])
            together = [producer.send_nowait(topic, topic.encode()) for topic in "tu"]
            for delivery in together:  # from now on there is free memory besides the spare batch
                await delivery
            for topic in "tutuuttuut":
                await producer.send_and_wait(topic, topic.encode())
                await asyncio.sleep(0.01)
        for topic in ("t", "u"):
            assert [record.value for record in kafka.records(topic)] == [topic.encode()] * 6

    run_virtual(run, brokers=1, topics={"t": 1, "u": 1})


def test_records_after_one_that_could_not_leave_its_spare_batch_share_that_batch() -> None:
    async def run(kafka: VirtualKafka) -> None:
        kafka.world.network.fragments = False
        async with kafka.producer(linger_ms=0) as producer:
            await producer.warm_up(["t"])
            together = [producer.send_nowait("t", b"v", partition=index) for index in (0, 1)]
            for delivery in together:  # from now on there is free memory besides the spare batch
                await delivery
            for partition in (1, 0):
                await producer.send_and_wait("t", b"v", partition=partition)
                await asyncio.sleep(0.01)
            deliveries = [
                producer.send_nowait("t", b"v", partition=partition) for partition in (1, 0, 0, 0)
            ]
            offsets = [(await delivery).offset for delivery in deliveries]
            assert offsets == [2, 2, 3, 4]

    run_virtual(run, brokers=1, topics={"t": 2})


def test_keyless_records_that_fill_a_batch_change_the_partition_while_nothing_is_open() -> None:
    async def run(kafka: VirtualKafka) -> None:
        async with kafka.producer(linger_ms=0, batch_size=BATCH_SIZE) as producer:
            partitions = []
            for _ in range(40):
                metadata = await producer.send_and_wait("t", bytes(BATCH_SIZE))
                partitions.append(metadata.partition)
        repeated = sum(one == next_one for one, next_one in pairwise(partitions))
        assert repeated < 10  # by chance one in 50

    run_virtual(run, brokers=1, topics={"t": 50})
