"""Tasks that start later, waits for several of them, and whose cancellation an exception is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from contextvars import Context
from typing import Any, Final, TypeVar

T = TypeVar("T")

HOOK_ERRORS: Final = (Exception, asyncio.CancelledError)
"""What a plain function of the application may raise: nothing can cancel its call, but it may read
the result of a future that was cancelled."""


def start_later(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, T],
    *,
    name: str,
    context: Context | None = None,
) -> asyncio.Task[T]:
    """Return a task whose first step runs in a later turn of the loop, by default in this context.

    An eager task factory (Python 3.12) would run the first steps within `create_task`, when the
    attribute that is to hold the task does not do so yet.
    """
    return asyncio.Task(work, loop=loop, name=name, context=context)


async def together(*works: Awaitable[Any]) -> list[Any]:
    """Return the results in order; wait for all, then raise the first failure.

    Unlike `asyncio.gather`, which leaves the others running, and `TaskGroup`, which cancels them.
    """
    done = await asyncio.gather(*works, return_exceptions=True)
    for each in done:
        if isinstance(each, BaseException):
            raise each
    return done


def is_cancellation(error: BaseException) -> bool:
    """Return whether an exception is the cancellation of the current task.

    Else a `CancelledError` is of something that was awaited, which another task has cancelled.
    """
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling() > 0)
