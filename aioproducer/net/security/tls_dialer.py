"""TlsDialer: TLS on top of another dialer (TCP, proxy, user-defined).

It distinguishes a port without TLS from a broker that closed the connection.

Invariants: as of every `Dialer`, failures are `OSError`; a refusal is a `RefusedDialError`; the
name that is verified and sent (SNI) is that of the bootstrap servers or the metadata, without a
final dot or an IPv6 zone.
"""

from __future__ import annotations

import asyncio
import ssl

from aioproducer._util.hosts import name_for_tls
from aioproducer.errors import ProtocolError
from aioproducer.errors.advice import ADVICE
from aioproducer.net.dial.dialer import Address, Dialer
from aioproducer.net.dial.rejected import RefusedDialError
from aioproducer.net.security.tls import TlsContexts
from aioproducer.net.security.tls_failures import is_damage, not_tls, tls_error_of
from aioproducer.wire.framing import encode_request, frame_size, peek_correlation_id
from aioproducer.wire.messages.api_versions import ApiVersionsRequest

_PROBE_ID = 0x746C73
_PROBE_BYTES = 4096
_CLOSED_BY_PEER = (
    "the connection was closed during the TLS handshake; if that always happens, the broker may "
    "not accept our certificate, or this is not a port of Kafka's"
)
_NO_LIMIT_S = 24 * 3600.0
"""Disables asyncio's handshake timeout: the caller's is shorter, with a better error."""


class TlsDialer:
    """TLS on top of another dialer."""

    def __init__(self, below: Dialer, contexts: TlsContexts) -> None:
        self._below = below
        self._contexts = contexts

    async def resolve(self, host: str, port: int, *, canonical: bool) -> list[Address]:
        """Return the addresses of the other dialer."""
        return await self._below.resolve(host, port, canonical=canonical)

    async def connect(
        self, address: Address, *, server_hostname: str, limit: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a TLS stream to a peer with a certificate for `server_hostname`."""
        name = name_for_tls(server_hostname)
        context = await self._contexts.current()
        reader, writer = await self._below.connect(address, server_hostname=name, limit=limit)
        try:
            await _encrypt(writer, context, name)
        except _ClosedByPeerError as error:
            writer.transport.abort()
            if await _answers_without_tls(self._below, address):
                raise RefusedDialError(not_tls(name)) from error
            raise
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer


async def _encrypt(
    writer: asyncio.StreamWriter, context: ssl.SSLContext, server_hostname: str
) -> None:
    try:
        await writer.start_tls(
            context, server_hostname=server_hostname, ssl_handshake_timeout=_NO_LIMIT_S
        )
    except (ssl.SSLError, ssl.CertificateError, ConnectionError) as error:
        refused = tls_error_of(error, server_hostname)
        if refused is not None:
            raise RefusedDialError(refused) from error
        if is_damage(error):
            raise
        raise _ClosedByPeerError(_CLOSED_BY_PEER) from error
    except (TypeError, NotImplementedError) as error:
        raise OSError(f"the event loop or the `dialer` has no streams with TLS: {error}") from error


class _ClosedByPeerError(ConnectionError):
    """The peer closed the connection in the handshake: a restart, a firewall, or no TLS.

    Kafka reads the start of TLS as a request of 352 MiB, and closes the connection.
    """

    advice = ADVICE["client-certificate-refused"]


async def _answers_without_tls(dialer: Dialer, address: Address) -> bool:
    """Return whether a broker answers ApiVersions there without TLS."""
    try:
        reader, writer = await dialer.connect(address, server_hostname="", limit=_PROBE_BYTES)
    except OSError:
        return False
    try:
        writer.write(encode_request(ApiVersionsRequest(), 0, _PROBE_ID, None))
        frame_size(await reader.readexactly(4))
        return peek_correlation_id(await reader.readexactly(4)) == _PROBE_ID
    except (OSError, asyncio.IncompleteReadError, ProtocolError):
        return False
    finally:
        writer.transport.abort()
