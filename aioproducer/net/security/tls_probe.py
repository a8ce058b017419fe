"""Probe for TLS at an address: only a TLS handshake is sent."""

from __future__ import annotations

import ssl

from aioproducer.net.dial.dialer import Address, Dialer
from aioproducer.net.security.tls_failures import is_alert

_READ_BYTES = 4096


def unverified_context() -> ssl.SSLContext:
    """Return a context that accepts any certificate, for a probe that sends nothing else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def uses_tls(dialer: Dialer, address: Address, host: str) -> bool:
    """Return whether the peer accepts a TLS handshake; verifies nothing."""
    try:
        _, writer = await dialer.connect(address, server_hostname=host, limit=_READ_BYTES)
    except OSError:
        return False
    try:
        await writer.start_tls(unverified_context(), server_hostname=host)
    except ssl.SSLError as error:
        return is_alert(error)
    except (OSError, TypeError, NotImplementedError):  # custom streams may not support TLS
        return False
    else:
        return True
    finally:
        writer.transport.abort()
