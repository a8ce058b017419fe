"""The producers that live in this process: what a fork and the interpreter's exit do to them.

Owns: the list of those that were started and not closed. Must not know: how one is closed.

Invariant: at exit each has its `exit_timeout`; closing runs after all threads but daemons have
ended, so nobody who sends in one of those is cut off.
"""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
from typing import Protocol


class Living(Protocol):
    """What is kept here."""

    @property
    def exit_timeout(self) -> float:
        """Seconds it may take at exit."""

    def close(self, timeout: float | None = None) -> None:
        """Ends it."""

    def after_fork_in_child(self) -> None:
        """It is the parent's from now on."""


live: set[Living] = set()


def _after_fork_in_child() -> None:
    for each in live:
        each.after_fork_in_child()
    live.clear()


def _close_all() -> None:
    for each in list(live):
        with suppress(Exception):  # its records' failures have been reported
            each.close(each.exit_timeout)


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_close_all)
