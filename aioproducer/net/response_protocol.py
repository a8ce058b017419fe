"""Answers handled where they are read: a protocol between a transport and its streams.

Owns: what of the bytes that came is taken at once, and what is left to the streams. Must not know:
frames, requests, errors.

A stream costs its reader a task, and every answer a turn of the loop until that task runs. So the
connection is shown first what came, and takes what it can use up on the spot; the rest goes where
it would have gone. Flow control, the end of the stream and errors are the streams' as ever.

asyncio's own transports are given room to read into. They would make some for each answer of a
hundred bytes, 256 KiB, which the allocator gets from the system and gives back: 12 us of 14.

Invariants: bytes are never seen out of order: while the streams hold some that their reader has not
read, all that comes goes there as well; a transport whose protocol cannot be changed keeps it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_ROOM_BYTES = 64 * 1024


class FrameTap(asyncio.Protocol):
    """Shows what is received to `take` before the streams get it.

    Args:
        streams: the protocol so far.
        take: says how many of the bytes it has used, from the first one on.

    Attributes:
        unread: bytes that the streams have got and their reader has not.
    """

    def __init__(self, streams: asyncio.Protocol, take: Callable[[bytes], int]) -> None:
        self.unread: int = 0
        self._streams = streams
        self._take = take

    @classmethod
    def on(
        cls,
        transport: asyncio.BaseTransport,
        take: Callable[[bytes], int],
        loop: asyncio.AbstractEventLoop,
    ) -> FrameTap | None:
        """Puts one in, as it suits the transports of the loop; None where that is impossible."""
        try:
            streams = transport.get_protocol()
            if not isinstance(streams, asyncio.Protocol):
                return None
            tap = (_RoomyTap if isinstance(loop, asyncio.BaseEventLoop) else cls)(streams, take)
            transport.set_protocol(tap)
        except NotImplementedError:
            return None
        return tap

    def data_received(self, data: bytes) -> None:
        """Called by the transport."""
        taken = 0 if self.unread else self._take(data)
        if taken < len(data):
            rest = data[taken:] if taken else data
            self.unread += len(rest)
            self._streams.data_received(rest)

    def eof_received(self) -> bool | None:
        """Called by the transport."""
        return self._streams.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the transport."""
        if exc is not None:
            # Of a write that failed: the frames of its callers keep what they sent, such as a batch
            # that nobody awaits, and the streams keep the error as long as the broker is away.
            exc.__traceback__ = None
        self._streams.connection_lost(exc)

    def pause_writing(self) -> None:
        """Called by the transport."""
        self._streams.pause_writing()

    def resume_writing(self) -> None:
        """Called by the transport."""
        self._streams.resume_writing()


class _RoomyTap(FrameTap, asyncio.BufferedProtocol):
    """One with room for what asyncio's transports receive; not all others can change over to it."""

    def __init__(self, streams: asyncio.Protocol, take: Callable[[bytes], int]) -> None:
        super().__init__(streams, take)
        self._room = memoryview(bytearray(_ROOM_BYTES))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the transport; with TLS the hint is what has come encrypted.

        That has to go in at once: at the end of a connection TLS reads once and drops the rest.
        """
        if sizehint > len(self._room):
            self._room = memoryview(bytearray(sizehint))
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the transport."""
        self.data_received(bytes(self._room[:nbytes]))
