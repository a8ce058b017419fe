"""Our program that `bench.transactions` measures; java/TransactionLoad.java does the same.

Argument: a JSON object of the same things. It sends twice, to warm up and measured, and prints one
JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from aioproducer import Producer
from bench.workers import arguments


async def _send(
    producer: Producer, topic: str, value: bytes, records: int, per_transaction: int, flush: bool
) -> list[float]:
    if not per_transaction:
        for _ in range(records):
            await producer.send(topic, value)
        await producer.flush()
        return []
    commits = []
    for _ in range(records // per_transaction):
        await producer.begin_transaction()
        for _ in range(per_transaction):
            await producer.send(topic, value)
        if flush:
            await producer.flush()
        began = time.perf_counter()
        await producer.commit_transaction()
        commits.append((time.perf_counter() - began) * 1000)
    return commits


async def _measure(
    bootstrap: str,
    topic: str,
    transactional_id: str,
    records: int,
    per_transaction: int,
    value_bytes: int,
    linger_ms: int,
    batch_bytes: int,
    flush: bool,
) -> None:
    options = {"transactional_id": transactional_id} if per_transaction else {}
    value = b"x" * value_bytes
    async with Producer(
        bootstrap_servers=bootstrap, linger_ms=linger_ms, batch_size=batch_bytes, **options
    ) as producer:
        await _send(producer, topic, value, records, per_transaction, flush)
        cpu, began = time.process_time(), time.perf_counter()
        commits = await _send(producer, topic, value, records, per_transaction, flush)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    json.dump({"seconds": seconds, "cpu": cpu, "commits_ms": commits}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(_measure(**arguments()))
