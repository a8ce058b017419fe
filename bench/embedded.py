"""The worker that serves: an embedded cluster, so that its memory and its freezing are its own.

Arguments: brokers, topics. It reports `ready` with its addresses and ends with its standard input.
"""

from __future__ import annotations

import asyncio

from aioproducer.testing.embedded import EmbeddedCluster
from bench.workers import arguments, next_order, orders, tell


async def _serve(brokers: int, topics: dict[str, int]) -> None:
    heard = await orders()
    async with EmbeddedCluster(brokers=brokers, topics=topics) as cluster:
        tell("ready", bootstrap_servers=cluster.bootstrap_servers)
        await next_order(heard)


if __name__ == "__main__":
    asyncio.run(_serve(**arguments()))
