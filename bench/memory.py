"""Memory under overload: 1,000 tasks offer three times what a cluster takes, and it is frozen.

Method: first a process of 1,000 tasks sends 1 KiB values as fast as it can, which shows how much
the cluster takes. Then a fresh process connects, and what it occupies is noted: the idle process.
All brokers get a SIGSTOP; for 60 s the tasks offer three times the rate and keep no deliveries.
Then the brokers go on, the tasks offer as much for 10 s more, stop, and the rest is delivered.
Nothing may expire meanwhile: `max_block_ms` and `delivery_timeout_ms` are long. The kernel gives
the process's memory every 100 ms, and its peak. At the end confluent-kafka's consumer reads
everything back.

It fails when memory exceeds idle + `buffer_memory` + 48 MiB, when a task in the line for memory is
served before those that came before it, when a record fails, is lost, duplicated or reordered, or
when buffer memory does not come back. The outcome goes to bench/memory.json and bench/memory.png,
of shortened runs to build/memory/ instead.

    AIOPRODUCER_BENCH_SECONDS    how long the cluster is stopped, instead of 60
    AIOPRODUCER_BENCH_SCENARIOS  names of scenarios, separated by commas, instead of all
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import machine
from bench.workers import Report, Worker, worker

_BENCH = Path(__file__).parent
_ELSEWHERE = _BENCH.parent / "build" / "memory"

TASKS = 1_000
VALUE_BYTES = 1_024
OVERLOAD = 3
FROZEN_S = 60.0
ALLOWANCE = 48 << 20
_AFTERWARDS_S = 10.0
_CALM_S = 3.0
_MEASURE_S = 8.0
_RAMP_S = 3.0
_SAMPLE_S = 0.1
_ANSWER_S = 60.0
_DRAIN_S = 330.0
_MIB = 1 << 20
_LONG_TIMEOUTS = {"max_block_ms": 600_000, "delivery_timeout_ms": 900_000}


@dataclass(frozen=True, slots=True)
class Scenario:
    """The frozen brokers, and the producer's options."""

    description: str
    real: bool
    partitions: int
    options: Mapping[str, Any]


SCENARIOS = {
    "kafka": Scenario(
        "three Kafka brokers, defaults but for the timeouts",
        real=True,
        partitions=30,
        options={"request_timeout_ms": 600_000},
    ),
    "kafka-retrying": Scenario(
        "three Kafka brokers, 64 MiB, requests that expire after 10 s and are sent again",
        real=True,
        partitions=30,
        options={"request_timeout_ms": 10_000, "buffer_memory": 64 * _MIB},
    ),
    "embedded-many": Scenario(
        "the embedded cluster with 300 partitions, 8 MiB of buffer memory",
        real=False,
        partitions=300,
        options={"request_timeout_ms": 600_000, "buffer_memory": 8 * _MIB},
    ),
}


@dataclass(frozen=True, slots=True)
class Ground:
    """A cluster that can be frozen as a whole."""

    bootstrap: str
    description: str
    freeze: Callable[[], None]
    thaw: Callable[[], None]


