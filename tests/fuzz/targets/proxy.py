"""The answers of a proxy before the way to a broker is open.

Input: which kind of proxy, how the stream is cut, then the stream.
"""

from __future__ import annotations

from collections.abc import Iterator

from aioproducer.config.proxy_url import ProxyUrl
from aioproducer.net.dial.proxies import ProxyFailedError, pass_through
from aioproducer.net.dial.rejected import RefusedDialError
from fuzz.guard import Target, require
from fuzz.source import Source
from fuzz.streams import run_on_virtual_time

_PASSWORD = b"never shown"
_PROXIES = [
    ProxyUrl(scheme, "proxy", 1080, *login)
    for scheme in ("socks5", "http")
    for login in ((), (b"me", _PASSWORD))
]


class _Stream:
    def __init__(self, data: bytes, cut: int) -> None:
        self._data = data
        self._cut = cut + 1

    async def send(self, data: bytes) -> None:
        """A proxy that reads no requests."""

    async def receive(self, limit: int) -> bytes:
        size = min(limit, self._cut)
        piece, self._data = self._data[:size], self._data[size:]
        return piece


def run(data: bytes) -> None:
    source = Source(data)
    proxy = _PROXIES[source.number(1) % len(_PROXIES)]
    cut = source.number(1)
    stream = _Stream(source.rest(), cut)
    try:
        run_on_virtual_time(pass_through(proxy, stream, "broker", 9092))
    except (ProxyFailedError, RefusedDialError) as error:
        require(_PASSWORD.decode() not in str(error), "a password is shown: {!r}", error)
        require(len(str(error)) < 1000, "an error of {} characters", len(str(error)))


def seeds() -> Iterator[bytes]:
    connected = b"\x05\0\0\x01\x0a\0\0\x01\x04\x38"
    for cut in (0, 2, 255):
        yield bytes([0, cut]) + b"\x05\0" + connected
        yield bytes([0, cut]) + b"\x05\0\x05\0\0\x03\x05proxy\x04\x38"
        yield bytes([1, cut]) + b"\x05\x02\x01\0" + connected
        yield bytes([1, cut]) + b"\x05\xff"
        yield bytes([0, cut]) + b"\x05\0\x05\x02\0\x01" + bytes(6)
        yield bytes([2, cut]) + b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\n"
        yield bytes([3, cut]) + b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\n\r\n"
        yield bytes([2, cut]) + b"HTTP/1.0 503 Not Today\r\n\r\n<html>"


TARGET = Target("proxy", run, seeds, bytes_per_byte=64)
