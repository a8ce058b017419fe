"""The producer's end of a simulated connection, as asyncio's streams want it.

Invariant: what is written is copied when it fits into the send window, not before. Memory that
changes until then is sent as garbage.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from typing import NamedTuple, Protocol

from aioproducer.testing.world.pipe import Content, Quiet, Signal

_ROUNDING_S = 0.001


class ByteListener(Protocol):
    """A listener for what a process sends and receives on one connection."""

    def sent(self, data: bytes) -> None:
        """Note bytes that have left the process's machine."""

    def received(self, data: bytes) -> None:
        """Note bytes that have come to the process."""

    def ended(self) -> None:
        """Note that the process's end of the connection is closed."""


class ClientEnd(Protocol):
    """The producer's end of a connection, as its transport uses it."""

    listener: ByteListener | None

    @property
    def room(self) -> int:
        """Bytes the send window takes now."""

    def send(self, data: bytes) -> None:
        """Send bytes from the producer's machine."""

    def leave(self, *, orderly: bool) -> None:
        """Close the producer's socket; what the window held may arrive after that or not."""

    def pause(self) -> None:
        """Stop reading at the producer."""

    def resume(self) -> None:
        """Read again at the producer."""


class _Waiting(NamedTuple):
    view: memoryview
    checksum: int


class SendBuffer:
    """Memory that waits for its turn to leave.

    Attributes:
        size: How many bytes wait.
        changed: Whether some of the memory was changed while it waited.
    """

    def __init__(self) -> None:
        self.size: int = 0
        self.changed: bool = False
        self._waiting: deque[_Waiting] = deque()

    def add(self, view: memoryview) -> None:
        """Keep a view, no copy."""
        if view.nbytes:
            self._waiting.append(_Waiting(view, zlib.crc32(view)))
            self.size += view.nbytes

    def take(self, room: int) -> bytes:
        """Copy the first bytes, at most `room` of them."""
        parts: list[bytes] = []
        while self._waiting and room > 0:
            view = self._pop()
            if view.nbytes > room:
                rest = view[room:]
                self._waiting.appendleft(_Waiting(rest, zlib.crc32(rest)))
                view = view[:room]
            parts.append(bytes(view))
            room -= view.nbytes
            self.size -= view.nbytes
        return b"".join(parts)

    def clear(self) -> None:
        """Remove everything."""
        while self._waiting:
            self._pop()
        self.size = 0

    def _pop(self) -> memoryview:
        view, checksum = self._waiting.popleft()
        self.changed |= zlib.crc32(view) != checksum
        return view


class ClientTransport(asyncio.Transport):
    """The producer's end, as asyncio's streams want it.

    Attributes:
        is_lost: Whether it is over.
        quiet_until: Until when the broker has asked for quiet.
        spoke_too_early: Whether something was written although the broker had asked for quiet.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.Protocol,
        connection: ClientEnd,
    ) -> None:
        super().__init__()
        self.is_lost: bool = False
        self.spoke_too_early: bool = False
        self.quiet_until: float = 0.0
        self._quiet_since = 0.0
        self._loop = loop
        self._protocol = protocol
        self._connection = connection
        self._unsent = SendBuffer()
        self._high, self._low = 64 * 1024, 16 * 1024
        self._stopped_writer = False
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send what the window takes; of the rest a view is kept, not a copy."""
        self.writelines([data])

    def writelines(self, list_of_data: object) -> None:
        """Write several buffers, without joining them."""
        if self._closing:
            return
        # Not in the moment in which the bytes arrive: the client reads them after this.
        self.spoke_too_early |= (
            self._quiet_since < self._loop.time() < self.quiet_until - _ROUNDING_S
        )
        for data in list_of_data:  # type: ignore[attr-defined]
            self._unsent.add(memoryview(data).cast("B"))
        self._send()

    @property
    def memory_changed(self) -> bool:
        """Whether memory was changed before it had left, or the connection ended."""
        return self._unsent.changed

    def listen(self, listener: ByteListener) -> None:
        """Set a listener for what goes out and comes in."""
        self._connection.listener = listener

    def window_moved(self) -> None:
        """Send more: the other side took something, so there may be space."""
        if self._unsent.size and not self.is_lost:
            self._send()

    def arrived(self, content: Content) -> None:
        """Handle bytes or an event from the broker."""
        if self.is_lost:
            return
        if isinstance(content, Quiet):
            self._quiet_since = self._loop.time()
            self.quiet_until = max(self.quiet_until, self._quiet_since + content.seconds)
            return
        if content is Signal.RESET:
            self._unsent.clear()
            self._lose(ConnectionResetError("the connection was reset"))
        elif self._closing:
            return
        elif isinstance(content, Signal):
            if not self._protocol.eof_received():
                self.close()
        else:
            self._protocol.data_received(content)

    # asyncio's interface

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that gets the data."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Give data to another protocol from now on."""
        if not isinstance(protocol, asyncio.Protocol):
            raise TypeError(f"{protocol!r} does not take bytes")
        self._protocol = protocol

    def get_write_buffer_size(self) -> int:
        """Return bytes that have not left the process."""
        return self._unsent.size

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As asyncio's own transports."""
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low
        self._update_flow()

    def is_closing(self) -> bool:
        """Return whether `close` or `abort` was called, or the connection is lost."""
        return self._closing

    def close(self) -> None:
        """End after everything written has left."""
        if not self._closing:
            self._closing = True
            if not self._unsent.size:
                self._leave(orderly=True)

    def abort(self) -> None:
        """End now; what has not left never will."""
        if self.is_lost:
            return
        self._closing = True
        self._unsent.clear()
        self._leave(orderly=False)

    def pause_reading(self) -> None:
        """Stop the delivery: the protocol's buffer is full."""
        self._connection.pause()

    def resume_reading(self) -> None:
        """Resume the protocol: the buffer has space again."""
        self._connection.resume()

    # private

    def _send(self) -> None:
        while self._unsent.size and (room := self._connection.room) > 0:
            self._connection.send(self._unsent.take(room))
        self._update_flow()
        if self._closing and not self._unsent.size and not self.is_lost:
            self._leave(orderly=True)

    def _leave(self, *, orderly: bool) -> None:
        self._connection.leave(orderly=orderly)
        self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if not self.is_lost:
            self.is_lost = self._closing = True
            self._loop.call_soon(self._protocol.connection_lost, error)

    def _update_flow(self) -> None:
        if not self._stopped_writer and self._unsent.size > self._high:
            self._stopped_writer = True
            self._protocol.pause_writing()
        elif self._stopped_writer and self._unsent.size <= self._low:
            self._stopped_writer = False
            self._protocol.resume_writing()
