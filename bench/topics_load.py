"""The worker of the topics benchmark: one record to each of many topics.

Arguments: bootstrap, counts (rising), traced. Whenever the producer has so many topics it reports
`step`: the CPU time of the next 200 new topics, or, if traced, what the producer's memory holds.
It reports `end` when it is through.
"""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Iterator

from aioproducer import Producer
from bench.topics import NEW_TOPICS, topic_names
from bench.workers import arguments, next_order, orders, tell


async def _send_to(producer: Producer, names: Iterator[str], count: int) -> None:
    for _ in range(count):
        await producer.send_and_wait(next(names), b"x")


async def _measure(bootstrap: str, counts: list[int], traced: bool) -> None:
    heard = await orders()
    if traced:
        tracemalloc.start()
    async with Producer(bootstrap_servers=bootstrap) as producer:
        names = iter(topic_names(counts[-1] + NEW_TOPICS + 1))
        await _send_to(producer, names, 1)
        known = 0
        for count in counts:
            await _send_to(producer, names, count - known)
            known = count
            gc.collect()
            if traced:
                tell("step", known=known, held_bytes=tracemalloc.get_traced_memory()[0])
                continue
            started = time.process_time()
            await _send_to(producer, names, NEW_TOPICS)
            tell("step", known=known, cpu_s=time.process_time() - started)
            known += NEW_TOPICS
        tell("end")
        await next_order(heard)


if __name__ == "__main__":
    asyncio.run(_measure(**arguments()))
