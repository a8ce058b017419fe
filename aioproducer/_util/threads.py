"""Blocking calls outside the event loop's thread: `in_thread`; `OwnThreads` if they may hang.

Also here: waits that signal handlers may make or interrupt (`released`, `OneTimeEvent`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import copy_context
from functools import partial
from threading import Lock, Thread
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(call: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> T:
    """Make a blocking call as `asyncio.to_thread` does; at the interpreter's exit make it here.

    Threads accept no more work then, while blocking producers still deliver their records.
    """
    work = partial(copy_context().run, for_future(call), *args, **named)
    try:
        result = asyncio.get_running_loop().run_in_executor(None, work)
    except RuntimeError:
        return work()
    return await result


def for_future(call: Callable[P, T]) -> Callable[P, T]:
    """Return a call whose exception a future may have.

    StopIteration ends no future before CPython 3.12; CancelledError, as of `result()` of a
    cancelled future, would cancel the waiting task.
    """

    def made(*args: P.args, **named: P.kwargs) -> T:
        try:
            return call(*args, **named)
        except (StopIteration, asyncio.CancelledError) as error:
            raise RuntimeError(f"the call raised {type(error).__name__}") from error

    return made


class OwnThreads:
    """Threads for calls that may hang, such as name resolution, at most `most` at a time.

    Threads of the loop's pool would keep other calls of the application waiting, and delay the end
    of the process until the last call has returned.
    """

    def __init__(self, most: int = 8) -> None:
        self._free = asyncio.Semaphore(most)

    async def run(self, call: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> T:
        """Make a blocking call; at the interpreter's exit make it here, as `in_thread` does."""
        loop = asyncio.get_running_loop()
        await self._free.acquire()
        future: asyncio.Future[T] = loop.create_future()

        def end(finish: Callable[[], None]) -> None:
            self._free.release()
            if not future.done():
                finish()

        def work() -> None:
            try:
                finish = partial(future.set_result, for_future(call)(*args, **named))
            except BaseException as error:
                finish = partial(future.set_exception, error)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(end, finish)

        try:
            Thread(target=work, name="aioproducer-call", daemon=True).start()
        except RuntimeError:
            self._free.release()
            return call(*args, **named)
        return await future


class Reentrant(AbstractContextManager[object], Protocol):
    """A lock that its owner can take again, such as `threading.RLock()`."""

    def acquire(self) -> bool:
        """Take it."""

    def release(self) -> None:
        """Release it once; raise RuntimeError unless this thread has it."""


@contextmanager
def released(lock: Reentrant) -> Iterator[None]:
    """Release a lock while this thread waits in the block.

    It only has the lock in a signal handler that has interrupted the lock's block.
    """
    held = 0
    with suppress(RuntimeError):
        while True:
            lock.release()
            held += 1
    try:
        yield
    finally:
        for _ in range(held):
            lock.acquire()


class OneTimeEvent:
    """An event that is set once, by one thread.

    `threading.Event.set()` waits while a signal handler runs in the middle of another thread's
    `wait()`, and the handler may wait for the thread that sets it.
    """

    __slots__ = ("_is_set", "_lock")

    def __init__(self) -> None:
        self._is_set = False
        self._lock = Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Let all threads go on; no effect if it is called again."""
        if not self._is_set:
            self._is_set = True
            self._lock.release()

    def wait(self, timeout: float) -> bool:
        """Return whether it is set, after at most `timeout` seconds."""
        if self._lock.acquire(timeout=timeout):
            self._lock.release()
        return self._is_set
