"""A gateway: it publishes events from HTTP and WebSocket to Kafka and has a live page.

    python -m aioproducer cluster --topic events:6            # in another terminal
    uvicorn examples.gateway.app:app --workers 2              # then open http://localhost:8000/

`python -m examples.gateway` does both in one process, with some traffic.

- `POST /events` answers 201 with partition and offset when the event is acknowledged.
- `POST /events?wait=false` answers 202 when the event is accepted; later failures are logged.
- A WebSocket at `/events` takes one event per message and answers in order. It has back-pressure:
  while the buffer is full, the next message is not read.
- Errors of the producer are answered with 503 and Retry-After, or with the same body over the
  WebSocket.
- `GET /ready` is a readiness probe; `/live/` is the page.

Only this machine is served, unless both of these environment variables are set:
- `GATEWAY_HOSTS`: the host names that other machines use, such as `events.example.com`;
- `GATEWAY_TOKEN`: the token that they send, as `Authorization: Bearer ...`, or as `?token=...` if
  they cannot set headers, such as WebSockets of browsers and the page.
Then put a TLS proxy in front of it, and run it with the options of `SERVER`:
`--http h11 --ws-max-size 2097152 --ws-per-message-deflate false`.
The proxy has to close idle connections and slow requests, and to limit connections per client:
uvicorn does not, and a thousand idle ones use up the files of a process, also of its producer.

It uses Starlette, since FastAPI would take several times the CPU for such a small request.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import urlencode

from pydantic import BaseModel, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from aioproducer import KafkaError, Producer, RecordMetadata
from aioproducer.starlette import (
    PROXY_HEADERS,
    LivePage,
    ProducerLifespan,
    Refusal,
    answer_kafka_errors,
    producer_of,
    take_token,
)

TOPIC = "events"
LARGEST_EVENT = 2 * 1024 * 1024
THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")
MOST_COMMAS = 50_000
"""Two bytes of JSON, such as `[]`, make a value of 56 bytes: half a second for a large event."""
SERVER = {"http": "h11", "ws_max_size": LARGEST_EVENT, "ws_per_message_deflate": False}
"""Options of uvicorn that bound memory: httptools bounds neither headers nor pipelined requests,
and 2 kB of a compressed WebSocket message are 2 MB, in any number at once."""
MOST_UNANSWERED = 1_000
SLOWEST_BODY_S = 30.0
# Every request awaits its event, so a linger would only add latency.
AT_ONCE = {"linger_ms": 0}
NO_EVENT = Refusal(422, "This is not an event.")
TOO_LARGE = Refusal(413, "The event is too large.")

Outcome = Awaitable[RecordMetadata] | Refusal


class Event(BaseModel):
    """An event about a subject; events of one subject stay in order."""

    type: str = Field(min_length=1, max_length=200)
    subject: str = Field(min_length=1, max_length=200)
    data: dict[str, Any] = {}

    def record(self) -> tuple[bytes, bytes]:
        """Return value and key."""
        return self.model_dump_json().encode(), self.subject.encode()


def producing(bootstrap_servers: str, **options: Any) -> ProducerLifespan:
    """Return the lifespan that owns the producer, with these options."""
    options = {**AT_ONCE, "bootstrap_servers": bootstrap_servers, **options}
    return ProducerLifespan(warm_up=(TOPIC,), **options)


class Guard:
    """Reject requests of pages from other origins, and of other machines without the token.

    Without a token only this machine is served: a client writes any name into its Host header.
    It is the first middleware, as the server logs the query of whatever is answered before it.
    """

    def __init__(self, app: ASGIApp, *, token: str | None) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        if self.token is not None:
            take_token(scope)  # the server logs the query
        if (status := self.refusal(connection)) is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await Response(status_code=status)(scope, receive, send)
        else:
            await WebSocket(scope, receive, send).close(1008)

    def refusal(self, connection: HTTPConnection) -> int | None:
        # Browsers send the origin of the page; TrustedHostMiddleware checks the host.
        origin = connection.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != connection.headers.get("host"):
            return 403
        if self.token is None and not is_local(connection):
            return 403
        # Not connection.url: older releases of Starlette take even the path from the Host header.
        path = connection.scope["path"]
        if self.token is None or path == "/ready":
            return None
        given = connection.headers.get("authorization", "").removeprefix("Bearer ")
        given = given or take_token(connection.scope)
        if given == "" and path.startswith("/live/page."):
            return None  # public files of the page
        return None if secrets.compare_digest(given.encode(), self.token.encode()) else 401


def is_local(connection: HTTPConnection) -> bool:
    """Return whether a client is on this machine, and no proxy for one that is not."""
    client, headers = connection.client, connection.headers
    if client is None or any(name.startswith(PROXY_HEADERS) for name in headers):
        return False
    try:
        return ipaddress.ip_address(client.host).is_loopback
    except ValueError:
        return False


def create_app(
    lifespan: Callable[[Starlette], AbstractAsyncContextManager[Any]],
    *,
    hosts: Sequence[str] = (),
    token: str | None = None,
) -> Starlette:
    token = token or None  # an empty one, as of an empty variable, guards nothing
    if hosts and token is None:
        raise ValueError("set GATEWAY_TOKEN too: without it every host could publish")
    page = LivePage("Gateway", hosts=hosts, token=token)
    routes = [
        Route("/events", publish, methods=["POST"]),
        WebSocketRoute("/events", stream),
        Route("/ready", ready),
        Route("/", home),
        Mount("/live", page),
    ]
    middleware = [
        Middleware(Guard, token=token),
        Middleware(TrustedHostMiddleware, allowed_hosts=[*THIS_MACHINE, *hosts]),
    ]
    app = Starlette(routes=routes, middleware=middleware, lifespan=lifespan)
    app.state.page = page
    answer_kafka_errors(app, on_refusal=page.note)
    return app


async def home(request: Request) -> Response:
    token = take_token(request.scope)
    return RedirectResponse(f"live/?{urlencode({'token': token})}" if token else "live/")


async def ready(request: Request) -> Response:
    health = producer_of(request).health()
    if health.ready:
        return JSONResponse({"ready": True})
    return JSONResponse({"ready": False, "state": health.state, "error": health.error}, 503)


async def publish(request: Request) -> Response:
    producer = producer_of(request)
    try:
        value, key = Event.model_validate_json(await body_of(request)).record()
    except ValidationError:
        return JSONResponse(NO_EVENT.body(), NO_EVENT.status)
    if request.query_params.get("wait") == "false":
        await producer.send(TOPIC, value, key)
        return JSONResponse({"accepted": True}, 202)
    return JSONResponse(place(await producer.send_and_wait(TOPIC, value, key)), 201)


async def body_of(request: Request) -> bytes:
    """Return the body, up to the size of an event.

    Only JSON is accepted: a form of another origin's page cannot send it.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415)
    body = bytearray()
    try:
        async with asyncio.timeout(SLOWEST_BODY_S):
            async for part in request.stream():
                body += part
                if len(body) > LARGEST_EVENT:
                    raise HTTPException(413)
    except TimeoutError:
        raise HTTPException(408, headers={"Connection": "close"}) from None
    if is_too_large(body):
        raise HTTPException(413)
    return bytes(body)


