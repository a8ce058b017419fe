from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from aioproducer import ProducerConfig
from aioproducer.cli.connecting import wait_for_listener
from aioproducer.errors import BootstrapError


@pytest.fixture
def closed_port() -> Iterator[int]:
    # Bound but not listening: no other process takes the port, and connecting is refused.
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


async def test_refused_connections_are_reported_for_each_server(closed_port: int) -> None:
    servers = f"127.0.0.1:{closed_port},localhost:{closed_port},[::1]:{closed_port}"
    with pytest.raises(BootstrapError) as caught:
        await wait_for_listener(ProducerConfig(bootstrap_servers=servers), within_s=0.3)
    text = str(caught.value)
    assert f"127.0.0.1:{closed_port} connection refused" in text
    assert f"localhost:{closed_port} " in text
    assert f"[::1]:{closed_port} " in text


async def test_one_listening_server_is_enough(closed_port: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        servers = f"127.0.0.1:{closed_port},127.0.0.1:{port}"
        await wait_for_listener(ProducerConfig(bootstrap_servers=servers), within_s=5)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port at which connections are neither accepted nor refused: its queue is full."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            with suppress(BlockingIOError):
                waiting.connect(server.getsockname())
        yield server.getsockname()[1]


async def test_a_server_that_does_not_answer_holds_up_no_other(silent_port: int) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        servers = f"127.0.0.1:{silent_port},127.0.0.1:{port}"
        await wait_for_listener(ProducerConfig(bootstrap_servers=servers), within_s=5)
    with pytest.raises(BootstrapError, match=f"127.0.0.1:{silent_port} does not answer"):
        await wait_for_listener(
            ProducerConfig(bootstrap_servers=f"127.0.0.1:{silent_port}"), within_s=0.3
        )
