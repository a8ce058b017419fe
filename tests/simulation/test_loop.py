"""The virtual loop: time, deadlocks, busy loops, executors."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any

import pytest

from aioproducer.testing.world.loop import BusyLoopError, StuckError, VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop(random.Random(1))
    yield loop
    loop.close()


def _run(loop: VirtualLoop, work: Coroutine[Any, Any, Any]) -> Any:
    return loop.run_until_complete(work)


def test_an_hour_of_sleep_takes_no_time_and_ends_exactly(loop: VirtualLoop) -> None:
    began = time.monotonic()
    _run(loop, asyncio.sleep(3600))
    assert loop.time() == 3600
    assert time.monotonic() - began < 5


def test_timers_fire_in_the_order_of_their_times(loop: VirtualLoop) -> None:
    fired: list[int] = []
    for delay in (3, 1, 2):
        loop.call_later(delay, fired.append, delay)
    _run(loop, asyncio.sleep(5))
    assert fired == [1, 2, 3]


def test_a_timer_fires_between_the_steps_of_a_task_if_turns_take_time(loop: VirtualLoop) -> None:
    async def work() -> int:
        fired: list[None] = []
        loop.call_later(0.01, fired.append, None)
        steps = 0
        while not fired:
            await asyncio.sleep(0)
            steps += 1
        return steps

    loop.longest_turn_s = 0.001
    assert 10 < _run(loop, work()) < 100


def test_the_clock_does_not_move_if_an_idle_callback_makes_something_runnable(
    loop: VirtualLoop,
) -> None:
    ran_at: list[float] = []

    def run_something(jump_s: float) -> None:
        if not ran_at:
            loop.call_soon(lambda: ran_at.append(loop.time()))

    loop.on_idle = run_something
    _run(loop, asyncio.sleep(5))
    assert ran_at == [0]
    assert loop.time() == 5


@pytest.mark.parametrize(
    ("delays", "by_the_other", "found"),
    [((1.0,), 0, True), ((1.0, 1.0), 0, True), ((1.0, 1.0), 1, False), ((1.0,), 1, False)],
)
@pytest.mark.parametrize("is_soon", [False, True])
def test_a_turn_of_bystanders_alone_differs_from_others(
    loop: VirtualLoop, delays: tuple[float, ...], by_the_other: int, found: bool, is_soon: bool
) -> None:
    ran: list[bool] = []

    def note(jump_s: float) -> None:
        if loop.time() == 1:
            ran.append(loop.only_bystanders_ran)

    def bystander() -> None:
        pass

    def step() -> None:
        pass

    def start_step() -> None:
        loop.call_soon(step)

    other = start_step if is_soon else step
    loop.is_bystander = {bystander, start_step}.__contains__
    loop.on_idle = note
    for number, delay in enumerate(delays):
        loop.call_later(delay, other if number < by_the_other else bystander)
    loop.call_later(0.5, step)
    _run(loop, asyncio.sleep(2))
    assert ran == [found]


def test_waiting_for_what_never_comes_is_a_deadlock(loop: VirtualLoop) -> None:
    waiting = loop.create_task(asyncio.Event().wait())
    with pytest.raises(StuckError, match="deadlock"):
        loop.run_until_complete(waiting)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(waiting)


def test_turning_for_ever_without_time_passing_is_an_error(loop: VirtualLoop) -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110 - the point of the test
            await asyncio.sleep(0)

    spinning = loop.create_task(spin())
    with pytest.raises(BusyLoopError, match="turns without end"):
        loop.run_until_complete(spinning)
    spinning.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(spinning)


def test_turning_for_ever_while_time_passes_is_an_error_after_the_allowed_turns(
    loop: VirtualLoop,
) -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110 - the point of the test
            await asyncio.sleep(0.001)

    loop.limit_turns(1000)
    spinning = loop.create_task(spin())
    with pytest.raises(BusyLoopError, match="too much at 0"):
        loop.run_until_complete(spinning)
    spinning.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(spinning)


def test_a_task_that_never_lets_others_run_is_an_error_even_where_it_catches_that(
    loop: VirtualLoop,
) -> None:
    async def spin() -> None:
        with suppress(Exception):
            while True:
                loop.time()
        await asyncio.Event().wait()

    loop.limit_turns(1000)
    spinning = loop.create_task(spin())
    with pytest.raises(BusyLoopError):
        loop.run_until_complete(spinning)
    spinning.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(spinning)


def test_a_job_for_an_executor_runs_on_the_loop_some_virtual_time_later(loop: VirtualLoop) -> None:
    async def work() -> tuple[int, float]:
        return await loop.run_in_executor(None, divmod, 7, 3), loop.time()  # type: ignore[return-value]

    result, ended = _run(loop, work())
    assert result == (2, 1)
    assert 0 < ended < 1


def test_a_job_that_fails_raises_where_it_is_awaited(loop: VirtualLoop) -> None:
    with pytest.raises(ZeroDivisionError):
        _run(loop, loop.run_in_executor(None, divmod, 1, 0))  # type: ignore[arg-type]


def test_failures_in_callbacks_are_collected(loop: VirtualLoop) -> None:
    loop.call_soon(divmod, 1, 0)
    _run(loop, asyncio.sleep(0))
    assert "ZeroDivisionError" in loop.failures[0]
