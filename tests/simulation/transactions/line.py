"""One process's way to the network, which can be cut as by its sudden death.

Owns: the connections of a process. Not here: what travels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aioproducer.net.dial.dialer import Address
from aioproducer.testing.world.network import SimNetwork
from aioproducer.testing.world.transport import ByteListener, ClientTransport


class Line:
    """A `Dialer` on top of the run's network.

    Args:
        network: The network.
        make_listener: Makes a watch for every connection.
    """

    def __init__(self, network: SimNetwork, make_listener: Callable[[], ByteListener]) -> None:
        self._network = network
        self._make_listener = make_listener
        self._transports: list[ClientTransport] = []
        self._is_cut = False

    def cut(self) -> None:
        """The process is gone: nothing of it leaves its machine any more."""
        self._is_cut = True
        for transport in self._transports:
            transport.abort()

    # Dialer

    async def resolve(self, host: str, port: int, *, canonical: bool) -> list[Address]:
        """As the network does."""
        self._check()
        return await self._network.resolve(host, port, canonical=canonical)

    async def connect(
        self, address: Address, *, server_hostname: str, limit: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """As the network does."""
        self._check()
        reader, writer = await self._network.connect(
            address, server_hostname=server_hostname, limit=limit
        )
        transport = writer.transport
        if not isinstance(transport, ClientTransport):
            raise TypeError("the network gives another kind of transport")
        if self._is_cut:
            transport.abort()
        self._check()
        transport.listen(self._make_listener())
        self._transports = [each for each in self._transports if not each.is_lost]
        self._transports.append(transport)
        return reader, writer

    def _check(self) -> None:
        if self._is_cut:
            raise OSError("the process is gone")
