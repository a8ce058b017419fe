"""An aiohttp application that publishes events: one producer for the whole application.

    python -m aioproducer cluster --topic events:6      # in another terminal
    python examples/aiohttp_app.py

A middleware turns errors of the producer into responses: 503 with Retry-After, 413 or 422.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from aioproducer import KafkaError, Producer
from aioproducer.refusal import Refusal

TOPIC = "events"
PRODUCER = web.AppKey("producer", Producer)


def kafka(bootstrap_servers: str) -> Callable[[web.Application], AsyncIterator[None]]:
    async def life(app: web.Application) -> AsyncIterator[None]:
        async with Producer(
            bootstrap_servers=bootstrap_servers,
            max_block_ms=5_000,
            request_timeout_ms=5_000,
            delivery_timeout_ms=10_000,
        ) as producer:
            app[PRODUCER] = producer
            yield

    return life


@web.middleware
async def refuse(request: web.Request, handler: Callable) -> web.StreamResponse:
    try:
        return await handler(request)
    except KafkaError as error:
        refusal = Refusal.of(error)
        if refusal is None:
            raise
        return web.json_response(refusal.body(), status=refusal.status, headers=refusal.headers())


async def publish(request: web.Request) -> web.Response:
    event = json.dumps(await request.json()).encode()
    metadata = await request.app[PRODUCER].send_and_wait(TOPIC, event)
    return web.json_response(
        {"partition": metadata.partition, "offset": metadata.offset}, status=201
    )


def create_app(bootstrap_servers: str) -> web.Application:
    # The producer rejects records that are too large.
    app = web.Application(middlewares=[refuse], client_max_size=1 << 22)
    app.cleanup_ctx.append(kafka(bootstrap_servers))
    app.router.add_post("/events", publish)
    return app


if __name__ == "__main__":
    web.run_app(create_app(os.environ.get("AIOPRODUCER_BOOTSTRAP_SERVERS", "localhost:9092")))
