"""A FastAPI application that publishes events: one producer for the application's life.

    python -m aioproducer cluster --topic events:6      # in another terminal
    fastapi run examples/fastapi_app.py                 # or: uvicorn examples.fastapi_app:app

- `POST /events` answers once the event is acknowledged: 201, or 503 when it cannot be.
- `POST /events/background` answers at once; the event is sent after the response. A failure then
  has nobody to tell, so it goes to the log.
- `GET /ready` is a readiness probe.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import BackgroundTasks, Depends, FastAPI, HTTPException, Request, Response

from aioproducer import KafkaError, Producer

TOPIC = "events"

log = logging.getLogger("events")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    servers = os.environ.get("AIOPRODUCER_BOOTSTRAP_SERVERS", "localhost:9092")
    # A request should hear of a lost cluster before its client gives up.
    producer = Producer(
        bootstrap_servers=servers,
        max_block_ms=5_000,
        request_timeout_ms=5_000,
        delivery_timeout_ms=10_000,
    )
    # Leaving the block delivers what background tasks have sent.
    async with producer:
        app.state.producer = producer
        yield


app = FastAPI(lifespan=lifespan)


def producer_of(request: Request) -> Producer:
    producer: Producer = request.app.state.producer
    return producer


TheProducer = Annotated[Producer, Depends(producer_of)]


@app.post("/events", status_code=201)
async def publish(event: dict[str, Any], producer: TheProducer) -> dict[str, Any]:
    try:
        metadata = await producer.send_and_wait(TOPIC, json.dumps(event).encode())
    except KafkaError as error:
        raise HTTPException(503, "the event could not be stored") from error
    return {"partition": metadata.partition, "offset": metadata.offset}


@app.post("/events/background", status_code=202)
async def publish_later(
    event: dict[str, Any], producer: TheProducer, background: BackgroundTasks
) -> dict[str, bool]:
    background.add_task(publish_quietly, producer, json.dumps(event).encode())
    return {"accepted": True}


async def publish_quietly(producer: Producer, value: bytes) -> None:
    try:
        await producer.send_and_wait(TOPIC, value)
    except KafkaError as error:
        log.error("an event was lost: %s", error)


@app.get("/ready")
async def ready(producer: TheProducer, response: Response) -> dict[str, bool]:
    is_ready = producer.health().ready
    response.status_code = 200 if is_ready else 503
    return {"ready": is_ready}
