"""A request between its first byte and its answer.

Owns: what a connection remembers of it, how its end is told and read. Must not know: sockets,
frames, when it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aioproducer.errors import KafkaError, NodeDisconnectedError, ProducerFailedError
from aioproducer.wire.schema import Message

OnEnd = Callable[[Message | None, KafkaError | None], None]
"""Is told the answer, or why there is none; None twice where none was to come. Must not raise: it
is called again then, as if there were no answer."""


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """A request that is on its way, or not yet answered.

    Attributes:
        kind: the message's class.
        buffers: kept alive until it is answered.
        deadline: loop time, seconds, as `sent_at`.
        on_end: told the end, of an answer at once: a future's callback is a turn of the loop later.
        future: done with the end; it has one of the two.
        end: of its last byte in what the connection has written, from the first byte on.
        recognise: makes an answer of the bytes that came if they are what most requests of its kind
            get, and nothing else; None for any other, which is decoded. It takes less than that.
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
        """Tells the answer."""
        if self.on_end is not None:
            self.on_end(answer, None)
        elif self.future is not None and not self.future.done():
            self.future.set_result(answer)
        self.is_ended = True  # last: one that an exception cuts off ends with its connection

    def finish_soon(self, loop: asyncio.AbstractEventLoop, error: KafkaError | None) -> None:
        """Ends it, once, for whoever is in the middle of something that `on_end` may look at."""
        if self.is_ended:
            return
        if self.on_end is not None:
            # In one line: an exception between the two would end it twice.
            self.is_ended = bool(loop.call_soon(self.on_end, None, error))
        elif self.future is not None and not self.future.done():
            if error is None:
                self.future.set_result(None)
            else:
                self.future.set_exception(error)


def outcome_of(future: asyncio.Future[Message | None]) -> tuple[KafkaError | None, Message | None]:
    """The error or the answer of a request, whatever ended it."""
    if future.cancelled():
        return NodeDisconnectedError("the request was cancelled"), None
    error = future.exception()
    if error is not None:
        return error if isinstance(error, KafkaError) else ProducerFailedError(repr(error)), None
    return None, future.result()
