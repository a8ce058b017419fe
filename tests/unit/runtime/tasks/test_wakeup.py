"""Events that end a task's sleep: wake-ups, times, timers that are moved."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from math import inf
from random import Random
from typing import Any

from net.virtual import virtual_time

from aioproducer.runtime.tasks.turns import WakeupTimer
from aioproducer.testing.world.loop import VirtualLoop


@virtual_time
async def test_a_ring_during_the_turn_spares_the_sleep() -> None:
    wakeup = WakeupTimer(asyncio.get_running_loop())
    wakeup.begin_turn()
    wakeup.wake()
    await wakeup.sleep(inf)
    assert not wakeup.is_asleep


@virtual_time
async def test_the_sleeper_wakes_at_its_time() -> None:
    loop = asyncio.get_running_loop()
    wakeup = WakeupTimer(loop)
    began = loop.time()
    for seconds in (5.0, 9.0, 10.0):
        wakeup.begin_turn()
        await wakeup.sleep(began + seconds)
        assert loop.time() == began + seconds


@virtual_time
async def test_a_timer_of_an_earlier_sleep_wakes_no_task_too_soon() -> None:
    loop = asyncio.get_running_loop()
    wakeup = WakeupTimer(loop)
    began = loop.time()
    loop.call_later(1.0, wakeup.wake)
    wakeup.begin_turn()
    await wakeup.sleep(began + 5.0)
    assert loop.time() == began + 1.0
    wakeup.begin_turn()
    await wakeup.sleep(began + 8.0)
    assert loop.time() == began + 8.0


@virtual_time
async def test_a_sleep_is_cut_short_but_never_made_longer() -> None:
    loop = asyncio.get_running_loop()
    wakeup = WakeupTimer(loop)
    began = loop.time()
    loop.call_later(1.0, wakeup.turn_at, began + 3.0, began)
    loop.call_later(2.0, wakeup.turn_at, began + 20.0, began)
    wakeup.begin_turn()
    await wakeup.sleep(began + 10.0)
    assert loop.time() == began + 3.0


@virtual_time
async def test_nothing_is_left_on_the_loop_after_close() -> None:
    loop = asyncio.get_running_loop()
    wakeup = WakeupTimer(loop)
    loop.call_later(1.0, wakeup.wake)
    wakeup.begin_turn()
    await wakeup.sleep(loop.time() + 100.0)
    wakeup.close()
    began = loop.time()
    await asyncio.sleep(200.0)
    assert loop.time() == began + 200.0
    assert not wakeup.is_asleep


@virtual_time
async def test_a_task_that_has_not_slept_yet_is_awake_and_can_sleep() -> None:
    loop = asyncio.get_running_loop()
    wakeup = WakeupTimer(loop)
    assert not wakeup.is_asleep
    began = loop.time()
    await wakeup.sleep(began + 5.0)
    assert loop.time() == began + 5.0


@virtual_time
async def test_a_task_that_is_awake_has_no_time_at_which_it_wakes() -> None:
    loop = asyncio.get_running_loop()
    wakeup = WakeupTimer(loop)
    wakeup.begin_turn()
    await wakeup.sleep(loop.time() + 5.0)
    wakeup.begin_turn()
    assert wakeup.until == -inf


class CountingLoop(VirtualLoop):
    """Counts the timers that are set; reading the clock can be made to fail once."""

    def __init__(self) -> None:
        super().__init__(Random(1))
        self.timers_set = 0
        self.clock_fails = False

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        self.timers_set += 1
        return super().call_at(when, callback, *args, context=context)

    def time(self) -> float:
        if self.clock_fails:
            self.clock_fails = False
            raise ZeroDivisionError
        return super().time()


def test_ever_later_sleeps_use_one_timer_until_it_fires() -> None:
    loop = CountingLoop()

    async def run() -> None:
        wakeup = WakeupTimer(loop)
        for seconds in range(1, 100):
            wakeup.begin_turn()
            loop.call_soon(wakeup.wake)
            await wakeup.sleep(loop.time() + seconds)
        assert loop.timers_set == 1
        wakeup.close()

    loop.run_until_complete(run())
    loop.close()


def test_an_exception_while_the_timer_fires_is_reported_and_wakes_the_task() -> None:
    loop = CountingLoop()

    async def run() -> None:
        wakeup = WakeupTimer(loop)
        wakeup.begin_turn()
        loop.call_at(5.0, setattr, loop, "clock_fails", True)
        await wakeup.sleep(5.0)
        assert loop.time() == 5.0

    loop.run_until_complete(run())
    loop.close()
    (failure,) = loop.failures
    assert "ZeroDivisionError" in failure


@virtual_time
async def test_a_closed_timer_is_freed_without_the_garbage_collector() -> None:
    loop = asyncio.get_running_loop()
    wakeup = WakeupTimer(loop)
    wakeup.begin_turn()
    loop.call_soon(wakeup.wake)
    await wakeup.sleep(loop.time() + 5.0)
    wakeup.close()
    reference = weakref.ref(wakeup)
    gc.disable()
    try:
        del wakeup
        assert reference() is None
    finally:
        gc.enable()
