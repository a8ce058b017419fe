"""Spark into Kafka: our data source beside Spark's own Kafka sink, in the same session.

    sinks        rows/s and CPU per row of 2 M rows of 100 bytes, with and without keys and lz4;
                 Spark's own sink as it is, with larger batches (`tuned`), and with batches as
                 large as ours
    floors       the same rows into nothing: Spark's `noop`, and a sink in Python that drops them
    small tasks  the same rows in 128 Spark partitions
    exactly once 200,000 rows as one batch, beside at least once
    micro        micro-batches of 200 rows, each sink in turns, beside a Python sink that drops them

Method: one `local[2]` session and one Kafka broker on the same machine; 4 Spark and 4 Kafka
partitions. Rounds are interleaved, every second one in reverse; the first two are not counted,
since they are the compiler's, and the broker's compiler has to see transactions as well: a round
writes 200,000 rows ten times, with either guarantee in turns, and takes the median of them. CPU is
that of the JVM with its Python workers, user and system, from the start of a write to its end;
generating the rows is part of it, for all alike, so it is made cheap: a number after a constant.
Rows are counted by the topic's end offsets. Records: idempotent, acks=all, everywhere.

    AIOPRODUCER_BENCH_ROUNDS   rounds, instead of 5
    AIOPRODUCER_BENCH_SHARE    share of the rows to write, instead of 1
    AIOPRODUCER_BENCH_CASES    parts of the names of cases, separated by commas, instead of all;
                               `micro` for micro-batches alone

A whole run is written to bench/spark.json and bench/SPARK.md, any other to build/bench/.
"""

from __future__ import annotations

import asyncio
import compileall
import os
import platform
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aioproducer
from aioproducer.records import IMPLEMENTATION
from aioproducer.spark import batch_writer
from aioproducer.spark.options import DEFAULTS
from aioproducer.spark.session import local_session
from aioproducer.testing.maven import fetch_jar
from bench import spark_report
from bench.machine import describe
from bench.servers import Server, kafka
from bench.spark_cases import FLOORS, MICRO_SINKS, PARTITIONS, Case, cases, in_turns, rotated
from bench.spark_discard import Discard

ROUNDS = 5
WARM_UPS = 2
MICRO_BATCHES = 42

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
# The release has no token provider of the same version on Maven Central.
CONNECTOR_NEEDS = (
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)

_TUNED = {
    "kafka.batch.size": "131072",
    "kafka.linger.ms": "20",
    "kafka.buffer.memory": str(128 << 20),
}
_LARGE = _TUNED | {"kafka.batch.size": DEFAULTS["batch.size"]}
_OPTIONS = {"tuned": _TUNED, "large": _LARGE}
_FORMATS = {"ours": "aioproducer", "default": "kafka", "tuned": "kafka", "large": "kafka"}
_TICKS = os.sysconf("SC_CLK_TCK")


def connector_jars() -> list[str]:
    """Spark's own Kafka sink, and what it needs that PySpark does not bring."""
    jars = [fetch_jar(each) for each in (CONNECTOR, *CONNECTOR_NEEDS)]
    return [str(jar) for jar in jars]


class Session:
    """Spark, and the CPU it takes."""

    def __init__(self, directory: str) -> None:
        settings = {
            "spark.jars": ",".join(connector_jars()),
            "spark.driver.memory": "2g",
            "spark.local.dir": directory,
            "spark.sql.shuffle.partitions": "2",
        }
        self.spark: Any = local_session("aioproducer bench", settings, master="local[2]")
        self.spark.dataSource.register(Discard)
        self._jvm = int(self.spark._jvm.java.lang.ProcessHandle.current().pid())

    def versions(self) -> dict[str, str]:
        """Of everything that takes part."""
        java = self.spark._jvm.java.lang.System.getProperty("java.version")
        return {
            "aioproducer": f"{version('aioproducer')} ({IMPLEMENTATION})",
            "CPython": platform.python_version(),
            "PySpark": self.spark.version,
            "pyarrow": version("pyarrow"),
            "Java": java,
        }

    def cpu(self, server: Server) -> dict[str, float]:
        """Seconds that the JVM, everything under it, and the broker have used."""
        children = defaultdict(list)
        used: dict[int, float] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                text = stat.read_text()
            except OSError:
                continue
            fields = text[text.rindex(")") + 2 :].split()
            children[int(fields[1])].append(int(stat.parent.name))
            used[int(stat.parent.name)] = sum(map(int, fields[11:15])) / _TICKS
        wanted, python = list(children[self._jvm]), 0.0
        while wanted:
            process = wanted.pop()
            python += used.get(process, 0.0)
            wanted += children[process]
        broker = sum(used.get(process, 0.0) for process in server.pids)
        return {"jvm": used[self._jvm], "python": python, "broker": broker}

    def write(self, case: Case, server: Server, topic: str) -> dict[str, float]:
        """Run one case."""
        # Not lpad(), which copies byte by byte: as much CPU as either sink.
        columns = [f"CAST(concat('{'0' * 88}', id + {10**11}) AS BINARY) AS value"]
        if case.keyed:
            columns.insert(0, "CAST(id AS STRING) AS key")
        frame = self.spark.range(0, case.rows, 1, case.tasks).selectExpr(*columns)
        options = {
            "kafka.bootstrap.servers": server.bootstrap,
            "topic": topic,
            "kafka.compression.type": case.codec,
        }
        options |= _OPTIONS.get(case.sink, {})
        if case.sink == "ours":
            options["delivery.guarantee"] = case.guarantee
        name = _FORMATS.get(case.sink, case.sink)
        before, begin = self.cpu(server), time.perf_counter()
        frame.write.format(name).options(**options).mode("append").save()
        wall, after = time.perf_counter() - begin, self.cpu(server)
        spent = {f"{who}_us": (after[who] - before[who]) / case.rows * 1e6 for who in after}
        return {
            "rate": case.rows / wall,
            "cpu_us": spent["jvm_us"] + spent["python_us"],
            **spent,
        }

    def micro_batches(self, bootstrap: str, topic: str, sink: str) -> float:
        """Return the milliseconds of a small micro-batch; `sink` is one of `MICRO_SINKS`."""
        with tempfile.TemporaryDirectory(prefix="aioproducer-bench-") as checkpoint:
            rows = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "200")
            frame = rows.load().selectExpr("CAST(value AS STRING) AS value")
            writer = self._stream_writer(frame, bootstrap, topic, sink)
            query = writer.option("checkpointLocation", checkpoint).start()
            deadline = time.monotonic() + 120
            found: list[float] = []
            while len(found) < MICRO_BATCHES and time.monotonic() < deadline:
                time.sleep(0.2)
                done = [each for each in query.recentProgress if each.numInputRows]
                found = [each.durationMs["addBatch"] for each in done]
            query.stop()
        return statistics.median(found[2:])

    def _stream_writer(self, frame: Any, bootstrap: str, topic: str, sink: str) -> Any:
        options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
        if sink == "discard":
            return frame.writeStream.format("discard")
        if sink == "default":
            return frame.writeStream.format("kafka").options(**options)
        options["delivery.guarantee"] = sink.removeprefix("driver, ")
        if sink.startswith("driver"):
            return frame.writeStream.foreachBatch(batch_writer(options, query=topic))
        return frame.writeStream.format("aioproducer").options(**options)


