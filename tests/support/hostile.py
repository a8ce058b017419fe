"""Brokers that misbehave to a script, on loopback sockets or on any pair of streams.

Owns: `Peer` (a broker's end of one connection), behaviours (coroutine functions over a `Peer`) and
`HostileServer`, which runs one behaviour per connection. Not here: the client under test.

    async with HostileServer(after_handshake(garbage)) as server:
        ...  # connect to server.host, server.port

A behaviour that returns closes the connection; one that should not has to wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from itertools import repeat
from types import TracebackType
from typing import Self

from aioproducer.testing.embedded_server import close_port
from aioproducer.testing.framing import (
    REQUEST_TYPES,
    RequestHeader,
    decode_request_header,
    encode_response,
)
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.framing import MAX_FRAME_BYTES, frame_size
from aioproducer.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from aioproducer.wire.messages.metadata import MetadataRequest, MetadataResponse
from aioproducer.wire.schema import Message

Ranges = Mapping[int, tuple[int, int]]

SANE_RANGES: Ranges = {
    key: REQUEST_TYPES[key].VALID_VERSIONS
    for key in (ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.INIT_PRODUCER_ID)
}

CONTROLLER_RANGES: Ranges = {
    ApiKey.API_VERSIONS: (0, 4),
    52: (0, 2),  # Vote
    ApiKey.BROKER_REGISTRATION: (0, 4),
}
"""Some versions of a controller of KRaft."""


class Peer:
    """A broker's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> RequestHeader:
        """The next request; raises IncompleteReadError when the client has closed."""
        size = frame_size(await self.reader.readexactly(4))
        return decode_request_header(await self.reader.readexactly(size))

    async def expect(self, key: ApiKey) -> RequestHeader:
        """The next request, which must be of this API."""
        header = await self.request()
        if header.api_key != key:
            raise ValueError(f"expected {key.name}, got API {header.api_key}")
        return header

    def respond(self, header: RequestHeader, response: Message, version: int | None = None) -> None:
        """A well-formed answer, in the request's version unless another one is given."""
        chosen = header.api_version if version is None else version
        self.raw(encode_response(response, chosen, header.correlation_id))

    def raw(self, data: bytes) -> None:
        """Any bytes."""
        self.writer.write(data)

    async def handshake(self, ranges: Ranges = SANE_RANGES) -> RequestHeader:
        """Answers ApiVersions as a broker with these version ranges."""
        header = await self.expect(ApiKey.API_VERSIONS)
        self.respond(header, versions_response(ranges))
        return header

    async def until_closed(self) -> None:
        """Read and discard until the client closes."""
        while await self.reader.read(65536):
            pass

    def reset(self) -> None:
        """Ends the connection with RST instead of FIN."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Behaviour = Callable[[Peer], Awaitable[None]]


def versions_response(ranges: Ranges = SANE_RANGES, error_code: int = 0) -> ApiVersionsResponse:
    """Return the response to ApiVersions of a broker with these ranges."""
    api_keys = [ApiVersion(key, low, high) for key, (low, high) in ranges.items()]
    return ApiVersionsResponse(error_code=error_code, api_keys=api_keys)


def after_handshake(behaviour: Behaviour) -> Behaviour:
    """The behaviour of a broker that was well-behaved until its first real request."""

    async def behave(peer: Peer) -> None:
        await peer.handshake()
        await behaviour(peer)

    return behave


# -- behaviours: what happens to the next request -------------------------------------------------


async def obedient(peer: Peer) -> None:
    """Answers every Metadata request with an empty cluster."""
    while True:
        header = await peer.request()
        peer.respond(header, REQUEST_TYPES[ApiKey(header.api_key)].RESPONSE())


async def silent(peer: Peer) -> None:
    """Takes everything and never answers."""
    await peer.until_closed()


async def deaf(peer: Peer) -> None:
    """Does not even read, so that the client's writes pile up."""
    peer.writer.transport.pause_reading()
    await asyncio.Event().wait()


