"""Cancelling any public coroutine at any await point: no leak, and other calls go on.

On virtual time and an in-memory network: each case is played once per suspension of the victim and
per `Instant`, so that also those instants are met that no clock would find.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import pytest
from support.stage import Stage, play
from support.stepping import CancelledAt, Instant, drive

from aioproducer import Producer, RecordMetadata
from aioproducer.errors import BufferFullError, ProducerClosedError, ProducerFailedError

VALUE = b"v" * 20
REPAIRED_AFTER_S = 0.5
MOST_SUSPENSIONS = 100

Call = Callable[[Producer, str], Awaitable[object]]


async def _values() -> AsyncIterator[bytes]:
    for _ in range(4):
        yield VALUE
        await asyncio.sleep(0)


async def _a_delivery(producer: Producer, topic: str) -> object:
    return await (await producer.send(topic, VALUE))


CALLS: dict[str, Call] = {
    "send": lambda producer, topic: producer.send(topic, VALUE),
    "send_and_wait": lambda producer, topic: producer.send_and_wait(topic, VALUE),
    "send_many": lambda producer, topic: producer.send_many(topic, [VALUE] * 12),
    "send_many_async": lambda producer, topic: producer.send_many(topic, _values()),
    "delivery": _a_delivery,
    "flush": lambda producer, topic: producer.flush(),
    "flush_timeout": lambda producer, topic: producer.flush(5.0),
    "partitions_for": lambda producer, topic: producer.partitions_for(topic),
    "warm_up": lambda producer, topic: producer.warm_up(["u", topic]),
}


class Situation:
    """Faults while the victim runs, and the other calls that they affect."""

    topic = "t"

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.beside: list[asyncio.Task[object]] = []

    async def begin(self) -> None:
        """Breaks something, and repairs it a little later."""
        await self.spoil()
        self.beside += [asyncio.create_task(drive(self.another())) for _ in range(2)]
        await asyncio.sleep(0)
        self.stage.loop.call_later(REPAIRED_AFTER_S, self.repair)

    async def another(self) -> object:
        """A caller that wants the same as the victim and must get it."""
        return await self.stage.producer.send_and_wait(self.topic, VALUE)

    async def spoil(self) -> None:
        pass

    def repair(self) -> None:
        pass


class Calm(Situation):
    """Nothing is wrong."""


class MetadataMissing(Situation):
    """The topic does not exist yet."""

    topic = "later"

    def repair(self) -> None:
        self.stage.create_topic(self.topic)


class InFlight(Situation):
    """The broker is frozen, a request is at it, another record waits."""

    async def spoil(self) -> None:
        producer = self.stage.producer
        await producer.send_and_wait("t", VALUE)
        self.stage.broker.freeze()
        for _ in range(2):
            self.beside.append(asyncio.create_task(drive(await producer.send("t", VALUE))))
            await asyncio.sleep(0.1)

    def repair(self) -> None:
        self.stage.broker.thaw()


class MemoryFull(InFlight):
    """The broker is frozen and the memory used up, with others in line."""

    async def spoil(self) -> None:
        await super().spoil()
        while True:
            try:
                delivery = self.stage.producer.send_nowait("t", VALUE)
            except BufferFullError:
                return
            self.beside.append(asyncio.create_task(drive(delivery)))


def producers_tasks() -> list[str]:
    return sorted(t.get_name() for t in asyncio.all_tasks() if t.get_name().startswith("aioprod"))


async def one_cancellation(
    stage: Stage, call: Call, kind: type[Situation], n: int, instant: Instant
) -> bool:
    """Cancels the call at its n-th suspension; False when it did not come to that."""
    producer = stage.producer
    await producer.start()
    await producer.send_and_wait("t", VALUE)
    situation = kind(stage)
    tasks = producers_tasks()
    await situation.begin()
    attempt = CancelledAt(call(producer, situation.topic), n, instant)
    victim = asyncio.create_task(drive(attempt))
    await asyncio.wait([victim])
    assert victim.cancelled() == attempt.struck
    if not attempt.struck:
        victim.result()
    await asyncio.sleep(REPAIRED_AFTER_S)
    for task in situation.beside:
        await task
    await producer.send_and_wait("t", VALUE)
    assert await producer.flush() == 0
    health = producer.health()
    assert health.buffer_available == health.buffer_total
    assert (health.waiting_for_memory, health.batches_pending) == (0, 0)
    assert not stage.engine.accumulator.expedited
    assert producers_tasks() == tasks
    await producer.close()
    return attempt.struck


def every_suspension(play_once: Callable[[int], bool]) -> int:
    """Plays for n = 1, 2, … until the victim ends before; returns how many suspensions it had."""
    for n in range(1, MOST_SUSPENSIONS):
        if not play_once(n):
            return n - 1
    raise AssertionError(f"more than {MOST_SUSPENSIONS} suspensions")


@pytest.mark.parametrize("instant", Instant)
@pytest.mark.parametrize("kind", [Calm, MetadataMissing, InFlight, MemoryFull])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_cancelled_at_any_await_leaves_nothing(
    call: str, kind: type[Situation], instant: Instant
) -> None:
    every_suspension(
        lambda n: play(lambda stage: one_cancellation(stage, CALLS[call], kind, n, instant))
    )


@pytest.mark.parametrize("instant", Instant)
@pytest.mark.parametrize("frozen", [False, True])
def test_a_start_cancelled_at_any_await_leaves_nothing(instant: Instant, frozen: bool) -> None:
    async def once(stage: Stage, n: int) -> bool:
        if frozen:
            stage.broker.freeze()
            stage.loop.call_later(REPAIRED_AFTER_S, stage.broker.thaw)
        attempt = CancelledAt(stage.producer.start(), n, instant)
        starting = asyncio.create_task(drive(attempt))
        await asyncio.wait([starting])
        assert starting.cancelled() == attempt.struck
        if attempt.struck:
            with pytest.raises(ProducerClosedError):
                await stage.producer.send("t", VALUE)
        await asyncio.sleep(REPAIRED_AFTER_S)
        assert not (attempt.struck and producers_tasks())
        await stage.producer.close()
        return attempt.struck

    assert every_suspension(lambda n: play(partial(once, n=n))) > 0


@pytest.mark.parametrize("instant", Instant)
@pytest.mark.parametrize("timeout", [None, 0, 0.2])
@pytest.mark.parametrize("kind", [Calm, InFlight, MemoryFull])
def test_a_close_cancelled_at_any_await_is_ended_by_the_next_one(
    kind: type[Situation], timeout: float | None, instant: Instant
) -> None:
    async def once(stage: Stage, n: int) -> bool:
        producer = stage.producer
        await producer.start()
        situation = kind(stage)
        await situation.begin()
        attempt = CancelledAt(producer.close(timeout), n, instant)
        closing = asyncio.create_task(drive(attempt))
        await asyncio.wait([closing])
        assert closing.cancelled() == attempt.struck
        await producer.close(0)
        assert producers_tasks() == []
        outcomes = await asyncio.gather(*situation.beside, return_exceptions=True)
        assert all(isinstance(each, RecordMetadata | ProducerClosedError) for each in outcomes)
        await asyncio.sleep(REPAIRED_AFTER_S)
        health = producer.health()
        assert health.buffer_available == health.buffer_total
        assert (health.waiting_for_memory, health.batches_pending) == (0, 0)
        return attempt.struck

    assert every_suspension(lambda n: play(partial(once, n=n))) > 0


@pytest.mark.parametrize("what", ["delivery", "flush", "send_many"])
def test_a_cancelled_waiter_for_a_batch_leaves_no_trace_there(what: str) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        delivery = await producer.send("t", VALUE)
        waits: dict[str, Callable[[], Awaitable[object]]] = {
            "delivery": lambda: delivery,
            "flush": producer.flush,
            "send_many": lambda: producer.send_many("t", [VALUE]),
        }
        attempt: CancelledAt[object] = CancelledAt(waits[what](), 1, Instant.WHILE_WAITING)
        awaiting = asyncio.create_task(drive(attempt))
        await asyncio.wait([awaiting])
        assert attempt.struck
        batch, _ = delivery.batch_and_index()
        assert not batch.listeners
        await delivery
        await stage.producer.close()

    play(act)


def test_of_several_closes_the_shortest_timeout_counts() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        stage.broker.freeze()
        delivery = await stage.producer.send("t", VALUE)
        closing = [asyncio.create_task(stage.producer.close(each)) for each in (None, 1.0, 50.0)]
        began = stage.loop.time()
        await asyncio.gather(*closing)
        assert stage.loop.time() - began == pytest.approx(1.0, abs=0.01)
        assert isinstance(delivery.exception(), ProducerClosedError)
        stage.broker.thaw()
        await asyncio.sleep(1)

    play(act)


# -- everything at once ----------------------------------------------------------------------------


async def _user(producer: Producer, topic: str) -> None:
    await producer.start()
    while True:
        await producer.send_and_wait(topic, VALUE)
        await producer.flush(1.0)
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("closing", [False, True])
@pytest.mark.parametrize("topic", ["t", "later"])
@pytest.mark.parametrize("frozen", [False, True])
def test_after_a_framework_cancelled_all_tasks_every_call_ends_at_once(
    frozen: bool, topic: str, closing: bool
) -> None:
    """As `asyncio.run` and test frameworks do, at one turn of the loop after the other."""

    async def once(stage: Stage, turns: int) -> None:
        producer = stage.producer
        users = [asyncio.create_task(_user(producer, topic))]
        await _turns(turns)
        if frozen:
            stage.broker.freeze()
            await asyncio.sleep(0.05)
        if closing:
            users.append(asyncio.create_task(producer.close(3.0)))
            await _turns(turns % 7)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.gather(*users, return_exceptions=True)
        began = stage.loop.time()
        for call in (
            producer.send(topic, VALUE),
            producer.flush(3.0),
            producer.partitions_for(topic),
        ):
            with pytest.raises((ProducerFailedError, ProducerClosedError)):
                await call
        await producer.close(3.0)
        assert stage.loop.time() - began < 0.1
        assert producers_tasks() == []
        health = producer.health()
        assert not health.ready
        assert health.buffer_available == health.buffer_total
        assert (health.waiting_for_memory, health.batches_pending) == (0, 0)
        stage.broker.thaw()
        await asyncio.sleep(1)

    for turns in range(1, 120, 3):
        play(partial(once, turns=turns))


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0.0001)


def test_a_close_goes_on_when_everything_but_its_caller_is_cancelled() -> None:
    async def once(stage: Stage, turns: int) -> None:
        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        stage.broker.freeze()
        delivery = await stage.producer.send("t", VALUE)
        closing = asyncio.create_task(stage.producer.close(3.0))
        await _turns(turns)
        for _ in range(3):
            for task in asyncio.all_tasks() - {asyncio.current_task(), closing}:
                task.cancel()
            await asyncio.sleep(0)
        await closing
        assert delivery.done()
        assert stage.loop.time() < 1.0
        assert producers_tasks() == []
        stage.broker.thaw()
        await asyncio.sleep(1)

    for turns in range(10):
        play(partial(once, turns=turns))


@pytest.mark.parametrize("role", ["sender", "metadata"])
def test_a_task_cancelled_before_its_first_step_leaves_a_producer_that_fails_fast(
    role: str,
) -> None:
    async def act(stage: Stage) -> None:
        starting = asyncio.create_task(stage.producer.start())
        await asyncio.sleep(0)
        for task in asyncio.all_tasks():
            if task.get_name() == f"aioproducer-{role}":
                task.cancel()
        with pytest.raises(ProducerFailedError, match="cancelled"):
            await starting
            await stage.producer.send_and_wait("t", VALUE)
        await stage.producer.close(3.0)
        assert stage.loop.time() < 3.0

    play(act)
