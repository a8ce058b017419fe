"""The thread of a blocking producer, and those that wait for it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator

import pytest

from aioproducer.blocking.loop_thread import LoopThread
from aioproducer.errors import KafkaTimeoutError
from aioproducer.types import Persistence


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread("test", stall_timeout_s=1.0)
    thread.start()
    yield thread
    thread.stop(10.0)


async def _return(value: int) -> int:
    return value


def test_a_call_ends_although_the_thread_waits_for_the_callers_lock(thread: LoopThread) -> None:
    lock = threading.Lock()

    def log() -> None:
        with lock:
            pass

    with lock, pytest.raises(KafkaTimeoutError, match="blocked for 1 s"):
        thread.post(log)
        thread.call(_return(1))
    assert thread.call(_return(2)) == 2


def test_a_call_given_up_while_the_thread_is_blocked_says_that_it_may_take_effect(
    thread: LoopThread,
) -> None:
    is_over, done = threading.Event(), threading.Event()

    async def send() -> None:
        done.set()

    thread.post(is_over.wait)
    with pytest.raises(KafkaTimeoutError) as caught:
        thread.call(send())
    assert caught.value.persistence is Persistence.POSSIBLY_PERSISTED
    is_over.set()
    assert done.wait(10.0)


def test_a_call_that_takes_long_is_waited_for_while_the_loop_turns(thread: LoopThread) -> None:
    thread.call(asyncio.sleep(2.5))


def test_timers_of_the_thread_fire_while_a_test_stops_the_clock(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1_577_836_800.0)  # as freezegun does
    thread.call(asyncio.sleep(0.001))


def test_a_log_handler_that_holds_its_lock_can_start_a_thread() -> None:
    started: list[bool] = []

    class Lazy(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            thread = LoopThread("lazy")
            waiting = threading.Thread(target=thread.start, daemon=True)
            waiting.start()
            waiting.join(5.0)
            started.append(not waiting.is_alive())
            thread.stop(5.0)

    logger, handler = logging.getLogger("asyncio"), Lazy()
    level = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    try:
        logger.debug("anything")
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert started == [True]
