"""CPU per record on several interpreters, beside other clients: a column for each interpreter.

Method: the cells of `bench.compare`, against the sink, in interleaved rounds; medians. Which
interpreters: see `bench.interpreters`.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import defaultdict
from statistics import median

from bench.cells import Cell
from bench.compare import run_together, unavailable
from bench.interpreters import InterpreterError, interpreters
from bench.servers import sink

CLIENTS = ("aioproducer", "confluent", "aiokafka")
MODES = ("each", "dropped", "gather", "tasks")
_ROUNDS = 5
_SHARE = 0.4

Figures = dict[tuple[str, Cell], list[float]]


def cells() -> list[Cell]:
    """The measurements on each interpreter."""
    pairs = [(client, mode) for mode in MODES for client in CLIENTS]
    without = {("confluent", "gather"), ("confluent", "tasks")}
    chosen = [Cell(*pair, server="sink") for pair in pairs if pair not in without]
    return [cell for cell in chosen if unavailable(cell) is None]


async def measure(pythons: dict[str, str], rounds: int, share: float) -> Figures:
    """Microseconds of CPU per record, of each run."""
    found: Figures = defaultdict(list)
    runs = [(version, cell) for version in pythons for cell in cells()]
    async with sink() as server:
        for _ in range(rounds):
            random.shuffle(runs)
            for version, cell in runs:
                (outcome,) = await run_together(server, [cell], share, pythons[version])
                if isinstance(outcome, Exception):
                    print(f"{version} {cell.key}: {outcome}", flush=True)
                else:
                    found[version, cell].append(outcome["cpu_us"])
    return found


def table(found: Figures) -> str:
    """A line for each cell, a column for each interpreter."""
    versions = list(dict.fromkeys(version for version, _ in found))
    versions.sort(key=lambda version: int(version.split(".")[1]), reverse=True)
    lines = ["µs of CPU per record (100 B, no compression, sink, medians):"]
    lines.append(" " * 22 + "".join(f"{'CPython ' + version:>14}" for version in versions))
    for cell in dict.fromkeys(cell for _, cell in found):
        figures = [found.get((version, cell)) for version in versions]
        columns = "".join(f"{median(each):14.2f}" if each else f"{'-':>14}" for each in figures)
        lines.append(f"{cell.mode:8}{cell.client:14}{columns}")
    return "\n".join(lines)


def main() -> None:
    rounds = int(os.environ.get("AIOPRODUCER_BENCH_ROUNDS") or _ROUNDS)
    share = float(os.environ.get("AIOPRODUCER_BENCH_SHARE") or _SHARE)
    try:
        pythons = interpreters()
    except InterpreterError as error:
        print(f"nothing measured: {error}")
        return
    print(table(asyncio.run(measure(pythons, rounds, share))))
