"""Cost and latency on several interpreters, beside other clients: a column for each interpreter.

Method: cells of `bench.compare` in interleaved rounds, medians; CPU against the sink, latency
against Kafka, where the clients of one interpreter take turns. Which interpreters: see
`bench.interpreters`. A whole run is recorded in bench/PYTHONS.md and pythons.json, any other in
build/bench/.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import machine
from bench.bars import Bar, Verdict, verdicts
from bench.cells import Cell
from bench.compare import Run, run_together, unavailable
from bench.figures import spread
from bench.interpreters import InterpreterError, interpreters, run
from bench.report import ELSEWHERE, RECORDED
from bench.servers import Server, kafka, sink
from bench.tables import FAIL, PASS, table

ROUNDS = 5
SHARE = 0.4
_FASTEST_UNTIL = 11
"""Minor version up to which `await` itself runs in native code."""
_MEASURES = ("cpu_us", "p50_ms", "p99_ms")
_HEADS = {"cpu_us": "CPU µs/record", "p50_ms": "p50 ms", "p99_ms": "p99 ms"}
_TEXT = """\
# Cost and latency on each Python

Written by `make bench BENCH=pythons`; do not edit. Records of 100 bytes, no compression. CPU is
that of the client against the sink, latency that of `send_and_wait()` at 1,000 records per second
against Kafka. Every other client runs on the same interpreter.

- {machine}; {when} UTC, {rounds} interleaved rounds, {share:.0%} of the records of `make bench`
- {versions}

{held} of {all} bars hold, {open} are not measured. Each figure is a quotient of medians.

{bars}

