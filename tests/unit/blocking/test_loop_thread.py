"""The thread of a blocking producer, and those that wait for it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from aioproducer._util import log
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


def test_a_call_of_a_signal_handler_within_the_block_of_the_lock_ends(thread: LoopThread) -> None:
    async def take() -> int:
        with thread.lock:
            return 1

    with thread.lock:  # as `send()` has when the handler interrupts it
        assert thread.call(take()) == 1


def test_a_call_given_up_while_the_thread_is_blocked_says_that_it_may_take_effect(
    thread: LoopThread,
) -> None:
    is_over, done = threading.Event(), threading.Event()

    async def send() -> None:
        is_over.wait()
        done.set()

    with pytest.raises(KafkaTimeoutError) as caught:
        thread.call(send())
    assert caught.value.persistence is Persistence.POSSIBLY_PERSISTED
    is_over.set()
    assert done.wait(10.0)


def test_a_call_that_takes_long_is_waited_for_while_the_loop_turns(thread: LoopThread) -> None:
    thread.call(asyncio.sleep(2.5))


def test_an_outcome_that_was_there_before_the_loop_ended_is_not_waited_for(
    thread: LoopThread,
) -> None:
    future = thread.begin(_return(3))
    thread.stop(10.0)
    began = time.perf_counter()
    assert thread.outcome_of(future) == 3
    assert time.perf_counter() - began < 0.5  # a check of the loop is made once a second


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


def test_a_thread_is_alive_although_its_is_alive_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupted(threading.Thread):
        def is_alive(self) -> bool:
            return False  # as CPython 3.12 answers then, although the thread runs

    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", Interrupted)
        thread = LoopThread("test")
        thread.start()
    assert thread.call(_return(1)) == 1
    thread.stop(10.0)
    assert not thread.is_alive


def test_a_line_of_the_thread_does_not_wait_for_a_handler_that_waits_for_the_thread(
    thread: LoopThread,
) -> None:
    called, written = threading.Event(), threading.Event()

    class Sending(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.threadName == "test":
                written.set()
            else:
                thread.call(log_line())
                called.set()

    async def log_line() -> None:
        logger.warning("in the thread")

    logger, handler = log.get("net"), Sending()
    logger.addHandler(handler)
    try:
        logger.warning("the handler calls the thread, which logs")
        assert called.is_set()
        assert written.wait(10.0)
    finally:
        logger.removeHandler(handler)


class LoopWithGreenlets(asyncio.SelectorEventLoop):
    """Runs what another greenlet would while this loop's own waits, as gevent does."""

    def __init__(self, first_turn: Callable[[], None], closing: Callable[[], None]) -> None:
        super().__init__()
        self._next_turn = [first_turn]
        self._closing = closing

    def _run_once(self) -> None:
        if self._next_turn:
            self._next_turn.pop()()
        super()._run_once()  # type: ignore[misc]

    async def shutdown_asyncgens(self) -> None:
        self._next_turn.append(self._closing)
        await asyncio.sleep(0)
        await super().shutdown_asyncgens()


def nothing() -> None:
    pass


def test_a_loop_is_shared_from_its_first_turn_on(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = LoopThread("first"), LoopThread("second")

    def begin_second() -> None:
        running = asyncio._get_running_loop()

        def run() -> None:
            asyncio._set_running_loop(running)
            second._run()

        second._thread = threading.Thread(target=run, daemon=True)
        second._thread.start()
        second._ready.wait(0.1)  # it is refused at once, or waits for the loop

    monkeypatch.setattr(asyncio, "new_event_loop", lambda: LoopWithGreenlets(begin_second, nothing))
    first.start()
    assert second._ready.wait(10.0)
    assert second.call(_return(1)) == 1
    second.stop(10.0)
    first.stop(10.0)


def test_a_thread_that_begins_while_the_shared_loop_is_closed_gets_a_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = LoopThread("first"), LoopThread("second")

    class Closing(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            asyncio._set_running_loop(None)  # the other greenlet's part: it ends its loop
            return True

    def begin_second() -> None:
        running = asyncio._get_running_loop()
        assert first._host is not None
        first._host.has_ended = Closing()
        second._run()
        asyncio._set_running_loop(running)

    loops = iter([LoopWithGreenlets(nothing, begin_second), LoopWithGreenlets(nothing, nothing)])
    monkeypatch.setattr(asyncio, "new_event_loop", lambda: next(loops))
    first.start()
    second._thread = thread = first._thread
    assert thread is not None
    first.post(lambda: first._end.set() if first._end else None)
    assert second._ready.wait(10.0)
    assert second.call(_return(2)) == 2
    second.stop(0.0)
    thread.join(10.0)
    assert not thread.is_alive()
