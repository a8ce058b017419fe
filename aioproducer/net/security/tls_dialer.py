"""TCP with TLS on top.

Owns: `TlsDialer`, and telling a port without TLS from a broker that just hung up. Must not know:
where its contexts come from.

Invariants: as of every `Dialer`, failures are `OSError`; a refusal is a `TlsRefusedError`; the name
that is verified and sent (SNI) is the one the user or the brokers' metadata gave, less a dot at its
end.
"""

from __future__ import annotations

import asyncio
import socket
import ssl

from aioproducer.errors import ProtocolError
from aioproducer.net.dialer import Address, TcpDialer
from aioproducer.net.security.tls import TlsContexts
from aioproducer.net.security.tls_failures import TlsRefusedError, not_tls, refusal
from aioproducer.wire.framing import encode_request, frame_size, peek_correlation_id
from aioproducer.wire.messages import ApiVersionsRequest

_PROBE_ID = 0x746C73
_PROBE_BYTES = 4096
_HUNG_UP = (
    "the connection was closed during the TLS handshake; if that always happens, the broker may "
    "not accept our certificate (ssl_keystore_*), or this is no port of Kafka's"
)
_NO_LIMIT_S = 24 * 3600.0
"""For asyncio's own limit on a handshake: the caller's is shorter and says more."""


class TlsDialer(TcpDialer):
    """TCP and TLS through the running loop; see `TcpDialer` for the socket's options."""

    def __init__(
        self,
        contexts: TlsContexts,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        keepalive: bool = True,
    ) -> None:
        super().__init__(send_buffer_bytes, receive_buffer_bytes, keepalive)
        self._contexts = contexts

    async def connect(
        self, address: Address, *, server_hostname: str, limit: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A stream whose other end has shown a certificate for `server_hostname`."""
        name = server_hostname.rstrip(".")
        try:
            return await super().connect(address, server_hostname=name, limit=limit)
        except _HangUpError as error:
            if await _speaks_plainly(address):
                raise TlsRefusedError(not_tls(name)) from error
            raise

    async def _stream(
        self, sock: socket.socket, server_hostname: str, limit: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = await self._contexts.current()
        try:
            return await asyncio.open_connection(
                sock=sock,
                limit=limit,
                ssl=context,
                server_hostname=server_hostname,
                ssl_handshake_timeout=_NO_LIMIT_S,
            )
        except (ssl.SSLError, ssl.CertificateError, ConnectionError) as error:
            refused = refusal(error, server_hostname)
            if refused is not None:
                raise TlsRefusedError(refused) from error
            raise _HangUpError(_HUNG_UP) from error


class _HangUpError(ConnectionError):
    """The other end hung up in the handshake: it restarts, or is behind a firewall, or has no TLS.

    Kafka takes the beginning of TLS for a request of 352 MiB, and hangs up without a word.
    """


async def _speaks_plainly(address: Address) -> bool:
    """Whether a broker answers there without TLS; it is asked for its versions and told nothing."""
    try:
        reader, writer = await TcpDialer().connect(address, server_hostname="", limit=_PROBE_BYTES)
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
