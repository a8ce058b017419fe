"""Calls whose serializers run side by side: each record waits for the earlier ones of its topic."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest
from net.virtual import virtual_time

from aioproducer.errors import KafkaTimeoutError, ProducerClosedError, WouldBlockError
from aioproducer.runtime.send.serialization_queue import SerializationQueue

Made = tuple[str]


class Serializer:
    """One that has its record after some seconds."""

    def __init__(self, name: str, seconds: float) -> None:
        self._name = name
        self._seconds = seconds
        self.was_closed = False

    def __await__(self) -> Generator[Any, None, Made]:
        yield from asyncio.sleep(self._seconds).__await__()
        return (self._name,)

    def close(self) -> None:
        self.was_closed = True


class Calls:
    """Calls with a queue; `appended` has the name and the loop time of each record."""

    def __init__(self, max_block: float = 60.0) -> None:
        self.loop = asyncio.get_running_loop()
        self.queue = SerializationQueue(self.loop, max_block)
        self.appended: list[tuple[str, float]] = []
        self._began = self.loop.time()

    def start(self, name: str, seconds: float = 0.0, topic: str = "t") -> asyncio.Task[None]:
        """Begin a call; without seconds its record is ready at once."""
        place = self.queue.enter(topic)
        made: Made | Serializer = Serializer(name, seconds) if seconds else (name,)

        async def call() -> None:
            with place:
                finished = await self.queue.finish(place, made)
            self.appended.append((*finished, self.loop.time() - self._began))

        return self.loop.create_task(call())


@virtual_time
async def test_records_of_a_topic_are_appended_in_the_order_of_their_calls() -> None:
    calls = Calls()
    tasks = [calls.start("a", 3.0), calls.start("b"), calls.start("c", 1.0), calls.start("d", 5.0)]
    tasks.append(calls.start("elsewhere", topic="u"))
    await asyncio.gather(*tasks)
    assert calls.appended == [("elsewhere", 0.0), ("a", 3.0), ("b", 3.0), ("c", 3.0), ("d", 5.0)]
    assert not calls.queue


@virtual_time
async def test_a_topic_is_queued_until_its_last_record_is_appended() -> None:
    calls = Calls()
    first, second = calls.start("a", 1.0), calls.start("b", 2.0)
    for task in (first, second):
        assert calls.queue.is_queued("t")
        assert not calls.queue.is_queued("u")
        with pytest.raises(WouldBlockError):
            calls.queue.check_free("t")
        await task
    assert not calls.queue.is_queued("t")
    calls.queue.check_free("t")


@virtual_time
async def test_a_call_that_enters_while_others_are_resumed_waits_for_them() -> None:
    calls = Calls()
    first, second = calls.start("a", 1.0), calls.start("b", 0.5)
    first.add_done_callback(lambda _: calls.start("c"))
    await asyncio.gather(first, second)
    await asyncio.sleep(0.1)
    assert [name for name, _ in calls.appended] == ["a", "b", "c"]


@virtual_time
async def test_a_wait_for_an_earlier_record_ends_after_max_block_ms() -> None:
    calls = Calls(max_block=2.0)
    first, second = calls.start("a", 3.0), calls.start("b")
    with pytest.raises(KafkaTimeoutError, match=r"an earlier record.*max_block_ms=2000") as caught:
        await second
    assert caught.value.topic == "t"
    with pytest.raises(KafkaTimeoutError, match="the record's serializer took longer"):
        await first
    assert not calls.queue


@virtual_time
async def test_every_wait_ends_with_the_error_of_the_close() -> None:
    calls = Calls()
    waiting = [calls.start("a", 3.0), calls.start("b", 1.0)]
    await asyncio.sleep(2.0)
    calls.queue.close(ProducerClosedError("over"))
    late = Serializer("late", 1.0)
    with calls.queue.enter("u") as place, pytest.raises(ProducerClosedError) as caught:
        await calls.queue.finish(place, late)
    assert caught.value.topic == "u"
    assert late.was_closed
    for task in waiting:
        with pytest.raises(ProducerClosedError, match="over"):
            await task
    assert not calls.queue
    assert calls.appended == []


@virtual_time
async def test_a_call_that_has_only_entered_when_the_queue_is_closed_ends_with_its_error() -> None:
    calls = Calls()
    place = calls.queue.enter("t")
    calls.queue.close(ProducerClosedError("over"))
    with place, pytest.raises(ProducerClosedError, match="over"):
        await calls.queue.finish(place, ("a",))
    assert not calls.queue


@virtual_time
async def test_a_call_that_waits_for_nothing_does_not_suspend() -> None:
    calls = Calls()
    with calls.queue.enter("t") as place:
        call = calls.queue.finish(place, ("a",))
        with pytest.raises(StopIteration) as ended:
            call.send(None)
        assert ended.value.value == ("a",)
    assert not calls.queue


@virtual_time
async def test_a_second_record_of_a_task_does_not_overtake_the_record_of_another_task() -> None:
    calls = Calls()

    async def two_calls() -> None:
        await calls.start("a", 1.0)
        with calls.queue.enter("t") as place:
            (name,) = await calls.queue.finish(place, ("c",))
        calls.appended.append((name, calls.loop.time()))

    first = asyncio.create_task(two_calls())
    await asyncio.sleep(0)
    await asyncio.gather(first, calls.start("b", 0.5))
    assert [name for name, _ in calls.appended] == ["a", "b", "c"]


@virtual_time
@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_records_after_one_that_is_given_up_are_appended_at_once(is_cancelled: bool) -> None:
    calls = Calls(max_block=2.0)
    given_up = calls.start("given up", 4.0)
    await asyncio.sleep(1.0)
    others = [calls.start("b"), calls.start("c", 1.5)]
    await asyncio.sleep(0.5)
    if is_cancelled:
        given_up.cancel()
    await asyncio.gather(*others)
    assert calls.appended == [("b", 1.5 if is_cancelled else 2.0), ("c", 2.5)]
    assert isinstance(
        given_up.exception() if not given_up.cancelled() else asyncio.CancelledError(),
        asyncio.CancelledError if is_cancelled else KafkaTimeoutError,
    )
    assert not calls.queue


@virtual_time
async def test_a_call_that_is_cancelled_when_its_turn_comes_lets_the_next_one_go_on() -> None:
    calls = Calls()
    places = [calls.queue.enter("t") for _ in range(3)]
    second = asyncio.create_task(calls.queue.finish(places[1], ("b",)))
    third = asyncio.create_task(calls.queue.finish(places[2], ("c",)))
    await asyncio.sleep(0)
    second.cancel()
    places[0].leave()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert await third == ("c",)
    assert calls.queue
    for place in (*places, places[0]):
        place.leave()  # a second time, it has no effect
    assert not calls.queue
