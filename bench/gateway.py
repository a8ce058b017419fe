"""The gateway under load: `POST /events` beside the same application on aiokafka.

Method: one real broker in its own JVM; the application under uvicorn, one process, with uvloop and
httptools where they are installed. Both clients idempotent with acks=all, neither lingers, and
otherwise as they come. An event is answered when it is acknowledged. A separate process posts
2,000 events a second over 64 connections, each when it is due, whatever became of those before:
latency counts from then (see `bench.pacing`). A run is a fresh server, warmed up at the same rate;
rounds take turns, after runs of both that warm the broker up (the compilers of its JVM take most of
a core at first) and do not count; medians are reported. wrk then asks for as much as there is: a
closed loop over the same number of connections.

    AIOPRODUCER_BENCH_ROUNDS  rounds, instead of 5
    AIOPRODUCER_BENCH_SHARE   share of the time, to try something out: nothing is written
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import statistics
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench import machine, servers
from bench.figures import percentile
from bench.http_load import request
from bench.workers import Worker, worker

RATE, CONNECTIONS, PARTITIONS = 2_000, 64, 6
WARM_S, MEASURED_S, WRK_S = 5, 12, 4
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "aioproducer": ("aioproducer", {}),
    "aiokafka": ("aiokafka", {}),
}
RESULTS = Path(__file__).with_name("gateway.json")
_TIMEOUT_S = 120.0
_TICKS = os.sysconf("SC_CLK_TCK")

Run = dict[str, float]


class LoadError(Exception):
    """A request was refused or lost: the figures would flatter."""


async def measure(server: servers.Server, name: str, share: float) -> Run:
    """One run of one variant."""
    client, options = VARIANTS[name]
    async with (
        server.topics(1, PARTITIONS) as topics,
        worker(
            name,
            "bench.gateway_app",
            client=client,
            bootstrap=server.bootstrap,
            topic=topics[0],
            options=options,
        ) as app,
    ):
        port = int((await app.report("ready", _TIMEOUT_S))["port"])
        await paced(port, WARM_S * share)
        before = cpu_of(app)
        seconds = await paced(port, MEASURED_S * share)
        run = {
            "p50_ms": 1000 * percentile(seconds, 50),
            "p99_ms": 1000 * percentile(seconds, 99),
            "p999_ms": 1000 * percentile(seconds, 99.9),
            "cpu_us": 1e6 * (cpu_of(app) - before) / len(seconds),
        }
        posted = round(RATE * WARM_S * share) + len(seconds)
        if await server.arrived(topics) != posted:
            raise LoadError(f"{name}: not every event arrived once")
        return run | await most(port, max(1, round(WRK_S * share)))


async def paced(port: int, seconds: float) -> list[float]:
    """Latencies at the steady rate."""
    count = round(RATE * seconds)
    async with worker(
        "load",
        "bench.http_load",
        port=port,
        rate=RATE,
        count=count,
        connections=CONNECTIONS,
    ) as load:
        report = await load.report("latencies", _TIMEOUT_S)
    if report["refused"] or report["lost"]:
        raise LoadError(f"{report['refused']} refused, {report['lost']} lost")
    found: list[float] = report["seconds"]
    return found


async def most(port: int, seconds: int) -> Run:
    """Return the result of wrk; nothing where there is no wrk."""
    if (wrk := shutil.which("wrk")) is None:
        return {}
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / "post.lua"
        script.write_text(post_script())
        arguments = ["-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", "-s", str(script)]
        process = await asyncio.create_subprocess_exec(
            *(wrk, *arguments, f"http://127.0.0.1:{port}/events"), stdout=asyncio.subprocess.PIPE
        )
        said = (await process.communicate())[0].decode()
    if "Non-2xx" in said or (rate := re.search(r"Requests/sec:\s+([\d.]+)", said)) is None:
        raise LoadError(said)
    return {"wrk_per_s": float(rate[1]), "wrk_p99_ms": wrk_latency(said, "99%")}


def wrk_latency(said: str, line: str) -> float:
    """Milliseconds of a line of wrk's distribution."""
    found = re.search(rf"^\s*{line}\s+([\d.]+)(us|ms|s)\s*$", said, flags=re.MULTILINE)
    if found is None:
        raise LoadError(said)
    return float(found[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[found[2]]


def post_script() -> str:
    body = request(7).partition(b"\r\n\r\n")[2].decode()
    return (
        'wrk.method = "POST"\n'
        'wrk.headers["Content-Type"] = "application/json"\n'
        f"wrk.body = [[{body}]]\n"
    )


def cpu_of(process: Worker) -> float:
    """Seconds of CPU a process has taken, user and system."""
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
    user, system = fields.split()[11:13]
    return (int(user) + int(system)) / _TICKS


async def compare(rounds: int, share: float) -> dict[str, list[Run]]:
    runs: dict[str, list[Run]] = {name: [] for name in VARIANTS}
    async with servers.kafka() as server:
        print(server.description, flush=True)
        for name in VARIANTS:
            await measure(server, name, share)
        for number in range(rounds):
            for name in VARIANTS if number % 2 == 0 else reversed(VARIANTS):
                run = await measure(server, name, share)
                runs[name].append(run)
                print(name, {what: round(value, 2) for what, value in run.items()}, flush=True)
    return runs


def medians(runs: list[Run]) -> Run:
    return {name: round(statistics.median(run[name] for run in runs), 2) for name in runs[0]}


def report(runs: dict[str, list[Run]]) -> dict[str, Any]:
    packages = ("aioproducer", "aiokafka", "starlette", "uvicorn")
    return {
        "machine": machine.describe(),
        "versions": {name: version(name) for name in packages},
        "rate": RATE,
        "connections": CONNECTIONS,
        "medians": {name: medians(found) for name, found in runs.items()},
        "runs": runs,
    }


def main() -> None:
    rounds = int(os.environ.get("AIOPRODUCER_BENCH_ROUNDS") or 5)
    share = float(os.environ.get("AIOPRODUCER_BENCH_SHARE") or 1)
    found = report(asyncio.run(compare(rounds, share)))
    print(json.dumps(found["medians"], indent=2))
    if share == 1:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
