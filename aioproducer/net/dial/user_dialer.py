"""OpenerDialer: streams of a user-defined function (the option `dialer`).

Invariants: as of every `Dialer`, failures are `OSError`; a stream that is not usable is closed.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from aioproducer._util.printable import repr_of
from aioproducer._util.tasks import HOOK_ERRORS, is_cancellation
from aioproducer.errors import KafkaError
from aioproducer.net.dial.dialer import Address, check_place
from aioproducer.types import StreamOpener


class OpenerDialer:
    """Delegates resolving and connecting to a function."""

    def __init__(self, opener: StreamOpener) -> None:
        self._opener = opener

    async def resolve(self, host: str, port: int, *, canonical: bool) -> list[Address]:
        """Return the name itself, which the function resolves."""
        check_place(host, port)
        return [Address(host, port, socket.AF_UNSPEC)]

    async def connect(
        self, address: Address, *, server_hostname: str, limit: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the streams of the function; it chooses the reader's limit itself."""
        try:
            reader, writer = await self._opener(address.host, address.port)
        except (OSError, KafkaError):
            raise
        except HOOK_ERRORS as error:  # from any library that the function uses
            if is_cancellation(error):
                raise
            raise OSError(f"the dialer failed: {repr_of(error)}") from error
        if not hasattr(reader, "readexactly") or not hasattr(writer, "transport"):
            # Such as those of an SSH library, which are alike.
            _close(writer)
            raise OSError(
                "the dialer must return an asyncio.StreamReader and an asyncio.StreamWriter, not "
                f"{type(reader).__name__} and {type(writer).__name__}"
            )
        return reader, writer


def _close(stream: object) -> None:
    """Close what a dialer returned, of whatever type."""
    close = getattr(stream, "close", None)
    if close is not None:
        with suppress(Exception):
            close()
