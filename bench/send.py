"""CPU per record of `await send()` and of `send_many`, beside aiokafka where it is installed.

Method: the embedded cluster runs in a process of its own; each client runs in a fresh process that
sends 100-byte values, awaits every delivery and reports its own CPU time (all threads, start-up
excluded). Clients take turns over several rounds; medians are reported. The embedded cluster
validates every batch and is a Python program on the same machine, so rates say little: compare
the CPU. Each client runs with acks=all, linger 5 ms, batches of 128 KiB, 6 partitions and no
compression; aiokafka with idempotence off, like ours today.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys

ROUNDS = 5
RECORDS = 200_000

_CLUSTER = """
import asyncio, sys
from aioproducer.testing.embedded import EmbeddedCluster

async def main():
    async with EmbeddedCluster(brokers=3, topics={"bench": 6}) as cluster:
        print(cluster.bootstrap_servers, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""

_MEASURE = """
import asyncio, json, sys, time

async def measure(send_all):
    cpu, wall = time.process_time(), time.perf_counter()
    await send_all()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(json.dumps({"cpu_us": cpu / N * 1e6, "rate": N / wall}))
"""

_OURS = """
from aioproducer import Producer

async def main():
    async with Producer(bootstrap_servers=BOOTSTRAP, linger_ms=5, batch_size=131072) as producer:
        await producer.warm_up(["bench"])
        async def each():
            deliveries = [await producer.send("bench", VALUE) for _ in range(N)]
            for delivery in deliveries:
                await delivery
        async def many():
            result = await producer.send_many("bench", (VALUE for _ in range(N)))
            assert result.delivered == N
        await measure(MODE)

asyncio.run(main())
"""

_AIOKAFKA = """
from aiokafka import AIOKafkaProducer

async def main():
    producer = AIOKafkaProducer(
        bootstrap_servers=BOOTSTRAP, acks="all", linger_ms=5, max_batch_size=131072
    )
    await producer.start()
    try:
        await producer.send_and_wait("bench", VALUE)
        async def each():
            deliveries = [await producer.send("bench", VALUE) for _ in range(N)]
            for delivery in deliveries:
                await delivery
        await measure(each)
    finally:
        await producer.stop()

asyncio.run(main())
"""


def _programs() -> dict[str, str]:
    programs = {
        "aioproducer send": _OURS.replace("MODE", "each"),
        "aioproducer send_many": _OURS.replace("MODE", "many"),
    }
    if importlib.util.find_spec("aiokafka"):
        programs["aiokafka send"] = _AIOKAFKA
    return programs


def _run(program: str, bootstrap: str) -> dict[str, float]:
    head = f"N = {RECORDS}\nVALUE = b'x' * 100\nBOOTSTRAP = {bootstrap!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", head + _MEASURE + program],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> None:
    programs = _programs()
    results: dict[str, list[dict[str, float]]] = {name: [] for name in programs}
    with subprocess.Popen(
        [sys.executable, "-c", _CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as cluster:
        assert cluster.stdout is not None
        bootstrap = cluster.stdout.readline().strip()
        for _ in range(ROUNDS):
            for name, program in programs.items():
                results[name].append(_run(program, bootstrap))
    print(f"100-byte values, {RECORDS:,} records, embedded cluster, median of {ROUNDS} rounds:")
    for name, runs in results.items():
        cpu = statistics.median(run["cpu_us"] for run in runs)
        rate = statistics.median(run["rate"] for run in runs)
        print(f"  {name:24} {cpu:7.2f} µs CPU per record   {rate:10,.0f} records/s")
