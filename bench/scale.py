"""Cost and memory by partitions known, partitions active, brokers, requests in flight.

Method: an embedded cluster in a separate process; a producer in another one gets the metadata of
all topics and sends to the active partitions, spread over all topics. CPU time is that of the
producer's process, user and system, all threads; the lowest of the rounds counts. "One by one"
awaits each record with a linger of 1 ms, a turn of the sender for each. "Spread" sends one record
to each active partition and flushes, again and again. One dimension changes at a time; the rest is
as in `BASE`. Memory is what `tracemalloc` counts in a process that sends nothing.

Then a day of a large cluster in virtual time, see `bench.scale_day`.

It fails when a partition that is known and idle keeps more than 1 KiB, when a record costs 15% more
with a hundred times as many idle partitions, or when a record of the day is lost, duplicated,
reordered or fails. The outcome goes to bench/SCALE.md and bench/scale.png, of shortened runs to
build/scale/.

    AIOPRODUCER_BENCH_ROUNDS    rounds, instead of 5
    AIOPRODUCER_BENCH_SHARE     share of the partitions and of the day, instead of 1
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import machine
from bench.figures import slope
from bench.scale_load import SHAPES
from bench.workers import worker

_BENCH = Path(__file__).parent
_ELSEWHERE = _BENCH.parent / "build" / "scale"
_ANSWER_S = 600.0
_ROUNDS = 5
_PARTITIONS = 100
MOST_BYTES = 1024
MOST_GROWTH = 1.15
IDLE = "partitions known"


@dataclass(frozen=True, slots=True)
class Size:
    """A cluster, and how a producer uses it."""

    known: int = 1_000
    active: int = 100
    brokers: int = 3
    in_flight: int = 5

    @property
    def topics(self) -> list[str]:
        """Topics of at most 100 partitions each."""
        return [f"topic-{i:04}" for i in range(-(-self.known // _PARTITIONS))]

    @property
    def partitions(self) -> int:
        """Of each topic."""
        return min(self.known, _PARTITIONS)


BASE = Size()
DIMENSIONS: Mapping[str, Sequence[tuple[int, Size]]] = {
    IDLE: [(n, replace(BASE, known=n)) for n in (1_000, 10_000, 100_000)],
    "partitions active": [
        (n, replace(BASE, known=10_000, active=n)) for n in (10, 100, 1_000, 10_000)
    ],
    "brokers": [(n, replace(BASE, brokers=n)) for n in (1, 3, 10, 30, 100)],
    "requests in flight per broker": [(n, replace(BASE, in_flight=n)) for n in (1, 2, 5)],
}


@dataclass(slots=True)
class Measured:
    """The costs of one size.

    Attributes:
        us: CPU time per record, by shape.
        learn_us: CPU time to learn a partition.
        held_bytes: What is held of the metadata, in objects.
    """

    size: Size
    us: dict[str, float] = field(default_factory=dict)
    learn_us: float = 0.0
    held_bytes: int = 0


Results = dict[str, list[tuple[int, Measured]]]


async def measure(size: Size, rounds: int) -> Measured:
    """Measure one size."""
    measured = Measured(size)
    topics = dict.fromkeys(size.topics, size.partitions)
    async with worker("cluster", "bench.embedded", brokers=size.brokers, topics=topics) as cluster:
        bootstrap = (await cluster.report("ready", _ANSWER_S))["bootstrap_servers"]
        given = {
            "bootstrap": bootstrap,
            "topics": size.topics,
            "partitions": size.partitions,
            "active": size.active,
            "in_flight": size.in_flight,
        }
        async with worker("traced", "bench.scale_load", **given, traced=True) as load:
            measured.held_bytes = (await load.report("ready", _ANSWER_S))["held_bytes"]
        async with worker("load", "bench.scale_load", **given, traced=False) as load:
            ready = await load.report("ready", _ANSWER_S)
            measured.learn_us = ready["cpu_s"] / (len(topics) * size.partitions) * 1e6
            costs = []
            for number in range(1, rounds + 1):
                load.say("go")
                costs.append(await load.report(f"round-{number}", _ANSWER_S))
    measured.us = {shape: min(cost[shape] for cost in costs) for shape in SHAPES}
    return measured


async def _measure_all(
    dimensions: Mapping[str, Sequence[tuple[int, Size]]], rounds: int
) -> Results:
    results: Results = {}
    for name, sizes in dimensions.items():
        results[name] = []
        for value, size in sizes:
            measured = await measure(size, rounds)
            results[name].append((value, measured))
            costs = ", ".join(f"{shape} {us:.1f} us" for shape, us in measured.us.items())
            print(f"{value:>8,} {name}: {costs}", flush=True)
    return results


def bytes_per_partition(results: Results) -> float:
    """Return the bytes that one more known and idle partition keeps."""
    return slope([(value, each.held_bytes) for value, each in results[IDLE]])


def growth(results: Results) -> dict[str, float]:
    """Return the factor by which each shape costs more with the most idle partitions."""
    (_, first), *_, (_, last) = results[IDLE]
    return {shape: us / first.us[shape] for shape, us in last.us.items()}


def violations(results: Results) -> list[str]:
    """Bounds that do not hold."""
    found = []
    kept = bytes_per_partition(results)
    if kept > MOST_BYTES:
        found.append(f"an idle partition keeps {kept:,.0f} bytes, more than {MOST_BYTES:,}")
    (_, first), *_, (_, last) = results[IDLE]
    for shape, factor in growth(results).items():
        if factor > MOST_GROWTH:
            found.append(
                f"with {last.size.known:,} partitions known a record costs {last.us[shape]:.1f} us "
                f"{shape}, with {first.size.known:,} {first.us[shape]:.1f} us"
            )
    return found


def scaled(share: float) -> dict[str, list[tuple[int, Size]]]:
    """The sizes with this share of the partitions; those that become equal count once."""
    if share == 1:
        return {name: list(sizes) for name, sizes in DIMENSIONS.items()}
    found: dict[str, list[tuple[int, Size]]] = {}
    for name, sizes in DIMENSIONS.items():
        smaller = {}
        for value, size in sizes:
            known = max(10, round(size.known * share))
            changed = replace(size, known=known, active=min(known, size.active))
            smaller[changed] = {IDLE: known, "partitions active": changed.active}.get(name, value)
        found[name] = [(value, size) for size, value in smaller.items()]
    return found


def main() -> None:
    """Measure all, write the page, and fail if a bound does not hold."""
    machine.find_tests()
    from bench import scale_report
    from bench.scale_day import Day, run_day

    rounds = int(os.environ.get("AIOPRODUCER_BENCH_ROUNDS") or _ROUNDS)
    share = float(os.environ.get("AIOPRODUCER_BENCH_SHARE") or 1)
    results = asyncio.run(_measure_all(scaled(share), rounds))
    whole = Day()
    day = replace(
        whole,
        topics=max(whole.producers, round(whole.topics * share)),
        brokers=max(3, round(whole.brokers * share)),
        active=max(whole.producers, round(whole.active * share)),
        hours=max(1.0, whole.hours * share),
    )
    of_day = run_day(day)
    print(scale_report.day_line(of_day), flush=True)
    directory = _BENCH if share == 1 and rounds >= _ROUNDS else _ELSEWHERE
    scale_report.write(results, of_day, machine.describe(), directory)
    wrong = violations(results) + of_day.wrong
    if wrong:
        sys.exit("\n".join(wrong[:20]))
