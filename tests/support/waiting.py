"""Waiting for what happens in its own time, with a bound that only a hang reaches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool], *, timeout_s: float = 20.0) -> None:
    """Returns once the condition holds; looks about a hundred times a second.

    Raises:
        TimeoutError: it did not in time.
    """
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event to offer
            await asyncio.sleep(0.01)
