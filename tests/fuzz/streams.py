"""A `Connection` on a stream whose bytes come from an input, on virtual time.

Owns: the transport that stands for the socket, the splitting of a stream into chunks. Not here:
what is sent, what has to come of it.

Invariant: bytes reach the connection as from a socket: through asyncio's own stream protocol, not
while reading is paused, never after the transport was aborted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator
from random import Random
from typing import Any, TypeVar

from aioproducer.errors import KafkaError
from aioproducer.net.connection import Connection
from aioproducer.testing.world.loop import VirtualLoop
from aioproducer.wire.schema import Message
from fuzz.guard import require

READ_LIMIT = 1024
"""Small, so that inputs of a few KiB make the reader pause."""
_TURNS = 4
"""So many turns of the loop take a chunk through the reader, and an answer to its awaiter."""

_T = TypeVar("_T")


class WireTransport(asyncio.Transport):
    """Swallows what is written, and hands on what it is fed."""

    def __init__(self, protocol: asyncio.StreamReaderProtocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._waiting: deque[bytes] = deque()
        self._paused = self._ended = self._lost = False

    def feed(self, chunk: bytes) -> None:
        self._waiting.append(chunk)
        self._deliver()

    def end(self) -> None:
        self._ended = True
        self._deliver()

    def _deliver(self) -> None:
        while self._waiting and not (self._paused or self._lost):
            self._protocol.data_received(self._waiting.popleft())
        if self._ended and not (self._waiting or self._paused or self._lost):
            self._ended = False
            self._protocol.eof_received()

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        asyncio.get_running_loop().call_soon(self._deliver)

    def is_closing(self) -> bool:
        return self._lost

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Taken at once, so nothing is ever buffered."""

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        if not self._lost:
            self._lost = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    close = abort


class Witness:
    """A connection's observer that keeps the calls it gets."""

    def __init__(self) -> None:
        self.responses: list[Message] = []
        self.failures: list[KafkaError] = []
        self.called = asyncio.Event()

    def response_received(
        self, request_type: type[Message], version: int, response: Message
    ) -> None:
        self.responses.append(response)

    def capacity_freed(self) -> None: ...

    def connection_failed(self, connection: Connection, error: KafkaError, lost: int) -> None:
        self.failures.append(error)
        self.called.set()


class Wire:
    """A connection, its transport and its observer, on the running loop."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(READ_LIMIT, loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        self.transport = WireTransport(protocol)
        protocol.connection_made(self.transport)
        writer = asyncio.StreamWriter(self.transport, protocol, reader, loop)
        self.witness = Witness()
        self.connection = Connection(
            reader, writer, node_id=1, observer=self.witness, loop_time=loop.time
        )

    async def receive(self, chunks: Iterable[bytes]) -> KafkaError:
        """Feed a whole stream and its end; the error the connection ended with."""
        for chunk in chunks:
            self.transport.feed(chunk)
            await self._run_turns()
        self.transport.end()
        async with asyncio.timeout(1):
            await self.witness.called.wait()
        await self.connection.wait_closed()
        require(self.connection.is_over, "a task of the connection still runs")
        require(len(self.witness.failures) == 1, "{} failures reported", len(self.witness.failures))
        return self.witness.failures[0]

    async def _run_turns(self) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)


def pieces(stream: bytes, seed: int) -> Iterator[bytes]:
    """The stream cut as `seed` says; 0 leaves it whole."""
    if not seed:
        yield stream
        return
    rng = Random(seed)
    start = 0
    while start < len(stream):
        size = rng.choice((1, 2, 3, 5, 16, 64, 700))
        yield stream[start : start + size]
        start += size


def run_on_virtual_time(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on a new loop; a deadlock or a task that is left is a finding."""
    loop = VirtualLoop(Random(0))
    try:
        result = loop.run_until_complete(main)
        left = [task.get_name() for task in asyncio.all_tasks(loop)]
        require(not left, "tasks are left: {}", left)
        require(not loop.failures, "the loop heard of {}", loop.failures)
        return result
    finally:
        loop.close()
