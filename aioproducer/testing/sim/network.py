"""The network of a run: names, dials, and byte streams with latency, between producer and brokers.

Owns: `SimNetwork`, the `Dialer` the producer gets, and what a connection is made of. Must not know:
Kafka's protocol; the brokers' side is whoever `listen`s.

    producer's transport --Pipe--> broker's end
    producer's transport <--Pipe-- broker's end

Invariants:
- Bytes arrive in order, in pieces of any size, as long as nothing ends the connection.
- What the producer writes is read from its memory only when it fits into the send window: memory
  that is reused too early shows up as garbage at the broker.
- All chance comes from the `rng` given; all disturbances from `Weather`, which the fault schedule
  changes.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from aioproducer.net.dialer import Address
from aioproducer.testing.sim.trace import Trace
from aioproducer.testing.sim.weather import Direction, Weather

_MOST_PIECES = 4
_PIECE_GAP_S = 0.0005
_RESOLVE_S = 0.002
_LOOK_AGAIN_S = 0.25
_ROUNDING_S = 0.001


class Signal(Enum):
    """What a pipe carries besides bytes."""

    END = "end"
    RESET = "reset"


class Quiet(NamedTuple):
    """Goes with an answer that tells the producer to be quiet for so many seconds."""

    seconds: float


Content = bytes | Signal | Quiet


class Pipe:
    """One direction of a connection: an ordered line of what is under way."""

    def __init__(
        self,
        network: SimNetwork,
        node_id: int,
        direction: Direction,
        arrive: Callable[[Content], None],
    ) -> None:
        self.under_way: int = 0
        self._network = network
        self._node_id = node_id
        self._direction = direction
        self._arrive = arrive
        self._line: deque[tuple[float, Content]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._paused = False
        self._last_due = 0.0

    def send(self, content: Content) -> None:
        """Puts something into the line, bytes maybe in several pieces."""
        now = self._network.loop.time()
        due = self._last_due
        if not isinstance(content, Quiet):  # which comes with the bytes before it
            due = max(due, now + self._network.latency(self._node_id, self._direction))
        pieces = self._network.pieces(content) if isinstance(content, bytes) else [content]
        for piece in pieces:
            self._line.append((due, piece))
            self.under_way += len(piece) if isinstance(piece, bytes) else 0
            self._last_due = due
            due += _PIECE_GAP_S
        self._plan()

    def cut(self) -> None:
        """Drops what is under way."""
        self._line.clear()
        self.under_way = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def reset(self) -> None:
        """Drops what is under way and lets the other end know, as soon as it can hear."""
        self.cut()
        self.send(Signal.RESET)

    def pause(self) -> None:
        """The receiver takes no more for now."""
        self._paused = True

    def resume(self) -> None:
        """The receiver goes on."""
        self._paused = False
        self._plan()

    def _plan(self) -> None:
        if self._timer is None and self._line and not self._paused:
            self._timer = self._network.loop.call_at(self._line[0][0], self._pump)

    def _pump(self) -> None:
        self._timer = None
        network = self._network
        now = network.loop.time()
        if network.is_held(self._node_id, self._direction):
            self._timer = network.loop.call_later(_LOOK_AGAIN_S, self._pump)
            return
        while self._line and self._line[0][0] <= now and not self._paused:
            _, piece = self._line.popleft()
            self.under_way -= len(piece) if isinstance(piece, bytes) else 0
            self._arrive(piece)
        self._plan()


class BrokerEnd(Protocol):
    """The broker's side of a connection."""

    def data_received(self, data: bytes) -> None:
        """Bytes came."""

    def peer_gone(self) -> None:
        """The client closed or reset the connection; nothing more will come."""


class Listener(Protocol):
    """A broker, as the network sees it; its machine may be off."""

    is_off: bool

    def accept(self, connection: SimConnection) -> BrokerEnd | None:
        """Takes a connection; None refuses it."""


