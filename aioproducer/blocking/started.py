"""The thread of a started producer and what runs in it, without the `Producer` that callers hold.

It ends both: on `close()`, when the `Producer` was dropped, and at the interpreter's exit.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from aioproducer.blocking import live_producers
from aioproducer.blocking.loop_thread import LoopThread
from aioproducer.errors import ProducerClosedError


class Closing(Protocol):
    """The objects in the thread."""

    async def close(self, timeout: float | None) -> None:
        """Deliver what was handed over, at most for `timeout` seconds, and release everything."""


AnyLoopSide = TypeVar("AnyLoopSide", bound=Closing)


class Started(Generic[AnyLoopSide]):
    """The thread of a started producer; in `live_producers.live` until it has ended."""

    def __init__(self, thread: LoopThread, loop_side: AnyLoopSide, exit_timeout: float) -> None:
        self.loop_side: AnyLoopSide = loop_side
        self.exit_timeout: float = exit_timeout
        self._thread = thread
        live_producers.add(self)

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
                live_producers.live.discard(self)

        return end

    def close_soon(self) -> None:
        """Do the same in the thread, while the caller goes on; from any thread."""

        async def close() -> None:
            try:
                await self.loop_side.close(None)
            finally:
                live_producers.live.discard(self)

        self._thread.end_after(close())

    def after_fork_in_child(self) -> None:
        """Stop using the thread in a forked child: it is the parent's."""
        self._thread.after_fork_in_child()
