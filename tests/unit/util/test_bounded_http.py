"""One HTTP exchange, with servers that make it long or expensive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from email.utils import formatdate

import httpx
import pytest

from aioproducer._util.bounded_http import exchange, retry_after


class Crumbs(httpx.AsyncByteStream):
    """A body of single bytes that have all arrived."""

    def __init__(self, count: int) -> None:
        self._count = count

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self._count):
            yield b" "


async def test_the_loop_runs_while_many_small_parts_of_an_answer_are_read() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    transport = httpx.MockTransport(lambda request: httpx.Response(200, stream=Crumbs(20_000)))
    async with httpx.AsyncClient(transport=transport) as client:
        _, body, _ = await exchange(
            client, "GET", "http://peer", headers={}, content=None, longest=1_000_000
        )
    counting.cancel()
    assert len(body) == 20_000
    assert turns > 500


async def get(client: httpx.AsyncClient) -> tuple[int, bytes]:
    asked = exchange(client, "GET", "http://peer", headers={}, content=None, longest=1_000)
    status, body, _ = await asked
    return status, body


async def test_no_cookie_is_kept_or_sent_or_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        # Reading the second header takes quadratic time.
        headers = [("Set-Cookie", f"c{len(asked)}=" + "x" * 3000), ("Set-Cookie2", "a," * 30)]
        return httpx.Response(200, headers=headers)

    def read(*_: object) -> None:
        raise AssertionError("a header of cookies was read")

    monkeypatch.setattr("http.cookiejar.CookieJar.make_cookies", read)
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        for _ in range(3):
            assert await get(client) == (200, b"")
        assert not client.cookies
    assert not any("Cookie" in request.headers for request in asked)


@pytest.mark.parametrize("reason", [b"\x1b[2J\x1b]0;owned\x07", b"a secret", b"r" * 60_000, None])
async def test_the_reason_of_a_status_is_logged_as_the_standard_has_it(
    reason: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    extensions = {} if reason is None else {"reason_phrase": reason}
    transport = httpx.MockTransport(lambda _: httpx.Response(500, extensions=extensions))
    with caplog.at_level("INFO", "httpx"):
        async with httpx.AsyncClient(transport=transport) as client:
            assert await get(client) == (500, b"")
    (line,) = [each.getMessage() for each in caplog.records if each.name == "httpx"]
    assert line.endswith('500 Internal Server Error"')


@pytest.mark.parametrize(
    "location", ["http://" + "u@" * 30_000, "http://h:99999", "http://[", "http://a b\x7f", "//[::"]
)
async def test_a_malformed_redirect_is_an_error_of_the_request(location: str) -> None:
    headers = {"Location": location}
    transport = httpx.MockTransport(lambda request: httpx.Response(302, headers=headers))
    async with httpx.AsyncClient(transport=transport) as client:
        try:
            status, _ = await get(client)
        except httpx.RequestError:
            status = 302
    assert status == 302


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("7", 7), ("0", 0), ("", 0), ("soon", 0), ("-3", 0), ("\u0662", 0), ("9" * 5_000, 1e99)],
)
def test_retry_after_is_read_as_seconds(given: str, seconds: float) -> None:
    assert min(retry_after({"Retry-After": given}), 1e99) == seconds


@pytest.mark.parametrize("encoding", ["identity", "Identity", ""])
async def test_an_answer_that_is_not_compressed_may_say_so(encoding: str) -> None:
    headers = {"Content-Encoding": encoding}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, text="x"))
    async with httpx.AsyncClient(transport=transport) as client:
        assert await get(client) == (200, b"x")


@pytest.mark.parametrize("headers", [{"Content-Encoding": "gzip"}, {}])
async def test_the_body_of_an_error_that_cannot_be_read_is_left_out(
    headers: dict[str, str],
) -> None:
    transport = httpx.MockTransport(
        lambda _: httpx.Response(502, headers=headers, stream=Crumbs(2_000))
    )
    async with httpx.AsyncClient(transport=transport) as client:
        assert await get(client) == (502, b"")


def test_retry_after_is_read_as_a_date() -> None:
    assert 0 < retry_after({"Retry-After": formatdate(time.time() + 50, usegmt=True)}) <= 50
    assert retry_after({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}) == 0
    assert retry_after({"Retry-After": "Fri, 31 Dec 99999 23:59:59 GMT"}) == 0


@pytest.mark.parametrize(("until", "seconds"), [("00:00:07", 7), ("00:00:00", 0)])
def test_the_date_of_retry_after_is_by_the_servers_clock(until: str, seconds: float) -> None:
    headers = {"Date": "Sat, 01 Jan 2000 00:00:00 GMT"}
    assert retry_after(headers | {"Retry-After": f"Sat, 01 Jan 2000 {until} GMT"}) == seconds


@pytest.mark.parametrize("zone", ["%25eth0", "%eth0"])
async def test_the_zone_of_an_ipv6_address_is_for_this_machine_alone(zone: str) -> None:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200)

    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as client:
        url = f"https://[fe80::1{zone}]:8081/subjects"
        await exchange(client, "GET", url, headers={}, content=None, longest=1_000)
    (request,) = seen
    assert (request.url.host, request.url.port, request.url.path) == (
        "fe80::1%eth0",
        8081,
        "/subjects",
    )
    assert request.headers["Host"] == "[fe80::1]:8081"
    assert request.extensions["sni_hostname"] == "fe80::1"