@dataclass(slots=True)
class Run:
    """The measurements of one scenario."""

    name: str
    scenario: Scenario
    capacity: float = 0.0
    idle: int = 0
    buffer_memory: int = 0
    peak: int = 0
    samples: list[tuple[float, int]] = field(default_factory=list)
    """Seconds, bytes."""
    counters: list[Report] = field(default_factory=list)
    events: dict[str, float] = field(default_factory=dict)
    drained: Report = field(default_factory=dict)
    findings: Report = field(default_factory=dict)

    @property
    def bound(self) -> int:
        """The memory that the process may occupy."""
        return self.idle + self.buffer_memory + ALLOWANCE

    @property
    def offered_per_second(self) -> float:
        """Turns of all tasks, those that came while they waited included."""
        return float(self.drained["turns"] / (self.events["stopped"] - self.events["frozen"]))

    def violations(self) -> list[str]:
        """The broken guarantees, and reasons why the measurement is worthless."""
        drained, found = self.drained, self.findings
        wrong = [
            f"{what}: {count:,}"
            for what, count in (
                ("waiters overtaken", drained["overtaken"]),
                ("records refused", sum(drained["refused"].values())),
                ("records failed", drained["failed"]),
                ("records not delivered", drained["left"]),
                ("buffer memory not returned", drained["buffer_unreturned"]),
                ("still waiting", drained["waiting"]),
                ("lost", found["lost"]),
                ("duplicated", found["duplicated"]),
                ("reordered", found["reordered"]),
            )
            if count
        ]
        if self.peak > self.bound:
            wrong.append(f"{mib(self.peak)} occupied, {mib(self.bound)} allowed")
        if found["read"] != drained["accepted"]:
            wrong.append(f"{found['read']:,} records read, {drained['accepted']:,.0f} accepted")
        if drained["waited"] < TASKS:
            wrong.append("hardly any task had to wait")
        if self.offered_per_second < 0.9 * OVERLOAD * self.capacity:
            wrong.append("the tasks did not offer as much as they should")
        return wrong

    def summary(self) -> dict[str, Any]:
        """The figures, for the results file."""
        drained = self.drained
        return {
            "description": self.scenario.description,
            "options": dict(self.scenario.options),
            "partitions": self.scenario.partitions,
            "cluster_takes_per_second": round(self.capacity),
            "offered_per_second": round(self.offered_per_second),
            "frozen_s": round(self.events["thawed"] - self.events["frozen"], 1),
            "idle_bytes": self.idle,
            "buffer_memory_bytes": self.buffer_memory,
            "bound_bytes": self.bound,
            "peak_bytes": self.peak,
            "above_idle_and_buffer_bytes": self.peak - self.idle - self.buffer_memory,
            "accepted": round(drained["accepted"]),
            "waited_in_line": drained["waited"],
            "overtaken": drained["overtaken"],
            "longest_wait_s": round(drained["longest_wait_s"], 1),
            "retried_records": round(drained["retried"]),
            "read_back": self.findings["read"],
            "lost": self.findings["lost"],
            "duplicated": self.findings["duplicated"],
            "reordered": self.findings["reordered"],
            "violations": self.violations(),
        }


def mib(size: float) -> str:
    """A size for people."""
    return f"{size / _MIB:.1f} MiB"


async def _measure(name: str, scenario: Scenario, frozen_s: float) -> Run:
    run = Run(name, scenario)
    topics = {"capacity": scenario.partitions, "overload": scenario.partitions}
    async with _ground(scenario, topics) as ground:
        print(f"{name}: {ground.description}", flush=True)
        run.capacity = await _capacity(ground, scenario)
        print(f"  takes {run.capacity:,.0f} records/s", flush=True)
        await _overload(run, ground, frozen_s)
        await _read_back(run, ground)
    return run


async def _capacity(ground: Ground, scenario: Scenario) -> float:
    """Return the acknowledged records per second while all tasks send as fast as possible."""
    async with _load(ground, scenario, "capacity") as load:
        await load.report("idle", _ANSWER_S)
        load.say("offer", rate=0)
        await asyncio.sleep(_RAMP_S)
        first = await load.report("counters", _ANSWER_S)
        await asyncio.sleep(_MEASURE_S)
        last = await load.report("counters", _ANSWER_S)
        load.say("stop")
        await load.report("drained", _DRAIN_S)
    acknowledged = last["acknowledged"] - first["acknowledged"]
    return float(acknowledged / (last["at"] - first["at"]))