class SimConnection:
    """A connection between the producer and one broker; the broker speaks through this."""

    def __init__(self, network: SimNetwork, node_id: int, number: int) -> None:
        self.node_id = node_id
        self.number = number
        self.is_up: bool = True
        self._network = network
        self._to_broker = Pipe(network, node_id, Direction.TO_BROKER, self._at_broker)
        self._to_client = Pipe(network, node_id, Direction.TO_CLIENT, self._at_client)
        self._end: BrokerEnd | None = None
        self._finished = False
        self.transport: ClientTransport | None = None

    def __str__(self) -> str:
        return f"c{self.number}(b{self.node_id})"

    def join(self, end: BrokerEnd, transport: ClientTransport) -> None:
        """Both sides are there."""
        self.transport = transport
        if self.is_up:  # the broker may have died during the handshake
            self._end = end

    # the broker's verbs

    def write(self, data: bytes, quiet_s: float = 0.0) -> None:
        """Sends bytes to the producer; they may tell it to be quiet for some seconds."""
        if self.is_up and not self._finished:
            self._to_client.send(data)
            if quiet_s:
                self._to_client.send(Quiet(quiet_s))

    def finish(self) -> None:
        """Half-close: the producer reads an end of stream; what it sends is still received."""
        if self.is_up and not self._finished:
            self._finished = True
            self._to_client.send(Signal.END)

    def close(self) -> None:
        """The broker closes: the producer reads the end after everything sent before."""
        if self.is_up:
            self.finish()
            self._drop()

    def reset(self) -> None:
        """The broker is gone; the producer learns it as soon as it can hear."""
        if self.is_up:
            self._to_client.reset()
            self._drop()

    def vanish(self) -> None:
        """The broker's machine is gone: nothing tells the producer."""
        if self.is_up:
            self._to_client.cut()
            self._drop()

    def stop_reading(self) -> None:
        """The broker reads no more for now: the window fills up."""
        self._to_broker.pause()

    def start_reading(self) -> None:
        """The broker reads again."""
        self._to_broker.resume()

    # the producer's verbs, through its transport

    @property
    def room(self) -> int:
        """Bytes the send window takes now."""
        return self._network.window - self._to_broker.under_way

    def send(self, data: bytes) -> None:
        """Bytes of the producer leave its machine."""
        self._to_broker.send(data)

    def leave(self, *, orderly: bool) -> None:
        """The producer closed its socket; what the window held may arrive after that or not."""
        if orderly or self._network.lingers():
            self._to_broker.send(Signal.END)
        else:
            self._to_broker.reset()
        self._to_client.cut()

    def pause(self) -> None:
        """The producer reads no more for now."""
        self._to_client.pause()

    def resume(self) -> None:
        """The producer reads again."""
        self._to_client.resume()

    # arrivals

    def _at_broker(self, content: Content) -> None:
        if self._end is None:
            if content is not Signal.RESET:
                self._to_client.reset()  # as a machine does that does not know the connection
        elif not isinstance(content, bytes):
            end = self._end
            self._drop()
            end.peer_gone()
        else:
            self._end.data_received(content)
        if self.transport is not None:
            self.transport.window_moved()

    def _at_client(self, content: Content) -> None:
        if self.transport is not None:
            self.transport.arrived(content)

    def _drop(self) -> None:
        self.is_up = False
        self._end = None
        self.start_reading()


class ClientTransport(asyncio.Transport):
    """The producer's end, as asyncio's streams want it.

    Attributes:
        is_lost: Whether it is over.
        spoke_too_early: Whether something was written although the broker had asked for quiet.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.Protocol,
        connection: SimConnection,
    ) -> None:
        super().__init__()
        self.is_lost: bool = False
        self.spoke_too_early: bool = False
        self._quiet_until = 0.0
        self._loop = loop
        self._protocol = protocol
        self._connection = connection
        self._unsent: deque[memoryview] = deque()
        self._unsent_size = 0
        self._high, self._low = 64 * 1024, 16 * 1024
        self._stopped_writer = False
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends what the window takes; of the rest a view is kept, not a copy."""
        self.writelines([data])

    def writelines(self, list_of_data: object) -> None:
        """Like `write`, without joining."""
        if self._closing:
            return
        self.spoke_too_early |= self._loop.time() < self._quiet_until - _ROUNDING_S
        for data in list_of_data:  # type: ignore[attr-defined]
            view = memoryview(data).cast("B")
            if view.nbytes:
                self._unsent.append(view)
                self._unsent_size += view.nbytes
        self._send()

    def window_moved(self) -> None:
        """The other side took something: there may be room."""
        if self._unsent and not self.is_lost:
            self._send()

    def arrived(self, content: Content) -> None:
        """Something came from the broker."""
        if self.is_lost:
            return
        if isinstance(content, Quiet):
            self._quiet_until = self._loop.time() + content.seconds
            return
        if content is Signal.RESET:
            self._unsent.clear()
            self._unsent_size = 0
            self._lose(ConnectionResetError("the connection was reset"))
        elif self._closing:
            return
        elif isinstance(content, Signal):
            if not self._protocol.eof_received():
                self.close()
        else:
            self._protocol.data_received(content)

    # asyncio's interface

    def get_write_buffer_size(self) -> int:
        """Bytes that have not left the process."""
        return self._unsent_size

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As asyncio's own transports."""
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low
        self._update_flow()

    def is_closing(self) -> bool:
        """Whether `close` or `abort` was called, or the connection is lost."""
        return self._closing

    def close(self) -> None:
        """Ends after everything written has left."""
        if not self._closing:
            self._closing = True
            if not self._unsent:
                self._leave(orderly=True)

    def abort(self) -> None:
        """Ends now; what has not left never will."""
        if self.is_lost:
            return
        self._closing = True
        self._unsent.clear()
        self._unsent_size = 0
        self._leave(orderly=False)

    def pause_reading(self) -> None:
        """The protocol's buffer is full."""
        self._connection.pause()

    def resume_reading(self) -> None:
        """It has room again."""
        self._connection.resume()

    # private

    def _send(self) -> None:
        while self._unsent and (room := self._connection.room) > 0:
            parts: list[bytes] = []
            while self._unsent and room > 0:
                view = self._unsent.popleft()
                if view.nbytes > room:
                    self._unsent.appendleft(view[room:])
                    view = view[:room]
                parts.append(bytes(view))
                room -= view.nbytes
                self._unsent_size -= view.nbytes
            self._connection.send(b"".join(parts))
        self._update_flow()
        if self._closing and not self._unsent and not self.is_lost:
            self._leave(orderly=True)

    def _leave(self, *, orderly: bool) -> None:
        self._connection.leave(orderly=orderly)
        self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if not self.is_lost:
            self.is_lost = self._closing = True
            self._loop.call_soon(self._protocol.connection_lost, error)

    def _update_flow(self) -> None:
        if not self._stopped_writer and self._unsent_size > self._high:
            self._stopped_writer = True
            self._protocol.pause_writing()
        elif self._stopped_writer and self._unsent_size <= self._low:
            self._stopped_writer = False
            self._protocol.resume_writing()


