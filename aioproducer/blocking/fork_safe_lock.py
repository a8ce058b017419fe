"""`ForkSafeLock`: a lock of an object that a forked child may still use."""

from __future__ import annotations

import threading
from weakref import WeakSet

from aioproducer._util.forks import at_fork


class ForkSafeLock:
    """A lock that is free in a forked child: the thread that held it does not exist there.

    Its owner can take it again, as in a signal handler that interrupts the lock's block.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_locks: WeakSet[ForkSafeLock] = WeakSet()


def _after_fork_in_child() -> None:
    for each in list(_locks):
        each._lock = threading.RLock()


at_fork(after_in_child=_after_fork_in_child)
