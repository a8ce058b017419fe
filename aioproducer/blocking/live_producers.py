"""The running producers of this process; they are closed at its exit, and dropped after a fork.

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
from contextlib import suppress
from typing import Protocol

from aioproducer._util.forks import at_fork


class LiveProducer(Protocol):
    """An object in the list."""

    @property
    def exit_timeout(self) -> float:
        """Seconds it may take at exit."""

    def begin_close(self, timeout: float | None) -> Callable[[], None]:
        """Begin to end it, in its own thread; what is returned waits for the end."""

    def after_fork_in_child(self) -> None:
        """Drop the parent's thread and connections in a forked child."""


live: set[LiveProducer] = set()
_LAST = -1000
"""The priority of a finalizer that runs after those of the application."""
_child_of_multiprocessing = 0
"""The process, one of `multiprocessing`, in which the exit was arranged; 0 for none."""


def add(producer: LiveProducer) -> None:
    """Close this one at the exit of the process, unless it is discarded from `live` before."""
    live.add(producer)
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
