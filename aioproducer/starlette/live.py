"""The live page: what the producer is doing, for people.

Owns: the routes, the feed, who may watch. Must not know: how figures are made (`figures`), what the
page looks like (`page.html`, `page.css`, `page.js`).

    app.mount("/live", LivePage())

The page has no login: mount it where only operators get to. It tells brokers' addresses and the
texts of errors, no record's contents. In a server with several processes it shows the one that
answers.

Invariants: without a viewer nothing is computed; there are at most `max_viewers`; the page loads
nothing from anywhere else.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from contextlib import suppress
from html import escape
from pathlib import Path
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from aioproducer.starlette.figures import LiveFigures, Refusals
from aioproducer.starlette.lifespan import producer_of

_FILES = Path(__file__).parent
_MEDIA_TYPES = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_POLICY_VIOLATION, _TRY_AGAIN_LATER = 1008, 1013


class LivePage:
    """An ASGI application to be mounted in one that has a `ProducerLifespan`.

    Args:
        title: what the page is called.
        interval_s: seconds between two sets of figures.
        max_viewers: how many may watch at once; others are told to try again later.
        origins: other origins than the page's own from which the feed may be read, such as
            `https://ops.example.com`; needed behind a proxy that changes `Host`.
    """

    def __init__(
        self,
        title: str = "Kafka producer",
        *,
        interval_s: float = 1.0,
        max_viewers: int = 20,
        origins: Collection[str] = (),
    ) -> None:
        self._title = title
        self._interval_s = interval_s
        self._max_viewers = max_viewers
        self._origins = frozenset(origins)
        self._viewers = 0
        self._refusals = Refusals()
        self._router = Router(
            [
                Route("/", self._file),
                Route("/{name:str}", self._file),
                WebSocketRoute("/feed", self._feed),
            ]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        await self._router(scope, receive, send)

    def note(self, error: BaseException) -> None:
        """A record was refused before the producer accepted it; shown among the failures.

        The producer knows by itself which accepted records failed: their errors, which say what
        became of the record, are ignored here.
        """
        if getattr(error, "persistence", None) is None:
            self._refusals.note(error, asyncio.get_running_loop().time())

    async def _file(self, request: Request) -> Response:
        name = request.path_params.get("name", "page.html")
        if name not in _MEDIA_TYPES:
            return Response(status_code=404)
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
        producer, figures = producer_of(socket), LiveFigures()
        loop = asyncio.get_running_loop()
        while not gone.done():
            now = figures.take(
                producer.statistics(), producer.metrics(), loop.time(), self._refusals
            )
            await socket.send_json({"process": os.getpid(), **now})
            await asyncio.wait({gone}, timeout=self._interval_s)

    def _may_watch(self, socket: WebSocket) -> bool:
        """Browsers let any site open a WebSocket to any other, and say which site it is."""
        origin = socket.headers.get("origin")
        if origin is None or origin in self._origins:
            return True
        return urlsplit(origin).netloc == socket.headers.get("host")


async def _until_gone(socket: WebSocket) -> None:
    """Returns when the viewer has left, or the server ends; what viewers say is ignored."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
