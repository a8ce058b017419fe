"""Blocking calls run in a thread, and in the loop's where there are no more threads."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest
from support.hanging import Hanging

from aioproducer._util.threads import OneTimeEvent, OwnThreads, in_thread, released

setting: ContextVar[str] = ContextVar("setting")


async def test_call_runs_in_another_thread_with_the_callers_context() -> None:
    setting.set("the caller's")
    assert await in_thread(setting.get) == "the caller's"
    assert await in_thread(threading.get_ident) != threading.get_ident()


async def test_error_of_a_call_is_raised_and_the_call_is_made_once() -> None:
    calls: list[None] = []

    def fail() -> None:
        calls.append(None)
        raise RuntimeError("own")

    with pytest.raises(RuntimeError, match="own"):
        await in_thread(fail)
    assert len(calls) == 1


async def test_call_runs_here_when_threads_accept_no_more_work() -> None:
    executor = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(executor)
    executor.shutdown()
    assert await in_thread(threading.get_ident) == threading.get_ident()


async def test_a_call_that_hangs_in_an_own_thread_leaves_the_pool_of_the_loop_free() -> None:
    executor = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(executor)
    hangs = threading.Event()
    hanging = asyncio.create_task(OwnThreads(1).run(hangs.wait))
    assert await in_thread(threading.active_count) > 1
    executor.shutdown()
    assert not hanging.done()
    hangs.set()
    assert await hanging


async def test_no_more_own_threads_run_than_are_allowed_also_when_callers_have_gone() -> None:
    threads, hangs = OwnThreads(2), threading.Event()
    running = [asyncio.create_task(threads.run(hangs.wait)) for _ in range(3)]
    await asyncio.sleep(0)
    running[0].cancel()
    late = asyncio.create_task(threads.run(threading.get_ident))
    done, _ = await asyncio.wait([late], timeout=0.05)
    assert not done
    hangs.set()
    assert await late != threading.get_ident()
    await asyncio.gather(*running, return_exceptions=True)


@pytest.mark.parametrize("run", [in_thread, OwnThreads(1).run], ids=["pool", "own"])
@pytest.mark.parametrize("error", [StopIteration, asyncio.CancelledError])
async def test_what_no_future_may_have_is_a_runtime_error_of_a_call_in_a_thread(
    run: Any, error: type[BaseException]
) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(RuntimeError, match=error.__name__):
        await asyncio.wait_for(run(fail), 5)


async def test_the_error_of_a_call_in_an_own_thread_is_raised() -> None:
    threads = OwnThreads(1)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await threads.run(divmod, 1, 0)


async def test_a_call_is_made_here_when_no_thread_can_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    threads = OwnThreads(1)
    for _ in range(2):
        assert await threads.run(threading.get_ident) == threading.get_ident()


def test_a_loop_that_ends_does_not_wait_for_a_call_in_an_own_thread() -> None:
    hanging = Hanging()
    hanging.check_that_the_loop_ends(lambda: OwnThreads(1).run(hanging))


def test_lock_is_free_while_its_owner_waits_and_as_often_taken_afterwards() -> None:
    lock = threading.RLock()

    def is_free() -> bool:
        taken = lock.acquire(blocking=False)
        if taken:
            lock.release()
        return taken

    with ThreadPoolExecutor(1) as other, lock, lock:
        with released(lock):
            assert other.submit(is_free).result()
        assert not other.submit(is_free).result()
        lock.release()
        assert not other.submit(is_free).result()
        lock.acquire()


def test_lock_that_another_thread_has_is_not_released() -> None:
    lock = threading.RLock()

    def is_free() -> bool:
        with released(lock):
            return lock.acquire(blocking=False)

    with ThreadPoolExecutor(1) as other, lock:
        assert not other.submit(is_free).result()


def test_event_that_is_set_ends_every_wait() -> None:
    event = OneTimeEvent()
    assert not event.wait(0)
    with ThreadPoolExecutor(2) as others:
        waits = [others.submit(event.wait, 10.0) for _ in range(2)]
        event.set()
        assert all(wait.result() for wait in waits)
    event.set()
    assert event.wait(0)
