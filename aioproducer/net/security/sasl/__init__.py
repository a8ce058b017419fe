"""SASL: proving to a broker who we are, inside Kafka's protocol (KIP-43, KIP-152, KIP-368).

Owns: the shape of a mechanism and of the source of its credentials; one module per mechanism, and
`authentication`, which carries the tokens. Must not know: option names, TLS.

A mechanism's `exchange` is an async generator: it yields each token for the broker and is sent the
broker's answer to it; it ends when the broker has proved what it must, and raises
`AuthenticationError` when it has not. It runs once per authentication, so that rotated credentials
count from the next one on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Protocol

from aioproducer.types import SaslCredentials

__all__ = ["CredentialsSource", "Mechanism", "fixed"]


CredentialsSource = Callable[[], Awaitable[SaslCredentials]]
"""Asked before every authentication."""


class Mechanism(Protocol):
    """One way to authenticate."""

    @property
    def name(self) -> str:
        """The registered name, as in `sasl_mechanism`."""

    def exchange(self, host: str) -> AsyncGenerator[bytes, bytes]:
        """One exchange with the broker of this host name; see the module."""


def fixed(credentials: SaslCredentials) -> CredentialsSource:
    """A source that always gives the same."""

    async def give() -> SaslCredentials:
        return credentials

    return give
