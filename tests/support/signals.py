"""Signals at a point of our choice: a handler is called wherever CPython would call one.

That is at the start of a function, and after a call of one that is written in C.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


class SignalAt:
    """Calls a handler at one point of a `with` block, the first one being 1.

    Attributes:
        is_handled: whether the block has that many points.
    """

    def __init__(
        self,
        point: int,
        handler: Callable[[], object],
        *,
        events: tuple[str, ...] = ("call", "c_return"),
        counts: Callable[[FrameType], bool] = lambda frame: True,
    ) -> None:
        """Only the `events` of frames that `counts` chooses are points."""
        self.is_handled: bool = False
        self._left = point
        self._handler = handler
        self._events = events
        self._counts = counts
        # Kept: CPython 3.11 has called one that was freed, as it sets none inside of the call.
        self._profile = self._on_event

    def __enter__(self) -> SignalAt:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, argument: object) -> None:
        if event in self._events and self._counts(frame):
            self._left -= 1
            if not self._left:
                sys.setprofile(None)
                self.is_handled = True
                self._handler()


def interrupt() -> None:
    """Raise what Ctrl-C raises."""
    raise KeyboardInterrupt
