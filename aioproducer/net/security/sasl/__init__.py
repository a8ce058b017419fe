"""SASL authentication inside Kafka's protocol (KIP-43, KIP-152, KIP-368).

One module per mechanism; `authentication` exchanges the tokens with the broker.

A mechanism's `exchange` is an async generator: it yields each token for the broker and receives the
broker's response, or has the broker's refusal raised in it; it ends after a success and raises
`AuthenticationError` otherwise. It runs once per authentication, so that rotated credentials are
used from the next one on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Protocol

from aioproducer.types import SaslCredentials

__all__ = ["CredentialsSource", "Mechanism", "UnansweredToken", "fixed"]


CredentialsSource = Callable[[], Awaitable[SaslCredentials]]
"""Asked before every authentication."""


class UnansweredToken(bytes):
    """A last token that brokers before 1.0 do not answer, not even with an empty frame (KIP-43).

    They send what the server's half of the mechanism returns; that of GSSAPI returns nothing.
    """


class Mechanism(Protocol):
    """One way to authenticate."""

    @property
    def name(self) -> str:
        """The registered name, as in `sasl_mechanism`."""

    def exchange(self, host: str) -> AsyncGenerator[bytes, bytes]:
        """Exchange tokens with the broker of this host name; see the module."""


def fixed(credentials: SaslCredentials) -> CredentialsSource:
    """Return a source of constant credentials."""

    async def give() -> SaslCredentials:
        return credentials

    return give
