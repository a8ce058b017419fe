"""The gateway in examples/: HTTP and WebSocket in, Kafka out, and its page in a real browser."""

from __future__ import annotations

import asyncio
import json
import os
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.responses import Response
from support.browser import Page, chromium, running_browser
from support.programs import example
from support.serving import served
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from aioproducer.starlette import LivePage
from aioproducer.testing import EmbeddedCluster, read_topic

EVENT = {"type": "clicked", "subject": "user-7", "data": {"n": 1}}
SHOTS = os.environ.get("AIOPRODUCER_TEST_SCREENSHOTS")

needs_chromium = pytest.mark.skipif(chromium() is None, reason="no Chromium (make system-deps)")


@pytest.fixture
async def brokers() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=3, topics={"events": 6}) as cluster:
        yield cluster


def application(brokers: EmbeddedCluster, **options: Any) -> Starlette:
    module = example("gateway/app.py")
    app: Starlette = module.create_app(module.producing(brokers.bootstrap_servers, **options))
    return app


@asynccontextmanager
async def gateway(brokers: EmbeddedCluster, **options: Any) -> AsyncIterator[str]:
    async with served(application(brokers, **options)) as address:
        yield address


@asynccontextmanager
async def client_of(address: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False) as client:
        yield client


async def values(brokers: EmbeddedCluster) -> list[Any]:
    found = await read_topic(brokers.bootstrap_servers, "events")
    return [json.loads(record.value or b"") for records in found.values() for record in records]


async def test_an_event_is_answered_when_it_is_acknowledged(brokers: EmbeddedCluster) -> None:
    async with gateway(brokers) as address, client_of(address) as client:
        stored = await client.post("/events", json=EVENT)
        assert (stored.status_code, stored.json()["offset"]) == (201, 0)
        again = await client.post("/events", json=EVENT)
        assert again.json() == {"partition": stored.json()["partition"], "offset": 1}
        accepted = await client.post("/events?wait=false", json=EVENT)
        assert (accepted.status_code, accepted.json()) == (202, {"accepted": True})
        assert (await client.get("/ready")).json() == {"ready": True}
        assert (await client.post("/events", json={"type": "x"})).status_code == 422
        assert (await client.get("/")).headers["location"] == "live/"
    assert await values(brokers) == [EVENT, EVENT, EVENT]


async def test_a_cluster_that_does_not_answer_is_503_with_retry_after(
    brokers: EmbeddedCluster,
) -> None:
    timeouts = {"request_timeout_ms": 200, "delivery_timeout_ms": 300, "linger_ms": 0}
    async with gateway(brokers, **timeouts) as address, client_of(address) as client:
        brokers.faults.every("produce").is_never_answered()
        late = await client.post("/events", json=EVENT)
        assert (late.status_code, late.headers["retry-after"]) == (503, "1")
        assert late.json()["persistence"] == "possibly persisted"


async def test_a_full_buffer_is_503_at_once_and_passes(brokers: EmbeddedCluster) -> None:
    little = {"buffer_memory": 4096, "batch_size": 1024, "max_block_ms": 1000}
    async with gateway(brokers, **little) as address, client_of(address) as client:
        fault = brokers.faults.every("produce").is_answered_late(2500)
        event = {**EVENT, "data": {"text": "x" * 700}}
        posts = [client.post("/events?wait=false", json=event) for _ in range(12)]
        answers = await asyncio.gather(*posts)
        refused = [answer for answer in answers if answer.status_code == 503]
        assert 0 < len(refused) < 12
        for answer in refused:
            assert answer.headers["retry-after"] == "1"
            assert answer.json()["persistence"] == "not persisted"
        brokers.faults.remove(fault)
        async with asyncio.timeout(30):
            while (await client.post("/events", json=EVENT)).status_code == 503:
                pass
    # What was refused was not written, what was accepted was.
    assert len(await values(brokers)) == 12 - len(refused) + 1


async def test_a_websocket_is_answered_in_order(brokers: EmbeddedCluster) -> None:
    async with (
        gateway(brokers) as address,
        connect(f"ws://{address}/events", proxy=None) as socket,
    ):
        for number in range(50):
            await socket.send(json.dumps({**EVENT, "data": {"n": number}}))
        await socket.send("no event")
        answers = [json.loads(await socket.recv()) for _ in range(51)]
    assert [answer["message"] for answer in answers] == list(range(1, 52))
    assert [answer.get("offset") for answer in answers[:50]] == list(range(50))
    assert (answers[50]["status"], answers[50]["persistence"]) == (422, "not persisted")
    assert [event["data"]["n"] for event in await values(brokers)] == list(range(50))


