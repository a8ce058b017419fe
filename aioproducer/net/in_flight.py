"""A request between its first byte and its answer.

Owns: what a connection remembers of it, how its end is told. Must not know: sockets, frames, when
it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aioproducer.errors import KafkaError
from aioproducer.wire.schema import Message

OnEnd = Callable[["asyncio.Future[Message | None]"], None]


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """A request that is on its way, or not yet answered.

    Attributes:
        kind: the message's class.
        buffers: kept alive until it is answered.
        end: of its last byte in what the connection has written, from the first byte on.
        sent_at: loop time, seconds, as `deadline`.
        future: done with the answer.
        on_end: told the future once it is done.
    """

    kind: type[Message]
    version: int
    correlation_id: int
    buffers: Sequence[bytes | memoryview]
    end: int
    sent_at: float
    deadline: float
    future: asyncio.Future[Message | None]
    on_end: OnEnd | None

    def finish_soon(self, loop: asyncio.AbstractEventLoop, error: KafkaError | None) -> None:
        """Ends it for whoever is in the middle of something that `on_end` may look at."""
        if not self.future.done():
            if error is None:
                self.future.set_result(None)
            else:
                self.future.set_exception(error)
        if self.on_end is not None:
            loop.call_soon(self.tell)

    def tell(self) -> None:
        """Calls `on_end`."""
        if self.on_end is not None:
            self.on_end(self.future)
