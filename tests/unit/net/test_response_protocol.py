"""Responses that are taken where they are read, and data that is left to the streams."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.security.certificates import Authority
from support.waiting import until

from aioproducer.net.response_protocol import ResponseProtocol


class Streams(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = bytearray()
        self.reported: list[object] = []

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool | None:
        self.reported.append("eof")
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.reported.append(exc)

    def pause_writing(self) -> None:
        self.reported.append("pause")

    def resume_writing(self) -> None:
        self.reported.append("resume")


class Transport(asyncio.Transport):
    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol


def tapped(take: Callable[[bytes], int]) -> tuple[Streams, ResponseProtocol]:
    streams = Streams()
    transport = Transport(streams)
    protocol = ResponseProtocol.on(transport, take, asyncio.AbstractEventLoop())
    assert protocol is not None
    assert transport.protocol is protocol
    return streams, protocol


async def test_asyncios_transports_read_into_room_that_is_there() -> None:
    seen: list[bytes] = []
    ours, theirs = socket.socketpair()
    with theirs:
        streams = Streams()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: streams, sock=ours)
        taken = 0

        def take(data: bytes) -> int:
            seen.append(data)
            return taken

        protocol = ResponseProtocol.on(transport, take, loop)
        assert protocol is not None
        taken = 6
        theirs.sendall(b"answer")
        await until(lambda: seen == [b"answer"])
        assert not streams.received
        theirs.sendall(b"another" * 10_000)
        taken = 0
        await until(lambda: len(streams.received) == 70_000)
        assert bytes(streams.received) == b"another" * 10_000
        assert protocol.unread == 70_000
        theirs.close()
        await until(lambda: "eof" in streams.reported)
        transport.close()


def answer_and_close(listener: socket.socket, context: ssl.SSLContext, answer: bytes) -> None:
    accepted, _ = listener.accept()
    with context.wrap_socket(accepted, server_side=True) as peer:
        peer.recv(4)
        peer.sendall(answer)


@pytest.mark.parametrize("size", [30_000, 60_000])
async def test_what_came_by_tls_before_the_end_is_seen(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioproducer.net.response_protocol._ROOM_BYTES", 4096)
    authority = Authority()
    context = authority.server_context(authority.issue("here", "localhost"), tmp_path)
    trusting = ssl.create_default_context(cadata=authority.pem)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(
            asyncio.to_thread(answer_and_close, listener, context, b"x" * size)
        )
        reader, writer = await asyncio.open_connection(
            *listener.getsockname(), ssl=trusting, server_hostname="localhost", limit=1 << 20
        )
        assert ResponseProtocol.on(writer.transport, lambda data: 0, asyncio.get_running_loop())
        writer.write(b"ping")
        await asyncio.sleep(0)
        time.sleep(0.05)  # noqa: ASYNC251 - a busy loop: answer and end are there before it looks
        assert len(await reader.read(-1)) == size
        await serving
        writer.transport.abort()


def test_what_is_taken_does_not_reach_the_streams() -> None:
    streams, protocol = tapped(len)
    protocol.data_received(b"an answer")
    assert not streams.received
    assert protocol.unread == 0


def test_the_rest_goes_to_the_streams_and_all_that_follows_until_it_is_read() -> None:
    streams, protocol = tapped(lambda data: min(4, len(data)))
    protocol.data_received(b"taken, left")
    protocol.data_received(b" to the streams")
    assert streams.received == b"n, left to the streams"
    protocol.unread -= len(streams.received)
    protocol.data_received(b"take")
    assert streams.received == b"n, left to the streams"


@given(chunks=st.lists(st.tuples(st.binary(min_size=1), st.integers(0, 40), st.booleans())))
def test_no_byte_is_lost_doubled_or_overtaken(chunks: list[tuple[bytes, int, bool]]) -> None:
    seen, taken_of_next = bytearray(), 0

    def take(data: bytes) -> int:
        count = min(taken_of_next, len(data))
        seen.extend(data[:count])
        return count

    streams, protocol = tapped(take)
    for data, taken_of_next, reads in chunks:  # noqa: B007 - `take` uses it
        protocol.data_received(data)
        if reads:
            seen += streams.received
            protocol.unread -= len(streams.received)
            streams.received.clear()
    assert seen + streams.received == b"".join(data for data, _, _ in chunks)


def test_everything_else_is_for_the_streams() -> None:
    streams, protocol = tapped(len)
    protocol.pause_writing()
    protocol.resume_writing()
    assert protocol.eof_received()
    lost = OSError("gone")
    protocol.connection_lost(lost)
    assert streams.reported == ["pause", "resume", "eof", lost]


class BareTransport(asyncio.Transport):
    """A transport of another event loop, without the method `get_protocol`."""

    def __getattribute__(self, name: str) -> Any:
        if name == "get_protocol":
            raise AttributeError(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize(
    "transport", [Transport(asyncio.BaseProtocol()), asyncio.Transport(), BareTransport()]
)
def test_a_transport_of_another_kind_keeps_its_protocol(transport: asyncio.Transport) -> None:
    assert ResponseProtocol.on(transport, len, asyncio.AbstractEventLoop()) is None


async def test_the_error_of_a_write_keeps_nothing_of_its_callers() -> None:
    loop = asyncio.get_running_loop()
    streams = Streams()
    here, there = socket.socketpair()
    transport, _ = await loop.create_connection(lambda: streams, sock=here)
    assert ResponseProtocol.on(transport, len, loop) is not None
    there.close()

    class Batch:
        pass

    def send() -> weakref.ref[Batch]:
        batch = Batch()
        transport.write(b"x" * 1000)
        return weakref.ref(batch)

    batch = send()
    await until(lambda: bool(streams.reported))
    assert isinstance(streams.reported[-1], ConnectionError)
    assert batch() is None