def is_too_large(event: bytes | bytearray) -> bool:
    return len(event) > LARGEST_EVENT or event.count(b",") > MOST_COMMAS


async def stream(socket: WebSocket) -> None:
    producer = producer_of(socket)
    await socket.accept()
    outcomes: asyncio.Queue[Outcome] = asyncio.Queue(MOST_UNANSWERED)
    try:
        async with asyncio.TaskGroup() as tasks:
            answering = tasks.create_task(answer(socket, outcomes))
            async for text in texts_of(socket):
                await outcomes.put(await accept(producer, text, socket.app.state.page))
            answering.cancel()  # the client is gone; accepted events are delivered nevertheless
    except* WebSocketDisconnect:
        pass


async def texts_of(socket: WebSocket) -> AsyncIterator[str]:
    """Yield the messages; a binary message becomes an empty text, which is not an event."""
    while (message := await socket.receive())["type"] == "websocket.receive":
        yield message.get("text") or ""


async def accept(producer: Producer, text: str, page: LivePage) -> Outcome:
    """Accept one message of a WebSocket; wait while the buffer is full."""
    body = text.encode()
    if is_too_large(body):
        return TOO_LARGE
    try:
        value, key = Event.model_validate_json(body).record()
        return await producer.send(TOPIC, value, key)
    except ValidationError:
        return NO_EVENT
    except KafkaError as error:
        page.note(error)
        return refusal_of(error)


async def answer(socket: WebSocket, outcomes: asyncio.Queue[Outcome]) -> None:
    """Answer the messages in the order of their arrival."""
    number = 0
    while True:
        outcome = await outcomes.get()
        number += 1
        if not isinstance(outcome, Refusal):
            try:
                await socket.send_json({"message": number, **place(await outcome)})
                continue
            except KafkaError as error:
                outcome = refusal_of(error)
        await socket.send_json({"message": number, "status": outcome.status, **outcome.body()})


def place(metadata: RecordMetadata) -> dict[str, Any]:
    return {"partition": metadata.partition, "offset": metadata.offset}


def refusal_of(error: KafkaError) -> Refusal:
    refusal = Refusal.of(error)
    if refusal is None:
        raise error
    return refusal


app = create_app(
    producing(os.environ.get("AIOPRODUCER_BOOTSTRAP_SERVERS", "localhost:9092")),
    hosts=os.environ.get("GATEWAY_HOSTS", "").split(),
    token=os.environ.get("GATEWAY_TOKEN"),
)