class SimNetwork:
    """Names and addresses of the brokers, and every connection of a run; a `Dialer`.

    Args:
        loop: the loop of the run.
        rng: latencies, pieces, and what arrives after a close.
        trace: where dials go.
        window: bytes a connection has under way at most.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        rng: random.Random,
        trace: Trace,
        *,
        window: int,
        base_latency_s: float,
    ) -> None:
        self.loop = loop
        self.weather: Weather = Weather()
        self.window = window
        self.connections: list[SimConnection] = []
        self._rng = rng
        self._trace = trace
        self._base_latency_s = base_latency_s
        self._listeners: dict[int, Listener] = {}
        self._nodes: dict[str, int] = {}
        self._addresses: dict[str, int] = {}

    def listen(self, node_id: int, host: str, listener: Listener) -> None:
        """Puts a broker behind a name."""
        self._nodes[host] = node_id
        self._addresses[f"10.0.0.{node_id}"] = node_id
        self._listeners[node_id] = listener

    def is_held(self, node_id: int, direction: Direction) -> bool:
        """Whether bytes stay under way for now: a black hole, or a machine that is off."""
        if self._listeners[node_id].is_off:
            return True
        return self.weather.is_held(node_id, direction, self.loop.time())

    # Dialer

    async def resolve(self, host: str, port: int, *, canonical: bool) -> list[Address]:
        """The broker's only address."""
        node_id = self._nodes[host]
        await asyncio.sleep(_RESOLVE_S)
        if self.weather.name_is_unknown(node_id, self.loop.time()):
            self._trace(f"dns {host} fails")
            raise OSError(f"{host}: temporary failure in name resolution")
        return [Address(f"10.0.0.{node_id}", port, canonical_name=host if canonical else None)]

    async def connect(
        self, address: Address, *, server_hostname: str, limit: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A handshake: there and back, unless the weather forbids it."""
        node_id = self._addresses[address.host]
        await self._travel(node_id, Direction.TO_BROKER)
        connection = SimConnection(self, node_id, len(self.connections) + 1)
        refused = self.weather.refuses(node_id, self.loop.time())
        end = None if refused else self._listeners[node_id].accept(connection)
        if end is not None and (delay := self.weather.accept_delay(node_id, self.loop.time())):
            self._trace(f"{connection} is accepted slowly")
            await asyncio.sleep(delay)
        await self._travel(node_id, Direction.TO_CLIENT)
        if end is None:
            self._trace(f"dial b{node_id} refused")
            raise ConnectionRefusedError("nobody listens")
        return self._open(connection, end, limit)

    def _open(
        self, connection: SimConnection, end: BrokerEnd, limit: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader = asyncio.StreamReader(limit=limit, loop=self.loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self.loop)
        transport = ClientTransport(self.loop, protocol, connection)
        connection.join(end, transport)
        self.connections.append(connection)
        protocol.connection_made(transport)
        self._trace(f"{connection} open")
        return reader, asyncio.StreamWriter(transport, protocol, reader, self.loop)

    async def _travel(self, node_id: int, direction: Direction) -> None:
        await asyncio.sleep(self.latency(node_id, direction))
        while self.is_held(node_id, direction):  # noqa: ASYNC110 - time alone ends it
            await asyncio.sleep(_LOOK_AGAIN_S)

    # chance

    def latency(self, node_id: int, direction: Direction) -> float:
        """How long the next bytes take."""
        extra = self.weather.extra_latency(node_id, self.loop.time())
        return self._base_latency_s * self._rng.uniform(0.5, 1.5) + extra

    def pieces(self, data: bytes) -> Sequence[Content]:
        """The data as it will arrive."""
        cuts = self._rng.randrange(_MOST_PIECES)
        if cuts == 0 or len(data) < 2:
            return [data]
        if self._rng.random() < 0.5:
            return [data]
        self.weather.fragmented += 1
        at = sorted({self._rng.randrange(1, len(data)) for _ in range(cuts)})
        return [data[i:j] for i, j in zip([0, *at], [*at, len(data)], strict=True)]

    def lingers(self) -> bool:
        """Whether the kernel still delivers what an aborted socket had written."""
        return self._rng.random() < 0.5