async def _overload(run: Run, ground: Ground, frozen_s: float) -> None:
    async with _load(ground, run.scenario, "overload") as load:
        idle = await load.report("idle", _ANSWER_S)
        run.idle, run.buffer_memory = idle["rss"], idle["buffer_memory"]

        def keep(report: Report) -> None:
            if report["kind"] == "counters":
                run.counters.append(report)

        load.on_report = keep
        sampling = asyncio.create_task(_sample(run, load))
        try:
            await asyncio.sleep(_CALM_S)
            ground.freeze()
            try:
                run.events["frozen"] = time.monotonic()
                load.say("offer", rate=OVERLOAD * run.capacity)
                await asyncio.sleep(frozen_s)
            finally:
                ground.thaw()
            run.events["thawed"] = time.monotonic()
            await asyncio.sleep(_AFTERWARDS_S)
            load.say("stop")
            run.events["stopped"] = time.monotonic()
            run.drained = await load.report("drained", _DRAIN_S)
            run.events["drained"] = time.monotonic()
            await asyncio.sleep(_CALM_S)
            run.peak = load.peak_rss()
        finally:
            sampling.cancel()
            await asyncio.gather(sampling, return_exceptions=True)


async def _sample(run: Run, load: Worker) -> None:
    while True:
        run.samples.append((time.monotonic(), load.rss()))
        await asyncio.sleep(_SAMPLE_S)


async def _read_back(run: Run, ground: Ground) -> None:
    async with worker(
        "reader",
        "bench.reader",
        bootstrap=ground.bootstrap,
        topic="overload",
        value_bytes=VALUE_BYTES,
    ) as reader:
        await reader.report("ready", _ANSWER_S)
        reader.say("finish", sent=run.drained["sent"])
        run.findings = await reader.report("findings", _DRAIN_S)


@asynccontextmanager
async def _load(ground: Ground, scenario: Scenario, topic: str) -> AsyncIterator[Worker]:
    async with worker(
        "load",
        "bench.memory_load",
        bootstrap=ground.bootstrap,
        topic=topic,
        partitions=scenario.partitions,
        tasks=TASKS,
        value_bytes=VALUE_BYTES,
        options=_LONG_TIMEOUTS | dict(scenario.options),
    ) as load:
        yield load


@asynccontextmanager
async def _ground(scenario: Scenario, topics: dict[str, int]) -> AsyncIterator[Ground]:
    async with AsyncExitStack() as stack:
        enter = _real_ground if scenario.real else _embedded_ground
        yield await enter(stack, topics)


async def _real_ground(stack: AsyncExitStack, topics: dict[str, int]) -> Ground:
    from support.confluent import create_topic_confluent

    from aioproducer.testing.kafka import KafkaCluster

    cluster = await stack.enter_async_context(KafkaCluster(brokers=3))
    for name, partitions in topics.items():
        await create_topic_confluent(
            cluster.bootstrap_servers,
            name,
            partitions=partitions,
            replication_factor=3,
            configs={"min.insync.replicas": "2"},
        )

    def freeze() -> None:
        for node_id in cluster.node_ids:
            cluster.pause(node_id)

    def thaw() -> None:
        for node_id in cluster.node_ids:
            cluster.resume(node_id)

    return Ground(cluster.bootstrap_servers, cluster.description, freeze, thaw)


async def _embedded_ground(stack: AsyncExitStack, topics: dict[str, int]) -> Ground:
    cluster = await stack.enter_async_context(
        worker("cluster", "bench.embedded", brokers=3, topics=topics)
    )
    ready = await cluster.report("ready", _ANSWER_S)
    return Ground(
        ready["bootstrap_servers"],
        "3 embedded brokers in a separate process",
        cluster.freeze,
        cluster.thaw,
    )


async def _measure_all(names: list[str], frozen_s: float) -> list[Run]:
    from bench import memory_report

    runs = []
    for name in names:
        run = await _measure(name, SCENARIOS[name], frozen_s)
        memory_report.show(run)
        runs.append(run)
    return runs


def main() -> None:
    from bench import memory_report

    machine.find_tests()
    chosen = os.environ.get("AIOPRODUCER_BENCH_SCENARIOS")
    seconds = os.environ.get("AIOPRODUCER_BENCH_SECONDS")
    names = chosen.split(",") if chosen else list(SCENARIOS)
    runs = asyncio.run(_measure_all(names, float(seconds or FROZEN_S)))
    memory_report.write(runs, _ELSEWHERE if chosen or seconds else _BENCH)
    if any(run.violations() for run in runs):
        sys.exit(1)
