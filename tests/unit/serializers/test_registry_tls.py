"""The registry over TLS: its certificate is verified, its host's name too, and ours is shown."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.security.certificates import Authority

from aioproducer.errors import SchemaRegistryError
from aioproducer.serializers import Schema, SchemaRegistry

ANSWER = b'{"schema": "\\"string\\""}'


@asynccontextmanager
async def registry_of(
    host: str, authority: Authority, directory: Path, *, mutual: bool = True
) -> AsyncIterator[str]:
    """A server for `host` that answers anything with a schema; `mutual` wants a certificate."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)
        writer.write(head + ANSWER)
        await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("registry", host).pem_file(directory / "server.pem"))
    context.load_verify_locations(cadata=authority.pem)
    context.verify_mode = ssl.CERT_REQUIRED if mutual else ssl.CERT_NONE
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def client_context(authority: Authority, directory: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.pem)
    context.load_cert_chain(authority.issue("client").pem_file(directory / "client.pem"))
    return context


async def test_certificates_are_verified_both_ways(tmp_path: Path) -> None:
    authority = Authority()
    async with registry_of("127.0.0.1", authority, tmp_path) as url:
        context = client_context(authority, tmp_path)
        async with SchemaRegistry(url, ssl_context=context) as registry:
            assert await registry.schema(1) == Schema('"string"')
        for other in (None, client_context(Authority("Another CA"), tmp_path)):
            async with SchemaRegistry(url, ssl_context=other, retries=0) as registry:
                with pytest.raises(SchemaRegistryError, match="CERTIFICATE_VERIFY_FAILED"):
                    await registry.schema(1)


async def test_the_systems_authorities_are_read_again_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, authority = tmp_path / "system.pem", Authority()
    system.write_text(Authority("Another CA").pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(system))
    async with (
        registry_of("127.0.0.1", authority, tmp_path, mutual=False) as url,
        SchemaRegistry(url, retries=0) as registry,
    ):
        with pytest.raises(SchemaRegistryError, match="CERTIFICATE_VERIFY_FAILED"):
            await registry.schema(1)
        system.write_text(system.read_text() + authority.pem)
        assert await registry.schema(1) == Schema('"string"')


async def test_no_proxy_is_taken_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    authority = Authority()
    async with registry_of("127.0.0.1", authority, tmp_path) as url:
        context = client_context(authority, tmp_path)
        async with SchemaRegistry(url, ssl_context=context, retries=0) as registry:
            assert await registry.schema(1) == Schema('"string"')


async def test_another_host_is_not_the_registry(tmp_path: Path) -> None:
    authority = Authority()
    async with registry_of("elsewhere.example", authority, tmp_path) as url:
        context = client_context(authority, tmp_path)
        async with SchemaRegistry(url, ssl_context=context, retries=0) as registry:
            with pytest.raises(SchemaRegistryError, match="CERTIFICATE_VERIFY_FAILED"):
                await registry.schema(1)
