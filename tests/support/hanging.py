"""Functions of users that do not return for long."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

_HANGS_S = 10


class Hanging:
    """A function that hangs until `check_that_the_loop_ends` has given its call up."""

    def __init__(self) -> None:
        self._goes_on = threading.Event()

    def __call__(self, *_: object) -> bool:
        return self._goes_on.wait(_HANGS_S)

    def check_that_the_loop_ends(self, ask: Callable[[], Awaitable[Any]]) -> None:
        """Give up what `ask` returns, which calls this: the event loop then ends at once."""

        async def give_up() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ask(), 0.01)

        began = time.monotonic()
        asyncio.run(give_up())
        self._goes_on.set()
        assert time.monotonic() - began < _HANGS_S / 2
