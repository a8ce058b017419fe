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
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, Field, ValidationError

from aioproducer import KafkaError, Producer, RecordMetadata
from aioproducer.fastapi import (
    LivePage,
    ProducerDependency,
    ProducerLifespan,
    Refusal,
    answer_kafka_errors,
)

TOPIC = "events"
MOST_UNANSWERED = 1_000
# A client should hear of a cluster that is lost before it gives up by itself.
PATIENCE = {"max_block_ms": 5_000, "request_timeout_ms": 5_000, "delivery_timeout_ms": 10_000}


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
    options = {**PATIENCE, "bootstrap_servers": bootstrap_servers, **options}
    return ProducerLifespan(warm_up=(TOPIC,), **options)


def create_app(lifespan: Callable[[FastAPI], AbstractAsyncContextManager[Any]]) -> FastAPI:
    app = FastAPI(title="Gateway", lifespan=lifespan)
    page = LivePage("Gateway")
    app.mount("/live", page)
    answer_kafka_errors(app, on_refusal=page.note)

    @app.get("/", include_in_schema=False)
    async def home() -> RedirectResponse:
        return RedirectResponse("live/")

    @app.get("/ready")
    async def ready(producer: ProducerDependency, response: Response) -> dict[str, bool]:
        is_ready = producer.health().ready
        response.status_code = 200 if is_ready else 503
        return {"ready": is_ready}

    @app.post("/events", status_code=201)
    async def publish(
        event: Event, producer: ProducerDependency, response: Response, wait: bool = True
    ) -> dict[str, Any]:
        value, key = event.record()
        if wait:
            return place(await producer.send_and_wait(TOPIC, value, key))
        await producer.send(TOPIC, value, key)
        response.status_code = 202
        return {"accepted": True}

    @app.websocket("/events")
    async def stream(socket: WebSocket, producer: ProducerDependency) -> None:
        await socket.accept()
        outcomes: asyncio.Queue[Outcome] = asyncio.Queue(MOST_UNANSWERED)
        try:
            async with asyncio.TaskGroup() as tasks:
                telling = tasks.create_task(tell(socket, outcomes))
                async for text in socket.iter_text():
                    await outcomes.put(await accept(producer, text, page))
                telling.cancel()  # nobody listens; what was accepted is delivered all the same
        except* WebSocketDisconnect:
            pass

    return app


Outcome = Awaitable[RecordMetadata] | Refusal


def place(metadata: RecordMetadata) -> dict[str, Any]:
    return {"partition": metadata.partition, "offset": metadata.offset}


async def accept(producer: Producer, text: str, page: LivePage) -> Outcome:
    """One message of a WebSocket; returns when there is room for it."""
    try:
        value, key = Event.model_validate_json(text).record()
        return await producer.send(TOPIC, value, key)
    except ValidationError:
        return Refusal(422, "This is no event.")
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


def refusal_of(error: KafkaError) -> Refusal:
    refusal = Refusal.of(error)
    if refusal is None:
        raise error
    return refusal


app = create_app(
    producing(os.environ.get("AIOPRODUCER_BOOTSTRAP_SERVERS", "localhost:9092")),
)
