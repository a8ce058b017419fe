"""Run cells: interleaved rounds, each run in a separate process, counted at the server.

Owns: the order of runs, what one run yields, what counts as a failed run. Not here: how a
client sends, what a bar is.

Invariants: a run counts only if the server's end offsets say that all its records arrived, and no
more; a cell that failed is not tried again and says why; servers and clients are gone afterwards.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import itertools
import json
import platform
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, cast

from aioproducer import Producer, __version__
from aioproducer.errors import KafkaError
from aioproducer.testing.kafka.errors import JavaError
from aioproducer.testing.kafka.release import DEFAULT_VERSION
from aioproducer.testing.maven import MavenError
from bench import java_client, machine
from bench.bars import COPY, ENCODE
from bench.cells import BATCH_BYTES, CLIENTS, FILL_RATE, LINGER_MS, Cell
from bench.clients import Job
from bench.figures import percentile, spread
from bench.servers import SERVERS, Server
from bench.workers import WorkerError, worker

MEASURES = (
    "rate",
    "cpu_us",
    "life_cpu_us",
    "peak_mib",
    "p50_ms",
    "p99_ms",
    "p999_ms",
    "records_per_request",
)
_PACKAGES = {
    "aiokafka": "aiokafka",
    "confluent": "confluent_kafka",
    "confluent-aio": "confluent_kafka.aio",
    "kafka-python": "kafka",
    "aioproducer-uvloop": "uvloop",
}
_DISTRIBUTIONS = ("aiokafka", "confluent-kafka", "kafka-python", "uvloop", "pyarrow")
_MIB = 1 << 20
_RUN_S = 240.0
_WARM_UP_RUNS = 2
_RATE_HELD = 0.9
"""The least share of the given rate at which a run of `fill` says something."""
_ROOT = Path(__file__).parents[1]
_FAILURES = (
    WorkerError,
    java_client.JavaClientError,
    JavaError,
    MavenError,
    KafkaError,
    OSError,
    TimeoutError,
)

Run = dict[str, float]


class WrongCountError(WorkerError):
    """The server holds another number of records than the client claims."""


async def compare(cells: Sequence[Cell], rounds: int, share: float = 1.0) -> dict[str, Any]:
    """Run every cell `rounds` times, with a share of its records; return the data of RESULTS.md."""
    runs: dict[Cell, list[Run]] = defaultdict(list)
    problems = {cell: reason for cell in cells if (reason := unavailable(cell))}
    servers: dict[str, str] = {}
    began = time.time()
    encoding = await _encode() if any(_sends_arrow(cell) for cell in cells) else {}
    for name in dict.fromkeys(cell.server for cell in cells):
        async with SERVERS[name]() as server:
            servers[name] = server.description
            here = [cell for cell in cells if cell.server == name]
            await _warm_up(server, [cell for cell in here if cell not in problems], share)
            for number in range(rounds):
                # Back and forth, so that no client always follows the same other.
                ordered = here if number % 2 == 0 else here[::-1]
                for cells_at_once in _groups(cell for cell in ordered if cell not in problems):
                    found = await run_together(server, cells_at_once, share)
                    for cell, outcome in zip(cells_at_once, found, strict=True):
                        if isinstance(outcome, Exception):
                            problems[cell] = f"{type(outcome).__name__}: {outcome}"
                        else:
                            runs[cell].append(outcome)
                        print(_line(number, cell, runs[cell], problems), flush=True)
    return {
        "when": time.strftime("%Y-%m-%d %H:%M", time.gmtime(began)),
        "minutes": round((time.time() - began) / 60, 1),
        "machine": machine.describe(),
        "versions": versions(),
        "servers": servers,
        "method": {"rounds": rounds, "linger_ms": LINGER_MS, "batch_bytes": BATCH_BYTES},
        "cells": {cell.key: _entry(cell, runs[cell], problems.get(cell)) for cell in cells},
        "encoding": encoding,
    }


def unavailable(cell: Cell) -> str | None:
    """Return the reason why this client cannot do it here, if there is one."""
    package = _PACKAGES.get(cell.client, "").partition(".")[0]
    if package and importlib.util.find_spec(package) is None:
        return f"{package} is not installed"
    if cell.mode == "arrow" and not hasattr(Producer, "send_arrow"):
        return "there is no send_arrow"
    return None


def versions() -> dict[str, str]:
    """Return the versions of Python, the clients and the servers."""
    found = {"aioproducer": __version__, "CPython": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found | {"Kafka and its Java client": DEFAULT_VERSION}


async def _warm_up(server: Server, cells: Sequence[Cell], share: float) -> None:
    """Do some runs that do not count: the first client would pay for a broker's compiler."""
    for cell in cells[:_WARM_UP_RUNS]:
        await run_together(server, [cell], share)


