"""Blocking calls outside the event loop's thread: `in_thread`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(call: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> T:
    """Make a blocking call as `asyncio.to_thread` does; at the interpreter's exit make it here.

    Threads accept no more work then, while blocking producers still deliver their records.
    """
    work = partial(copy_context().run, call, *args, **named)
    try:
        result = asyncio.get_running_loop().run_in_executor(None, work)
    except RuntimeError:
        return work()
    return await result
