"""Several things awaited at once, none of which is left behind.

Owns: that. Must not know: what they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any


async def together(*works: Awaitable[Any]) -> list[Any]:
    """The results, in order; waits for all, then raises what the first that failed did.

    Neither `asyncio.gather`, which leaves the others behind, nor `TaskGroup`, which cancels them.
    """
    done = await asyncio.gather(*works, return_exceptions=True)
    for each in done:
        if isinstance(each, BaseException):
            raise each
    return done
