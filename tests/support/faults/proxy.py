"""A TCP proxy that breaks connections in every way a network can.

Owns: forwarding bytes between clients and one broker, and the fault in force. Not here:
Kafka; it rewrites nothing. A connection from which bytes were taken never gets any again:
TCP delays, cuts and ends, but leaves no holes.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import Counter
from enum import Enum

from aioproducer.testing.embedded_server import close_port

_CHUNK = 65536
_HOST = "127.0.0.1"


class NetworkFault(Enum):
    """The treatment of the data that passes through the network."""

    NONE = "none"
    DELAY = "delays every piece"
    DROP = "resets a connection as soon as it is used"
    TRUNCATE_REQUESTS = "lets half of a request through, then resets"
    TRUNCATE_ANSWERS = "lets half of an answer through, then resets"
    HALF_CLOSE = "ends the direction towards the client; requests still reach the broker"
    SWALLOW_ANSWERS = "delivers requests and swallows the answers"
    BLACK_HOLE = "swallows everything, connections stay open"


class _Link:
    """One connection of a client and the connection to the broker that it is forwarded to."""

    def __init__(self, client: asyncio.StreamWriter, broker: asyncio.StreamWriter) -> None:
        self.client = client
        self.broker = broker
        self.deaf = False
        """Nothing reaches the broker any more."""
        self.mute = False
        """Nothing reaches the client any more."""

    def reset(self) -> None:
        """Ends both connections with RST."""
        for writer in (self.client, self.broker):
            sock = writer.get_extra_info("socket")
            if sock is not None and not writer.transport.is_closing():
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class FaultyProxy:
    """Listens on one port and forwards to another, unless a fault is in force.

    Attributes:
        fault: What happens to the next bytes, in both directions, of old and new connections.
        chance: How likely it happens to each piece that passes.
        delay_s: How long `NetworkFault.DELAY` holds each piece back.
        struck: How many pieces met each fault.
    """

    def __init__(self, port: int, target_port: int, seed: int = 1) -> None:
        self.port = port
        self.fault = NetworkFault.NONE
        self.chance = 1.0
        self.delay_s = 1.0
        self.struck: Counter[NetworkFault] = Counter()
        self._target_port = target_port
        self._rng = random.Random(seed)
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, _HOST, self.port)

    async def close(self) -> None:
        """Reset every connection and stop listening."""
        if self._server is not None:
            await close_port(self._server)
        for link in list(self._links):
            link.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:  # pragma: no cover - a server runs its handlers as tasks
            return
        self._tasks.add(task)
        try:
            await self._connect_through(reader, writer)
        except OSError:
            pass  # the broker is down: so is the connection
        except asyncio.CancelledError:
            pass  # `close`; the server would log a handler that was cancelled
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _connect_through(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        broker_reader, broker = await asyncio.open_connection(_HOST, self._target_port)
        link = _Link(writer, broker)
        self._links.add(link)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(link, reader))
                group.create_task(self._answers(link, broker_reader))
        except* OSError:
            pass  # one side has gone; the other follows
        finally:
            self._links.discard(link)
            link.reset()

    async def _requests(self, link: _Link, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(_CHUNK):
            fault = self._strike(_ON_REQUESTS)
            link.deaf |= fault is NetworkFault.BLACK_HOLE
            if not link.deaf:
                await self._pass(data, link.broker, fault)
        raise ConnectionResetError  # the client is gone, which ends the link

    async def _answers(self, link: _Link, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(_CHUNK):
            fault = self._strike(_ON_ANSWERS)
            if fault is NetworkFault.HALF_CLOSE and not link.mute:
                link.client.write_eof()
            link.mute |= fault in _MUTING
            if not link.mute:
                await self._pass(data, link.client, fault)
        raise ConnectionResetError

    def _strike(self, possible: frozenset[NetworkFault]) -> NetworkFault:
        """The fault in force, if it concerns this direction and this piece."""
        strikes = self.fault in possible and self._rng.random() < self.chance
        fault = self.fault if strikes else NetworkFault.NONE
        self.struck[fault] += 1
        return fault

    async def _pass(self, data: bytes, writer: asyncio.StreamWriter, fault: NetworkFault) -> None:
        if fault is NetworkFault.DROP:
            raise ConnectionResetError
        if fault in _TRUNCATING:
            await _forward(writer, data[: len(data) // 2])
            raise ConnectionResetError
        if fault is NetworkFault.DELAY:
            await asyncio.sleep(self.delay_s)
        await _forward(writer, data)


_TRUNCATING = frozenset([NetworkFault.TRUNCATE_REQUESTS, NetworkFault.TRUNCATE_ANSWERS])
_MUTING = frozenset(
    [NetworkFault.HALF_CLOSE, NetworkFault.SWALLOW_ANSWERS, NetworkFault.BLACK_HOLE]
)
_ON_REQUESTS = frozenset(
    [
        NetworkFault.DELAY,
        NetworkFault.DROP,
        NetworkFault.TRUNCATE_REQUESTS,
        NetworkFault.BLACK_HOLE,
    ]
)
_ON_ANSWERS = frozenset(
    [NetworkFault.DELAY, NetworkFault.DROP, NetworkFault.TRUNCATE_ANSWERS, *_MUTING]
)


async def _forward(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()
