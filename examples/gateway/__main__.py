"""Run the gateway with an embedded cluster and some traffic, to show the live page.

    python -m examples.gateway [--port 8000] [--rate 200]

It ends with Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from aioproducer.testing import EmbeddedCluster

from .app import SERVER, TOPIC, create_app, producing

SUBJECTS = 50
TICK_S = 0.05
MOST_AT_ONCE = 1_000
"""Connections; by default uvicorn limits neither their number nor the time for headers."""


async def main(port: int, rate: float) -> None:
    async with EmbeddedCluster(brokers=3, topics={TOPIC: 6}) as cluster:
        app = create_app(producing(cluster.bootstrap_servers))
        limits = {**SERVER, "limit_concurrency": MOST_AT_ONCE}
        config = uvicorn.Config(app, port=port, log_level="warning", **limits)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started and not serving.done():  # noqa: ASYNC110
            await asyncio.sleep(TICK_S)
        if server.started:
            port = server.servers[0].sockets[0].getsockname()[1]
            print(f"http://localhost:{port}/ (Ctrl-C ends it)", flush=True)
            async with traffic(port, rate):
                await serving
        await serving


@asynccontextmanager
async def traffic(port: int, rate: float) -> AsyncIterator[None]:
    sending = asyncio.create_task(send_events(port, rate))
    try:
        yield
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def send_events(port: int, rate: float) -> None:
    """Post about `rate` events per second over one connection, in waves."""
    number = 0.0
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while True:
        before = int(number)
        number += rate * TICK_S * (1 + 0.5 * math.sin(loop.time() / 5))
        for index in range(before, int(number)):
            event = {"type": "clicked", "subject": f"user-{index % SUBJECTS}", "data": {"n": index}}
            body = json.dumps(event).encode()
            head = "POST /events?wait=false HTTP/1.1\r\nHost: localhost\r\n"
            kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + kind.encode() + body)
            await reader.readuntil(b"}")
        await asyncio.sleep(TICK_S)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--rate", type=float, default=200, help="events per second")
    arguments = parser.parse_args()
    try:
        asyncio.run(main(arguments.port, arguments.rate))
    except KeyboardInterrupt:
        pass
