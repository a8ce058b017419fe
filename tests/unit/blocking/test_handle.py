"""The outcome of a record, as threads wait for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aioproducer.blocking.handle import DeliveryHandle
from aioproducer.blocking.loop_thread import LoopThread


class _EndsMeanwhile:
    """A delivery that fails, as its producer is closed, right after a thread has asked for it."""

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread

    def done(self) -> bool:
        if not self._thread.is_alive:
            return True
        self._thread.stop()
        return False

    def add_done_callback(self, callback: Callable[[object], object]) -> None:
        """Call nothing, as a delivery whose loop is closed."""


def test_a_callback_that_is_added_while_the_thread_ends_is_called() -> None:
    thread = LoopThread("test")
    thread.start()
    handle = DeliveryHandle(thread)
    delivery: Any = _EndsMeanwhile(thread)
    handle.hand_over(delivery)
    seen: list[object] = []
    handle.add_done_callback(seen.append)
    assert seen == [handle]
