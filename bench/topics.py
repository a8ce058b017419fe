"""Many topics: what each one keeps of memory, and what CPU the next one costs.

Method: an embedded cluster in a separate process has all the topics, one partition each. A client
sends one record to one topic after the other and awaits it. One client counts the CPU time of its
process (all threads, user and system) for 200 new topics when it has 1, 1,000, 4,000 and 8,000
already. Another one, under `tracemalloc`, counts the bytes it holds at the same points, after a
garbage collection. Per topic means: the difference to the first point, by the topics in between.

It fails when a topic keeps more than 8 KiB.

    AIOPRODUCER_BENCH_SHARE    share of the topics, instead of 1, to try something out
"""

from __future__ import annotations

import asyncio
import os
import sys

from bench.workers import Report, worker

COUNTS = (0, 1_000, 4_000, 8_000)
NEW_TOPICS = 200
MOST_BYTES = 8 * 1024
_ANSWER_S = 900.0


def topic_names(count: int) -> list[str]:
    """The names of so many topics."""
    return [f"topic-{number:05}" for number in range(count)]


async def _steps(bootstrap: str, counts: list[int], *, traced: bool) -> list[Report]:
    steps: list[Report] = []
    async with worker(
        "load", "bench.topics_load", bootstrap=bootstrap, counts=counts, traced=traced
    ) as load:
        load.on_report = lambda report: steps.append(report) if report["kind"] == "step" else None
        await load.report("end", _ANSWER_S)
    return steps


async def _measure(counts: list[int]) -> bool:
    """Return whether the bound holds."""
    numbered = counts[-1] + NEW_TOPICS + 1
    async with worker(
        "cluster", "bench.embedded", brokers=1, topics={}, numbered=numbered
    ) as cluster:
        bootstrap = (await cluster.report("ready", _ANSWER_S))["bootstrap_servers"]
        timed = await _steps(bootstrap, counts, traced=False)
        traced = await _steps(bootstrap, counts, traced=True)
    first, last = timed[0], timed[-1]
    for step in timed:
        each_us = step["cpu_s"] / NEW_TOPICS * 1e6
        print(f"{step['known']:>7,} topics known: {each_us:8,.0f} us CPU per new topic")
    slope = (last["cpu_s"] - first["cpu_s"]) / NEW_TOPICS / (last["known"] - first["known"])
    print(f"slope: {slope * 1e9:.1f} ns per new topic and topic known")
    start, per_topic = traced[0], 0.0
    for step in traced[1:]:
        per_topic = (step["held_bytes"] - start["held_bytes"]) / (step["known"] - start["known"])
        print(f"{step['known']:>7,} topics known: {per_topic:8,.0f} bytes per topic")
    return per_topic <= MOST_BYTES


def main() -> None:
    share = float(os.environ.get("AIOPRODUCER_BENCH_SHARE") or 1)
    if not asyncio.run(_measure([round(count * share) for count in COUNTS])):
        sys.exit(f"a topic keeps more than {MOST_BYTES:,} bytes")