async def test_a_websocket_that_leaves_early_loses_nothing(brokers: EmbeddedCluster) -> None:
    async with (
        gateway(brokers) as address,
        connect(f"ws://{address}/events", proxy=None, max_queue=None) as socket,
    ):
        for _ in range(20):
            await socket.send(json.dumps(EVENT))
        await socket.recv()
    assert len(await values(brokers)) == 20


async def test_other_sites_do_not_get_the_feed_and_viewers_are_counted(
    brokers: EmbeddedCluster,
) -> None:
    async with gateway(brokers) as address:
        feed = f"ws://{address}/live/feed"
        with pytest.raises(InvalidStatus, match="403"):
            await connect(feed, proxy=None, origin="https://evil.example")
        async with connect(feed, proxy=None, origin=f"http://{address}") as socket:
            shown = json.loads(await socket.recv())
            assert (shown["process"], shown["state"]) == (os.getpid(), "running")
        async with client_of(address) as client:
            page = await client.get("/live/")
            assert "default-src 'none'" in page.headers["content-security-policy"]
            assert page.text.count("Gateway") == 2
            assert (await client.get("/live/live.py")).status_code == 404


async def test_too_many_viewers_are_asked_to_come_back(brokers: EmbeddedCluster) -> None:
    async with gateway(brokers) as address:
        feed = f"ws://{address}/live/feed"
        viewers = [await connect(feed, proxy=None) for _ in range(20)]
        for viewer in viewers:
            await viewer.recv()
        async with connect(feed, proxy=None) as late:
            await late.wait_closed()
            assert late.close_code == 1013
        for viewer in viewers:
            await viewer.close()


# -- hostile clients ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 400),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 400),
        ({"Content-Type": "text/plain"}, 415),
    ],
)
async def test_a_foreign_page_cannot_publish(
    brokers: EmbeddedCluster, headers: dict[str, str], status: int
) -> None:
    async with gateway(brokers) as address, client_of(address) as client:
        sent = {"Content-Type": "application/json", **headers}
        answer = await client.post("/events", content=json.dumps(EVENT), headers=sent)
        assert answer.status_code == status
        if "Origin" in headers:
            with pytest.raises(InvalidStatus, match="403"):
                await connect(f"ws://{address}/events", proxy=None, origin=headers["Origin"])
    assert await values(brokers) == []


async def test_no_more_is_kept_than_an_event_may_have(brokers: EmbeddedCluster) -> None:
    async def long() -> AsyncIterator[bytes]:
        for _ in range(60):
            yield bytes(1_000_000)

    async with gateway(brokers) as address, client_of(address) as client:
        headers = {"Content-Type": "application/json"}
        tracemalloc.start()
        try:
            answer = await client.post("/events", content=long(), headers=headers)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert answer.status_code == 413
        assert most < 30_000_000