def _groups(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Return the cells in groups; the clients of a group take turns."""
    grouped = itertools.groupby(cells, lambda cell: cell if cell.turns == 1 else None)
    return [list(group) for _, group in grouped]


def _sends_arrow(cell: Cell) -> bool:
    return cell.mode == "arrow" and unavailable(cell) is None


async def _encode() -> dict[str, Any]:
    """Return what `bench.arrow` measures within one process; empty where that failed."""
    program = "import json; from bench.arrow import encode; print(json.dumps(encode()))"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, cwd=_ROOT, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    if process.returncode:
        return {}
    ours, copy = json.loads(out.splitlines()[-1])["value"]
    return {
        key: {"ns": spread([figure]).as_json()} for key, figure in ((ENCODE, ours), (COPY, copy))
    }


async def run_together(
    server: Server, cells: Sequence[Cell], share: float = 1.0, python: str = sys.executable
) -> list[Run | Exception]:
    """Run each cell once, with all clients open and one at a time sending; return the results."""
    stage = asyncio.Lock()  # a client that had its turn queues up after the others
    try:
        async with AsyncExitStack() as stack:
            topics = []
            for cell in cells:
                opening = server.topics(cell.topics, cell.partitions)
                topics.append(await stack.enter_async_context(opening))
            runs = [
                _run(server, cell, int(cell.records * share), names, stage, python)
                for cell, names in zip(cells, topics, strict=True)
            ]
            found = await asyncio.gather(*runs, return_exceptions=True)
    except _FAILURES as error:
        return [error] * len(cells)
    for outcome in found:
        if isinstance(outcome, BaseException) and not isinstance(outcome, _FAILURES):
            raise outcome
    return cast("list[Run | Exception]", found)


async def _run(
    server: Server,
    cell: Cell,
    records: int,
    topics: list[str],
    stage: asyncio.Lock,
    python: str,
) -> Run:
    """Run one cell once; raise `WorkerError` if the client failed or records are missing."""
    job = Job(
        bootstrap=server.bootstrap,
        topics=topics,
        size=cell.size,
        codec=cell.codec,
        keyed=cell.keyed,
        tuning=cell.tuning,
        linger_ms=0 if cell.mode == "latency" else LINGER_MS,
        extra=cell.extra,
    )
    before = await server.arrived(topics)
    found = await _measure(server, cell, records, job, stage, python)
    arrived = await server.arrived(topics) - before
    result = figures(found, arrived, exact=cell.mode != "tasks")
    if cell.mode == "fill" and result["rate"] < _RATE_HELD * FILL_RATE:
        del result["records_per_request"]  # a late client fills requests better
    return result


async def _measure(
    server: Server, cell: Cell, records: int, job: Job, stage: asyncio.Lock, python: str
) -> dict[str, Any]:
    marks: list[int | None] = []

    async def warm() -> None:
        # With several clients, the count includes the records of all.
        marks.append(await server.requests() if cell.turns == 1 else None)

    if cell.client == "java":
        program = java_client.fill if cell.mode == "fill" else java_client.performance
        found = await program(job, records, warm)
    else:
        client = CLIENTS[cell.client]
        opening = worker(
            cell.key,
            "bench.client",
            python,
            module=client.module,
            loop=client.loop,
            core=client.core,
            mode=cell.mode,
            records=records,
            job=asdict(job),
            turns=cell.turns,
        )
        async with AsyncExitStack() as stack:
            async with _turn(stage, stack):
                process = await stack.enter_async_context(opening)
                await process.report("warm", _RUN_S)
                await warm()
            for number in range(1, cell.turns):
                async with _turn(stage, stack):
                    process.say("go")
                    await process.report(f"turn {number}", _RUN_S)
            async with _turn(stage, stack):
                process.say("go")
                found = await process.report("measured", _RUN_S)
                await stack.aclose()
    after = await server.requests()
    if marks and marks[0] is not None and after is not None:
        found = found | {"requests": after - marks[0]}
    return found


@asynccontextmanager
async def _turn(stage: asyncio.Lock, stack: AsyncExitStack) -> AsyncIterator[None]:
    """Let no other client be measured within the block, nor while a failed client ends."""
    async with stage:
        try:
            yield
        except BaseException:
            await stack.aclose()
            raise


def figures(found: dict[str, Any], arrived: int, *, exact: bool = True) -> Run:
    """Return the figures of a client's report; raise `WrongCountError` if the server has others.

    `arrived` are the records at the server, with the warm-up. With `exact` the client counts what
    it sent; tasks stop after some time.
    """
    counted, promised = arrived - found["warm_records"], found["records"]
    if counted <= 0 or (exact and counted != promised):
        raise WrongCountError(f"{counted:,} records arrived, {promised:,} were acknowledged")
    result = {
        "records": counted,
        "wall_s": found["wall_s"],
        "cpu_s": found["cpu_s"],
        "rate": counted / found["wall_s"],
        "cpu_us": found["cpu_s"] / counted * 1e6,
        "life_cpu_us": found["life_cpu_s"] / arrived * 1e6,
        "peak_mib": found["peak_rss"] / _MIB,
        "idle_mib": found["idle_rss"] / _MIB,
    }
    if found.get("requests"):
        result["records_per_request"] = counted / found["requests"]
    if turns := found.get("latencies_s"):
        # On a busy machine the p99s of turns differ by a factor of ten: their median is unsteady.
        p99s = [percentile(turn, 99) * 1e3 for turn in turns]
        result["p50_ms"] = median(percentile(turn, 50) for turn in turns) * 1e3
        result["p99_ms"], result["p99_median_ms"] = geometric_mean(p99s), median(p99s)
        result["p999_ms"] = percentile([*itertools.chain(*turns)], 99.9) * 1e3
    return result


def _entry(cell: Cell, runs: list[Run], problem: str | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"cell": asdict(cell), "runs": runs}
    for measure in MEASURES:
        if samples := [run[measure] for run in runs if measure in run]:
            entry[measure] = spread(samples).as_json()
    return entry | ({"problem": problem} if problem else {})


def _line(number: int, cell: Cell, runs: list[Run], problems: dict[Cell, str]) -> str:
    if cell in problems:
        return f"round {number + 1}  {cell.key:60} {problems[cell]}"
    last = runs[-1]
    reported = f"{last['cpu_us']:8.2f} µs CPU {last['rate']:12,.0f}/s {last['peak_mib']:6.0f} MiB"
    if "p50_ms" in last:
        reported += "".join(f"  {name[:-3]} {last[name]:.2f} ms" for name in MEASURES[3:6])
    if "records_per_request" in last:
        reported += f"  {last['records_per_request']:,.0f} records/request"
    return f"round {number + 1}  {cell.key:60} {reported}"
