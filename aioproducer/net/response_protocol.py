"""Protocol between a transport and its streams that handles responses when they are received.

With streams alone every response waits one loop iteration for the reader task. `ResponseProtocol`
offers received bytes to the connection first and passes the rest to the streams. The streams still
handle flow control, the end of the stream and errors.

asyncio's transports get a reusable buffer. Otherwise they allocate 256 KiB for each response of a
hundred bytes, which takes 12 of 14 us.

Invariants: bytes are never handled out of order: while the streams have unread bytes, all received
bytes go there; a transport whose protocol cannot be changed keeps it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_ROOM_BYTES = 64 * 1024


class ResponseProtocol(asyncio.Protocol):
    """Passes received bytes to `on_data` before the streams get them.

    `on_data` returns how many it used, from the first one on. `unread` is the number of bytes that
    the streams have received and their reader has not read.
    """

    def __init__(self, streams: asyncio.Protocol, on_data: Callable[[bytes], int]) -> None:
        self.unread: int = 0
        self._streams = streams
        self._on_data = on_data

    @classmethod
    def on(
        cls,
        transport: asyncio.BaseTransport,
        on_data: Callable[[bytes], int],
        loop: asyncio.AbstractEventLoop,
    ) -> ResponseProtocol | None:
        """Install a protocol that suits the transports of the loop; return None if impossible."""
        try:
            streams = transport.get_protocol()
            if not isinstance(streams, asyncio.Protocol):
                return None
            protocol = (
                _BufferedResponseProtocol if isinstance(loop, asyncio.BaseEventLoop) else cls
            )(streams, on_data)
            transport.set_protocol(protocol)
        except (AttributeError, NotImplementedError):  # not all transports are asyncio's
            return None
        return protocol

    def data_received(self, data: bytes) -> None:
        """Handle a call of the transport."""
        handled = 0 if self.unread else self._on_data(data)
        if handled < len(data):
            rest = data[handled:] if handled else data
            self.unread += len(rest)
            self._streams.data_received(rest)

    def eof_received(self) -> bool | None:
        """Handle a call of the transport."""
        return self._streams.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle a call of the transport."""
        if exc is not None:
            # After a failed write, the frames in the traceback would keep the sent batches alive,
            # and the streams keep the error until the broker is reachable again.
            exc.__traceback__ = None
        self._streams.connection_lost(exc)

    def pause_writing(self) -> None:
        """Handle a call of the transport."""
        self._streams.pause_writing()

    def resume_writing(self) -> None:
        """Handle a call of the transport."""
        self._streams.resume_writing()


class _BufferedResponseProtocol(ResponseProtocol, asyncio.BufferedProtocol):
    """The same with a reusable buffer, for the transports of asyncio; other loops may refuse it."""

    def __init__(self, streams: asyncio.Protocol, on_data: Callable[[bytes], int]) -> None:
        super().__init__(streams, on_data)
        self._room = memoryview(bytearray(_ROOM_BYTES))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for a read; with TLS the hint is the size of the encrypted bytes.

        All of them must fit: at the end of a connection TLS reads once and drops the rest.
        """
        if sizehint > len(self._room):
            self._room = memoryview(bytearray(sizehint))
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Handle a call of the transport."""
        self.data_received(bytes(self._room[:nbytes]))
