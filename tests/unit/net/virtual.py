"""An event loop whose clock jumps, and an in-memory network for it.

Owns: `virtual_time` (a decorator for tests), `MemoryDialer` with servers made of the behaviours of
`hostile`, and transports whose reading side can be stalled. Not here: the client under test.

On this loop nothing takes time but timers, and these take none: when no task is runnable the clock
jumps to the next timer. When there is none either, the test hangs for ever, which is an error here.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ParamSpec

from support.hostile import Behaviour, Peer
from support.leaks import no_leaks

from aioproducer.net.dial.dialer import Address

_P = ParamSpec("_P")


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop on which `time()` advances by jumps only."""

    def __init__(self) -> None:
        self._now = 1000.0
        super().__init__(_JumpingSelector(self._advance))

    def time(self) -> float:
        return self._now

    def _advance(self, seconds: float) -> None:
        self._now += seconds


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, advance: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = advance

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events:
            if timeout is None:
                raise RuntimeError("deadlock: nothing is runnable and no timer is set")
            self._jump(timeout)
        return events


def virtual_time(test: Callable[_P, Awaitable[None]]) -> Callable[_P, None]:
    """Makes an async test a plain one that runs on a `VirtualLoop` and may leave nothing there."""

    @functools.wraps(test)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        async def watched() -> None:
            async with no_leaks():
                await test(*args, **kwargs)

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(watched())

    return run


class MemoryTransport(asyncio.Transport):
    """One end of an in-memory connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self._buffer = bytearray()
        self._high, self._low = 64 * 1024, 16 * 1024
        self._paused = self._closing = self._lost = False
        self._stalled = False
        self.has_limits = True
        """Whether it has `set_write_buffer_limits`, which is optional."""
        self.peer: MemoryTransport | None = None

    # what tests use

    def stall(self) -> None:
        """Keep what is written from now on in this transport's buffer."""
        self._stalled = True

    def let_out(self, size: int) -> None:
        """The first bytes of a stalled buffer leave; the others stay."""
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._update_flow()
        if self.peer is not None:
            self.peer._protocol.data_received(data)

    def break_off(self, error: Exception) -> None:
        """The connection is reset: what has not left never will, as with asyncio's transports."""
        self._buffer.clear()
        self._lose(error)

    def resume(self) -> None:
        """Lets the buffer flow again."""
        self._stalled = False
        self._loop.call_soon(self._deliver)

    @property
    def is_lost(self) -> bool:
        return self._lost

    # asyncio's interface

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing:
            return
        self._buffer += data
        self._update_flow()
        if not self._stalled:
            self._loop.call_soon(self._deliver)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if not self.has_limits:
            raise NotImplementedError
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low
        self._update_flow()

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._deliver)

    def abort(self) -> None:
        self._buffer.clear()
        self._stalled = False
        self.close()

    def is_reading(self) -> bool:
        return True

    def pause_reading(self) -> None:
        if self.peer is not None:
            self.peer.stall()

    def resume_reading(self) -> None:
        if self.peer is not None:
            self.peer.resume()

    # the wire

    def _deliver(self) -> None:
        if self._lost or self._stalled:
            return
        peer = self.peer
        if self._buffer and peer is not None and not peer.is_lost:
            data = bytes(self._buffer)
            self._buffer.clear()
            self._update_flow()
            peer._protocol.data_received(data)
        if self._closing:
            self._lose(None)
            if peer is not None and not peer.is_lost:
                peer._protocol.eof_received()

    def _lose(self, error: Exception | None) -> None:
        self._lost = self._closing = True
        self._protocol.connection_lost(error)

    def _update_flow(self) -> None:
        size = len(self._buffer)
        if not self._paused and size > self._high:
            self._paused = True
            self._protocol.pause_writing()
        elif self._paused and size <= self._low:
            self._paused = False
            self._protocol.resume_writing()


def memory_pair(
    limit: int = 65536,
) -> tuple[
    tuple[asyncio.StreamReader, asyncio.StreamWriter],
    tuple[asyncio.StreamReader, asyncio.StreamWriter],
]:
    """Both ends of an in-memory connection, as streams."""
    loop = asyncio.get_running_loop()
    ends = []
    for _ in range(2):
        reader = asyncio.StreamReader(limit=limit, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport = MemoryTransport(loop, protocol)
        protocol.connection_made(transport)
        ends.append((reader, asyncio.StreamWriter(transport, protocol, reader, loop)))
    one, other = (writer.transport for _, writer in ends)
    assert isinstance(one, MemoryTransport)
    assert isinstance(other, MemoryTransport)
    one.peer, other.peer = other, one
    return ends[0], ends[1]


async def black_hole() -> None:
    """Connect as to an address that swallows packets."""
    await asyncio.Event().wait()


class MemoryDialer:
    """A network of names, addresses and behaviours; addresses without behaviour refuse.

    Attributes:
        names: Host name to its addresses; a host not listed is its own address.
        servers: Address, with or without a port, to what happens to a connection; `black_hole`
            never accepts.
        dials: (time, address) of every attempt.
        connections: The client's transports, in the order of their opening.
    """

    def __init__(
        self,
        servers: Mapping[str, Behaviour | Callable[[], Awaitable[None]]],
        names: Mapping[str, list[str]] | None = None,
    ) -> None:
        self.servers = dict(servers)
        self.names = dict(names or {})
        self.dials: list[tuple[float, str]] = []
        self.hostnames: list[str] = []
        self.canonical_asked: list[bool] = []
        self.connections: list[MemoryTransport] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def resolve(self, host: str, port: int, *, canonical: bool) -> list[Address]:
        self.canonical_asked.append(canonical)
        known = self.names.get(host, [host])
        if not known:
            raise OSError(f"{host} is unknown")
        return [
            Address(ip, port, canonical_name=f"canonical-{ip}" if canonical else None)
            for ip in known
        ]

    async def connect(
        self, address: Address, *, server_hostname: str, limit: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.dials.append((asyncio.get_running_loop().time(), address.host))
        self.hostnames.append(server_hostname)
        server: Any = self.servers.get(str(address), self.servers.get(address.host))
        if server is None:
            raise ConnectionRefusedError("refused")
        if server is black_hole:
            await black_hole()
        near, far = memory_pair(limit)
        transport = near[1].transport
        assert isinstance(transport, MemoryTransport)
        self.connections.append(transport)
        task = asyncio.get_running_loop().create_task(self._serve(server, *far))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return near

    async def _serve(
        self, behaviour: Behaviour, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            await behaviour(Peer(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def close_connections(self) -> None:
        """Closes every connection from the servers' side."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def shut_down(self) -> None:
        """Ends all servers; then every transport must be lost."""
        await self.close_connections()
        await asyncio.sleep(0)
        still_open = [transport for transport in self.connections if not transport.is_lost]
        if still_open:
            raise AssertionError(f"{len(still_open)} connection(s) were never closed")
