"""The cost of FastStream's `publish`: on aiokafka, on the drop-in, and natively.

Method: four programs that differ in what FastStream publishes by are open at once, each in a
separate process: aiokafka's producer, the drop-in in its place, `aioproducer.contrib.faststream`,
and nothing, which is FastStream's own share. In each round every one publishes the same messages in
turn, then the next round goes the other way round. `publish` awaits each message; `no_confirm`
awaits 500 futures after 500 messages. All have FastStream's defaults (acks=1, no idempotence, no
linger), or all idempotence with acks=all. The CPU clock of the process counts, all threads. A ratio
is the median of the ratios to aiokafka within a round.

It fails when a ratio without idempotence is above its target: 0.7 for `no_confirm`, 0.6 for
`publish`.

    AIOPRODUCER_BENCH_ROUNDS    rounds, instead of 7
    AIOPRODUCER_BENCH_SHARE     share of the messages, instead of 1, to try something out
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from statistics import median

from bench.servers import kafka
from bench.workers import worker

CLIENTS = ("aiokafka", "drop-in", "native", "none")
MESSAGES = {"publish": 2_000, "no_confirm": 10_000}
TARGETS = {"publish": 0.6, "no_confirm": 0.7}
ROUNDS = 7
_ANSWER_S = 300.0

Costs = dict[str, list[float]]
"""CPU in us per message, of each round, by client."""


def ratios(costs: Costs, client: str) -> list[float]:
    """The cost of a client beside aiokafka, round by round."""
    return [ours / theirs for ours, theirs in zip(costs[client], costs["aiokafka"], strict=True)]


async def _costs(bootstrap: str, topic: str, mode: str, idempotent: bool, rounds: int) -> Costs:
    share = float(os.environ.get("AIOPRODUCER_BENCH_SHARE") or 1)
    costs: Costs = {client: [] for client in CLIENTS}
    async with AsyncExitStack() as stack:
        loads = {}
        for client in CLIENTS:
            loads[client] = await stack.enter_async_context(
                worker(
                    client,
                    "bench.faststream_load",
                    bootstrap=bootstrap,
                    topic=topic,
                    client=client,
                    mode=mode,
                    count=max(1, round(MESSAGES[mode] * share)),
                    idempotent=idempotent,
                )
            )
            await loads[client].report("ready", _ANSWER_S)
        for number in range(1, rounds + 1):
            for client in CLIENTS if number % 2 else reversed(CLIENTS):
                loads[client].say("go")
                report = await loads[client].report(f"round-{number}", _ANSWER_S)
                costs[client].append(report["cpu_us"])
    return costs


def _print(mode: str, idempotent: bool, costs: Costs) -> bool:
    """Return whether the targets are met."""
    print(f"{mode}, {'idempotent, acks=all' if idempotent else 'acks=1'}:")
    met = True
    for client in CLIENTS:
        us = costs[client]
        line = f"  {client:9} {median(us):7.1f} us CPU ({min(us):.1f} to {max(us):.1f})"
        if client in ("drop-in", "native"):
            found = ratios(costs, client)
            line += f"   {median(found):.2f} x aiokafka ({min(found):.2f} to {max(found):.2f})"
            if not idempotent:
                line += f", target {TARGETS[mode]}"
                met = met and median(found) <= TARGETS[mode]
        print(line, flush=True)
    return met


async def _measure() -> bool:
    rounds = int(os.environ.get("AIOPRODUCER_BENCH_ROUNDS") or ROUNDS)
    met = True
    async with kafka() as server, server.topics(1, 1) as (topic,):
        print(f"FastStream into {server.description}, {rounds} rounds")
        for idempotent in (False, True):
            for mode in MESSAGES:
                costs = await _costs(server.bootstrap, topic, mode, idempotent, rounds)
                met = _print(mode, idempotent, costs) and met
    return met


def main() -> None:
    if not asyncio.run(_measure()):
        sys.exit("FastStream's publish costs more than the target")