async def measure(rounds: int, chosen: list[Case], *, micro: bool) -> dict[str, Any]:
    """These cases, in turns; then micro-batches."""
    results: dict[str, list[dict[str, float]]] = defaultdict(list)
    latencies: dict[str, list[float]] = defaultdict(list)
    # Spark finds data sources in the session of the thread that asks.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    with tempfile.TemporaryDirectory(prefix="aioproducer-bench-") as directory:
        async with kafka() as server:
            session = await asyncio.to_thread(Session, directory)
            print(f"PySpark {session.spark.version}, {CONNECTOR}, {server.description}")
            for number in range(1 - WARM_UPS, rounds + 1):
                runs: dict[Case, list[dict[str, float]]] = defaultdict(list)
                for case in in_turns(chosen[:: -1 if number % 2 else 1]):
                    runs[case].append(await _run(session, case, server))
                    if number > 0 and len(runs[case]) == case.writes:
                        figures = _middle(runs[case])
                        results[case.key].append(figures)
                        print(f"{number} {case.key} {_shown(figures)}", flush=True)
            for number in range(rounds + 1 if micro else 0):
                for sink in rotated(list(MICRO_SINKS), number):
                    async with server.topics(1, PARTITIONS) as (topic,):
                        work: Callable[..., float] = session.micro_batches
                        found = await asyncio.to_thread(work, server.bootstrap, topic, sink)
                    if number:  # the first round is the compilers'
                        latencies[sink].append(found)
                        print(f"{number} {sink}: {found:.0f} ms a micro-batch", flush=True)
            versions = session.versions()
            await asyncio.to_thread(session.spark.stop)
    return {
        "versions": versions,
        "server": server.description,
        "cases": dict(results),
        "micro_batch_ms": dict(latencies),
    }


def _middle(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


async def _run(session: Session, case: Case, server: Server) -> dict[str, float]:
    async with server.topics(1, PARTITIONS) as (topic,):
        figures = await asyncio.to_thread(session.write, case, server, topic)
        if case.sink in FLOORS:
            return figures
        # A transaction's markers have offsets too: one per partition and transaction at most.
        markers = case.tasks * PARTITIONS if case.guarantee == "exactly-once" else 0
        arrived = await server.arrived([topic])
        if not case.rows <= arrived <= case.rows + markers:
            raise RuntimeError(f"{case.key}: {arrived} of {case.rows} rows arrived")
        return figures


def _shown(figures: dict[str, float]) -> str:
    parts = " + ".join(f"{figures[f'{who}_us']:.2f} {who}" for who in ("jvm", "python", "broker"))
    return f"{figures['rate']:,.0f} rows/s, us CPU per row: {parts}"


def main() -> None:
    rounds = int(os.environ.get("AIOPRODUCER_BENCH_ROUNDS") or ROUNDS)
    share = float(os.environ.get("AIOPRODUCER_BENCH_SHARE") or 1)
    words = (os.environ.get("AIOPRODUCER_BENCH_CASES") or "").split(",")
    # As installing does: Spark plans and commits in processes that import the package anew.
    compileall.compile_dir(Path(aioproducer.__file__).parent, quiet=1)
    chosen = [each.scaled(share) for each in cases() if any(word in each.key for word in words)]
    print(f"{describe()}; {rounds} rounds", flush=True)
    began = time.time()
    micro = any(word in "micro-batches" for word in words)
    found = asyncio.run(measure(rounds, chosen, micro=micro))
    found |= {
        "machine": describe(),
        "when": time.strftime("%Y-%m-%d %H:%M", time.gmtime(began)),
        "minutes": round((time.time() - began) / 60, 1),
        "rounds": rounds,
        "share": share,
        "connector": [CONNECTOR, *CONNECTOR_NEEDS],
        "tuned": _TUNED,
        "ours": DEFAULTS,
    }
    whole = rounds >= ROUNDS and share == 1 and words == [""]
    spark_report.write(found, spark_report.RECORDED if whole else spark_report.ELSEWHERE)


if __name__ == "__main__":
    main()
