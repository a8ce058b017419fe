"""PLAIN (RFC 4616): sends the password itself; use it only with TLS."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from aioproducer.errors import AuthenticationError
from aioproducer.net.security.sasl import CredentialsSource


class Plain:
    """The mechanism PLAIN; no authorization id, as in Java's client."""

    name: str = "PLAIN"

    def __init__(self, credentials: CredentialsSource) -> None:
        self._credentials = credentials

    async def exchange(self, host: str) -> AsyncGenerator[bytes, bytes]:
        """Send one message; the response is empty."""
        given = await self._credentials()
        if "\0" in given.username + given.password:
            raise AuthenticationError("user name and password of PLAIN must not contain NUL")
        yield f"\0{given.username}\0{given.password}".encode()
