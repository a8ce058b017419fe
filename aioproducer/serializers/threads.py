"""A blocking serializer, sent to a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any

from aioproducer._util import threads
from aioproducer.serializers.calling import SerializerFunction, call_of
from aioproducer.serializers.protocol import SerializationContext, Serializer


class ThreadedSerializer:
    """See `in_thread`."""

    def __init__(
        self, serializer: Serializer | SerializerFunction, executor: Executor | None
    ) -> None:
        self._call = call_of(serializer)
        self._close = getattr(serializer, "close", None)
        self._executor = executor

    async def serialize(self, data: Any, context: SerializationContext) -> Any:
        """See `Serializer`."""
        made = await self._run(self._call, data, context)
        return await made if isinstance(made, Awaitable) else made

    async def close(self) -> None:
        """Close the serializer, in a thread as well."""
        if self._close is not None:
            closed = await self._run(self._close)
            if isinstance(closed, Awaitable):
                await closed

    async def _run(self, call: Callable[..., Any], *arguments: object) -> Any:
        if self._executor is None:
            return await threads.in_thread(call, *arguments)
        call = threads.for_future(call)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call, *arguments)


def in_thread(
    serializer: Serializer | SerializerFunction, executor: Executor | None = None
) -> Serializer:
    """Return a serializer that runs another one in a thread, so that it may block.

    `send_nowait` cannot use it, since it always waits. When the wait is given up, after
    `max_block_ms` or by a cancellation, the thread still runs to its end.

    Args:
        serializer: what to run, or a function of the data.
        executor: where; the loop's default threads when left out.
    """
    return ThreadedSerializer(serializer, executor)
