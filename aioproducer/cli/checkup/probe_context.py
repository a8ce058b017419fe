"""The doctor's connections to brokers: made as by a producer with the same options.

Invariant: on a connection that is not verified only TLS's own handshake is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aioproducer.cli.sessions import abort_stream
from aioproducer.config import ProducerConfig
from aioproducer.net.dial.dialer import Address, Dialer
from aioproducer.net.security.tls_probe import unverified_context, uses_tls
from aioproducer.net.settings import NetSettings
from aioproducer.runtime import settings as made

READ_AHEAD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """The common dependencies of every probe; `plain` connects without TLS."""

    settings: NetSettings
    plain: Dialer
    dialer: Dialer
    uses_tls: bool
    step_s: float

    @classmethod
    def of(cls, config: ProducerConfig, step_s: float) -> ProbeContext:
        """Return the context for a producer's options."""
        return cls(
            made.net_settings(config),
            made.make_plain_dialer(config),
            made.make_dialer(config),
            "SSL" in config.security_protocol,
            step_s,
        )

    @asynccontextmanager
    async def unverified(self, address: Address, name: str) -> AsyncIterator[Any]:
        """Yield the `ssl` object of a connection that is not verified, to read its certificates."""
        async with asyncio.timeout(self.step_s):
            _, writer = await self.plain.connect(
                address, server_hostname=name, limit=READ_AHEAD_BYTES
            )
            try:
                await writer.start_tls(unverified_context(), server_hostname=name)
                yield writer.get_extra_info("ssl_object")
            finally:
                await abort_stream(writer)

    async def answers_with_tls(self, address: Address, name: str) -> bool:
        """Return whether the server uses TLS, with any certificate."""
        try:
            async with asyncio.timeout(self.step_s):
                return await uses_tls(self.plain, address, name)
        except TimeoutError:
            return False
