"""Closing a producer that cannot deliver."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import threading
import weakref

import pytest
from support.stage import Stage, play
from support.waiting import until

from aioproducer import Producer
from aioproducer.errors import ProducerClosedError, ProducerFailedError
from aioproducer.runtime.delivery import Delivery
from aioproducer.runtime.tasks.closing import tasks_named
from aioproducer.testing.broker import TelemetrySubscription
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.world.loop import VirtualLoop
from aioproducer.wire.api_keys import ApiKey


def test_what_a_close_gives_up_is_reported_although_the_producer_object_is_kept() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.send("t", b"delivered")
        await stage.producer.flush()
        stage.lose()
        for _ in range(3):
            await stage.producer.send("t", b"given up")
        await stage.producer.close(1.0)
        gc.collect()
        await asyncio.sleep(0)
        assert stage.producer.metrics()["unretrieved_failure_total"] == 3

    play(act)


def test_a_close_delivers_what_was_accepted_without_linger_within_its_time() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        delivery = await stage.producer.send("t", b"v")
        await stage.producer.close(1)
        assert stage.loop.time() < 0.5
        assert (await delivery).offset == 0

    play(act, linger_ms=60_000)


def test_a_close_without_time_delivers_nothing() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        delivery = await stage.producer.send("t", b"v")
        began = stage.loop.time()
        await stage.producer.close(0)
        assert stage.loop.time() - began < 0.01
        with pytest.raises(ProducerClosedError):
            await delivery
        assert stage.values("t") == []

    play(act, linger_ms=60_000)


def test_a_close_gives_up_at_its_time_what_is_not_delivered() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.send_and_wait("t", b"delivered")
        stage.lose()
        delivery = await stage.producer.send("t", b"given up")
        began = stage.loop.time()
        await stage.producer.close(2)
        assert stage.loop.time() - began == pytest.approx(2.0, abs=0.01)
        with pytest.raises(ProducerClosedError):
            await delivery

    play(act)


def test_a_close_that_is_cancelled_gives_up_what_is_not_delivered() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.send_and_wait("t", b"delivered")
        stage.lose()
        delivery = await stage.producer.send("t", b"given up")
        closing = asyncio.create_task(stage.producer.close())
        await asyncio.sleep(2)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        began = stage.loop.time()
        await stage.producer.close()
        assert stage.loop.time() - began < 0.01
        with pytest.raises(ProducerClosedError):
            await delivery

    play(act)


def test_a_close_ends_the_calls_that_wait_while_it_delivers_what_was_accepted() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        stage.broker.freeze()
        accepted = await stage.producer.send("t", b"accepted")
        topics = ["t"] * 9 + ["unknown"]
        sending = [asyncio.create_task(stage.producer.send(t, bytes(150))) for t in topics]
        await asyncio.sleep(1)
        waiting = [task for task in sending if not task.done()]
        closing = asyncio.create_task(stage.producer.close())
        await asyncio.sleep(0.1)
        assert len(waiting) > 2
        for task in waiting:
            assert task.done()
            assert isinstance(task.exception(), ProducerClosedError)
        assert not closing.done()
        stage.broker.thaw()
        await closing
        assert (await accepted).offset == 0

    play(act)


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_that_waits_for_a_serializer_ends_with_the_producer(fails: bool) -> None:
    async def serialize(value: bytes) -> bytes:
        await asyncio.sleep(1000)
        return value

    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        sending = asyncio.create_task(producer.send("t", b"v"))
        await asyncio.sleep(1)
        if fails:
            (sender,) = tasks_named(stage.loop, "aioproducer-sender")
            sender.cancel()
        else:
            await producer.close()
        await asyncio.wait([sending], timeout=1)
        assert sending.done()
        expected = ProducerFailedError if fails else ProducerClosedError
        assert type(sending.exception()) is expected
        await producer.close()

    play(act, value_serializer=serialize)


def test_memory_that_is_not_given_back_is_logged_and_written_off_at_a_close(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        pool = stage.engine.pool
        assert pool.try_allocate(200) is not None
        await producer.close()
        assert stage.engine.memory_left == 200
        assert "200 bytes of memory, were left when the producer was closed" in caplog.text
        assert pool.available == pool.total

    play(act)


def test_what_was_on_its_way_at_a_close_is_reported_too() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.send("t", b"delivered")
        await stage.producer.flush()
        stage.broker.freeze()
        await stage.producer.send("t", b"on its way")  # the last that the sender did
        await asyncio.sleep(0.1)
        await stage.producer.close(0)
        gc.collect()
        await asyncio.sleep(0)
        assert stage.producer.metrics()["unretrieved_failure_total"] == 1

    play(act, linger_ms=0)


def test_a_close_does_not_wait_for_the_initialization_of_a_start_in_the_background() -> None:
    async def act(stage: Stage) -> None:
        stage.faults.swallow(ApiKey.INIT_PRODUCER_ID, times=None)
        await stage.producer.start(wait=False)
        await asyncio.sleep(5)
        began = stage.loop.time()
        await stage.producer.close(0)
        assert stage.loop.time() - began < 1

    play(act, transactional_id="txn")


async def send_what_does_not_leave(stage: Stage) -> None:
    await stage.producer.start()
    await stage.producer.send("t", b"delivered")
    await stage.producer.flush()
    stage.broker.freeze()
    await stage.producer.send("t", bytes(150))  # more than the network has room for
    await asyncio.sleep(0.1)


@pytest.mark.parametrize(("acks", "seconds"), [(0, 1.0), (1, 0.0)])
def test_a_failed_producer_waits_a_second_at_most_for_bytes_that_are_not_acknowledged(
    acks: int, seconds: float
) -> None:
    async def act(stage: Stage) -> None:
        await send_what_does_not_leave(stage)
        (task,) = [t for t in stage.engine.tasks() if t.get_name() == "aioproducer-metadata"]
        task.cancel()
        await asyncio.sleep(0.1)
        began = stage.loop.time()
        await stage.producer.close()
        assert stage.loop.time() - began == pytest.approx(seconds, abs=0.01)

    play(act, acks=acks, enable_idempotence=False, window=100)


def test_a_close_does_not_wait_for_bytes_whose_record_it_has_given_up() -> None:
    async def act(stage: Stage) -> None:
        await send_what_does_not_leave(stage)
        began = stage.loop.time()
        await stage.producer.close(0)
        assert stage.loop.time() - began < 0.1

    play(act, window=100)


def test_a_producer_that_is_dropped_in_another_thread_delivers_its_records() -> None:
    async def act(stage: Stage) -> None:
        stage.loop.set_debug(True)  # calls of the loop that are not safe in threads raise
        await stage.producer.start()
        await stage.producer.send("t", b"v")
        dropping = threading.Thread(target=stage.engine.close_soon)
        dropping.start()
        dropping.join()
        await asyncio.sleep(1)
        assert stage.values("t") == [b"v"]
        assert stage.engine.tasks() == []
        stage.loop.set_debug(False)

    play(act, linger_ms=60_000)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # it was not closed
def test_records_of_a_producer_whose_loop_is_closed_are_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = VirtualLoop(random.Random(1))
    stage = Stage(loop, linger_ms=60_000)

    async def send() -> None:
        await stage.producer.start()
        for _ in range(3):
            await stage.producer.send("t", b"v")

    loop.run_until_complete(send())
    loop.close()
    given_up = "3 record(s) are given up, as the event loop is closed"
    for _ in range(2):
        stage.engine.close_soon()
        assert stage.engine.closing
        assert [record.getMessage() for record in caplog.records].count(given_up) == 1


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # it was not closed
def test_records_of_a_producer_whose_loop_is_closed_are_freed() -> None:
    def callback_of_a_record_that_is_given_up() -> weakref.ref[object]:
        loop = VirtualLoop(random.Random(1))
        stage = Stage(loop, linger_ms=60_000)

        def called(delivery: Delivery) -> None:
            raise AssertionError(delivery)

        async def send() -> None:
            await stage.producer.start()
            (await stage.producer.send("t", b"v")).add_done_callback(called)

        loop.run_until_complete(send())
        loop.close()
        stage.engine.close_soon()
        return weakref.ref(called)

    freed = callback_of_a_record_that_is_given_up()
    gc.collect()
    assert freed() is None


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # it was not closed
def test_nothing_is_logged_of_a_closed_loop_whose_producer_has_no_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = VirtualLoop(random.Random(1))
    stage = Stage(loop)
    loop.run_until_complete(stage.producer.start())
    loop.close()
    stage.engine.close_soon()
    assert "given up" not in caplog.text


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # it was not closed
def test_asyncio_does_not_complain_about_tasks_of_a_producer_whose_loop_is_closed() -> None:
    loop = VirtualLoop(random.Random(1))
    stage = Stage(loop)
    loop.run_until_complete(stage.producer.start())
    assert stage.engine.tasks() != []
    loop.close()
    stage.engine.close_soon()
    del stage
    gc.collect()
    assert [text for text in map(str, loop.failures) if "aioproducer-" in text] == []


def test_a_producer_that_is_dropped_while_its_loop_ends_pushes_no_metrics() -> None:
    async def act(stage: Stage) -> None:
        telemetry = stage.world.cluster.telemetry
        telemetry.subscription = TelemetrySubscription(("",), interval_ms=1_000)
        await stage.producer.start()
        await asyncio.sleep(5)
        assert telemetry.received
        for task in stage.engine.tasks():  # as asyncio.run() does at its end
            task.cancel()
        stage.engine.close_soon()
        await asyncio.sleep(0.1)
        telemetry.received.clear()
        await asyncio.sleep(30)
        assert telemetry.received == []
        assert stage.engine.tasks() == []
        await stage.producer.close()

    play(act, buffer_memory=1 << 20)


@pytest.mark.parametrize("has_records", [False, True])
def test_a_loop_that_ends_is_logged_as_a_failure_if_records_are_lost_by_it(
    has_records: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        if has_records:
            await stage.producer.send("t", b"v")
        for task in asyncio.all_tasks():  # as asyncio.run() does at its end
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert ("was cancelled from outside" in caplog.text) is has_records
        await stage.producer.close()

    play(act, linger_ms=60_000)


def test_a_producer_without_telemetry_may_be_dropped_while_its_loop_ends() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        for task in stage.engine.tasks():
            task.cancel()
        stage.engine.close_soon()
        await asyncio.sleep(1)
        assert stage.engine.tasks() == []
        await stage.producer.close()

    play(act, enable_metrics_push=False)


def compressing() -> list[threading.Thread]:
    threads = threading.enumerate()
    return [thread for thread in threads if thread.name.startswith("aioproducer-compress")]


def compressing_producer(servers: str) -> Producer:
    return Producer(
        bootstrap_servers=servers,
        compression_type="gzip",
        compression_threads_threshold_bytes=0,
    )


async def test_a_close_ends_the_threads_that_compress() -> None:
    async with EmbeddedCluster(brokers=1) as cluster:
        producer = compressing_producer(cluster.bootstrap_servers)
        await producer.start()
        await producer.send_and_wait("t", b"v")
        assert compressing()
        await producer.close()
        await until(lambda: not compressing())


async def test_a_producer_that_is_dropped_while_its_loop_ends_ends_its_threads() -> None:
    async with EmbeddedCluster(brokers=1) as cluster:
        producer = compressing_producer(cluster.bootstrap_servers)
        await producer.start()
        await producer.send_and_wait("t", b"v")
        assert compressing()
        engine = producer._engine
        assert engine is not None
        for task in engine.tasks():  # as asyncio.run() does at its end
            task.cancel()
        engine.close_soon()
        await until(lambda: not compressing())
        await producer.close()


@pytest.mark.filterwarnings("ignore:.*(transport|loop is closed):ResourceWarning")  # asyncio's own
async def test_a_producer_whose_loop_is_closed_ends_its_threads() -> None:
    def run(servers: str) -> Producer:
        loop = asyncio.new_event_loop()
        producer = compressing_producer(servers)
        loop.run_until_complete(producer.start())
        loop.run_until_complete(producer.send_and_wait("t", b"v"))
        loop.close()
        return producer

    async with EmbeddedCluster(brokers=1) as cluster:
        producer = await asyncio.to_thread(run, cluster.bootstrap_servers)
        assert compressing()
        await producer.close()
        await until(lambda: not compressing())
        gc.collect()
