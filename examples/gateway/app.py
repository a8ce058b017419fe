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

Written for Starlette: FastAPI would take several times the CPU for a request this small.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from pydantic import BaseModel, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
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
MOST_UNANSWERED = 1_000
# Somebody waits for each event: they come one by one and gain nothing by waiting for company.
AT_ONCE = {"linger_ms": 0}
NO_EVENT = Refusal(422, "This is no event.")

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


def create_app(lifespan: Callable[[Starlette], AbstractAsyncContextManager[Any]]) -> Starlette:
    page = LivePage("Gateway")
    routes = [
        Route("/events", publish, methods=["POST"]),
        WebSocketRoute("/events", stream),
        Route("/ready", ready),
        Route("/", home),
        Mount("/live", page),
    ]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.state.page = page
    answer_kafka_errors(app, on_refusal=page.note)
    return app


async def home(request: Request) -> Response:
    return RedirectResponse("live/")


async def ready(request: Request) -> Response:
    health = producer_of(request).health()
    if health.ready:
        return JSONResponse({"ready": True})
    return JSONResponse({"ready": False, "state": health.state, "error": health.error}, 503)


async def publish(request: Request) -> Response:
    producer = producer_of(request)
    try:
        value, key = Event.model_validate_json(await request.body()).record()
    except ValidationError:
        return JSONResponse(NO_EVENT.body(), NO_EVENT.status)
    if request.query_params.get("wait") == "false":
        await producer.send(TOPIC, value, key)
        return JSONResponse({"accepted": True}, 202)
    return JSONResponse(place(await producer.send_and_wait(TOPIC, value, key)), 201)


async def stream(socket: WebSocket) -> None:
    producer = producer_of(socket)
    await socket.accept()
    outcomes: asyncio.Queue[Outcome] = asyncio.Queue(MOST_UNANSWERED)
    try:
        async with asyncio.TaskGroup() as tasks:
            telling = tasks.create_task(tell(socket, outcomes))
            async for text in socket.iter_text():
                await outcomes.put(await accept(producer, text, socket.app.state.page))
            telling.cancel()  # nobody listens; what was accepted is delivered all the same
    except* WebSocketDisconnect:
        pass


async def accept(producer: Producer, text: str, page: LivePage) -> Outcome:
    """One message of a WebSocket; returns when there is room for it."""
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
)
