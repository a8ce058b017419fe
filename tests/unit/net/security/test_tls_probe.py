"""The probe for TLS at an address."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest
from support import hostile
from support.hostile import HostileServer
from support.security.certificates import Authority

from aioproducer.net.dial.dialer import Address, TcpDialer
from aioproducer.net.security.tls_probe import uses_tls


def shake_hands(listener: socket.socket, context: ssl.SSLContext) -> bool:
    """Shake hands on one connection; return whether the client closes it then."""
    accepted, _ = listener.accept()
    accepted.settimeout(5)
    with accepted:
        try:
            with context.wrap_socket(accepted, server_side=True) as encrypted:
                return encrypted.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True


@pytest.mark.parametrize("has_common_cipher", [True, False])
async def test_a_server_that_accepts_or_refuses_a_tls_handshake_uses_tls(
    authority: Authority, tmp_path: Path, has_common_cipher: bool
) -> None:
    context = authority.server_context(authority.issue("broker", "broker.example"), tmp_path)
    if not has_common_cipher:  # the server ends the handshake with an alert
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")  # its key is not RSA
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = asyncio.create_task(asyncio.to_thread(shake_hands, listener, context))
        address = Address(*listener.getsockname())
        assert await uses_tls(TcpDialer(), address, "another.example")
        assert await server


@pytest.mark.parametrize("alert", [40, 70, 112, 116])
async def test_a_server_that_sends_any_alert_uses_tls(alert: int) -> None:
    async def refuses(peer: hostile.Peer) -> None:
        await peer.reader.read(1)
        peer.raw(bytes((0x15, 3, 3, 0, 2, 2, alert)))  # a fatal one
        await peer.until_closed()

    async with HostileServer(refuses) as server:
        address = Address(server.host, server.port)
        assert await uses_tls(TcpDialer(), address, "broker.example")


@pytest.mark.parametrize("behaviour", [hostile.closes, hostile.garbage, hostile.resets])
async def test_a_server_without_tls_does_not(behaviour: hostile.Behaviour) -> None:
    async def other(peer: hostile.Peer) -> None:
        if behaviour is hostile.garbage:
            peer.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await peer.until_closed()
        elif behaviour is hostile.resets:
            await peer.reader.read(1)
            peer.reset()

    async with HostileServer(other) as server:
        address = Address(server.host, server.port)
        assert not await uses_tls(TcpDialer(), address, "broker.example")
        await server.until_idle()


async def test_where_nothing_listens_there_is_no_tls() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address(*listener.getsockname())
    assert not await uses_tls(TcpDialer(), address, "broker.example")
