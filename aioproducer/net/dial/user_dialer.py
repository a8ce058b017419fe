"""Streams that a function of the user's opens.

Owns: `OpenerDialer`, the `Dialer` in front of the option `dialer`. Must not know: what the function
does, TLS, timeouts.

Invariants: as of every `Dialer`, failures are `OSError`; a stream that is not usable is closed.
"""

from __future__ import annotations

import asyncio
import socket

from aioproducer.errors import KafkaError
from aioproducer.net.dial.dialer import Address, check_place
from aioproducer.types import StreamOpener


class OpenerDialer:
    """Leaves names, addresses and connecting to a function."""

    def __init__(self, opener: StreamOpener) -> None:
        self._opener = opener

    async def resolve(self, host: str, port: int, *, canonical: bool) -> list[Address]:
        """The name itself: what it means is the function's business."""
        check_place(host, port)
        return [Address(host, port, socket.AF_UNSPEC)]

    async def connect(
        self, address: Address, *, server_hostname: str, limit: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """What the function opens; how much its reader buffers is its own choice."""
        try:
            reader, writer = await self._opener(address.host, address.port)
        except (OSError, KafkaError):
            raise
        except Exception as error:  # of whatever library the function uses
            raise OSError(f"the dialer failed: {error!r}") from error
        return reader, writer
