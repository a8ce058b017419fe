"""Blocking calls run in a thread, and in the loop's where there are no more threads."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import pytest

from aioproducer._util.threads import in_thread

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
