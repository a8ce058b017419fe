"""The cost of confluent-kafka's calls: with its own `Producer`, and with the drop-in.

Method: a process for each of the two produces the same 50,000 records of 100 bytes in each round,
in turns, into the sink (linger 5 ms, acks=all). The CPU clock of the process counts, all threads:
librdkafka's in one, the event loop's in the other. A ratio is the median of the ratios to
confluent-kafka within a round.

    AIOPRODUCER_BENCH_ROUNDS    rounds, instead of 7
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from statistics import median

from bench.confluent_drop_in_load import MODES
from bench.servers import sink
from bench.workers import worker

CLIENTS = ("confluent-kafka", "drop-in")
RECORDS, ROUNDS = 50_000, 7
_ANSWER_S = 300.0


async def _costs(bootstrap: str, topic: str, mode: str, rounds: int) -> dict[str, list[float]]:
    costs: dict[str, list[float]] = {client: [] for client in CLIENTS}
    given = {"bootstrap": bootstrap, "topic": topic, "mode": mode, "count": RECORDS}
    async with AsyncExitStack() as stack:
        loads = {}
        for client in CLIENTS:
            started = worker(client, "bench.confluent_drop_in_load", client=client, **given)
            loads[client] = await stack.enter_async_context(started)
            await loads[client].report("ready", _ANSWER_S)
        for number in range(1, rounds + 1):
            for client in CLIENTS if number % 2 else reversed(CLIENTS):
                loads[client].say("go")
                report = await loads[client].report(f"round-{number}", _ANSWER_S)
                costs[client].append(report["cpu_us"])
    return costs


async def _measure() -> None:
    rounds = int(os.environ.get("AIOPRODUCER_BENCH_ROUNDS") or ROUNDS)
    async with sink() as server, server.topics(1, 1) as (topic,):
        for mode in MODES:
            costs = await _costs(server.bootstrap, topic, mode, rounds)
            theirs, ours = (costs[client] for client in CLIENTS)
            found = [own / other for own, other in zip(ours, theirs, strict=True)]
            us = f"confluent-kafka {median(theirs):.2f} us CPU, drop-in {median(ours):.2f}"
            ratio = f"{median(found):.2f} x ({min(found):.2f} to {max(found):.2f})"
            print(f"{mode}: {us}, {ratio}", flush=True)


def main() -> None:
    asyncio.run(_measure())
