"""Cleanup at the end of a producer: closing `UserObjects`, silencing tasks without a loop."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aioproducer._util import log
from aioproducer._util.printable import repr_of
from aioproducer._util.tasks import HOOK_ERRORS, is_cancellation

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig

_log = log.get("runtime")


class UserObjects:
    """The key's and the value's serializer and the partitioner, as far as they have a `close()`.

    Their exceptions are logged. An asynchronous `close()` is awaited for `request_timeout_ms`.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._timeout_ms = config.request_timeout_ms
        given = (config.key_serializer, config.value_serializer, config.partitioner)
        different = {id(each): each for each in given if not isinstance(each, str | type)}
        self._open = deque(
            each for each in different.values() if callable(getattr(each, "close", None))
        )

    async def close(self) -> None:
        """Close each object once."""
        while self._open:
            found: Any = self._open.popleft()
            name = type(found).__name__
            try:
                async with asyncio.timeout(self._timeout_ms / 1000) as timeout:
                    result = found.close()
                    if inspect.isawaitable(result):
                        await result
            except TimeoutError as error:
                bound = f"request_timeout_ms={self._timeout_ms}"
                reason = f"took longer than {bound}" if timeout.expired() else repr_of(error)
                _log.error("closing %s: %s", name, reason)
            except HOOK_ERRORS as error:
                if is_cancellation(error):
                    raise
                _log.error("closing %s: %s", name, repr_of(error), exc_info=error)


def tasks_named(loop: asyncio.AbstractEventLoop, prefix: str = "") -> list[asyncio.Task[Any]]:
    """Return the pending tasks of a loop whose names begin with `prefix`."""
    return [task for task in asyncio.all_tasks(loop) if task.get_name().startswith(prefix)]


def silence(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Keep asyncio from reporting that tasks are destroyed while they are pending.

    They will never run again: their loop is closed, or runs in the parent of this process.
    """
    for task in tasks:
        with suppress(AttributeError):  # a task factory's own kind may lack it
            task._log_destroy_pending = False  # type: ignore[attr-defined]
