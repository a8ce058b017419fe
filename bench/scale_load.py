"""The worker of the scale benchmark: one producer with metadata of many partitions that uses a few.

Arguments: bootstrap, topics (names), partitions (of each topic), active (partitions that get
records), in_flight, traced. Once it has the metadata of all topics it reports `ready`: the CPU time
that took, and, if traced, the bytes its objects hold. Each time `go` is said it reports `round`
with the CPU time per record of each shape.
"""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

from aioproducer import Producer
from bench.workers import arguments, next_order, orders, tell

_ONE_BY_ONE = 1_000
_SPREAD = 10_000
_VALUE = bytes(100)

Places = list[tuple[str, int]]


def places(topics: list[str], partitions: int, active: int) -> Places:
    """So many partitions, spread over all topics."""
    count = len(topics)
    return [(topics[i % count], i // count % partitions) for i in range(active)]


async def _one_by_one(producer: Producer, where: Places) -> int:
    """Records that are each awaited: a turn of the sender for each."""
    for i in range(_ONE_BY_ONE):
        topic, partition = where[i % len(where)]
        await producer.send_and_wait(topic, _VALUE, partition=partition)
    return _ONE_BY_ONE


async def _spread(producer: Producer, where: Places) -> int:
    """Rounds of one record for each active partition: batches of one record."""
    rounds = max(1, _SPREAD // len(where))
    for _ in range(rounds):
        for topic, partition in where:
            await producer.send(topic, _VALUE, partition=partition)
        await producer.flush()
    return rounds * len(where)


SHAPES: dict[str, Callable[[Producer, Places], Awaitable[int]]] = {
    "one by one": _one_by_one,
    "spread": _spread,
}


async def _cost_us(shape: str, producer: Producer, where: Places) -> float:
    gc.collect()
    started = time.process_time()
    records = await SHAPES[shape](producer, where)
    return (time.process_time() - started) / records * 1e6


async def _measure(given: dict[str, Any]) -> None:
    heard = await orders()
    topics = given["topics"]
    where = places(topics, given["partitions"], given["active"])
    if given["traced"]:
        tracemalloc.start()
    async with Producer(
        bootstrap_servers=given["bootstrap"],
        linger_ms=1,
        max_in_flight_requests_per_connection=given["in_flight"],
        metadata_max_age_ms=3_600_000,
        metadata_max_idle_ms=3_600_000,
        max_block_ms=600_000,
        compression_type="none",
    ) as producer:
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        started = time.process_time()
        await producer.warm_up(topics)
        cpu_s = time.process_time() - started
        gc.collect()
        tell("ready", cpu_s=cpu_s, held_bytes=tracemalloc.get_traced_memory()[0] - held)
        number = 0
        while await next_order(heard) is not None:
            number += 1
            costs = {shape: await _cost_us(shape, producer, where) for shape in SHAPES}
            tell(f"round-{number}", **costs)


if __name__ == "__main__":
    asyncio.run(_measure(dict(arguments())))
