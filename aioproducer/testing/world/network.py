"""The network of a run: names, dials, and byte streams with latency, between producer and brokers.

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
from collections.abc import Collection, Sequence
from typing import Protocol

from aioproducer.net.dial.dialer import Address
from aioproducer.testing.world.pipe import Content, Pipe, Quiet, Signal
from aioproducer.testing.world.trace import Trace
from aioproducer.testing.world.transport import ByteListener, ClientTransport
from aioproducer.testing.world.weather import Direction, Weather

_MOST_PIECES = 4
_RESOLVE_S = 0.002
_RECHECK_S = 0.25
_NARROW_WINDOW_S = 0.1
_LEAST_WINDOW = 64
_CLOSED = "10.0.1.1"


class BrokerEnd(Protocol):
    """The broker's side of a connection."""

    def data_received(self, data: bytes) -> None:
        """Handle bytes from the client."""

    def peer_gone(self) -> None:
        """Handle the client's close or reset; nothing more will come."""


class Listener(Protocol):
    """A broker, as the network sees it; its machine may be off."""

    is_off: bool

    def accept(self, connection: SimConnection) -> BrokerEnd | None:
        """Take a connection; None refuses it."""


class SimConnection:
    """A connection between the producer and one broker, from the broker's side."""

    def __init__(self, network: SimNetwork, node_id: int, number: int) -> None:
        self.node_id = node_id
        self.number = number
        self.opened_at: float = network.loop.time()
        self.is_up: bool = True
        self.is_left: bool = False
        """Whether the producer has closed its end."""
        self._network = network
        self._to_broker = Pipe(network, node_id, Direction.TO_BROKER, self._at_broker)
        self._to_client = Pipe(network, node_id, Direction.TO_CLIENT, self._at_client)
        self._end: BrokerEnd | None = None
        self._finished = False
        self.transport: ClientTransport | None = None
        self.listener: ByteListener | None = None

    def __str__(self) -> str:
        return f"c{self.number}(b{self.node_id})"

    def join(self, end: BrokerEnd | None, transport: ClientTransport) -> None:
        """Connect both sides."""
        self.transport = transport
        if self.is_up:  # the broker may have died during the handshake
            self._end = end

    # the broker's verbs

    def write(self, data: bytes, quiet_s: float = 0.0) -> None:
        """Send bytes to the producer, maybe with a throttle time in seconds."""
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
        """Close from the broker: the producer reads the end after everything sent before."""
        if self.is_up:
            self.finish()
            self._drop()

    def reset(self) -> None:
        """Reset: the broker is gone, and the producer gets that as soon as it can receive."""
        if self.is_up:
            self._to_client.reset()
            self._drop()

    def vanish(self) -> None:
        """Drop the connection as the broker's machine is gone: the producer gets no sign."""
        if self.is_up:
            self._to_client.cut()
            self._drop()

    def stop_reading(self) -> None:
        """Stop reading at the broker: the window fills up."""
        self._to_broker.pause()

    def start_reading(self) -> None:
        """Read again at the broker."""
        self._to_broker.resume()

    # the producer's verbs, through its transport

    @property
    def room(self) -> int:
        """Bytes the send window takes now."""
        return self._network.window_to(self.node_id) - self._to_broker.under_way

    def send(self, data: bytes) -> None:
        """Send bytes from the producer's machine."""
        if self.listener is not None:
            self.listener.sent(data)
        self._to_broker.send(data)

    def leave(self, *, orderly: bool) -> None:
        """Close the producer's socket; what the window held may arrive after that or not."""
        self.is_left = True
        self._signal_end()
        if orderly or self._network.lingers():
            self._to_broker.send(Signal.END)
        else:
            self._to_broker.reset()
        self._to_client.cut()

    def pause(self) -> None:
        """Stop reading at the producer."""
        self._to_client.pause()

    def resume(self) -> None:
        """Read again at the producer."""
        self._to_client.resume()

    # arrivals

    def _at_broker(self, content: Content) -> None:
        if self._end is None:
            if content is not Signal.RESET:
                self._to_client.reset()  # as a machine does for an unknown connection
        elif not isinstance(content, bytes):
            end = self._end
            self._drop()
            end.peer_gone()
        else:
            self._end.data_received(content)
        if self.transport is not None:
            self.transport.window_moved()

    def _at_client(self, content: Content) -> None:
        transport = self.transport
        if transport is None:
            return
        if self.listener is not None and isinstance(content, bytes) and not transport.is_closing():
            self.listener.received(content)
        transport.arrived(content)
        if transport.is_lost:
            self._signal_end()

    def _signal_end(self) -> None:
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.ended()

    def _drop(self) -> None:
        self.is_up = False
        self._end = None
        self.start_reading()


