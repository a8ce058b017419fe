"""Java's producer: the ProducerPerformance tool, and our `Load` where that cannot do it.

Owns: their command lines, and the marks taken from what they print. Not here: results.

The tool does not report when its warm-up ends, so it reports ten times a second, and the first
report with enough acknowledged records is the mark. Clocks are read from outside at the marks: the
kernel gives any process's CPU clock, all threads included, as it gives the process itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aioproducer.testing.kafka.java import Java, find_java
from aioproducer.testing.kafka.release import DEFAULT_VERSION, KafkaRelease
from aioproducer.testing.maven import cache_dir, fetch_classpath
from bench.cells import BATCH_BYTES, FILL_RATE, LINGER_MS
from bench.clients import Job, values
from bench.workers import peak_rss_of, rss_of

_TOOL = "org.apache.kafka.tools.ProducerPerformance"
_SLF4J = "org.slf4j:slf4j-simple:1.7.36"
_LOAD = Path(__file__).with_name("java") / "Load.java"
_INTERVAL_MS = 100
_HEAP = "-Xmx512m"
_LIMIT_S = 150.0
_SENT = re.compile(r"^(?P<records>\d+) records sent, ")
_CPU_CLOCK_OF_PROCESS = 2

Measured = dict[str, Any]
Warm = Callable[[], Awaitable[None]]
"""Called at the first mark."""


class JavaClientError(Exception):
    """The program did not do what it was asked."""


async def performance(job: Job, records: int, warm: Warm) -> Measured:
    """Run ProducerPerformance, with as many records before the mark as after it.

    Raises `JavaClientError` if it fails, and `JavaError` or `MavenError` if it cannot be run here.
    """
    total = 2 * records
    with tempfile.TemporaryDirectory(prefix="aioproducer-bench-") as directory:
        arguments = ["--topic", job.topic, "--num-records", total, "--throughput", -1]
        arguments += ["--reporting-interval", _INTERVAL_MS, "--bootstrap-server", job.bootstrap]
        arguments += ["--payload-file", _payloads(Path(directory), job), "--command-property"]
        arguments += [f"{name}={value}" for name, value in _properties(job).items()]
        jars = [f"org.apache.kafka:kafka-tools:{DEFAULT_VERSION}", _SLF4J]
        acknowledged, marks = 0, []
        async with _running(await _classpath(jars), _TOOL, arguments) as (process, lines):
            async for line in lines:
                match = _SENT.match(line)
                if match is None:
                    continue
                if int(match["records"]) == total and "99.9th" in line:
                    marks.append(_mark(process.pid, total))
                    break
                acknowledged += int(match["records"])
                if not marks and acknowledged >= records:
                    marks.append(_mark(process.pid, acknowledged))
                    await warm()
    return _between(marks)


async def fill(job: Job, records: int, warm: Warm) -> Measured:
    """One run of `Load`. Errors as `performance`."""
    release = KafkaRelease.parse(DEFAULT_VERSION)
    jars = await asyncio.to_thread(release.client_classpath)
    classes = await asyncio.to_thread(compiled, _LOAD, find_java(release.java), jars)
    with tempfile.TemporaryDirectory(prefix="aioproducer-bench-") as directory:
        arguments = [_configuration(Path(directory), job), ",".join(job.topics), records]
        arguments += [FILL_RATE, _payloads(Path(directory), job)]
        marks = []
        async with _running([classes, *jars], _LOAD.stem, arguments) as (process, lines):
            async for line in lines:
                if line == "warm":
                    await warm()
                    marks.append(_mark(process.pid, len(job.topics)))
                    _go_on(process)
                elif line == "done":
                    marks.append(_mark(process.pid, len(job.topics) + records))
    return _between(marks)


def _go_on(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.write(b"\n")


def _mark(pid: int, records: int) -> Measured:
    clock = (~pid << 3) | _CPU_CLOCK_OF_PROCESS
    return {
        "records": records,
        "wall": time.perf_counter(),
        "cpu": time.clock_gettime(clock),
        "rss": rss_of(pid),
        "peak_rss": peak_rss_of(pid),
    }


def _between(marks: list[Measured]) -> Measured:
    if len(marks) != 2:
        raise JavaClientError("the Java program did not report its begin and end")
    begin, end = marks
    return {
        "wall_s": end["wall"] - begin["wall"],
        "cpu_s": end["cpu"] - begin["cpu"],
        "life_cpu_s": end["cpu"],
        "warm_records": begin["records"],
        "records": end["records"] - begin["records"],
        "idle_rss": begin["rss"],
        "peak_rss": end["peak_rss"],
    }


def _properties(job: Job) -> dict[str, Any]:
    found: dict[str, Any] = {"acks": "all", "enable.idempotence": "true"}
    if job.tuning == "common":
        found |= {"linger.ms": LINGER_MS, "batch.size": BATCH_BYTES}
    return found | {"compression.type": job.codec}


def _configuration(directory: Path, job: Job) -> Path:
    path = directory / "producer.properties"
    settings = _properties(job) | {"bootstrap.servers": job.bootstrap}
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def _payloads(directory: Path, job: Job) -> Path:
    path = directory / "payloads"
    path.write_bytes(b"\n".join(values(job.size)))
    return path


async def _classpath(coordinates: list[str]) -> list[Path]:
    return await asyncio.to_thread(fetch_classpath, coordinates)


def compiled(source: Path, java: Java, jars: list[Path]) -> Path:
    """Return the folder with a program's classes; compiled once for each state of its source."""
    compiler = java.tool("javac")
    if compiler is None:
        raise JavaClientError(f"{java} has no compiler")
    digest = hashlib.sha256(f"{source.read_text()}{jars}{java.major}".encode()).hexdigest()[:32]
    target = cache_dir() / "java" / digest
    classpath = os.pathsep.join(map(str, jars))
    if not (target / f"{source.stem}.class").exists():
        command = [compiler, "-cp", classpath, "-d", target, source]
        subprocess.run(command, check=True, capture_output=True, timeout=_LIMIT_S)
    return target


@asynccontextmanager
async def _running(
    classpath: list[Path], program: str, arguments: list[Any]
) -> AsyncIterator[tuple[asyncio.subprocess.Process, AsyncIterator[str]]]:
    """A Java program and the lines it prints; it has ended well when the block ends well."""
    java = find_java(KafkaRelease.parse(DEFAULT_VERSION).java)
    command = [java.executable, _HEAP, "-cp", os.pathsep.join(map(str, classpath)), program]
    process = await asyncio.create_subprocess_exec(
        *map(str, [*command, *arguments]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    out = process.stdout
    if out is None:
        raise JavaClientError("no output")

    async def lines() -> AsyncIterator[str]:
        while line := await out.readline():
            yield line.decode(errors="replace").strip()

    try:
        async with asyncio.timeout(_LIMIT_S):
            yield process, lines()
            while await out.read(1 << 16):
                pass
            if code := await process.wait():
                raise JavaClientError(f"{program} ended with exit code {code}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
