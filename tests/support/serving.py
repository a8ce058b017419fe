"""An ASGI application on a real port, served by uvicorn on the test's loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

_TIMEOUT_S = 30.0


@asynccontextmanager
async def served(app: Any, **options: Any) -> AsyncIterator[str]:
    """Serves an application for the length of a block; gives `host:port`."""
    options = {"host": "127.0.0.1", "port": 0, "log_level": "error", **options}
    server = uvicorn.Server(uvicorn.Config(app, ws="websockets-sansio", **options))
    serving = asyncio.create_task(server._serve())
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            while not server.started and not serving.done():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        if serving.done():
            serving.result()
            raise RuntimeError("the application did not start")
        host, port = server.servers[0].sockets[0].getsockname()[:2]
        yield f"{host}:{port}"
    finally:
        server.should_exit = True
        async with asyncio.timeout(_TIMEOUT_S):
            await asyncio.wait({serving})
    serving.result()
