"""The worker that serves: an embedded cluster, so that its memory and its freezing are its own.

Arguments: brokers, topics, numbered (how many topics of one partition there are besides, named by
`bench.topics.topic_names`). It reports `ready` with its addresses and ends with its standard input.
"""

from __future__ import annotations

import asyncio

from aioproducer.testing.embedded import EmbeddedCluster
from bench.topics import topic_names
from bench.workers import arguments, next_order, orders, tell


async def _serve(brokers: int, topics: dict[str, int], numbered: int = 0) -> None:
    heard = await orders()
    topics |= dict.fromkeys(topic_names(numbered), 1)
    async with EmbeddedCluster(brokers=brokers, topics=topics) as cluster:
        tell("ready", bootstrap_servers=cluster.bootstrap_servers)
        await next_order(heard)


if __name__ == "__main__":
    asyncio.run(_serve(**arguments()))
