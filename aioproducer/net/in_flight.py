"""A request in flight: its state and its completion."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aioproducer.errors import KafkaError, NodeDisconnectedError, ProducerFailedError
from aioproducer.wire.schema import Message

OnEnd = Callable[[Message | None, KafkaError | None], None]
"""Called with the response or the error; with None twice if no response was expected. It must not
raise: otherwise it is called again with an error."""


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """A request that is being written, or has no response yet.

    Attributes:
        buffers: kept alive until the response.
        deadline: loop time in seconds, as is `sent_at`.
        on_end: called with the outcome, for a response at once (a future's callback runs one loop
            iteration later). Either this or `future` is set.
        end: position of its last byte in the byte stream of the connection.
        recognise: decodes the received bytes if they are exactly a plain response; returns None for
            any other, which is decoded fully. This is faster than decoding.
    """

    kind: type[Message]
    version: int
    correlation_id: int
    buffers: Sequence[bytes | memoryview]
    deadline: float
    on_end: OnEnd | None = None
    future: asyncio.Future[Message | None] | None = None
    end: int = 0
    sent_at: float = 0.0
    is_ended: bool = False
    recognise: Callable[[bytes], Any] | None = None

    def finish(self, answer: Message) -> None:
        """Complete the request with its response; after an exception, its connection ends it."""
        try:
            self.is_ended = True
            if self.on_end is not None:
                self.on_end(answer, None)
            elif self.future is not None and not self.future.done():
                self.future.set_result(answer)
        except BaseException:
            self.is_ended = False
            raise

    def finish_soon(self, loop: asyncio.AbstractEventLoop, error: KafkaError | None) -> None:
        """Complete the request once, without calling `on_end` inside the caller's state change."""
        if self.is_ended:
            return
        if self.on_end is not None:
            # In one line: an exception in between would complete it twice.
            self.is_ended = bool(loop.call_soon(self.on_end, None, error))
        elif self.future is not None and not self.future.done():
            if error is None:
                self.future.set_result(None)
            else:
                self.future.set_exception(error)


def outcome_of(future: asyncio.Future[Message | None]) -> tuple[KafkaError | None, Message | None]:
    """Return the error or the response of a completed request."""
    if future.cancelled():
        return NodeDisconnectedError("the request was cancelled"), None
    error = future.exception()
    if error is not None:
        return error if isinstance(error, KafkaError) else ProducerFailedError(repr(error)), None
    return None, future.result()
