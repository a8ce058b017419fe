"""The thread of a started producer and what runs in it, without the `Producer` that callers hold.

`Started` ends both: on `close()`, when the `Producer` was dropped, and at the exit of the process.

Invariant: at exit all close at the same time, each within its `exit_timeout`, so that the longest
one bounds them all; closing runs after all threads but daemons have ended, so that no record that
such a thread sends is cut off. The end of a process of `multiprocessing` is an exit, too.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from aioproducer._util.forks import at_fork
from aioproducer.blocking.loop_thread import LoopThread
from aioproducer.errors import ProducerClosedError


class Closing(Protocol):
    """The objects in the thread."""

    async def close(self, timeout: float | None) -> None:
        """Deliver what was handed over, at most for `timeout` seconds, and release everything."""


AnyLoopSide = TypeVar("AnyLoopSide", bound=Closing)


class Started(Generic[AnyLoopSide]):
    """The thread of a started producer; in `live` until it has ended.

    At the exit of the process it may take `exit_timeout` seconds.
    """

    def __init__(self, thread: LoopThread, loop_side: AnyLoopSide, exit_timeout: float) -> None:
        self.loop_side: AnyLoopSide = loop_side
        self.exit_timeout: float = exit_timeout
        self._thread = thread
        _add(self)

    def close(self, timeout: float | None = None) -> None:
        """Deliver what was handed over, and end the thread; may be called again."""
        self.begin_close(timeout)()

    def begin_close(self, timeout: float | None) -> Callable[[], None]:
        """Begin `close`; what is returned waits for its end."""
        closing: Future[None] | None = None
        with suppress(ProducerClosedError):  # the thread has ended: nothing is left to do
            closing = self._thread.begin(self.loop_side.close(timeout))

        def end() -> None:
            try:
                if closing is not None:
                    with suppress(ProducerClosedError):
                        self._thread.outcome_of(closing)
            finally:
                self._thread.stop()
                live.discard(self)

        return end

    def close_soon(self) -> None:
        """Do the same in the thread, while the caller goes on; from any thread."""

        async def close() -> None:
            try:
                await self.loop_side.close(None)
            finally:
                live.discard(self)

        self._thread.end_after(close())

    def after_fork_in_child(self) -> None:
        """Stop using the thread in a forked child: it is the parent's."""
        self._thread.after_fork_in_child()


live: set[Started[Any]] = set()
"""The objects of this process that have not ended."""
_LAST = -1000
"""The priority of a finalizer that runs after those of the application."""
_child_of_multiprocessing = 0
"""The process, one of `multiprocessing`, in which the exit was arranged; 0 for none."""


def _add(started: Started[Any]) -> None:
    live.add(started)
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        _arrange_exit_in_child()


def _arrange_exit_in_child() -> None:
    """Let the end of a child of `multiprocessing` close its producers.

    It ends by `os._exit` where it was forked: without `atexit` before Python 3.13, and with the
    functions that were registered in the child from then on.
    """
    global _child_of_multiprocessing
    if _child_of_multiprocessing == os.getpid():
        return
    _child_of_multiprocessing = os.getpid()
    atexit.unregister(_close_all)
    atexit.register(_close_all)
    if sys.version_info < (3, 13):
        from multiprocessing import util

        util.Finalize(None, _close_all_after_threads, exitpriority=_LAST)


def _close_all_after_threads() -> None:
    """Close all in another thread, which the process waits for, once no other thread runs."""

    def close() -> None:
        kept = {threading.main_thread(), threading.current_thread()}
        while others := [
            each for each in threading.enumerate() if not each.daemon and each not in kept
        ]:
            for each in others:
                each.join()
        _close_all()

    if live:
        threading.Thread(target=close, name="aioproducer exit", daemon=False).start()


def _after_fork_in_child() -> None:
    for each in live:
        each.after_fork_in_child()
    live.clear()


def _close_all() -> None:
    ends: list[Callable[[], None]] = []
    for each in list(live):
        with suppress(Exception):
            ends.append(each.begin_close(each.exit_timeout))
    for end in ends:
        with suppress(Exception):  # its records' failures have been reported
            end()


at_fork(after_in_child=_after_fork_in_child)
atexit.register(_close_all)
