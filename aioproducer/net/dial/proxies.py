"""Connections through proxies: SOCKS5 (RFC 1928, 1929) and HTTP CONNECT (RFC 9110).

Invariants
- Nothing is read beyond the proxy's response; a proxy that sends more is refused.
- The host in a request is checked: a broker's name comes from the network.
- Data from a proxy is bounded; the result is a connection, a `ProxyFailedError` or a
  `RefusedDialError` (other credentials are required: a retry cannot help).
- User name and password are in no error; a proxy's text is quoted and shortened.
"""

from __future__ import annotations

import ipaddress
import re
from base64 import b64encode
from typing import Protocol

from aioproducer._util.hosts import is_host
from aioproducer._util.secrets import hides_arguments, without_secrets
from aioproducer.config.proxy_url import ProxyUrl
from aioproducer.errors import ProxyAuthenticationError
from aioproducer.net.dial.rejected import RefusedDialError

MAX_HEAD_BYTES = 16 * 1024
"""Limit of the head of an HTTP proxy's response."""

_SHOWN = 100
_HEAD_END = b"\r\n\r\n"
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-9][0-9][0-9])(?: ([^\r\n]*))?\r\n")

_WRONG_LOGIN = (401, 407)
"""tinyproxy answers 401, where RFC 9110 has 407."""

_VERSION, _AUTH_VERSION, _CONNECT = 5, 1, 1
_NO_LOGIN, _PASSWORD, _NONE_OF_THESE = 0, 2, 0xFF
_IPV4, _NAME, _IPV6 = 1, 3, 4
_REPLIES = {
    1: "it failed",
    2: "its rules do not allow it",
    3: "the network is unreachable",
    4: "the host is unreachable",
    5: "the connection was refused",
    6: "the time to live expired",
    7: "it cannot connect to anything",
    8: "it does not support this address type",
}


class ProxyFailedError(OSError):
    """The proxy cannot be reached, or cannot connect to the broker; a retry may help."""


class Channel(Protocol):
    """The bytes to and from a proxy."""

    async def send(self, data: bytes) -> None:
        """Write all data; raise OSError."""

    async def receive(self, limit: int) -> bytes:
        """Return one to `limit` bytes; none at the end. Raise OSError."""


@hides_arguments
async def pass_through(proxy: ProxyUrl, channel: Channel, host: str, port: int) -> None:
    """Let the proxy connect to the broker; the channel is then connected to it.

    Raise `RefusedDialError` if the proxy requires other credentials, `OSError` for any other
    failure.
    """
    if proxy.scheme == "http":
        await _http_connect(proxy, channel, host, port)
    else:
        await _socks_connect(proxy, channel, host, port)


# -- SOCKS5 --------------------------------------------------------------------------------------


async def _socks_connect(proxy: ProxyUrl, channel: Channel, host: str, port: int) -> None:
    target = _socks_address(host) + port.to_bytes(2, "big")
    methods = [_NO_LOGIN] if proxy.username is None else [_NO_LOGIN, _PASSWORD]
    await channel.send(bytes([_VERSION, len(methods), *methods]))
    version, method = await _exactly(channel, 2)
    if version != _VERSION:
        raise ProxyFailedError("the proxy does not support SOCKS5")
    if method == _NONE_OF_THESE:
        raise _wrong_login(
            "the proxy wants a user name and a password"
            if proxy.username is None
            else "the proxy takes no user name and password"
        )
    if method not in methods:
        raise ProxyFailedError(f"the proxy chose method {method}, which was not offered")
    if method == _PASSWORD:
        await _log_in(proxy, channel)
    await channel.send(bytes([_VERSION, _CONNECT, 0]) + target)
    version, reply, _, kind = await _exactly(channel, 4)
    if version != _VERSION:
        raise ProxyFailedError("the proxy does not support SOCKS5")
    if reply:
        what = _REPLIES.get(reply, f"code {reply}")
        raise ProxyFailedError(f"the proxy did not connect: {what}")
    await _exactly(channel, await _bound_address_size(channel, kind) + 2)


async def _log_in(proxy: ProxyUrl, channel: Channel) -> None:
    name, password = proxy.username or b"", proxy.password
    await channel.send(bytes([_AUTH_VERSION, len(name)]) + name + bytes([len(password)]) + password)
    _, status = await _exactly(channel, 2)
    if status:
        raise _wrong_login("the proxy refused the user name or the password")


async def _bound_address_size(channel: Channel, kind: int) -> int:
    if kind == _NAME:
        return int.from_bytes(await _exactly(channel, 1))
    if kind not in (_IPV4, _IPV6):
        raise ProxyFailedError(f"the proxy answered with an address of the unknown kind {kind}")
    return 4 if kind == _IPV4 else 16


def _socks_address(host: str) -> bytes:
    _check(host)
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host.encode("idna")
        return bytes([_NAME, len(name)]) + name
    return bytes([_IPV4 if address.version == 4 else _IPV6]) + address.packed


# -- HTTP ----------------------------------------------------------------------------------------


async def _http_connect(proxy: ProxyUrl, channel: Channel, host: str, port: int) -> None:
    target = b"%b:%d" % (_http_host(host), port)
    lines = [b"CONNECT %b HTTP/1.1" % target, b"Host: %b" % target]
    login = b""
    if proxy.username is not None:
        login = b64encode(proxy.username + b":" + proxy.password)
        lines.append(b"Proxy-Authorization: Basic %b" % login)
    await channel.send(b"\r\n".join(lines) + _HEAD_END)
    head = await _head(channel)
    found = _STATUS_LINE.match(head)
    if found is None:
        raise ProxyFailedError("the proxy does not support HTTP")
    status = int(found[1])
    if status in _WRONG_LOGIN:
        raise _wrong_login(
            "the proxy wants a user name and a password"
            if proxy.username is None
            else "the proxy refused the user name or the password"
        )
    if not 200 <= status < 300:
        sent = (
            login.decode(),
            proxy.password.decode("utf-8", "replace"),
            (proxy.username or b"").decode("utf-8", "replace"),
        )
        words = without_secrets((found[2] or b"").decode("utf-8", "replace"), sent)[:_SHOWN]
        raise ProxyFailedError(f"the proxy did not connect: {status} {words!r}")
    if head.index(_HEAD_END) + len(_HEAD_END) < len(head):
        raise ProxyFailedError("the proxy sent more than its answer")


async def _head(channel: Channel) -> bytes:
    """Return the response up to the end of its head, and the bytes received with it."""
    head = b""
    while _HEAD_END not in head:
        if len(head) >= MAX_HEAD_BYTES:
            raise ProxyFailedError("the proxy's answer has no end")
        head += await _some(channel, MAX_HEAD_BYTES - len(head))
    return head


def _http_host(host: str) -> bytes:
    _check(host)
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.encode("idna")
    return b"[%b]" % str(address).encode() if address.version == 6 else str(address).encode()


# -- both ----------------------------------------------------------------------------------------


def _check(host: str) -> None:
    """Raise OSError for a host that must not be in a request."""
    if not is_host(host):
        raise OSError(f"{host[:_SHOWN]!r} is not a host name or address")


def _wrong_login(words: str) -> RefusedDialError:
    return RefusedDialError(ProxyAuthenticationError(words))


async def _some(channel: Channel, limit: int) -> bytes:
    data = await channel.receive(limit)
    if not data:
        raise ProxyFailedError("the proxy closed the connection")
    return data


async def _exactly(channel: Channel, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += await _some(channel, size - len(data))
    return data
