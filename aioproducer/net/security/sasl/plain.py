"""PLAIN (RFC 4616): the password itself, which is why it belongs inside TLS.

Owns: the one message. Must not know: where the password comes from.
"""

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
        """One message; the broker's answer says nothing."""
        given = await self._credentials()
        if "\0" in given.username + given.password:
            raise AuthenticationError("user name and password of PLAIN must not contain NUL")
        yield f"\0{given.username}\0{given.password}".encode()
