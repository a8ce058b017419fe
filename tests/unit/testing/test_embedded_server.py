"""The port of an embedded broker: connections that arrive as it is closed end with it."""

from __future__ import annotations

import asyncio
import socket

import pytest

from aioproducer.testing import EmbeddedCluster


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_accepted_as_the_broker_stops_ends_with_it(turns: int) -> None:
    async with EmbeddedCluster(1) as cluster:
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        with socket.create_connection((host, int(port))) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await cluster.stop_broker(1)
            serving = [task for task in asyncio.all_tasks() if "_serve" in repr(task.get_coro())]
            assert serving == []
            await asyncio.sleep(0)  # the transport's own turn
            client.settimeout(5)
            try:
                assert client.recv(1) == b""
            except ConnectionResetError:
                pass


@pytest.mark.parametrize("turns", range(5))
async def test_a_cancelled_start_leaves_no_open_port(turns: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    cluster = EmbeddedCluster(1, ports=[port])
    starting = asyncio.create_task(cluster.start())
    for _ in range(turns):
        await asyncio.sleep(0)
    if not starting.cancel():
        await cluster.stop()
    await asyncio.gather(starting, return_exceptions=True)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


@pytest.mark.parametrize("turns", range(5))
async def test_a_stop_after_a_cancelled_one_closes_the_port(turns: int) -> None:
    async with EmbeddedCluster(1) as cluster:
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        stopping = asyncio.create_task(cluster.stop())
        for _ in range(turns):
            await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        await cluster.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))
