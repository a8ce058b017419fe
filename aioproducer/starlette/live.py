"""The live page: what the producer is doing, for people.

    app.mount("/live", LivePage())

The page shows brokers' addresses and the texts of errors, no record's contents. Unless `hosts`
names others it is served to this machine only; all other viewers need the `token`.
Behind a proxy on this machine name `hosts`: a proxy that adds no header looks like a local viewer.
In a server with several processes it shows the one that answers.

Invariants: without a viewer only the history is recorded (`recording`), from the application's
start; there are at most `max_viewers`; the page loads nothing from other hosts; the server's log
has no token.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from contextlib import suppress
from hmac import compare_digest
from html import escape
from importlib.resources import files
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route, Router, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from aioproducer._util.hosts import is_this_machine
from aioproducer.starlette.lifespan import producer_of
from aioproducer.starlette.live_stats import LiveStats, Refusals
from aioproducer.starlette.query_token import take_token
from aioproducer.starlette.recording import Recording

_FILES = files("aioproducer.starlette")
_MEDIA_TYPES = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_NOT_FOR_HERE = (
    "This page is served to this machine only, or to the names given as LivePage(hosts=[...])."
)
PROXY_HEADERS: tuple[str, ...] = (
    "cf-connecting-ip",
    "client-ip",
    "forwarded",
    "true-client-ip",
    "via",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-",
    "x-forwarded",
    "x-original-",
    "x-real-ip",
)
"""Beginnings of the headers of a proxy, which connects from this machine for others."""
_POLICY_VIOLATION, _TRY_AGAIN_LATER = 1008, 1013


class LivePage:
    """An ASGI application to be mounted in one that has a `ProducerLifespan`.

    Args:
        title: what the page is called.
        interval_s: seconds between two sets of figures.
        max_viewers: how many may watch at once; other sockets are closed with 1013.
        hosts: the names under which it is reached from other machines, such as
            `ops.example.com`; without one it is served to this machine only. A request for any
            other name is refused (DNS rebinding).
        token: required from viewers, as in `/live/?token=...`. None: not required, because the
            application or a proxy restricts access. An empty one is refused.
        origins: other origins than the page's own from which the feed may be read, such as
            `https://ops.example.com`; needed behind a proxy that changes `Host`.

    Raises:
        ValueError: `token` or a name in `hosts` is empty, or `hosts` is a text.
    """

    def __init__(
        self,
        title: str = "Kafka producer",
        *,
        interval_s: float = 1.0,
        max_viewers: int = 20,
        hosts: Collection[str] = (),
        token: str | None = None,
        origins: Collection[str] = (),
    ) -> None:
        if isinstance(hosts, str) or not all(hosts):
            raise ValueError(f"hosts takes a list of names, not {hosts!r}")
        if token == "":
            raise ValueError("an empty token guards nothing: give a token, or None")
        self._title = title
        self._interval_s = interval_s
        self._max_viewers = max_viewers
        self._hosts = frozenset(host.lower() for host in hosts)
        self._token = token
        self._origins = frozenset(origins)
        self._viewers = 0
        self._refusals = Refusals()
        self._recording = Recording()
        self._router = Router(
            [
                Route("/", self._file),
                Route("/{name:str}", self._file),
                WebSocketRoute("/feed", self._feed),
            ]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request or a WebSocket (ASGI)."""
        if self._token is not None and scope["type"] in ("http", "websocket"):
            take_token(scope)  # before the server logs the request
        await self._router(scope, receive, send)

    def note(self, error: BaseException) -> None:
        """Note a record that was refused before it was accepted; it is shown among the failures.

        The producer counts failures of accepted records itself: their errors, which say whether
        the record may have been written, are ignored here.
        """
        if getattr(error, "persistence", None) is None:
            self._refusals.note(error, asyncio.get_running_loop().time())

    async def _file(self, request: Request) -> Response:
        name = request.path_params.get("name", "page.html")
        if name not in _MEDIA_TYPES:
            return Response(status_code=404)
        if not self._is_for_here(request):
            return Response(_NOT_FOR_HERE, 403, _HEADERS, "text/plain")
        if name == "page.html" and not self._has_token(request):
            return Response("Open this page with ?token=...", 401, _HEADERS, "text/plain")
        text = (_FILES / name).read_text(encoding="utf-8")
        if name == "page.html":
            text = text.replace("{{title}}", escape(self._title))
        return Response(text, headers=_HEADERS, media_type=_MEDIA_TYPES[name])

    async def _feed(self, socket: WebSocket) -> None:
        if not self._may_watch(socket):
            await socket.close(_POLICY_VIOLATION)
            return
        await socket.accept()
        if self._viewers >= self._max_viewers:
            await socket.close(_TRY_AGAIN_LATER)
            return
        self._viewers += 1
        gone = asyncio.create_task(_until_gone(socket))
        try:
            with suppress(WebSocketDisconnect):
                await self._show(socket, gone)
        finally:
            self._viewers -= 1
            gone.cancel()

    async def _show(self, socket: WebSocket, gone: asyncio.Task[None]) -> None:
        producer, figures = producer_of(socket), LiveStats()
        self._recording.start(producer)  # if it is mounted where the lifespan does not find it
        history, seen = self._recording.history, 0
        loop = asyncio.get_running_loop()
        while not gone.done():
            engine = producer._engine
            topics = {} if engine is None else engine.stats.topics
            now = figures.take(
                producer.statistics(), producer.metrics(), loop.time(), self._refusals, topics
            )
            now |= {"process": os.getpid(), "history": history.since(seen)}
            seen = history.added
            await socket.send_json(now)
            await asyncio.wait({gone}, timeout=self._interval_s)

    def _may_watch(self, socket: WebSocket) -> bool:
        """Return whether the WebSocket's origin is allowed: browsers let any site open one."""
        if not self._is_for_here(socket) or not self._has_token(socket):
            return False
        origin = socket.headers.get("origin")
        if origin is None or origin in self._origins:
            return True
        return origin.partition("://")[2] == socket.headers.get("host")

    def _is_for_here(self, connection: HTTPConnection) -> bool:
        """Return whether the page may be served to the host and client of the request."""
        try:
            name = urlsplit(f"//{connection.headers.get('host', '')}").hostname or ""
        except ValueError:  # a bracket that is not closed
            return False
        if name in self._hosts:
            return True
        client = connection.client
        is_forwarded = any(name.startswith(PROXY_HEADERS) for name in connection.headers)
        is_local = client is not None and is_this_machine(client.host) and not is_forwarded
        return is_this_machine(name) and (is_local or bool(self._hosts))

    def _has_token(self, connection: HTTPConnection) -> bool:
        if self._token is None:
            return True
        return compare_digest(take_token(connection.scope).encode(), self._token.encode())


async def _until_gone(socket: WebSocket) -> None:
    """Return when the viewer has left, or the server ends; what viewers say is ignored."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
