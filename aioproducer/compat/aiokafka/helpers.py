"""`create_ssl_context`, for programs that make their TLS context as aiokafka documents it."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from os import PathLike

__all__ = ["create_ssl_context"]

_Path = str | bytes | PathLike[str] | PathLike[bytes]


def create_ssl_context(
    *,
    cafile: _Path | None = None,
    capath: _Path | None = None,
    cadata: str | bytes | None = None,
    certfile: _Path | None = None,
    keyfile: _Path | None = None,
    password: Callable[[], str | bytes | bytearray] | str | bytes | bytearray | None = None,
) -> ssl.SSLContext:
    """Make a context for connections to brokers; certificates and host names are verified.

    Args:
        cafile: certificates to trust, in PEM; the system's if none of the three is given.
        capath: a directory of such files.
        cadata: such certificates themselves, PEM text or DER bytes.
        certfile: the client's own certificate, in PEM.
        keyfile: its key, if that is in another file.
        password: of the key.

    Raises:
        OSError: a file cannot be read.
        ssl.SSLError: a file holds something else.
    """
    context = ssl.create_default_context(cafile=cafile, capath=capath, cadata=cadata)
    if certfile:
        context.load_cert_chain(certfile, keyfile, password)
    return context
