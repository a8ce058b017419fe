"""An exception such as KeyboardInterrupt in the middle of an answer ends the producer cleanly."""

from __future__ import annotations

import asyncio
import random
import sys

import pytest
from support.stage import Stage, play

from aioproducer.errors import CommitOutcomeUnknownError, KafkaError, ProducerFailedError
from aioproducer.errors.advice import ADVICE
from aioproducer.runtime.tasks.closing import tasks_named
from aioproducer.testing.world.loop import VirtualLoop
from aioproducer.types import Persistence
from aioproducer.wire.api_keys import ApiKey

from .send.direct_sends import transport_of


class Interrupt(Exception):  # noqa: N818 - what a signal handler raises
    """Raised in the middle of something."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, MemoryError, Interrupt])
@pytest.mark.parametrize("where", ["on_response", "_move_leaders", "_let_go"])
def test_interrupted_answer_ends_every_delivery_and_frees_the_memory(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseException], where: str
) -> None:
    loop = VirtualLoop(random.Random(1))
    asyncio.set_event_loop(loop)
    stage = Stage(loop)
    stage.create_topic("p", (1, 1))
    producer = stage.producer
    deliveries = []

    def interrupt(*_: object) -> None:
        monkeypatch.undo()
        raise kind

    async def send() -> None:
        await producer.start()
        for number in range(4):
            delivery = await producer.send("p", b"%d" % number, partition=number % 2)
            deliveries.append(delivery)
        monkeypatch.setattr(producer.engine.sender, where, interrupt)
        await asyncio.sleep(10)

    async def close() -> None:
        await asyncio.wait([asyncio.ensure_future(outcome(each)) for each in deliveries], timeout=1)
        await producer.close()

    async def outcome(delivery: object) -> None:
        try:
            await delivery
        except KafkaError:
            pass

    try:
        task = loop.create_task(send())
        for _ in range(2):
            try:
                loop.run_until_complete(task)
            except kind:
                continue
        loop.run_until_complete(close())
        written = {*stage.values("p", 0), *stage.values("p", 1)}
        for number, delivery in enumerate(deliveries):
            assert delivery.done()
            error = delivery.exception()
            if error is not None and b"%d" % number in written:
                assert error.persistence is Persistence.POSSIBLY_PERSISTED
            assert delivery.batch_and_index()[0].buffer is None
        assert producer.engine.pool.available == producer.engine.pool.total
        assert producer.engine.memory_left == 0
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_records_that_a_cancelled_sender_task_gives_up_are_counted_as_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.send_and_wait("t", b"v")
        stage.lose()
        deliveries = [await producer.send("t", b"v") for _ in range(3)]
        (task,) = tasks_named(stage.loop, "aioproducer-sender")
        task.cancel()
        for delivery in deliveries:
            with pytest.raises(ProducerFailedError, match="was cancelled from outside"):
                await delivery
        assert (producer.health().state, producer.statistics().state) == ("failed", "failed")
        assert "was cancelled from outside" in (producer.health().error or "")
        assert producer.metrics()["record_error_total"] == 3
        assert sum(each.records for each in producer.statistics().recent_failures) == 3
        await producer.close()

    play(act)
    reason = "the producer's sender task was cancelled from outside -> " + ADVICE["task-cancelled"]
    assert [record.getMessage() for record in caplog.records].count(reason) == 1


def test_records_in_flight_fail_at_once_when_an_interrupt_ends_the_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(data: bytes) -> None:
        raise KeyboardInterrupt

    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.send_and_wait("t", b"v")
        stage.faults.swallow(ApiKey.PRODUCE, times=None)
        in_flight = await producer.send("t", b"v")
        await asyncio.sleep(0.01)
        monkeypatch.setattr(transport_of(producer), "write", interrupt)
        with pytest.raises(KeyboardInterrupt):
            await producer.send("t", b"v")
        began = stage.loop.time()
        with pytest.raises(ProducerFailedError, match="KeyboardInterrupt") as caught:
            await in_flight
        assert stage.loop.time() == began
        assert caught.value.persistence is Persistence.POSSIBLY_PERSISTED
        await producer.close()
        assert stage.engine.memory_left == 0

    play(act, linger_ms=0)


def test_an_interrupt_as_a_call_opens_a_batch_after_its_wait_ends_the_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        stage.broker.freeze()
        while stage.engine.pool.available >= 200:
            await producer.send("t", bytes(120))
        sending = producer.send("t", bytes(120))
        waits_for = sending.send(None)
        stage.broker.thaw()
        await asyncio.wait([waits_for])
        read = stage.loop.time

        def interrupt() -> float:
            if sys._getframe(1).f_code.co_name == "_open":
                raise KeyboardInterrupt
            return read()

        monkeypatch.setattr(stage.loop, "time", interrupt)
        with pytest.raises(KeyboardInterrupt):
            sending.send(None)
        monkeypatch.undo()
        await asyncio.sleep(0.01)
        assert "KeyboardInterrupt" in (producer.health().error or "")
        await producer.close()
        assert stage.engine.pool.available == stage.engine.pool.total

    play(act)


def test_calls_that_wait_for_memory_fail_when_the_sender_task_is_cancelled() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        stage.lose()
        sending = [asyncio.create_task(producer.send("t", b"v" * 150)) for _ in range(9)]
        await asyncio.sleep(1)
        waiting = [task for task in sending if not task.done()]
        assert len(waiting) == producer.health().waiting_for_memory > 2
        (sender,) = tasks_named(stage.loop, "aioproducer-sender")
        sender.cancel()
        began = stage.loop.time()
        for task in waiting:
            with pytest.raises(ProducerFailedError, match="was cancelled from outside"):
                await task
        assert stage.loop.time() == began
        await producer.close()

    play(act)


def test_commit_that_is_interrupted_while_it_is_written_may_have_succeeded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"v")
        send = stage.engine.client.send

        def interrupted(*args: object, **options: object) -> None:
            monkeypatch.undo()
            answer = send(*args, **options)  # type: ignore[arg-type]
            answer.add_done_callback(lambda done: done.exception())
            raise Interrupt

        monkeypatch.setattr(stage.engine.client, "send", interrupted)
        with pytest.raises(CommitOutcomeUnknownError, match="Interrupt") as caught:
            await producer.commit_transaction()
        assert caught.value.persistence is Persistence.POSSIBLY_PERSISTED
        await producer.close()

    play(act, transactional_id="tx")
