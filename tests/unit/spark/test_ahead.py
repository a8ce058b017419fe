"""Items of a blocking iterator for a coroutine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from aioproducer.spark.ahead import Ahead


async def read_all(ahead: Ahead[int]) -> list[int]:
    found = []
    while (item := await ahead.next()) is not None:
        found.append(item)
    return found


async def test_items_come_in_order_and_the_end_stays_the_end() -> None:
    ahead = Ahead(iter(range(1000)), asyncio.get_running_loop())
    assert await read_all(ahead) == list(range(1000))
    assert await ahead.next() is None


async def test_one_item_is_read_ahead_and_no_more() -> None:
    asked: list[int] = []
    second, third = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        for number in range(4):
            asked.append(number)
            if number == 1:
                second.set()
            if number == 2:
                third.set()
            yield number

    ahead = Ahead(items(), asyncio.get_running_loop())
    try:
        assert await ahead.next() == 0
        assert await asyncio.to_thread(second.wait, 30)
        assert await ahead.next() == 1
        assert await asyncio.to_thread(third.wait, 30)
    finally:
        ahead.stop()
    assert asked == [0, 1, 2]


async def test_what_the_iterator_raises_comes_behind_its_items() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("broken")

    ahead = Ahead(broken(), asyncio.get_running_loop())
    assert await ahead.next() == 1
    for _ in range(2):
        with pytest.raises(OSError, match="broken"):
            await ahead.next()


async def test_a_wake_up_that_comes_late_is_none() -> None:
    may_go_on = threading.Event()

    def slow() -> Iterator[int]:
        may_go_on.wait(30)
        yield 1

    ahead = Ahead(slow(), asyncio.get_running_loop())
    waiting = asyncio.ensure_future(ahead.next())
    for _ in range(10):
        await asyncio.sleep(0)
        ahead._wake()
    assert not waiting.done()
    may_go_on.set()
    assert await waiting == 1
    ahead.stop()


async def test_the_loop_turns_for_items_that_are_there() -> None:
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(turn)

    loop = asyncio.get_running_loop()
    loop.call_soon(turn)
    assert len(await read_all(Ahead(iter(range(100)), loop))) == 100
    assert turns >= 100


def test_a_reader_that_was_stopped_lets_the_loop_end() -> None:
    may_end = threading.Event()
    ended = threading.Event()

    def slow() -> Iterator[int]:
        yield 1
        may_end.wait(30)
        try:
            yield 2
        finally:
            ended.set()

    async def first() -> int | None:
        ahead = Ahead(slow(), asyncio.get_running_loop())
        try:
            return await ahead.next()
        finally:
            ahead.stop()
            may_end.set()

    assert asyncio.run(first()) == 1
    assert ended.wait(30)
