"""The gateway of examples/ as a process: with our producer, or the same app on aiokafka.

Owns: which producer the application has. Not here: the load.

    python -m bench.gateway_app JSON    # client, bootstrap, topic, options
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette

from bench.workers import arguments, new_runner, next_order, orders, tell
from examples.gateway import app as gateway


def application(client: str, bootstrap: str, topic: str, options: Mapping[str, Any]) -> Starlette:
    gateway.TOPIC = topic
    if client == "aioproducer":
        return gateway.create_app(gateway.producing(bootstrap, **options))

    from aiokafka import AIOKafkaProducer

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, **options
        ) as producer:
            gateway.producer_of = lambda connection: producer
            yield

    return gateway.create_app(lifespan)


async def serve(app: Starlette) -> None:
    config = uvicorn.Config(app, port=0, log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started and not serving.done():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    if not serving.done():
        tell("ready", port=server.servers[0].sockets[0].getsockname()[1])
        reader = await orders()
        while await next_order(reader) is not None:
            pass
        server.should_exit = True
    await serving


if __name__ == "__main__":
    with new_runner() as runner:
        runner.run(serve(application(**arguments())))
