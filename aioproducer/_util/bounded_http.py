"""One HTTP exchange whose memory is bounded, whatever the other side sends."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from aioproducer._util.secrets import without_login

if TYPE_CHECKING:
    from http.cookiejar import CookieJar

    import httpx


_ZONE: Final = re.compile(r"(https?://)\[([0-9a-f:.]+)%(?:25)?([^\]]+)\](:\d+)?", re.IGNORECASE)
"""An IPv6 address with a zone, which URLs have after `%25` (RFC 6874)."""
_PARTS_PER_TURN: Final = 16
_LONGEST_HEADER: Final = 100


class UnboundedAnswerError(Exception):
    """The response is longer than allowed, or compressed without a request for that."""


async def exchange(
    client: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    content: bytes | None,
    longest: int,
) -> tuple[int, bytes, Mapping[str, str]]:
    """Return the status, the body and the headers of one response; the caller bounds the time.

    A body that is compressed or has more than `longest` bytes raises `UnboundedAnswerError`; that
    of an error is left out.
    """
    import httpx

    client.cookies = _no_cookies()
    asked = {**headers, "Accept-Encoding": "identity"}
    extensions: dict[str, Any] = {}
    if zoned := _ZONE.match(url):
        # httpx resolves the zone as it is written, and would send it to the server.
        scheme, address, zone, port = zoned.groups("")
        url = f"{scheme}[{address}%{zone}]{port}{url[zoned.end() :]}"
        asked["Host"] = f"[{address}]{port}"
        extensions["sni_hostname"] = address
    request = client.build_request(
        method, url, headers=asked, content=content, extensions=extensions
    )
    request.url = _url_class()(request.url)
    try:
        response = await client.send(request, stream=True)
    except httpx.InvalidURL:
        # httpx reads where a redirect leads to, although it does not follow it.
        raise httpx.RemoteProtocolError("it redirects to a malformed address") from None
    try:
        try:
            body = await _read(response, longest)
        except UnboundedAnswerError:
            if response.is_success:
                raise
            body = b""  # proxies compress their error pages; the status is enough
        return response.status_code, body, response.headers
    finally:
        await response.aclose()


async def _read(response: httpx.Response, longest: int) -> bytes:
    # What is not compressed cannot grow: so the bound is one of memory, too.
    if response.headers.get("Content-Encoding", "").lower() not in ("", "identity"):
        raise UnboundedAnswerError("it is compressed, which was not requested")
    received = bytearray()
    parts = 0
    async for part in response.aiter_bytes():
        received += part
        parts += 1
        if parts % _PARTS_PER_TURN == 0:
            # Thousands of chunks arrive at once, and none of them waits for the network.
            await asyncio.sleep(0)
        if len(received) > longest:
            raise UnboundedAnswerError(f"it exceeds {longest} bytes")
    return bytes(received)


def has_usable_host(url: str) -> bool:
    """Return whether httpx can send a request to the host of a URL, such as not to 300.1.1.1."""
    import httpx

    try:
        return bool(httpx.URL(url).host)
    except (httpx.InvalidURL, UnicodeError):  # the latter by the package idna
        return False


def retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds to wait before the next try, by the header `Retry-After`; 0 without."""
    given = headers.get("Retry-After", "")[:_LONGEST_HEADER]
    if given.isascii() and given.isdigit():
        return float(given)
    until, now = _time_of(given), _time_of(headers.get("Date", "")[:_LONGEST_HEADER])
    if until is None:
        return 0.0
    return max(0.0, until - (time.time() if now is None else now))  # by the server's clock


def _time_of(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (OverflowError, TypeError, ValueError):
        return None


@cache
def _url_class() -> type[httpx.URL]:
    import httpx

    class QuietUrl(httpx.URL):
        """A URL whose text is fit for httpx's log: a query may hold a key."""

        def __str__(self) -> str:
            return without_login(super().__str__())

        def __repr__(self) -> str:
            return f"URL({str(self)!r})"

    return QuietUrl


@cache
def _no_cookies() -> CookieJar:
    from http.cookiejar import CookieJar

    class NoCookies(CookieJar):
        """A jar that stays empty: cookies would grow with each answer, and each request sends them.

        The standard library also reads their headers in quadratic time.
        """

        def extract_cookies(self, response: Any, request: Any) -> None:
            """Take none, and drop the peer's reason of the status.

            httpx calls this just before it logs the reason: it may quote a secret that was sent, or
            have text that a terminal obeys. Without one, httpx has the standard's.
            """
            response.response.extensions.pop("reason_phrase", None)

    return NoCookies()
