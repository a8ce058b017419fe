"""A blocking serializer, sent to a thread.

Owns: the hand-over. Must not know: what the serializer does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from aioproducer.serializers.protocol import SerializationContext, Serializer


class ThreadedSerializer:
    """See `in_thread`."""

    def __init__(
        self, serializer: Serializer | Callable[[Any], bytes | None], executor: Executor | None
    ) -> None:
        self._serializer = serializer
        self._executor = executor

    async def serialize(self, data: Any, context: SerializationContext) -> bytes | None:
        """See `Serializer`."""
        loop = asyncio.get_running_loop()
        if isinstance(self._serializer, Serializer):
            work: Callable[[], Any] = lambda: self._serializer.serialize(data, context)  # type: ignore[union-attr]  # noqa: E731
        else:
            work = lambda: self._serializer(data)  # type: ignore[operator]  # noqa: E731
        made = await loop.run_in_executor(self._executor, work)
        return made if made is None or isinstance(made, bytes) else await made


def in_thread(
    serializer: Serializer | Callable[[Any], bytes | None], executor: Executor | None = None
) -> Serializer:
    """A serializer that runs another one in a thread, so that it may block.

    `send_nowait` cannot use it, since it always waits. When the wait is given up, after
    `max_block_ms` or by a cancellation, the thread still runs to its end.

    Args:
        serializer: what to run, or a function of the data.
        executor: where; the loop's default threads when left out.
    """
    return ThreadedSerializer(serializer, executor)