@pytest.mark.parametrize(
    ("client", "headers", "is_served"),
    [
        ("127.0.0.1", {}, True),
        ("::1", {}, True),
        ("10.0.0.7", {}, False),
        ("127.0.0.1", {"X-Forwarded-For": "10.0.0.7"}, False),
        ("127.0.0.1", {"Forwarded": "for=10.0.0.7"}, False),
        ("127.0.0.1", {"X-Real-IP": "10.0.0.7"}, False),
        ("127.0.0.1", {"Via": "1.1 proxy"}, False),
        ("no address", {}, False),
    ],
)
async def test_without_a_token_other_machines_are_refused_whatever_host_they_name(
    client: str, headers: dict[str, str], is_served: bool
) -> None:
    guard = example("gateway/app.py").Guard(Response(), token=None)
    transport = httpx.ASGITransport(guard, client=(client, 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8000") as asking:
        answer = await asking.post("/events", headers=headers)
    assert answer.status_code == (200 if is_served else 403)


async def test_an_empty_token_does_not_let_other_machines_in() -> None:
    module = example("gateway/app.py")
    app = module.create_app(module.producing("localhost:1"), token="")
    transport = httpx.ASGITransport(app, client=("10.0.0.7", 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8000") as asking:
        assert (await asking.post("/events?token=")).status_code == 403


@pytest.mark.parametrize("options", [{"token": ""}, {"hosts": [""]}, {"hosts": "ops.example"}])
def test_a_live_page_that_nothing_guards_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"empty token|list of names"):
        LivePage(**options)


@pytest.mark.parametrize(
    "header", ["Via", "X-Forwarded-Proto", "CF-Connecting-IP", "X-Client-IP", "True-Client-IP"]
)
async def test_the_page_accepts_requests_that_a_proxy_passes_on(header: str) -> None:
    transport = httpx.ASGITransport(LivePage(), client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as asking:
        assert (await asking.get("/")).status_code == 200
        assert (await asking.get("/", headers={header: "x"})).status_code == 403


async def test_a_token_guards_what_other_machines_reach(brokers: EmbeddedCluster) -> None:
    module = example("gateway/app.py")
    producing = module.producing(brokers.bootstrap_servers)
    with pytest.raises(ValueError, match="GATEWAY_TOKEN"):
        module.create_app(producing, hosts=["events.example"])
    app = module.create_app(producing, hosts=["events.example"], token="s3same")
    async with served(app) as address, client_of(address) as client:
        host = {"Host": "events.example"}
        assert (await client.get("/ready", headers=host)).status_code == 200
        assert (await client.post("/events", json=EVENT, headers=host)).status_code == 401
        wrong = {**host, "Authorization": "Bearer other"}
        assert (await client.post("/events", json=EVENT, headers=wrong)).status_code == 401
        right = {**host, "Authorization": "Bearer s3same"}
        assert (await client.post("/events", json=EVENT, headers=right)).status_code == 201
        assert (await client.get("/live/", headers=host)).status_code == 401
        assert (await client.get("/live/?token=s3same", headers=host)).status_code == 200
        assert (await client.get("/?token=s3same")).headers["location"] == "live/?token=s3same"
        for query in ("", "?token=other"):
            with pytest.raises(InvalidStatus, match="403"):
                await connect(f"ws://{address}/live/feed{query}", proxy=None)
        async with connect(f"ws://{address}/live/feed?token=s3same", proxy=None) as socket:
            assert json.loads(await socket.recv())["state"] == "running"


@pytest.mark.parametrize("http", ["h11", "httptools"])
async def test_the_servers_log_has_no_token(
    brokers: EmbeddedCluster, caplog: pytest.LogCaptureFixture, http: str
) -> None:
    module = example("gateway/app.py")
    producing = module.producing(brokers.bootstrap_servers)
    app = module.create_app(producing, hosts=["events.example"], token="s3same")
    logged = {"http": http, "log_level": "info", "log_config": None}
    async with served(app, **logged) as address, client_of(address) as client:
        for path in ("/", "/live/", "/live/page.css", "/ready", "/none"):
            await client.get(f"{path}?token=s3same")
        await client.post("/events?token=s3same&wait=false", json=EVENT)
        await client.get("/live/?token=s3same", headers={"Host": "evil.example"})
        await client.get("/live/?token=s3same", headers={"Origin": "https://evil.example"})
        for path in ("/live/feed", "/events"):
            async with connect(f"ws://{address}{path}?token=s3same", proxy=None):
                pass
            with pytest.raises(InvalidStatus, match="403"):
                await connect(f"ws://{address}{path}?token=s3sames", proxy=None)
    text = "\n".join(record.getMessage() for record in caplog.records if "uvicorn" in record.name)
    for shown in ('"GET /live/ HTTP/1.1" 200', "/events?wait=false", '"WebSocket /live/feed" 403'):
        assert shown in text
    assert "s3same" not in text


async def test_the_server_of_a_live_page_does_not_log_its_token(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Starlette()
    app.mount("/live", LivePage(token="s3same"))
    async with served(app, log_level="info", log_config=None) as address:
        async with client_of(address) as client:
            assert (await client.get("/live/?token=s3same")).status_code == 200
        with pytest.raises(InvalidStatus, match="403"):
            await connect(f"ws://{address}/live/feed?token=s3sames", proxy=None)
    text = "\n".join(record.getMessage() for record in caplog.records if "uvicorn" in record.name)
    assert '"GET /live/ HTTP/1.1" 200' in text
    assert "s3same" not in text


@pytest.mark.parametrize(
    ("options", "host", "client", "status"),
    [
        ({}, "localhost:8000", "127.0.0.1", 200),
        ({}, "evil.example", "127.0.0.1", 403),
        ({}, "[::1", "127.0.0.1", 403),
        ({}, "localhost:8000", "10.0.0.7", 403),
        ({}, "localhost:8000 for=10.0.0.7", "127.0.0.1", 403),
        ({"hosts": ["ops.example"]}, "OPS.example:8443", "10.0.0.7", 200),
        ({"hosts": ["ops.example"]}, "evil.example", "10.0.0.7", 403),
        ({"hosts": ["ops.example"], "token": "t"}, "ops.example", "10.0.0.7", 401),
        ({"token": "t"}, "localhost", "127.0.0.1", 401),
    ],
)
async def test_the_page_is_served_where_it_was_meant_to_be(
    options: dict[str, Any], host: str, client: str, status: int
) -> None:
    transport = httpx.ASGITransport(LivePage(**options), client=(client, 1))
    name, _, forwarded = host.partition(" ")
    headers = {"Host": name, **({"X-Forwarded-For": forwarded} if forwarded else {})}
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as asking:
        assert (await asking.get("/", headers=headers)).status_code == status


@pytest.mark.parametrize("host", ["events.example:/ready?", "events.example:1/live/page.?"])
def test_a_host_header_chooses_no_path(host: str) -> None:
    module = example("gateway/app.py")
    guard = module.Guard(lambda *_: None, token="s3same")
    scope = {
        "type": "http",
        "scheme": "http",
        "server": ("10.0.0.1", 80),
        "path": "/events",
        "query_string": b"",
        "headers": [(b"host", host.encode())],
    }
    assert guard.refusal(HTTPConnection(scope)) == 401


async def test_a_malformed_origin_and_a_slow_body_are_refused(
    brokers: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = example("gateway/app.py")
    monkeypatch.setattr(module, "SLOWEST_BODY_S", 0.2)
    app = module.create_app(module.producing(brokers.bootstrap_servers))
    async with served(app) as address, client_of(address) as client:
        answer = await client.post("/events", json=EVENT, headers={"Origin": "http://["})
        assert answer.status_code == 403
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /events HTTP/1.1\r\nHost: {address}\r\nContent-Length: 100\r\n"
        writer.write(f"{head}Content-Type: application/json\r\n\r\n{{".encode())
        assert b" 408 " in await asyncio.wait_for(reader.readline(), 10)
        await asyncio.wait_for(reader.read(), 10)  # to its end, although the body has none
        writer.close()


async def test_an_event_of_many_values_is_too_large(brokers: EmbeddedCluster) -> None:
    event = f'{{"type":"a","subject":"b","data":{{"a":[{"[]," * 60_000}[]]}}}}'
    async with gateway(brokers) as address, client_of(address) as client:
        headers = {"Content-Type": "application/json"}
        answer = await client.post("/events", content=event, headers=headers)
        assert answer.status_code == 413
        async with connect(f"ws://{address}/events", proxy=None) as socket:
            await socket.send(event)
            assert json.loads(await socket.recv())["status"] == 413
    assert await values(brokers) == []


async def test_the_gateways_server_compresses_nothing_and_bounds_headers(
    brokers: EmbeddedCluster,
) -> None:
    module = example("gateway/app.py")
    app = module.create_app(module.producing(brokers.bootstrap_servers))
    async with served(app, **module.SERVER) as address:
        async with connect(f"ws://{address}/events", proxy=None) as socket:
            assert not socket.protocol.extensions  # 2 kB would be 2 MB of text
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        with suppress(ConnectionError):
            writer.write(f"GET /ready HTTP/1.1\r\nHost: {address}\r\n".encode())
            for _ in range(1_000):  # a megabyte, without an end
                writer.write(b"X: " + bytes(1_000).replace(b"\0", b"y") + b"\r\n")
                await writer.drain()
            await asyncio.wait_for(reader.read(), 10)
        writer.close()


async def test_requests_that_follow_each_other_wait_for_the_answers_before(
    brokers: EmbeddedCluster,
) -> None:
    """Requests of a client that reads nothing are not read for long: each has objects of 2 kB."""
    module = example("gateway/app.py")
    app = module.create_app(module.producing(brokers.bootstrap_servers))
    async with served(app, **module.SERVER) as address:
        host, _, port = address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        many = f"GET /live/page.css HTTP/1.1\r\nHost: {address}\r\n\r\n".encode() * 1_000
        tracemalloc.start()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    for _ in range(200):
                        writer.write(many)
                        await writer.drain()
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        writer.transport.abort()
        assert most < 15_000_000


async def test_a_message_that_is_no_text_is_no_event(brokers: EmbeddedCluster) -> None:
    async with (
        gateway(brokers) as address,
        connect(f"ws://{address}/events", proxy=None) as socket,
    ):
        await socket.send(b"\xff\xfe")
        assert json.loads(await socket.recv())["status"] == 422
        await socket.send(json.dumps(EVENT))
        assert "offset" in json.loads(await socket.recv())


# -- in a browser ---------------------------------------------------------------------------------

CONTRASTS = """(() => {
  const channel = (value) => {
    value /= 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  const light = (color) => {
    const [r, g, b] = color.match(/[\\d.]+/g).map(Number).map(channel);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const color = getComputedStyle(node).backgroundColor;
      if (color !== "rgba(0, 0, 0, 0)") return color;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !node.getClientRects().length) continue;
    const [a, b] = [light(getComputedStyle(node).color), light(ground(node))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), node.tagName + "#" + node.id]);
  }
  return found.sort((x, y) => x[0] - y[0]);
})()"""


async def traffic(client: httpx.AsyncClient) -> None:
    """Events as fast as they are acknowledged, until it is cancelled."""
    number = 0
    while True:
        number += 1
        event = {**EVENT, "subject": f"user-{number % 50}"}
        await asyncio.gather(*(client.post("/events", json=event) for _ in range(4)))


async def fail_some(brokers: EmbeddedCluster, client: httpx.AsyncClient) -> None:
    """One batch that is refused for good, and an event that is too large to be accepted."""
    brokers.faults.next("produce").answers("INVALID_RECORD")
    assert (await client.post("/events?wait=false", json=EVENT)).status_code == 202
    too_large = {**EVENT, "data": {"text": "x" * 1_100_000}}
    assert (await client.post("/events", json=too_large)).status_code == 413


async def look(page: Page, name: str) -> None:
    """Keep a picture in the folder AIOPRODUCER_TEST_SCREENSHOTS, if it is set."""
    if SHOTS:  # with something to see in the lines
        await page.evaluate("new Promise((done) => setTimeout(done, 40_000))")
    picture = await page.screenshot()
    assert picture.startswith(b"\x89PNG")
    if SHOTS:
        await asyncio.to_thread((Path(SHOTS) / f"{name}.png").write_bytes, picture)


@pytest.mark.slow
@needs_chromium
async def test_the_page_shows_what_happens_in_light_and_dark_and_on_a_phone(
    brokers: EmbeddedCluster,
) -> None:
    async with (
        gateway(brokers) as address,
        client_of(address) as client,
        running_browser(chromium() or "") as browser,
    ):
        await fail_some(brokers, client)
        sending = asyncio.create_task(traffic(client))
        try:
            async with browser.page(1280, 800) as page:
                await page.open(f"http://{address}/")
                await shows_figures(page)
                await is_accessible(page)
                await look(page, "gateway-light")
                await can_be_paused(page)
                assert page.complaints == []
            async with browser.page(390, 844, dark=True, reduced_motion=True, scale=2) as phone:
                await phone.open(f"http://{address}/live/")
                await shows_figures(phone)
                await is_accessible(phone)
                await fits_a_phone(phone)
                await look(phone, "gateway-dark-phone")
                assert phone.complaints == []
        finally:
            sending.cancel()
            await asyncio.wait({sending})


async def shows_figures(page: Page) -> None:
    await page.wait_for("document.querySelector('#status').innerText === 'Live'")
    await page.wait_for("Number(document.querySelector('#rate').innerText.replace(',', '')) > 0")
    value = "document.querySelector('#rate-line .value')"
    await page.wait_for(f"({value}?.getAttribute('d') ?? '').split('L').length > 3")
    await fills_its_card(page)
    assert await page.evaluate("document.querySelectorAll('#topics tr').length") == 1
    topic = await page.text("#topics tr")
    assert topic.startswith("events") and "/s" in topic
    assert await page.evaluate("document.querySelector('#topics .bad').innerText") == "1"
    for name in ("p50", "p95", "p99", "max"):
        assert float(await page.text(f"#{name}")) > 0
    assert (await page.text("#process")) == str(os.getpid())
    assert await page.evaluate("document.querySelectorAll('#brokers tr').length") == 3
    assert "ready" in await page.text("#brokers")
    failures = await page.text("#failures")
    assert "INVALID_RECORD" in failures
    assert "1 record of events" in failures
    assert not await page.evaluate("document.querySelector('#no-failures').getClientRects().length")
    assert int(await page.text("#refused")) == 1


async def fills_its_card(page: Page) -> None:
    """Each line begins and ends at the edges of its card, however short the history is."""
    for name in ("rate", "latency", "buffer"):
        await page.wait_for(f"document.querySelector('#{name}-line .value')")
        left, right, card_left, card_right = await page.evaluate(
            "(() => {"
            f"const line = document.querySelector('#{name}-line');"
            "const card = line.closest('.card').getBoundingClientRect();"
            "const drawn = line.getBoundingClientRect();"
            "return [drawn.left, drawn.right, card.left, card.right]; })()"
        )
        assert left - card_left < 24 and card_right - right < 24
        assert (await page.text(f"#{name}-since")).endswith("ago")
        assert (await page.text(f"#{name}-highest")).startswith("highest")
    box = await page.evaluate(
        "(({x, width}) => [x, width])(document.querySelector('#buffer-line .value').getBBox())"
    )
    assert box[0] <= 5 and box[0] + box[1] >= 295  # of 300


async def is_accessible(page: Page) -> None:
    lowest, where = (await page.evaluate(CONTRASTS))[0]
    assert lowest >= 4.5, where
    await page.command("Accessibility.enable")
    tree = (await page.command("Accessibility.getFullAXTree"))["nodes"]
    found: dict[str, list[str]] = {}
    for node in tree:
        if not node.get("ignored"):
            name = node.get("name", {}).get("value", "")
            found.setdefault(node["role"]["value"], []).append(name)
    assert found["heading"] == [
        "Gateway",
        "Throughput",
        "Latency last 10 s",
        "Buffer",
        "Topics",
        "Brokers",
        "Recent failures",
    ]
    assert {"main", "banner", "table", "status", "meter", "button"} <= set(found)
    assert found["meter"] == ["Buffer"]
    assert found["button"] == ["Pause"]
    lines = [name for role in ("image", "img") for name in found.get(role, [])]
    assert any(name.startswith("Records per second over the last ") for name in lines)
    assert all(lines)


async def can_be_paused(page: Page) -> None:
    """By the keyboard."""
    await page.evaluate("document.querySelector('#pause').focus()")
    for kind in ("keyDown", "keyUp"):
        await page.command(
            "Input.dispatchKeyEvent",
            type=kind,
            key="Enter",
            code="Enter",
            windowsVirtualKeyCode=13,
            text="\r" if kind == "keyDown" else "",
        )
    assert await page.text("#status") == "Paused"
    assert await page.evaluate("document.querySelector('#pause').ariaPressed") == "true"
    before = await page.text("#acknowledged")
    await page.evaluate("new Promise((done) => setTimeout(done, 1500))")
    assert await page.text("#acknowledged") == before
    await page.evaluate("document.querySelector('#pause').click()")
    await page.wait_for(f"document.querySelector('#acknowledged').innerText !== {before!r}")


async def fits_a_phone(page: Page) -> None:
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tables = "[...document.querySelectorAll('.scroll')]"
    assert await page.evaluate(f"{tables}.every((each) => each.scrollWidth <= each.clientWidth)")
    assert await page.evaluate("document.querySelector('#pause').offsetHeight") >= 44
    button = "getComputedStyle(document.querySelector('#pause'))"
    assert await page.evaluate(f"{button}.transitionDuration") == "0s"
    ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, ground[4:-1].split(","))) < 50


@needs_chromium
async def test_the_page_says_that_the_server_is_gone_and_comes_back(
    brokers: EmbeddedCluster,
) -> None:
    app = application(brokers)
    async with running_browser(chromium() or "") as browser, browser.page() as page:
        async with served(app) as address:
            await page.open(f"http://{address}/live/")
            await page.wait_for("document.querySelector('#status').innerText === 'Live'")
        await page.wait_for("document.querySelector('#status').innerText.includes('lost')")
        assert await page.evaluate("document.querySelector('#status').dataset.mood") == "bad"
        async with served(app, port=int(address.rpartition(":")[2])):
            await page.wait_for("document.querySelector('#status').innerText === 'Live'")
