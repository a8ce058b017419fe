"""One event loop in a daemon thread.

Invariants
- Every wait checks every `_CHECK_INTERVAL_S` whether the thread runs: a dead loop blocks no caller.
  A loop that does not turn blocks none for longer than its `stall_timeout_s`: a callback or a log
  handler may wait for a lock that the caller holds.
- `lock` can be taken again by its owner, since a signal handler may send in the middle of a send. A
  handler that waits, as by `flush()`, releases it meanwhile: the loop may need it.
- An interrupted wait cancels its coroutine, unless the call says that it must go on.
- With gevent and eventlet, all threads are one thread of the system, in which one loop can run: the
  first `LoopThread` is the host of the others, and its loop ends after all of them have ended.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401  # at the interpreter's exit it cannot be imported
import logging
import threading
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from concurrent.futures import wait as wait_for_futures
from math import inf
from typing import Any, TypeVar

from aioproducer import errors
from aioproducer._util import log
from aioproducer._util.clock import SystemClock, use_system_clock
from aioproducer._util.threads import OneTimeEvent, Reentrant, released
from aioproducer.config import ProducerConfig
from aioproducer.runtime.tasks.closing import silence, tasks_named
from aioproducer.types import Persistence

T = TypeVar("T")

_CHECK_INTERVAL_S = 1.0
_LEAST_STALL_TIMEOUT_S = 10.0


class _Host:
    """The loop of one thread, as its guests share it.

    Attributes:
        takes_guests: the loop goes on; not while it is closed.
        has_ended: the loop is closed.
    """

    def __init__(self) -> None:
        self.takes_guests = True
        self.has_ended = threading.Event()
        self._ident = threading.get_ident()
        self._guests: set[Future[None]] = set()

    @property
    def is_here(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.get_ident() == self._ident

    @property
    def has_guests(self) -> bool:
        """Whether the loop goes on when its thread's work has ended."""
        return bool(self._guests)

    async def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run the work of the thread itself, then wait for the guests."""
        try:
            await main
            while self._guests:
                await asyncio.wait([asyncio.wrap_future(each) for each in self._guests])
        finally:
            self.takes_guests = False

    def run_guest(self, main: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> None:
        """Run the work of another thread, and wait for its end."""
        guest = asyncio.run_coroutine_threadsafe(main, loop)
        self._guests.add(guest)
        guest.add_done_callback(self._guests.discard)
        wait_for_futures((guest,))


_hosts: dict[asyncio.AbstractEventLoop, _Host] = {}


class LoopThread:
    """Runs coroutines for other threads.

    Args:
        name: the thread's name.
        stall_timeout_s: how long a call waits while the loop does not turn; see `stall_timeout`.

    Attributes:
        lock: guards what threads and the loop share; held for some instructions at a time.
        forked: this is a child process, which has no such thread.
        warns: whether a call that holds up another event loop warns; only the first one does.
    """

    def __init__(self, name: str, *, stall_timeout_s: float = inf) -> None:
        self.lock: Reentrant = threading.RLock()
        self.forked: bool = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end = asyncio.Event()
        self._stops = False
        self._ident: int | None = None
        self._last: asyncio.Future[object] | None = None
        self.warns: bool = True
        self._ready = OneTimeEvent()
        self._name = name
        self._stall_timeout_s = stall_timeout_s
        self._checked_at = -inf
        self._unanswered = 0
        """Number of checks since the loop has turned; a stopped process makes none."""
        self._thread: threading.Thread | None = None
        self._host: _Host | None = None
        """None if it runs in the event loop of another producer (gevent, eventlet)."""
        self._has_ended = False

    def start(self) -> None:
        """Return when the loop runs."""
        # Made here: after a fork CPython takes every thread that existed for one that has ended.
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        thread.start()
        self._thread = thread
        while not self._ready.wait(_CHECK_INTERVAL_S):
            self.check_alive()
        if self._loop is None:
            raise errors.IllegalStateError(
                "no event loop can run in a new thread: one runs already in the thread of the "
                "system that both share, as gevent and eventlet make threads",
                advice="run no event loop beside the blocking producers of the process",
            )

    def stop(self, timeout: float = 5.0) -> None:
        """End the loop and wait for the thread, at most `timeout` seconds."""
        self._stops = True  # its loop may not run yet, if `start` was interrupted
        self.post(self._end.set)
        goes_on = self._host is not None and self._host.has_guests
        if self._thread is not None and not goes_on:
            self._thread.join(timeout)

    @property
    def is_here(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.get_ident() == self._ident and not self.forked

    @property
    def is_alive(self) -> bool:
        """Whether it was started in this process and has not ended."""
        # Not `Thread.is_alive()`: if an exception interrupts that, CPython before 3.13 takes the
        # thread for ended.
        return self._thread is not None and not self._has_ended and not self.forked

    def post(self, callback: Callable[[], object]) -> bool:
        """Run a callback in the loop, soon; False when the loop has ended."""
        if self._loop is None or self.forked:
            return False
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            return False
        return True

    def call(
        self,
        work: Coroutine[Any, Any, T],
        *,
        goes_on: bool = False,
        beside: Callable[[], object] | None = None,
        on_end: Callable[[], object] | None = None,
    ) -> T:
        """Run a coroutine with a time limit in the loop, and wait for its end.

        With `goes_on` it runs to its end if the wait is interrupted. This thread calls `beside`
        meanwhile; `on_end` is called as soon as the coroutine has ended.
        """
        future = self.begin(work)
        if on_end is not None:
            self._when_done(future, on_end)
        try:
            if beside is not None:
                beside()
            return self.outcome_of(future)
        except BaseException:
            if not goes_on:
                future.cancel()
            raise

    def outcome_of(self, future: Future[T]) -> T:
        """Wait for what was begun; raise if the thread ends before."""
        done = OneTimeEvent()
        if not self._when_done(future, done.set) and future.done():  # and its loop is closed
            done.set()
        while not self.wait(done.wait, None) and not future.done():
            self.check_alive()
        try:
            return future.result()
        except CancelledError:
            if not self._end.is_set():
                raise
        raise _ended()  # the loop has cancelled what was left

    def _when_done(self, future: Future[T], call: Callable[[], object]) -> bool:
        """Have the loop add a callback: it waits if this thread is interrupted while adding one.

        Return whether the loop can.
        """
        return self.post(lambda: future.add_done_callback(lambda _: call()))

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the loop; `outcome_of` waits for its end."""
        try:
            self.check_may_wait()
            self.check_alive()
            if self._loop is None or self._loop.is_closed():
                raise _ended()
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException:
            work.close()
            raise

    def end_after(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine, then end the loop; wait for neither. Call it in any thread."""

        def begin() -> None:
            self._last = asyncio.ensure_future(work)
            self._last.add_done_callback(lambda _: self._end.set())

        if not self.post(begin):
            work.close()

    def wait(self, waiting: Callable[[float], bool], timeout: float | None) -> bool:
        """Wait once with `waiting(seconds)`, at most until the next check of the loop."""
        limit = _CHECK_INTERVAL_S if timeout is None else max(0.0, min(timeout, _CHECK_INTERVAL_S))
        with released(self.lock):
            is_over = waiting(limit)
        if not is_over:
            self._check_turns()
        return is_over

    def check_alive(self) -> None:
        """Raise when the thread will never answer."""
        if self.forked:
            raise errors.ForkedError(
                "this producer was started before fork(); its thread is the parent's",
                advice="create a producer in each process after the fork",
            )
        if not self.is_alive:
            raise _ended()

    def _check_turns(self) -> None:
        """Raise when the loop has not turned for too long."""
        now = SystemClock.monotonic()
        if now - self._checked_at < _CHECK_INTERVAL_S:
            return
        self._checked_at = now
        self._unanswered += 1
        self.post(self._on_turn)
        if (self._unanswered - 1) * _CHECK_INTERVAL_S >= self._stall_timeout_s:
            raise errors.KafkaTimeoutError(
                f"the producer's thread has been blocked for {self._stall_timeout_s:g} s, as by a "
                "callback or a log handler; the call may take effect later",
                advice="hold no lock during the call that callbacks or log handlers wait for",
                persistence=Persistence.POSSIBLY_PERSISTED,
            )

    def _on_turn(self) -> None:
        self._unanswered = 0

    def check_may_wait(self) -> None:
        """Raise in the loop's own thread; warn once in another loop's thread, which it blocks."""
        if self.is_here:
            raise errors.IllegalStateError(
                "a callback of the producer cannot wait for it: both run in the same thread",
                advice="do it in another thread",
            )
        running = asyncio._get_running_loop()
        if running is None or running is self._loop or not self.warns:
            return
        host = _hosts.get(running)  # with gevent and eventlet, it runs in the caller's thread
        if host is None or host.is_here:
            self.warns = False
            warnings.warn(
                "the blocking producer holds up the event loop that runs in this thread; "
                "use aioproducer.Producer there, or call this one in asyncio.to_thread()",
                RuntimeWarning,
                stacklevel=4,
            )

    def after_fork_in_child(self) -> None:
        """Replace the lock, which a thread that does not exist here may have held."""
        self.forked = True
        self.lock = threading.RLock()
        if self._loop is not None:
            silence(tasks_named(self._loop))

    def _run(self) -> None:
        log.never_wait_for_handlers()
        try:
            self._run_loop()
        finally:
            self._has_ended = True

    def _run_loop(self) -> None:
        while (running := asyncio._get_running_loop()) is not None:
            host = _hosts.get(running)
            if host is None:
                self._ready.set()
                return
            if host.takes_guests:
                host.run_guest(self._main(), running)
                return
            host.has_ended.wait()
        loop = _new_loop()
        use_system_clock(loop)
        self._host = _hosts[loop] = _Host()  # before its first turn, in which others may run
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                _run_to_end(runner.get_loop().create_task(self._host.run(self._main())))
        except RuntimeError:
            # At the exit of CPython 3.12, asyncio cannot start the thread that ends its others.
            if threading.main_thread().is_alive():
                raise
        finally:
            del _hosts[loop]
            self._host.has_ended.set()

    async def _main(self) -> None:
        self._ident = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self._ready.set()
        if not self._stops:
            await self._end.wait()


def _run_to_end(work: asyncio.Task[None]) -> None:
    """Run the loop until the work ends, even if a callback raises SystemExit.

    asyncio ends a loop by that. In this thread it would end the producer, but not the process.
    """
    while not work.done():
        try:
            work.get_loop().run_until_complete(work)
        except (SystemExit, KeyboardInterrupt):
            log.get("producer").critical(
                "a callback raised an exception that ends no process in the producer's thread; "
                "the producer goes on",
                exc_info=True,
            )


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop, without asyncio's log line about it.

    `start()` waits for the loop. If a log handler calls it, the line would wait for that handler.
    """
    ident = threading.get_ident()

    def is_other_thread(record: logging.LogRecord) -> bool:
        return record.thread != ident

    logger = logging.getLogger("asyncio")
    logger.addFilter(is_other_thread)
    try:
        return asyncio.new_event_loop()
    finally:
        logger.removeFilter(is_other_thread)


def stall_timeout(config: ProducerConfig) -> float:
    """Return the seconds after which calls of a producer fail while its thread is blocked."""
    return max(config.max_block_ms / 1000, _LEAST_STALL_TIMEOUT_S)


def _ended() -> errors.ProducerClosedError:
    return errors.ProducerClosedError("the producer's thread has ended")
