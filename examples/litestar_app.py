"""A Litestar application that publishes events: one producer for the whole application.

python -m aioproducer cluster --topic events:6      # in another terminal
uvicorn examples.litestar_app:app
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from litestar import Litestar, Request, Response, post
from litestar.datastructures import State
from litestar.params import Body

from aioproducer import KafkaError, Producer
from aioproducer.refusal import Refusal

TOPIC = "events"


@post("/events")
async def publish(data: Annotated[dict[str, Any], Body()], state: State) -> dict[str, Any]:
    producer: Producer = state.producer
    metadata = await producer.send_and_wait(TOPIC, json.dumps(data).encode())
    return {"partition": metadata.partition, "offset": metadata.offset}


def refuse(request: Request, error: KafkaError) -> Response[dict[str, str]]:
    refusal = Refusal.of(error)
    if refusal is None:
        raise error
    return Response(refusal.body(), status_code=refusal.status, headers=dict(refusal.headers()))


def create_app(bootstrap_servers: str) -> Litestar:
    @asynccontextmanager
    async def kafka(app: Litestar) -> AsyncIterator[None]:
        async with Producer(
            bootstrap_servers=bootstrap_servers,
            max_block_ms=5_000,
            request_timeout_ms=5_000,
            delivery_timeout_ms=10_000,
        ) as producer:
            app.state.producer = producer
            yield

    return Litestar(
        [publish],
        lifespan=[kafka],
        exception_handlers={KafkaError: refuse},
        logging_config=None,  # Litestar would reconfigure the logging of the process
    )


app = create_app(os.environ.get("AIOPRODUCER_BOOTSTRAP_SERVERS", "localhost:9092"))
