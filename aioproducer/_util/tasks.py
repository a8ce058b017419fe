"""Tasks whose creator has noted them before they run."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


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
