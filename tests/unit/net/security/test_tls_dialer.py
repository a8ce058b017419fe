"""TLS on top of another dialer: names, ports without TLS, streams that do not support it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from support import hostile
from support.hostile import HostileServer, Peer, versions_response
from support.security.certificates import Authority

from aioproducer.errors import TlsError
from aioproducer.net.dial.dialer import Address, TcpDialer
from aioproducer.net.dial.rejected import RefusedDialError
from aioproducer.net.security.tls import TlsContexts, TlsSettings
from aioproducer.net.security.tls_dialer import TlsDialer
from aioproducer.wire.api_keys import ApiKey

_APPLICATION_DATA = 23
"""The type of encrypted records in TLS 1.3."""


async def reads_and_closes(peer: Peer) -> None:
    await peer.reader.read(1)


def dialer(authority: Authority, below: Any = None) -> TlsDialer:
    contexts = TlsContexts(TlsSettings(truststore_certificates=authority.pem))
    return TlsDialer(TcpDialer() if below is None else below, contexts)


async def accept_and_read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve a client until it closes the connection."""
    await reader.read()
    writer.close()


@pytest.mark.parametrize("name", ["broker.example", "broker.example."])
async def test_the_name_is_verified_and_sent_without_a_final_dot(
    authority: Authority, tmp_path: Path, name: str
) -> None:
    sent: list[str | None] = []
    context = authority.server_context(authority.issue("broker", "broker.example"), tmp_path)
    context.sni_callback = lambda _socket, name, _context: sent.append(name)

    async with await asyncio.start_server(accept_and_read, "127.0.0.1", 0, ssl=context) as server:
        address = Address(*server.sockets[0].getsockname())
        _, writer = await dialer(authority).connect(address, server_hostname=name, limit=65536)
        assert isinstance(writer.get_extra_info("ssl_object"), ssl.SSLObject)
        writer.close()
        await writer.wait_closed()
    assert sent == ["broker.example"]


async def test_an_ipv6_address_is_verified_without_its_zone(
    authority: Authority, tmp_path: Path
) -> None:
    """A zone is a number or name of an interface of this machine: no certificate has it."""
    context = authority.server_context(authority.issue("broker", "::1"), tmp_path)

    async with await asyncio.start_server(accept_and_read, "::1", 0, ssl=context) as server:
        address = Address("::1", server.sockets[0].getsockname()[1], socket.AF_INET6)
        for name in ("::1%1", "::1%eth0.5"):
            _, writer = await dialer(authority).connect(address, server_hostname=name, limit=65536)
            assert isinstance(writer.get_extra_info("ssl_object"), ssl.SSLObject)
            writer.close()
            await writer.wait_closed()
        with pytest.raises(RefusedDialError) as caught:
            await dialer(authority).connect(address, server_hostname="::2%1", limit=65536)
    assert "the broker's certificate is for another host than ::2" in str(caught.value.error)


async def test_a_broker_without_tls_is_recognized_by_its_answer_in_plain_text(
    authority: Authority,
) -> None:
    async def answers_the_oldest_version(peer: Peer) -> None:
        header = await peer.expect(ApiKey.API_VERSIONS)
        assert header.api_version == 0
        peer.respond(header, versions_response())
        await peer.until_closed()

    async with HostileServer(reads_and_closes, answers_the_oldest_version) as server:
        address = Address(server.host, server.port)
        with pytest.raises(RefusedDialError) as caught:
            await dialer(authority).connect(address, server_hostname="broker", limit=65536)
        await server.until_idle()
        assert server.accepted == 2
    assert isinstance(caught.value.error, TlsError)
    assert "broker does not use TLS on this port" in str(caught.value.error)


@pytest.mark.parametrize(
    "second",
    [
        hostile.closes_before_answering,
        hostile.wrong_correlation_id,
        hostile.oversize_length,
        hostile.empty_frame,
    ],
)
async def test_a_server_that_closes_and_is_no_broker_without_tls_may_be_dialed_again(
    authority: Authority, second: hostile.Behaviour
) -> None:
    async def ends(peer: Peer) -> None:
        async with asyncio.timeout(0.2):
            await second(peer)

    async with HostileServer(reads_and_closes, ends) as server:
        address = Address(server.host, server.port)
        with pytest.raises(ConnectionError, match="closed during the TLS handshake"):
            await dialer(authority).connect(address, server_hostname="broker", limit=65536)
        assert server.accepted == 2


@pytest.mark.skipif(
    ssl.OPENSSL_VERSION_INFO >= (3, 2), reason="damage has the same reason as a peer without TLS"
)
async def test_bytes_that_are_damaged_in_the_handshake_are_no_refusal(
    authority: Authority, tmp_path: Path
) -> None:
    context = authority.server_context(authority.issue("broker", "broker"), tmp_path)

    async with await asyncio.start_server(accept_and_read, "127.0.0.1", 0, ssl=context) as server:

        async def damages_what_is_encrypted(peer: Peer) -> None:
            place = server.sockets[0].getsockname()
            reader, writer = await asyncio.open_connection(*place)
            try:
                writer.write(await peer.reader.read(65536))  # ClientHello
                while header := await reader.read(5):
                    body = bytearray(await reader.readexactly(int.from_bytes(header[3:])))
                    body[-1] ^= header[0] == _APPLICATION_DATA
                    peer.raw(header + body)
                    if header[0] == _APPLICATION_DATA:
                        break
                await peer.until_closed()
            finally:
                writer.close()
                await writer.wait_closed()

        async with HostileServer(damages_what_is_encrypted) as between:
            address = Address(between.host, between.port)
            with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC") as caught:
                await dialer(authority).connect(address, server_hostname="broker", limit=65536)
            await between.until_idle()
    assert not isinstance(caught.value, RefusedDialError)


class Writer:
    """A stream whose TLS handshake ends with this error."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.is_aborted = False

    @property
    def transport(self) -> Writer:
        return self

    def abort(self) -> None:
        self.is_aborted = True

    async def start_tls(self, *_arguments: Any, **_options: Any) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (NotImplementedError("no"), OSError, "the event loop or the `dialer` has no streams with"),
        (TypeError("no TLS"), OSError, "the `dialer` has no streams with TLS: no TLS"),
        (ConnectionResetError(), ConnectionError, "the connection was closed during the TLS"),
        (ssl.SSLEOFError(), ConnectionError, "the connection was closed during the TLS"),
        (ssl.SSLError("odd"), RefusedDialError, "TLS with broker failed: odd"),
        (ZeroDivisionError("a bug"), ZeroDivisionError, "a bug"),
    ],
)
async def test_a_stream_whose_tls_handshake_fails_is_aborted(
    authority: Authority, error: Exception, kind: type[Exception], words: str
) -> None:
    writer = Writer(error)

    class Below(TcpDialer):
        is_dialed = False

        async def connect(self, address: Address, *, server_hostname: str, limit: int) -> Any:
            if self.is_dialed:
                raise ConnectionRefusedError
            self.is_dialed = True
            return object(), writer

    with pytest.raises(kind, match=words) as caught:
        await dialer(authority, Below()).connect(
            Address("127.0.0.1", 1), server_hostname="broker", limit=65536
        )
    assert isinstance(caught.value, RefusedDialError) is (kind is RefusedDialError)
    assert writer.is_aborted


async def test_addresses_are_those_of_the_other_dialer(authority: Authority) -> None:
    found = await dialer(authority).resolve("10.1.2.3", 9092, canonical=False)
    assert found == [Address("10.1.2.3", 9092)]
