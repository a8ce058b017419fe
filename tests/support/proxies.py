"""Small proxies on loopback: SOCKS5 and HTTP CONNECT, with and without a login.

Owns: listening, the proxies' side of both protocols, forwarding, and what was asked for. Not here:
the client under test.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, Self

from aioproducer.testing.embedded_server import close_port

Kind = Literal["socks5", "http"]
_CHUNK = 65536


@dataclass
class Proxy:
    """A proxy that runs as long as the block.

    Attributes:
        kind: The protocol of the proxy.
        login: User name and password it wants.
        names: Host names it resolves, and to what; addresses stand for themselves.
        refusal: The SOCKS code or HTTP status with which it refuses to connect.
        answer: Bytes it answers anything with, instead of speaking its protocol; none: silence.
        asked: The hosts and ports it was asked for.
        logins: The logins it was shown.
        accepted: How many connections it was given.
    """

    kind: Kind = "socks5"
    login: tuple[str, str] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"
    refusal: int | None = None
    answer: bytes | None = None
    asked: list[tuple[str, int]] = field(default_factory=list)
    logins: list[tuple[str, str]] = field(default_factory=list)
    accepted: int = 0
    port: int = 0

    async def __aenter__(self) -> Self:
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._accept, self.host, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await close_port(self._server)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def place(self) -> str:
        """`host:port` of the proxy."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.answer is not None:
                await reader.read(_CHUNK)
                writer.write(self.answer)
                await reader.read()
                return
            target = await (self._socks if self.kind == "socks5" else self._http)(reader, writer)
            if target is not None:
                await self._forward(target, reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _admits(self, name: str, password: str) -> bool:
        self.logins.append((name, password))
        return (name, password) == self.login

    async def _socks(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[str, int] | None:
        _, count = await reader.readexactly(2)
        wanted = 0 if self.login is None else 2
        if wanted not in await reader.readexactly(count):
            writer.write(b"\x05\xff")
            return None
        writer.write(bytes([5, wanted]))
        if self.login is not None:
            _, size = await reader.readexactly(2)
            name = (await reader.readexactly(size)).decode()
            (size,) = await reader.readexactly(1)
            admitted = self._admits(name, (await reader.readexactly(size)).decode())
            writer.write(bytes([1, not admitted]))
            if not admitted:
                return None
        _, _, _, kind = await reader.readexactly(4)
        if kind == 3:
            (size,) = await reader.readexactly(1)
            host = (await reader.readexactly(size)).decode()
        else:
            host = str(ipaddress.ip_address(await reader.readexactly(4 if kind == 1 else 16)))
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.asked.append((host, port))
        # The address it connected from, as a name: clients have to read all three kinds.
        writer.write(bytes([5, self.refusal or 0, 0, 3, 5]) + b"proxy" + b"\x04\x38")
        return None if self.refusal else (host, port)

    async def _http(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[str, int] | None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        host, _, port = head[0].split(" ")[1].rpartition(":")
        if self.login is not None:
            shown = [line for line in head if line.lower().startswith("proxy-authorization: basic")]
            pair = base64.b64decode(shown[0].split()[-1]).decode() if shown else ":"
            name, _, password = pair.partition(":")
            if not self._admits(name, password):
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
                return None
        self.asked.append((host.strip("[]"), int(port)))
        if self.refusal is not None:
            writer.write(b"HTTP/1.1 %d Not Today\r\nX: y\r\n\r\nwhy" % self.refusal)
            return None
        writer.write(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
        return self.asked[-1]

    async def _forward(
        self,
        target: tuple[str, int],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        host, port = target
        far_reader, far = await asyncio.open_connection(self.names.get(host, host), port)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, far))
                group.create_task(_pump(far_reader, writer))
        except* OSError:
            pass  # one side has gone; the other follows
        finally:
            far.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError  # ends the other direction as well