{tables}
"""

Outcomes = dict[tuple[str, Cell], list[Run]]
Cells = Mapping[str, Mapping[str, Any]]


def cost_cells() -> list[Cell]:
    """The ways to send, against the sink."""
    clients = {
        "each": ("aioproducer", "confluent", "aiokafka"),
        "dropped": ("aioproducer", "confluent", "aiokafka"),
        "gather": ("aioproducer", "aiokafka"),
        "tasks": ("aioproducer", "aiokafka"),
    }
    return _here(Cell(c, mode, server="sink") for mode, of in clients.items() for c in of)


def latency_cells() -> list[Cell]:
    """One record at a time, against Kafka."""
    clients = ("aioproducer", "aioproducer-uvloop", "streams", "aiokafka", "confluent")
    return _here(Cell(client, "latency", partitions=1) for client in clients)


def _here(cells: Iterable[Cell]) -> list[Cell]:
    return [cell for cell in cells if unavailable(cell) is None]


def bars(minor: int) -> list[Bar]:
    """The bars of CPython 3.`minor`."""
    found = [
        _bar("every delivery awaited", "each", "aiokafka", 0.1),
        _bar(
            "every delivery awaited", "each", "confluent", 0.5 if minor <= _FASTEST_UNTIL else 0.6
        ),
        _bar("deliveries dropped", "dropped", "confluent", 0.55),
        _bar("asyncio.gather(*deliveries)", "gather", "aiokafka", 0.4),
    ]
    theirs = Cell("confluent", "latency", partitions=1).key
    for client, loop in (("aioproducer", "asyncio"), ("aioproducer-uvloop", "uvloop")):
        ours = Cell(client, "latency", partitions=1).key
        for measure, limit in (("p50_ms", 1.1), ("p99_ms", 1.0)):
            text = f"{loop}: {measure.removesuffix('_ms')} beside confluent"
            found.append(Bar(text, ours, theirs, measure, limit))
    return found


def _bar(text: str, mode: str, client: str, limit: float) -> Bar:
    ours, theirs = (Cell(name, mode, server="sink").key for name in ("aioproducer", client))
    return Bar(f"{text}: CPU beside {client}", ours, theirs, "cpu_us", limit)


async def measure(pythons: Mapping[str, str], rounds: int, share: float) -> Outcomes:
    """Run all cells on each interpreter so many times."""
    found: Outcomes = defaultdict(list)
    cost = [(version, [cell]) for version in pythons for cell in cost_cells()]
    async with sink() as server:
        await _rounds(server, cost, pythons, rounds, share, found)
    async with kafka() as server:
        latency = [(version, latency_cells()) for version in pythons]
        await _rounds(server, latency, pythons, rounds, share, found)
    return found


async def _rounds(
    server: Server,
    runs: Sequence[tuple[str, list[Cell]]],
    pythons: Mapping[str, str],
    rounds: int,
    share: float,
    found: Outcomes,
) -> None:
    for number in range(rounds):
        for version, cells in random.sample(runs, len(runs)):
            outcomes = await run_together(server, cells, share, pythons[version])
            for cell, outcome in zip(cells, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    print(f"{number + 1} {version} {cell.key}: {outcome}", flush=True)
                    continue
                found[version, cell].append(outcome)
                figures = " ".join(f"{m}={outcome[m]:.2f}" for m in _MEASURES if m in outcome)
                print(f"{number + 1} {version} {cell.key}: {figures}", flush=True)


def summary(found: Outcomes) -> dict[str, dict[str, Any]]:
    """The spread of each measure, by interpreter and cell."""
    cells: dict[str, dict[str, Any]] = {}
    for (version, cell), runs in sorted(found.items(), key=lambda item: -_minor(item[0][0])):
        measures = _MEASURES[1:] if cell.mode == "latency" else _MEASURES[:1]
        cells.setdefault(version, {})[cell.key] = {
            name: spread(run[name] for run in runs).as_json() for name in measures
        }
    return cells


def document(results: Mapping[str, Any]) -> str:
    """PYTHONS.md."""
    cells: Mapping[str, Cells] = results["cells"]
    judged = {version: verdicts(each, bars(_minor(version))) for version, each in cells.items()}
    found = [verdict.held for each in judged.values() for verdict in each]
    heads = ("ours beside theirs", *(f"CPython {version}" for version in cells))
    return _TEXT.format(
        machine=results["machine"],
        when=results["when"],
        rounds=results["rounds"],
        share=results["share"],
        versions="; ".join(results["versions"]),
        held=found.count(True),
        open=found.count(None),
        all=len(found),
        bars=table(heads, _bar_rows(list(judged.values()))),
        tables="\n\n".join(_tables(cells)),
    )


def _bar_rows(judged: Sequence[Sequence[Verdict]]) -> Iterable[list[str]]:
    for of_all in zip(*judged, strict=True):
        row = [of_all[0].bar.text]
        for verdict in of_all:
            sign = "" if verdict.held is None else f" {PASS if verdict.held else FAIL}"
            ratio = "-" if verdict.value is None else f"{verdict.value:.2f}"
            row.append(f"{ratio} (≤ {verdict.bar.limit:g}){sign}")
        yield row


def _tables(cells: Mapping[str, Cells]) -> Iterable[str]:
    """One table for each measure: a row for each cell, a column for each interpreter."""
    for measure in _MEASURES:
        keys = [
            cell.key
            for cell in (*cost_cells(), *latency_cells())
            if any(measure in each.get(cell.key, {}) for each in cells.values())
        ]
        rows = [
            (
                *key.split("/")[:2],
                *(_figure(each.get(key, {}).get(measure)) for each in cells.values()),
            )
            for key in keys
        ]
        heads = ("client", "mode", *(f"CPython {version}" for version in cells))
        if rows:
            yield f"## {_HEADS[measure]}\n\n{table(heads, rows, left=2)}"


def _figure(found: Mapping[str, float] | None) -> str:
    if found is None:
        return "-"
    return f"{found['median']:.2f} ({found['lowest']:.2f}..{found['highest']:.2f})"


def _minor(version: str) -> int:
    return int(version.split(".")[1])


def _full_version(python: str) -> str:
    program = "import importlib.metadata as m, platform as p; print(p.python_version(), "
    program += (
        "*(f'{n} {m.version(n)}' for n in ('aiokafka', 'confluent-kafka', 'uvloop')), sep=', ')"
    )
    return f"CPython {run(python, '-c', program).strip()}"


def main() -> None:
    rounds = int(os.environ.get("AIOPRODUCER_BENCH_ROUNDS") or ROUNDS)
    share = float(os.environ.get("AIOPRODUCER_BENCH_SHARE") or SHARE)
    try:
        pythons = interpreters()
    except InterpreterError as error:
        print(f"nothing measured: {error}")
        return
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    results = {
        "when": when,
        "machine": machine.describe(),
        "rounds": rounds,
        "share": share,
        "versions": [_full_version(python) for python in pythons.values()],
        "cells": summary(asyncio.run(measure(pythons, rounds, share))),
    }
    is_whole = (rounds, share) == (ROUNDS, SHARE) and len(pythons) > 1
    directory = RECORDED if is_whole else ELSEWHERE
    write(results, directory)


def write(results: Mapping[str, Any], directory: Path) -> None:
    """Print the page, keep it and its figures in this directory."""
    directory.mkdir(parents=True, exist_ok=True)
    text = document(results)
    (directory / "PYTHONS.md").write_text(text, encoding="utf-8")
    (directory / "pythons.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"\n{text}")
