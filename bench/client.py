"""The worker that is measured: one client, one cell, one run, in a separate process.

Owns: warm-up, the clocks around the measured part. Not here: how clients send.

Arguments: the cell's client module, loop, core, mode, records, turns, and the fields of `Job`. It
reports `warm`, each turn but the last one where there are several, and `measured`. The CPU clock of
the process (all threads, and children that ended) starts after the warm-up and stops when every
outcome of the turn is there: start-up and end are left out, and so is what a metronome takes.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bench.workers import arguments, new_runner, peak_rss_of, rss_of, tell

if TYPE_CHECKING:
    from bench.clients import Adapter

_WARM_SHARE, _WARM_MOST = 0.2, 100_000
_LATENCY_WARM = 500
_LATENCY_COLD = 10
"""The first part of a turn, one of so many, that does not count: the client was idle before."""
_FILL_STEP_S = 0.001
_TIMEOUT_S = 150.0


class Meter:
    """Wall clock and CPU clock around blocks, added up."""

    def __init__(self) -> None:
        self.wall_s = 0.0
        self.cpu_s = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        wall, cpu = time.perf_counter(), _cpu_s()
        yield
        self.cpu_s += _cpu_s() - cpu
        self.wall_s += time.perf_counter() - wall


def _ready() -> None:
    """Report warm; go on when the counter at the server is ready, or at the end of the input."""
    tell("warm")
    sys.stdin.readline()


async def _await_turn(number: int, limit: asyncio.Timeout) -> None:
    """The same, and again after each turn; meanwhile the client's loop goes on, no time counts."""
    tell("warm" if number == 0 else f"turn {number}")
    limit.reschedule(None)
    if not await asyncio.to_thread(sys.stdin.readline):
        raise EOFError("the process that gives the turns has ended")
    limit.reschedule(asyncio.get_running_loop().time() + _TIMEOUT_S)


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


async def _throughput(adapter: Adapter, mode: str, records: int, meter: Meter) -> dict[str, Any]:
    from bench.clients import pairs

    endless = pairs(adapter.job)
    send = getattr(adapter, mode)
    warm = min(_WARM_MOST, int(records * _WARM_SHARE))
    # Tasks may have had no time for all of them.
    warm = await send(adapter.prepare(mode, itertools.islice(endless, warm))) or warm
    prepared = adapter.prepare(mode, itertools.islice(endless, records))
    before = rss_of()
    _ready()
    with meter.running():
        await send(prepared)
    return {"warm_records": warm, "idle_rss": before}


async def _latency(
    adapter: Adapter, records: int, turns: int, meter: Meter, limit: asyncio.Timeout
) -> dict[str, Any]:
    from bench.cells import RATE
    from bench.clients import pairs
    from bench.pacing import Metronome

    endless = pairs(adapter.job)
    samples: list[list[float]] = []
    each = records // turns
    async with Metronome() as metronome:
        await metronome.pace(adapter, endless, RATE, _LATENCY_WARM)
        before = rss_of()
        for number in range(turns):
            await _await_turn(number, limit)
            with meter.running():
                found = await metronome.pace(adapter, endless, RATE, each)
            samples.append(found[each // _LATENCY_COLD :])
    return {
        "records": each * turns,
        "warm_records": _LATENCY_WARM,
        "idle_rss": before,
        "latencies_s": samples,
    }


async def _fill(adapter: Any, records: int, meter: Meter) -> dict[str, Any]:
    """A steady load, round robin over all topics; a late task catches up."""
    from bench.cells import FILL_RATE
    from bench.clients import pairs

    topics = itertools.cycle(adapter.job.topics)
    endless = pairs(adapter.job)
    for topic in adapter.job.topics:
        await adapter.paced(topic, next(endless))
    await adapter.flush()
    before = rss_of()
    _ready()
    with meter.running():
        start, sent = time.perf_counter(), 0
        while sent < records:
            due = min(records, int((time.perf_counter() - start) * FILL_RATE))
            for _ in range(due - sent):
                await adapter.paced(next(topics), next(endless))
            sent = max(sent, due)
            await asyncio.sleep(_FILL_STEP_S)
        await adapter.flush()
    return {"warm_records": len(adapter.job.topics), "idle_rss": before}


async def measure(
    module: str,
    mode: str,
    records: int,
    job: dict[str, Any],
    turns: int = 1,
    meter: Meter | None = None,
) -> None:
    """Do one run; report `measured`."""
    from bench.clients import Job

    client = importlib.import_module(f"bench.clients.{module}").Client
    meter = meter or Meter()
    async with asyncio.timeout(_TIMEOUT_S) as limit, client(Job(**job)) as adapter:
        if mode == "latency":
            found = await _latency(adapter, records, turns, meter, limit)
        elif mode == "fill":
            found = await _fill(adapter, records, meter)
        else:
            found = await _throughput(adapter, mode, records, meter)
    found = {"records": records, "wall_s": meter.wall_s, "cpu_s": meter.cpu_s} | found
    found["life_cpu_s"] = _cpu_s()
    tell("measured", peak_rss=peak_rss_of("self"), **found)


def main() -> None:
    given = dict(arguments())
    os.environ["AIOPRODUCER_IMPL"] = given.pop("core")
    with new_runner(given.pop("loop")) as runner:
        runner.run(measure(**given))


if __name__ == "__main__":
    main()
