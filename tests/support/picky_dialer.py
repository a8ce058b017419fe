"""A dialer on which some hosts refuse the client."""

from __future__ import annotations

import asyncio

from aioproducer.errors import TlsError
from aioproducer.net.dial.dialer import Address, Dialer
from aioproducer.net.dial.rejected import RefusedDialError


class PickyDialer:
    """Of these hosts each refuses the client's certificate."""

    def __init__(self, below: Dialer, refuse: set[str]) -> None:
        self._below = below
        self.refuse = refuse
        self.refused = 0

    async def resolve(self, host: str, port: int, *, canonical: bool) -> list[Address]:
        return await self._below.resolve(host, port, canonical=canonical)

    async def connect(
        self, address: Address, *, server_hostname: str, limit: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if server_hostname in self.refuse:
            self.refused += 1
            raise RefusedDialError(TlsError("refused"))
        return await self._below.connect(address, server_hostname=server_hostname, limit=limit)
