"""Events that end a task's sleep: wake-ups, times, timers that are moved."""

from __future__ import annotations

import asyncio
from math import inf

from net.virtual import virtual_time

from aioproducer.runtime.tasks.wakeup import WakeupTimer


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
    loop.call_later(1.0, wakeup.advance, began + 3.0)
    loop.call_later(2.0, wakeup.advance, began + 20.0)
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
