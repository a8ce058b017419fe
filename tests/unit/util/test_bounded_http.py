"""One HTTP exchange, with servers that make it long or expensive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx

from aioproducer._util.bounded_http import exchange


class Crumbs(httpx.AsyncByteStream):
    """A body of single bytes that have all arrived."""

    def __init__(self, count: int) -> None:
        self._count = count

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self._count):
            yield b" "


async def test_the_loop_runs_while_many_small_parts_of_an_answer_are_read() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    transport = httpx.MockTransport(lambda request: httpx.Response(200, stream=Crumbs(20_000)))
    async with httpx.AsyncClient(transport=transport) as client:
        _, body = await exchange(
            client, "GET", "http://peer", headers={}, content=None, longest=1_000_000
        )
    counting.cancel()
    assert len(body) == 20_000
    assert turns > 500
