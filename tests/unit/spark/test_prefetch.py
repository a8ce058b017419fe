"""Items of a blocking iterator for a coroutine."""

from __future__ import annotations

import asyncio
import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from aioproducer.spark.prefetch import PrefetchIterator


async def read_all(prefetched: PrefetchIterator[int]) -> list[int]:
    found = []
    while (item := await prefetched.next()) is not None:
        found.append(item)
    return found


async def test_items_come_in_order_and_the_end_stays_the_end() -> None:
    prefetched = PrefetchIterator(iter(range(1000)))
    assert await read_all(prefetched) == list(range(1000))
    assert await prefetched.next() is None


def test_the_first_item_is_read_before_there_is_a_loop_and_another_loop_may_go_on() -> None:
    read = threading.Event()

    def items() -> Iterator[int]:
        for number in range(4):
            read.set()
            yield number

    with PrefetchIterator(items()) as prefetched:
        assert read.wait(30)
        assert asyncio.run(prefetched.next()) == 0
        assert asyncio.run(read_all(prefetched)) == [1, 2, 3]


def test_a_process_ends_although_a_source_blocks() -> None:
    program = """
import threading
from aioproducer.spark.prefetch import PrefetchIterator

def blocked():
    yield 1
    threading.Event().wait()
    yield 2

with PrefetchIterator(blocked()) as prefetched:
    prefetched._may_go_on.put(True)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_forked_child_reads_by_a_new_thread() -> None:
    with PrefetchIterator(iter([1])) as prefetched:
        assert asyncio.run(read_all(prefetched)) == [1]

    def in_child() -> None:
        with PrefetchIterator(iter([2, 3])) as prefetched:
            assert asyncio.run(read_all(prefetched)) == [2, 3]

    child = multiprocessing.get_context("fork").Process(target=in_child)
    child.start()
    child.join(30)
    if child.exitcode is None:
        child.kill()
    assert child.exitcode == 0


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

    prefetched = PrefetchIterator(items())
    try:
        assert await prefetched.next() == 0
        assert await asyncio.to_thread(second.wait, 30)
        assert await prefetched.next() == 1
        assert await asyncio.to_thread(third.wait, 30)
    finally:
        prefetched.stop()
    assert asked == [0, 1, 2]


async def test_what_the_iterator_raises_comes_after_its_items() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("broken")

    prefetched = PrefetchIterator(broken())
    assert await prefetched.next() == 1
    for _ in range(2):
        with pytest.raises(OSError, match="broken"):
            await prefetched.next()


async def test_a_wake_up_that_comes_late_is_none() -> None:
    may_go_on = threading.Event()

    def slow() -> Iterator[int]:
        may_go_on.wait(30)
        yield 1

    prefetched = PrefetchIterator(slow())
    waiting = asyncio.ensure_future(prefetched.next())
    for _ in range(10):
        await asyncio.sleep(0)
        prefetched._wake()
    assert not waiting.done()
    may_go_on.set()
    assert await waiting == 1
    prefetched.stop()


async def test_the_loop_turns_for_items_that_are_there() -> None:
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(turn)

    loop = asyncio.get_running_loop()
    loop.call_soon(turn)
    assert len(await read_all(PrefetchIterator(iter(range(100))))) == 100
    assert turns >= 100


def test_a_reader_that_was_stopped_ends_its_iterator() -> None:
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
        prefetched = PrefetchIterator(slow())
        try:
            return await prefetched.next()
        finally:
            prefetched.stop()
            may_end.set()

    assert asyncio.run(first()) == 1
    assert ended.wait(30)