class SimNetwork:
    """Names and addresses of the brokers, and every connection of a run; a `Dialer`.

    Args:
        loop: the loop of the run.
        rng: latencies, pieces, and what arrives after a close.
        trace: where dials go.
        window: bytes a connection has under way at most.

    Attributes:
        fragments: whether bytes may arrive in other pieces than they were written in.
        refusals: when dials to each broker were refused.
        first_address_closes: whether each name has another address first, which takes connections
            and closes them.
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
        self.fragments: bool = True
        self.connections: list[SimConnection] = []
        self.refusals: dict[int, list[float]] = {}
        self.first_address_closes: bool = False
        self._rng = rng
        self._trace = trace
        self._base_latency_s = base_latency_s
        self._listeners: dict[int, Listener] = {}
        self._nodes: dict[str, int] = {}
        self._addresses: dict[str, int] = {}
        self._ports: dict[int, int] = {}

    def listen(self, node_id: int, host: str, listener: Listener) -> None:
        """Assign a broker to a name."""
        self._nodes[host] = node_id
        self._addresses[f"10.0.0.{node_id}"] = node_id
        self._listeners[node_id] = listener

    def name(self, node_id: int, host: str, port: int | None = None) -> None:
        """Give a broker one more name; with a port, it listens at no other one from now on."""
        self._nodes[host] = node_id
        if port is not None:
            self._ports[node_id] = port

    def keep_names(self, hosts: Collection[str]) -> None:
        """Take all other names away, and end every connection."""
        self._nodes = {host: node for host, node in self._nodes.items() if host in hosts}
        for connection in self.connections:
            connection.reset()

    def is_held(self, node_id: int, direction: Direction) -> bool:
        """Return whether bytes stay under way for now: a black hole, or a machine that is off."""
        if self._listeners[node_id].is_off:
            return True
        return self.weather.is_held(node_id, direction, self.loop.time())

    # Dialer

    async def resolve(self, host: str, port: int, *, canonical: bool) -> list[Address]:
        """Return the broker's address, after one that closes connections if there is one."""
        node_id = self._nodes.get(host)
        await asyncio.sleep(_RESOLVE_S)
        if node_id is None or self.weather.name_is_unknown(node_id, self.loop.time()):
            self._trace(f"dns {host} fails")
            raise OSError(f"{host}: temporary failure in name resolution")
        name = host if canonical else None
        found = [Address(f"10.0.0.{node_id}", port, canonical_name=name)]
        return [found[0]._replace(host=_CLOSED), *found] if self.first_address_closes else found

    async def connect(
        self, address: Address, *, server_hostname: str, limit: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the time of a handshake, one round trip, unless the weather forbids it."""
        if address.host == _CLOSED:
            connection = SimConnection(self, min(self._listeners), len(self.connections) + 1)
            connection.close()
            return self._open(connection, None, limit)
        node_id = self._addresses[address.host]
        await self._travel(node_id, Direction.TO_BROKER)
        connection = SimConnection(self, node_id, len(self.connections) + 1)
        refused = self.weather.refuses(node_id, self.loop.time())
        refused |= self._ports.get(node_id, address.port) != address.port
        end = None if refused else self._listeners[node_id].accept(connection)
        if end is not None and (delay := self.weather.accept_delay(node_id, self.loop.time())):
            self._trace(f"{connection} is accepted slowly")
            await asyncio.sleep(delay)
        await self._travel(node_id, Direction.TO_CLIENT)
        if end is None:
            self._trace(f"dial b{node_id} refused")
            self.refusals.setdefault(node_id, []).append(self.loop.time())
            raise ConnectionRefusedError("no server listens")
        return self._open(connection, end, limit)

    def _open(
        self, connection: SimConnection, end: BrokerEnd | None, limit: int
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
            await asyncio.sleep(_RECHECK_S)

    # chance

    def latency(self, node_id: int, direction: Direction) -> float:
        """Return the delay of the next bytes."""
        extra = self.weather.extra_latency(node_id, self.loop.time())
        return self._base_latency_s * self._rng.uniform(0.5, 1.5) + extra

    def window_to(self, node_id: int) -> int:
        """Return the maximum of bytes in flight on a connection to the broker."""
        narrow = self.weather.bytes_per_s(node_id, self.loop.time())
        if narrow is None:
            return self.window
        return min(self.window, max(_LEAST_WINDOW, int(narrow * _NARROW_WINDOW_S)))

    def transmission_s(self, node_id: int, direction: Direction, size: int) -> float:
        """Return the time until so many bytes are on their way; only narrow links take time."""
        narrow = self.weather.bytes_per_s(node_id, self.loop.time())
        if narrow is None or direction is Direction.TO_CLIENT:
            return 0.0
        return size / narrow

    def pieces(self, data: bytes) -> Sequence[Content]:
        """Return the data as it will arrive."""
        if not self.fragments:
            return [data]
        cuts = self._rng.randrange(_MOST_PIECES)
        if cuts == 0 or len(data) < 2:
            return [data]
        if self._rng.random() < 0.5:
            return [data]
        self.weather.fragmented += 1
        at = sorted({self._rng.randrange(1, len(data)) for _ in range(cuts)})
        return [data[i:j] for i, j in zip([0, *at], [*at, len(data)], strict=True)]

    def lingers(self) -> bool:
        """Return whether the kernel still delivers what an aborted socket had written."""
        return self._rng.random() < 0.5