async def garbage(peer: Peer) -> None:
    """Is a web server."""
    await peer.request()
    peer.raw(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    await peer.until_closed()


async def tls_alert(peer: Peer) -> None:
    """Refuses a TLS handshake that it takes the request for."""
    await peer.request()
    peer.raw(bytes((0x15, 3, 3, 0, 2, 2, 40)))
    await peer.until_closed()


async def garbled_body(peer: Peer) -> None:
    """Sends the right frame and correlation id around a body that is nonsense."""
    header = await peer.request()
    body = struct.pack(">i", header.correlation_id) + b"\xff" * 41
    peer.raw(struct.pack(">i", len(body)) + body)
    await peer.until_closed()


async def wrong_correlation_id(peer: Peer) -> None:
    """Answers well, but to another request."""
    header = await peer.request()
    response_type = REQUEST_TYPES[ApiKey(header.api_key)].RESPONSE
    wrong = header.correlation_id + 1000
    peer.raw(encode_response(response_type(), header.api_version, wrong))
    await peer.until_closed()


async def empty_frame(peer: Peer) -> None:
    """Answers with a frame of zero bytes."""
    await peer.request()
    peer.raw(struct.pack(">i", 0))
    await peer.until_closed()


async def closes_before_answering(peer: Peer) -> None:
    """Closes instead of answering."""
    await peer.request()


async def closes_mid_response(peer: Peer) -> None:
    """Closes in the middle of an answer."""
    header = await peer.request()
    response_type = REQUEST_TYPES[ApiKey(header.api_key)].RESPONSE
    frame = encode_response(response_type(), header.api_version, header.correlation_id)
    peer.raw(frame[: len(frame) // 2 + 3])
    await peer.writer.drain()


async def resets(peer: Peer) -> None:
    """Answers with RST."""
    await peer.request()
    peer.reset()


async def oversize_length(peer: Peer) -> None:
    """Announces a frame above every limit."""
    await peer.request()
    peer.raw(struct.pack(">i", MAX_FRAME_BYTES + 1))
    await peer.until_closed()


async def negative_length(peer: Peer) -> None:
    """Announces a frame of less than nothing."""
    await peer.request()
    peer.raw(struct.pack(">i", -2))
    await peer.until_closed()


async def huge_promise(peer: Peer) -> None:
    """Announces the largest legal frame and sends only its beginning."""
    await peer.request()
    peer.raw(struct.pack(">i", MAX_FRAME_BYTES) + b"\0" * 100)
    await peer.until_closed()


async def slow_loris(peer: Peer) -> None:
    """Sends an endless answer, one byte at a time."""
    await peer.request()
    peer.raw(struct.pack(">i", 1_000_000))
    while not peer.writer.is_closing():
        peer.raw(b"\0")
        await asyncio.sleep(0.01)


async def unsolicited(peer: Peer) -> None:
    """Send a frame that was not requested."""
    peer.raw(encode_response(MetadataResponse(), MetadataRequest.VALID_VERSIONS[0], 7))
    await peer.until_closed()


async def closes(peer: Peer) -> None:
    """Closes at once, with nothing pending."""


def advertises(ranges: Ranges) -> Behaviour:
    """Handshakes with these version ranges, then obeys."""

    async def behave(peer: Peer) -> None:
        await peer.handshake(ranges)
        await obedient(peer)

    return behave


# -- the server -----------------------------------------------------------------------------------


class HostileServer:
    """Run a behaviour for every connection; close all tasks and sockets at the end.

    Attributes:
        accepted: How many connections were accepted.
        open_connections: How many are open at this moment.
        failures: What behaviours raised, apart from the client's closing.
    """

    def __init__(self, *behaviours: Behaviour, host: str = "127.0.0.1", port: int = 0) -> None:
        """Each connection takes the next behaviour; the last one serves all further ones."""
        self.host = host
        self.port = port
        self.accepted = 0
        self.open_connections = 0
        self.failures: list[BaseException] = []
        self._idle = asyncio.Event()
        self._behaviours = behaviours
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            await close_port(self._server)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._server is not None:
            await self._server.wait_closed()

    async def until_idle(self) -> None:
        """Waits until no connection is open; raises what a behaviour stumbled over."""
        await self._idle.wait()
        if self.failures:
            raise self.failures[0]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behaviour = self._behaviours[min(self.accepted, len(self._behaviours) - 1)]
        self.accepted += 1
        task = asyncio.get_running_loop().create_task(self._serve(behaviour, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(
        self, behaviour: Behaviour, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.open_connections += 1
        self._idle.clear()
        try:
            await behaviour(Peer(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client closed
        except Exception as error:
            self.failures.append(error)
        finally:
            self.open_connections -= 1
            if not self.open_connections:
                self._idle.set()
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(1):
                    await writer.wait_closed()


def service(says: bytes) -> AbstractAsyncContextManager[str]:
    """Run a server that sends this on every connection; yield its address."""
    return unsteady(repeat(says))


@contextlib.asynccontextmanager
async def unsteady(answers: Iterator[bytes | None]) -> AsyncIterator[str]:
    """Run a server that sends these in turn, one per connection; None closes at once."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        says = next(answers)
        if says is not None:
            writer.write(says)
            await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
