"""The cost of transactions: throughput and the time of a commit, beside the Java client.

Method: one real broker in its own JVM, 100-byte values, 6 partitions, linger 5 ms, batches of
128 KiB, acks=all, no compression. Every run is a fresh process that sends its load twice, to warm
up and measured. The runs of all shapes and both clients take turns over several rounds, after one
that warms the broker up; medians are reported. The Java program is java/TransactionLoad.java; it
is left out where there is no JDK. A client that ends with an error is run again, and that counted:
Java's sometimes takes an INVALID_TXN_STATE of the broker for its own fault, and gives up.

    AIOPRODUCER_BENCH_ROUNDS  rounds, instead of 5
    AIOPRODUCER_BENCH_SHARE   share of the records to send, to try something out: nothing is written
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

from aioproducer.testing.kafka.errors import JavaError
from aioproducer.testing.kafka.java import find_java
from aioproducer.testing.kafka.release import DEFAULT_VERSION, KafkaRelease
from bench import machine, servers
from bench.figures import percentile
from bench.java_client import JavaClientError, compiled

ROUNDS = 5
VALUE_BYTES, PARTITIONS = 100, 6
LINGER_MS, BATCH_BYTES = 5, 128 << 10
RESULTS = Path(__file__).with_name("transactions.json")
_PROGRAM = Path(__file__).with_name("java") / "TransactionLoad.java"
_JVM_OPTIONS = ("-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
_LIMIT_S = 300
_MOST_FAILURES = 5
_ROOT = Path(__file__).parents[1]

BAR_LONG = "records/s: transactions of 200,000 records / none"
BAR_SHORT = "records/s, transactions of 1,000 records: aioproducer / Java"
BARS = {BAR_LONG: 0.85, BAR_SHORT: 1.0}

Summaries = dict[str, dict[str, dict[str, float]]]
"""Medians by client, shape and name."""
Run = dict[str, Any]
"""`seconds`, `cpu` (seconds) and `commits_ms` of one measured half."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A load.

    Attributes:
        per_transaction: Records in each; 0 sends without transactions.
        flush: Whether the records are flushed before the clock of the commit starts.
    """

    name: str
    records: int
    per_transaction: int
    flush: bool = False


PLAIN = Shape("no transactions", 1_000_000, 0)
LONG = Shape("200,000 records each", 1_000_000, 200_000)
SHORT = Shape("1,000 records each", 500_000, 1_000)
TINY = Shape("10 records, flushed", 5_000, 10, flush=True)
SHAPES = (PLAIN, LONG, SHORT, TINY)


@dataclass(frozen=True, slots=True)
class Job:
    """One run: a shape and where to send it."""

    bootstrap: str
    topic: str
    shape: Shape

    @property
    def transactional_id(self) -> str:
        return self.topic


Client = Callable[[Job], Run]


def _ours(job: Job) -> Run:
    """A run of `bench.transaction_load`."""
    arguments = {
        "bootstrap": job.bootstrap,
        "topic": job.topic,
        "transactional_id": job.transactional_id,
        "records": job.shape.records,
        "per_transaction": job.shape.per_transaction,
        "value_bytes": VALUE_BYTES,
        "linger_ms": LINGER_MS,
        "batch_bytes": BATCH_BYTES,
        "flush": job.shape.flush,
    }
    answer = _output([sys.executable, "-m", "bench.transaction_load", json.dumps(arguments)])
    found: Run = json.loads(answer)
    return found


def _java() -> Client | None:
    """A runner of the Java program; None where it cannot be compiled."""
    release = KafkaRelease.parse(DEFAULT_VERSION)
    try:
        java, jars = find_java(release.java), release.client_classpath()
        classes = compiled(_PROGRAM, java, jars)
    except (JavaError, JavaClientError) as error:
        print(f"without Java: {error}")
        return None
    classpath = os.pathsep.join(map(str, [classes, *jars]))

    def run(job: Job) -> Run:
        shape = job.shape
        command = [java.executable, *_JVM_OPTIONS, "-cp", classpath, _PROGRAM.stem, job.bootstrap]
        command += [job.topic, job.transactional_id, shape.records, shape.per_transaction]
        command += [VALUE_BYTES, LINGER_MS, BATCH_BYTES, "flush" if shape.flush else "-"]
        times, commits = _output(list(map(str, command))).split("\n")[:2]
        seconds, cpu = map(float, times.split())
        return {"seconds": seconds, "cpu": cpu, "commits_ms": list(map(float, commits.split()))}

    return run


def _output(command: list[str]) -> str:
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, timeout=_LIMIT_S, cwd=_ROOT
    )
    return done.stdout


@dataclass
class Found:
    """The findings of a measurement.

    Attributes:
        server: What the clients sent to.
        runs: All runs, by client and shape.
        failures: How often a client ended with an error.
    """

    server: str
    runs: dict[str, dict[str, list[Run]]]
    failures: Counter[str] = field(default_factory=Counter)


async def _measure(clients: dict[str, Client], shapes: list[Shape], rounds: int) -> Found:
    """Every other round goes backwards, the first is not kept."""
    runs: dict[str, dict[str, list[Run]]] = {
        name: {shape.name: [] for shape in shapes} for name in clients
    }
    async with servers.kafka() as server:
        found = Found(server.description, runs)
        for number in range(rounds + 1):
            for shape, name in [*product(shapes, clients)][:: -1 if number % 2 else 1]:
                run = None
                while run is None:
                    run = await _run(server, clients[name], shape)
                    found.failures[name] += run is None
                    if found.failures[name] > _MOST_FAILURES:
                        raise RuntimeError(f"{name} fails again and again")
                if number:
                    runs[name][shape.name].append(run)
        return found


async def _run(server: servers.Server, client: Client, shape: Shape) -> Run | None:
    """One run; None if the client ended with an error."""
    async with server.topics(1, PARTITIONS) as (topic,):
        try:
            run = await asyncio.to_thread(client, Job(server.bootstrap, topic, shape))
        except subprocess.CalledProcessError as error:
            print(f"a run fails: {error.cmd[0]} ends with {error.returncode}")
            return None
        await _check(server, topic, shape)
        return run


async def _check(server: servers.Server, topic: str, shape: Shape) -> None:
    """Everything has arrived, a marker per transaction and partition at most besides."""
    arrived = await server.arrived([topic])
    transactions = shape.records // shape.per_transaction if shape.per_transaction else 0
    if not 0 <= arrived - 2 * shape.records <= 2 * transactions * PARTITIONS:
        raise RuntimeError(f"{shape.name}: {arrived} offsets for twice {shape.records} records")


def _summary(shape: Shape, runs: list[Run]) -> dict[str, float]:
    found = {
        "records_per_s": statistics.median(shape.records / run["seconds"] for run in runs),
        "cpu_us_per_record": statistics.median(run["cpu"] / shape.records * 1e6 for run in runs),
    }
    if shape.per_transaction:
        for percent in (50, 99):
            values = [percentile(run["commits_ms"], percent) for run in runs]
            found[f"commit_p{percent}_ms"] = statistics.median(values)
    return found


def _ratios(summaries: Summaries) -> dict[str, float]:
    """The value that the bars compare: above 1 is faster, or a shorter commit."""

    ours, java = summaries["aioproducer"], summaries.get("java")
    rate, commit = "records_per_s", "commit_p50_ms"
    found = {BAR_LONG: ours[LONG.name][rate] / ours[PLAIN.name][rate]}
    if java is not None:
        found[BAR_SHORT] = ours[SHORT.name][rate] / java[SHORT.name][rate]
        found["median commit: Java / aioproducer"] = (
            java[TINY.name][commit] / ours[TINY.name][commit]
        )
    return found


def _print(summaries: Summaries, ratios: dict[str, float]) -> None:
    print(
        f"  {'transactions':22} {'client':12} {'records/s':>10} {'µs CPU':>7}   commit p50, p99 ms"
    )
    for shape in SHAPES:
        for client, shapes in summaries.items():
            each = shapes[shape.name]
            row = f"  {shape.name:22} {client:12} {each['records_per_s']:10,.0f}"
            row += f" {each['cpu_us_per_record']:7.2f}"
            if shape.per_transaction:
                row += f"   {each['commit_p50_ms']:8.2f} {each['commit_p99_ms']:8.2f}"
            print(row)
    for name, ratio in ratios.items():
        bar = BARS.get(name)
        verdict = "" if bar is None else f", at least {bar}: {'pass' if ratio >= bar else 'FAIL'}"
        print(f"  {name}: {ratio:.2f}{verdict}")


def main() -> None:
    rounds = int(os.environ.get("AIOPRODUCER_BENCH_ROUNDS") or ROUNDS)
    share = float(os.environ.get("AIOPRODUCER_BENCH_SHARE") or 1)
    shapes = [replace(shape, records=_whole(shape, share)) for shape in SHAPES]
    java = _java()
    clients: dict[str, Client] = {"aioproducer": _ours} | ({"java": java} if java else {})
    measured = asyncio.run(_measure(clients, shapes, rounds))
    summaries = {
        name: {shape.name: _summary(shape, measured.runs[name][shape.name]) for shape in shapes}
        for name in clients
    }
    ratios = _ratios(summaries)
    print(f"transactions: {VALUE_BYTES}-byte values, {measured.server}, median of {rounds} rounds:")
    _print(summaries, ratios)
    if share != 1:
        return
    found = {
        "machine": machine.describe(),
        "python": platform.python_version(),
        "aioproducer": version("aioproducer"),
        "kafka": DEFAULT_VERSION,
        "server": measured.server,
        "rounds": rounds,
        "failures": measured.failures,
        "shapes": [asdict(shape) for shape in shapes],
        "medians": summaries,
        "ratios": ratios,
        "bars": BARS,
    }
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"written: {RESULTS}")


def _whole(shape: Shape, share: float) -> int:
    """The number of records: a whole number of transactions, one at least."""
    unit = shape.per_transaction or 1
    return max(1, round(shape.records * share / unit)) * unit


if __name__ == "__main__":
    main()
