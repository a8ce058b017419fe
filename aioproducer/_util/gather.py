"""Waits for several coroutines at once, and leaves none running."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any


async def together(*works: Awaitable[Any]) -> list[Any]:
    """Return the results in order; wait for all, then raise the first failure.

    Unlike `asyncio.gather`, which leaves the others running, and `TaskGroup`, which cancels them.
    """
    done = await asyncio.gather(*works, return_exceptions=True)
    for each in done:
        if isinstance(each, BaseException):
            raise each
    return done
