"""A gateway: events come in over HTTP and WebSocket and go to Kafka; a live page shows how it does.

    python -m aioproducer cluster --topic events:6            # in another terminal
    uvicorn examples.gateway.app:app --workers 2              # then open http://localhost:8000/

`python -m examples.gateway` does both in one process, with some traffic to look at.

- `POST /events` answers when the event is acknowledged: 201 with its place.
- `POST /events?wait=false` answers when it is accepted: 202; a loss then goes to the log.
- A WebSocket at `/events` takes an event per message and answers each in turn. Whoever sends faster
  than Kafka takes is slowed down: the next message is not read before this one has room.
- What Kafka cannot take in time is 503 with Retry-After, or the same words over the WebSocket.
- `GET /ready` is a readiness probe; `/live/` is the page.

It serves this machine, and other machines if both of these are set in the environment:
- `GATEWAY_HOSTS`: the names under which they reach it, such as `events.example.com`;
- `GATEWAY_TOKEN`: what they have to bring along, as `Authorization: Bearer ...`, or `?token=...`
  where no header can be set: WebSockets of browsers, and the page.
Run it behind TLS then, and with `--ws-max-size 2097152`.

Written for Starlette: FastAPI would take several times the CPU for a request this small.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

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
    LivePage,
    ProducerLifespan,
    Refusal,
    answer_kafka_errors,
    producer_of,
)

TOPIC = "events"
LARGEST_EVENT = 2 * 1024 * 1024
THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")
MOST_UNANSWERED = 1_000
SLOWEST_BODY_S = 30.0
# Somebody waits for each event: they come one by one and gain nothing by waiting for company.
AT_ONCE = {"linger_ms": 0}
NO_EVENT = Refusal(422, "This is no event.")
TOO_LARGE = Refusal(413, "This is more than an event may have.")

Outcome = Awaitable[RecordMetadata] | Refusal


class Event(BaseModel):
    """What happened, and to whom: events of one subject keep their order."""

    type: str = Field(min_length=1, max_length=200)
    subject: str = Field(min_length=1, max_length=200)
    data: dict[str, Any] = {}

    def record(self) -> tuple[bytes, bytes]:
        """Value and key."""
        return self.model_dump_json().encode(), self.subject.encode()


def producing(bootstrap_servers: str, **options: Any) -> ProducerLifespan:
    """The life of the producer; options are its own."""
    options = {**AT_ONCE, "bootstrap_servers": bootstrap_servers, **options}
    return ProducerLifespan(warm_up=(TOPIC,), **options)


class Guard:
    """Lets requests pass that come from no foreign page and bring the token, if there is one."""

    def __init__(self, app: ASGIApp, *, token: str | None) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        if (status := self.refusal(connection)) is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await Response(status_code=status)(scope, receive, send)
        else:
            await WebSocket(scope, receive, send).close(1008)

    def refusal(self, connection: HTTPConnection) -> int | None:
        # A browser says which page makes a request; TrustedHostMiddleware has checked our own name.
        origin = connection.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != connection.headers.get("host"):
            return 403
        # Not connection.url: older releases of Starlette make it of the Host header, path and all.
        path = connection.scope["path"]
        if self.token is None or path == "/ready":
            return None
        given = connection.headers.get("authorization", "").removeprefix("Bearer ")
        given = given or connection.query_params.get("token", "")
        if given == "" and path.startswith("/live/page."):
            return None  # the same for everybody
        return None if secrets.compare_digest(given.encode(), self.token.encode()) else 401


def create_app(
    lifespan: Callable[[Starlette], AbstractAsyncContextManager[Any]],
    *,
    hosts: Sequence[str] = (),
    token: str | None = None,
) -> Starlette:
    if hosts and not token:
        raise ValueError("set GATEWAY_TOKEN, too: anybody could publish otherwise")
    page = LivePage("Gateway", hosts=hosts, token=token)
    routes = [
        Route("/events", publish, methods=["POST"]),
        WebSocketRoute("/events", stream),
        Route("/ready", ready),
        Route("/", home),
        Mount("/live", page),
    ]
    middleware = [
        Middleware(TrustedHostMiddleware, allowed_hosts=[*THIS_MACHINE, *hosts]),
        Middleware(Guard, token=token),
    ]
    app = Starlette(routes=routes, middleware=middleware, lifespan=lifespan)
    app.state.page = page
    answer_kafka_errors(app, on_refusal=page.note)
    return app


async def home(request: Request) -> Response:
    return RedirectResponse(f"live/?{query}" if (query := request.url.query) else "live/")


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
    """The body, as far as an event's goes; what a foreign page's form may send is refused."""
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
        raise HTTPException(408) from None
    return bytes(body)


async def stream(socket: WebSocket) -> None:
    producer = producer_of(socket)
    await socket.accept()
    outcomes: asyncio.Queue[Outcome] = asyncio.Queue(MOST_UNANSWERED)
    try:
        async with asyncio.TaskGroup() as tasks:
            telling = tasks.create_task(tell(socket, outcomes))
            async for text in texts_of(socket):
                await outcomes.put(await accept(producer, text, socket.app.state.page))
            telling.cancel()  # nobody listens; what was accepted is delivered all the same
    except* WebSocketDisconnect:
        pass


async def texts_of(socket: WebSocket) -> AsyncIterator[str]:
    """The messages; one that is no text is none of an event."""
    while (message := await socket.receive())["type"] == "websocket.receive":
        yield message.get("text") or ""


async def accept(producer: Producer, text: str, page: LivePage) -> Outcome:
    """One message of a WebSocket; returns when there is room for it."""
    if len(text) > LARGEST_EVENT:
        return TOO_LARGE
    try:
        value, key = Event.model_validate_json(text).record()
        return await producer.send(TOPIC, value, key)
    except ValidationError:
        return NO_EVENT
    except KafkaError as error:
        page.note(error)
        return refusal_of(error)


async def tell(socket: WebSocket, outcomes: asyncio.Queue[Outcome]) -> None:
    """Answers the messages in the order in which they came."""
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
