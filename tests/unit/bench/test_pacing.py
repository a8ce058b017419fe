"""An open load: nothing waits for answers, nothing is left out."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from itertools import repeat
from typing import Any

import pytest

from bench.pacing import Load, TaskPool, paced

RECORD = (b"value", None)


class Slow:
    """A client whose answers come when the test says so."""

    def __init__(self) -> None:
        self.answers: list[Callable[[], None]] = []

    def fire(self, record: object, done: Callable[[], None]) -> Coroutine[Any, Any, None] | None:
        self.answers.append(done)
        return None


def test_a_late_tick_sends_everything_that_is_due_and_keeps_when_it_was() -> None:
    client = Slow()
    load = Load(client, repeat(RECORD), 3)  # type: ignore[arg-type]
    load.tick(struct.pack("3d", 1.0, 2.0, 3.0))
    assert load.due == [1.0, 2.0, 3.0]
    assert len(client.answers) == 3
    client.answers[2]()
    assert [moment is not None for moment in load.done] == [False, False, True]
    assert not load.complete
    client.answers[0]()
    client.answers[1]()
    assert load.complete


async def test_requests_are_sent_on_time_while_none_is_answered() -> None:
    client = Slow()

    async def answer_all_at_the_end() -> None:
        while len(client.answers) < 20:  # noqa: ASYNC110 - what is tested sets no event
            await asyncio.sleep(0.01)
        for done in client.answers:
            done()

    async with asyncio.TaskGroup() as group:
        measured = group.create_task(paced(client, repeat(RECORD), 200, 20))  # type: ignore[arg-type]
        group.create_task(answer_all_at_the_end())
    found = measured.result()
    assert len(found) == 20
    # The first waited for the whole schedule of 95 ms, each one after it 5 ms less.
    assert found[0] - found[-1] == pytest.approx(0.095, abs=0.001)


async def test_a_waiting_task_begins_where_it_is_given_something_to_do() -> None:
    done: list[str] = []
    gate = asyncio.Event()

    async def work(name: str) -> None:
        done.append(f"{name} begins in {type(asyncio.current_task()).__name__}")
        await gate.wait()
        done.append(f"{name} ends")

    pool = TaskPool()
    await pool.start(1)

    def two_are_due() -> None:
        pool.run(work("the first"))
        assert done == ["the first begins in Task"]
        pool.run(work("one too many"))
        assert len(done) == 1

    await call(two_are_due)
    gate.set()
    await asyncio.sleep(0.01)
    assert done[1:] == ["one too many begins in Task", "the first ends", "one too many ends"]
    await call(lambda: pool.run(work("the first again")))
    assert done[4:] == ["the first again begins in Task", "the first again ends"]
    pool.stop()
    await asyncio.sleep(0.01)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_task_that_waits_for_something_to_do_can_be_cancelled() -> None:
    pool = TaskPool()
    await pool.start(2)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    next(iter(tasks)).cancel()
    pool.stop()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(end) for end in ends} == {asyncio.CancelledError, type(None)}


async def call(function: Callable[[], None]) -> None:
    """Calls it as a loop does when it has read something: in no task."""
    called = asyncio.get_running_loop().create_future()

    def run() -> None:
        try:
            called.set_result(function())
        except BaseException as error:
            called.set_exception(error)

    asyncio.get_running_loop().call_soon(run)
    await called
