"""The running producers of this process; they are closed at its exit, and dropped after a fork.

Owns: the list of those that were started and not closed. Not here: how one is closed.

Invariant: at exit all close at the same time, each within its `exit_timeout`, so that the longest
one bounds them all; closing runs after all threads but daemons have ended, so that no record that
such a thread sends is cut off.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol


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


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_close_all)
