"""Dialers: resolve names and open streams; the only I/O of the network layer.

`Dialer` is the protocol, `TcpDialer` its TCP implementation, directly or through a proxy. TLS is in
`security.tls_dialer`, user-defined streams in `user_dialer`; a simulated network implements the
same two methods.

Invariants: a `connect` that fails or is cancelled closes its socket; failures are `OSError`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from typing import NamedTuple, Protocol

from aioproducer._util.hosts import host_and_port, is_host
from aioproducer._util.threads import OwnThreads
from aioproducer.config.proxy_url import ProxyUrl
from aioproducer.net.dial.proxies import ProxyFailedError, pass_through

_SHOWN = 100


class Address(NamedTuple):
    """An address to connect to; `host` is numeric.

    `host` is a name, with the family AF_UNSPEC, if a proxy or a user's dialer resolves it.
    """

    host: str
    port: int
    family: int = socket.AF_INET
    scope_id: int = 0
    canonical_name: str | None = None
    """The name of a reverse lookup, if requested (client.dns.lookup)."""
    via: Address | None = None
    """The proxy; None for a direct connection."""

    def __str__(self) -> str:
        place = host_and_port(self.host, self.port)
        return place if self.via is None else f"{place} through the proxy {self.via}"


class Dialer(Protocol):
    """Opens byte streams to brokers."""

    async def resolve(self, host: str, port: int, *, canonical: bool) -> list[Address]:
        """Return all addresses of the host, in the order to try; raise OSError if none."""

    async def connect(
        self, address: Address, *, server_hostname: str, limit: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return an open stream; `limit` bounds the reader's buffer, TLS verifies the name."""


def check_place(host: str, port: int) -> None:
    """Raise OSError for an invalid host or port: both may come from a broker."""
    if not is_host(host) or not 0 < port < 65536:
        raise OSError(f"{host[:_SHOWN]!r}, port {port}: not a host and port to connect to")


class TcpDialer:
    """Plain TCP through the running loop."""

    def __init__(
        self,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        proxy: ProxyUrl | None = None,
    ) -> None:
        self._buffers = {
            socket.SO_SNDBUF: send_buffer_bytes,
            socket.SO_RCVBUF: receive_buffer_bytes,
        }
        self._proxy = proxy
        self._lookups = OwnThreads()

    async def resolve(self, host: str, port: int, *, canonical: bool) -> list[Address]:
        """Return the resolver's addresses without duplicates, in its order (RFC 6724).

        With a proxy, return each address combined with each address of the proxy; if the proxy
        resolves names, the name is the address.
        """
        check_place(host, port)
        proxy = self._proxy
        if proxy is None:
            return await self._resolve(host, port, canonical)
        try:
            ways = await self._resolve(proxy.host, proxy.port, False)
        except OSError as error:
            raise ProxyFailedError(f"the proxy's name {proxy.host}: {reason_of(error)}") from error
        targets = [Address(host, port, socket.AF_UNSPEC)]
        if not proxy.resolves_names:
            targets = await self._resolve(host, port, canonical)
        return [target._replace(via=way) for target in targets for way in ways]

    async def connect(
        self, address: Address, *, server_hostname: str, limit: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connected stream; socket options are set before the TCP handshake."""
        first = address.via or address
        sock = socket.socket(first.family, socket.SOCK_STREAM)
        try:
            self._set_options(sock)
            await self._connect(sock, first)
            if self._proxy is not None:
                await pass_through(self._proxy, _SocketChannel(sock), address.host, address.port)
            return await asyncio.open_connection(sock=sock, limit=limit)
        except BaseException:
            sock.close()
            raise

    async def _connect(self, sock: socket.socket, address: Address) -> None:
        try:
            await asyncio.get_running_loop().sock_connect(sock, _socket_address(address))
            if sock.getsockname() == sock.getpeername():
                # The local port may be the closed port of the ephemeral range that is dialed: TCP
                # then connects the socket to itself (simultaneous open).
                raise ConnectionRefusedError("no server listens, the socket connected to itself")
        except OSError as error:
            if self._proxy is not None:
                raise ProxyFailedError(
                    f"the proxy cannot be reached: {reason_of(error)}"
                ) from error
            raise

    async def _resolve(self, host: str, port: int, canonical: bool) -> list[Address]:
        literal = _literal_address(host, port)
        if literal is not None and not canonical:
            return [literal]
        try:
            found = await self._lookups.run(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        except ValueError as error:  # not encodable, or a NUL inside
            raise OSError(f"{host[:_SHOWN]!r} is not a host name") from error
        addresses = [
            Address(str(where[0]), port, family, next(iter(where[3:]), 0))  # IPv6 has a scope
            for family, _type, _protocol, _name, where in found
        ]
        unique = list(dict.fromkeys(addresses))
        if not canonical:
            return unique
        names = await asyncio.gather(*map(self._name_of, unique))
        return [
            address._replace(canonical_name=name)
            for address, name in zip(unique, names, strict=True)
        ]

    async def _name_of(self, address: Address) -> str:
        """Return the name of an address, or the address, as Java does, without a usable name."""
        where = _socket_address(address)
        try:
            name, _service = await self._lookups.run(
                socket.getnameinfo, where, socket.NI_NUMERICSERV
            )
        except OSError:
            return address.host
        return name if is_host(name) else address.host

    def _set_options(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, True)
        # Before connect: the receive buffer decides the window scale of the TCP handshake.
        for option, size in self._buffers.items():
            if size > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)


def reason_of(error: OSError) -> str:
    """Return why a connection cannot be made."""
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if error.errno and str(error.strerror).startswith("Connect call failed"):
        return os.strerror(error.errno)  # asyncio puts the address in its place
    return error.strerror or str(error) or type(error).__name__


class _SocketChannel:
    """A `Channel` on a connected socket, before it becomes a stream."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        try:
            await self._loop.sock_sendall(self._sock, data)
        except OSError as error:
            raise ProxyFailedError(f"the connection to the proxy broke: {error}") from error

    async def receive(self, limit: int) -> bytes:
        try:
            return await self._loop.sock_recv(self._sock, limit)
        except OSError as error:
            raise ProxyFailedError(f"the connection to the proxy broke: {error}") from error


def _literal_address(host: str, port: int) -> Address | None:
    """Return the address of a numeric host, without the resolver's thread."""
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        return None
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.scope_id is not None:
            return None  # the resolver turns an interface name into its number
        return Address(host, port, socket.AF_INET6)
    return Address(host, port, socket.AF_INET)


def _socket_address(address: Address) -> tuple[str, int] | tuple[str, int, int, int]:
    if address.family == socket.AF_INET6:
        return (address.host, address.port, 0, address.scope_id)
    return (address.host, address.port)
