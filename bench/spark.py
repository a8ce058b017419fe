"""Spark into Kafka: our data source beside Spark's own Kafka sink, in the same session.

    sinks        rows/s and CPU per row of 2 M rows of 100 bytes, with and without keys and lz4;
                 Spark's own sink as it is, and with larger batches (`tuned`)
    small tasks  the same rows in 128 Spark partitions
    exactly once 200,000 rows as one batch, beside at least once; and what a micro-batch costs more

Method: one `local[2]` session and one Kafka broker on the same machine; 4 Spark and 4 Kafka
partitions. Rounds are interleaved, every second one in reverse; the first is not counted, since it
is the compiler's. CPU is that of the JVM with its Python workers, user and system, from the start
of a write to its end; generating the rows is part of it, for all alike. Rows are counted by the
topic's end offsets. Records: idempotent, acks=all, everywhere.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aioproducer.spark.session import local_session
from aioproducer.testing.maven import fetch_jar
from bench.figures import spread
from bench.machine import describe
from bench.servers import Server, kafka

ROUNDS = 5
ROWS = 2_000_000
BATCH_ROWS = 200_000
MICRO_BATCHES = 12
PARTITIONS = 4
SMALL_TASKS = 128
RESULTS = Path(__file__).parents[1] / "build" / "bench" / "spark.json"

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
# The release has no token provider of its own version on Maven Central.
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
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement."""

    sink: str
    codec: str = "none"
    keyed: bool = True
    tasks: int = PARTITIONS
    rows: int = ROWS
    guarantee: str = "at-least-once"

    @property
    def key(self) -> str:
        keyed = "keyed" if self.keyed else "unkeyed"
        return f"{self.sink}/{self.codec}/{keyed}/{self.tasks}/{self.rows}/{self.guarantee}"


def cases() -> list[Case]:
    """Everything that is measured."""
    every = [
        Case(sink, codec, keyed)
        for codec in ("none", "lz4")
        for keyed in (True, False)
        for sink in ("ours", "default", "tuned")
    ]
    every += [Case(sink, tasks=SMALL_TASKS) for sink in ("ours", "tuned")]
    every += [
        Case("ours", rows=BATCH_ROWS, guarantee=guarantee)
        for guarantee in ("at-least-once", "exactly-once")
    ]
    return every


@dataclass(frozen=True, slots=True)
class Bar:
    """A quotient of medians that has to reach a limit, or stay below it."""

    text: str
    ours: Case
    theirs: Case
    measure: str
    limit: float


def bars() -> list[Bar]:
    """What the issue of all this is held to."""
    found = []
    for codec, tuned in (("none", 1.2), ("lz4", 1.05)):
        for keyed in (True, False):
            name = f"{codec}, {'keyed' if keyed else 'unkeyed'}"
            ours = Case("ours", codec, keyed)
            found += [
                Bar(f"{name}: rows/s", ours, Case("tuned", codec, keyed), "rate", tuned),
                Bar(f"{name}: rows/s", ours, Case("default", codec, keyed), "rate", 1.45),
                Bar(f"{name}: CPU per row", ours, Case("tuned", codec, keyed), "cpu_us", 0.88),
            ]
    small = (Case("ours", tasks=SMALL_TASKS), Case("tuned", tasks=SMALL_TASKS))
    found.append(Bar(f"{SMALL_TASKS} partitions: rows/s", *small, "rate", 0.9))
    least, once = (
        Case("ours", rows=BATCH_ROWS, guarantee=name) for name in ("at-least-once", "exactly-once")
    )
    found.append(Bar("exactly once beside at least once: rows/s", once, least, "rate", 0.8))
    return found


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
        self._jvm = int(self.spark._jvm.java.lang.ProcessHandle.current().pid())

    def cpu(self) -> float:
        """Seconds that the JVM and everything under it has used."""
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
        wanted, total = [self._jvm], 0.0
        while wanted:
            process = wanted.pop()
            total += used.get(process, 0.0)
            wanted += children[process]
        return total

    def write(self, case: Case, bootstrap: str, topic: str) -> dict[str, float]:
        """Runs one case."""
        columns = ["CAST(lpad(id, 100, '0') AS BINARY) AS value"]
        if case.keyed:
            columns.insert(0, "CAST(id AS STRING) AS key")
        frame = self.spark.range(0, case.rows, 1, case.tasks).selectExpr(*columns)
        options = {
            "kafka.bootstrap.servers": bootstrap,
            "topic": topic,
            "kafka.compression.type": case.codec,
        }
        if case.sink == "ours":
            options["delivery.guarantee"] = case.guarantee
        elif case.sink == "tuned":
            options |= _TUNED
        name = "aioproducer" if case.sink == "ours" else "kafka"
        cpu, begin = self.cpu(), time.perf_counter()
        frame.write.format(name).options(**options).mode("append").save()
        wall, spent = time.perf_counter() - begin, self.cpu() - cpu
        return {"rate": case.rows / wall, "cpu_us": spent / case.rows * 1e6}

    def micro_batches(self, bootstrap: str, topic: str, guarantee: str) -> float:
        """Milliseconds that a small micro-batch takes from trigger to trigger's end: the median."""
        with tempfile.TemporaryDirectory(prefix="aioproducer-bench-") as checkpoint:
            rows = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "200")
            frame = rows.load().selectExpr("CAST(value AS STRING) AS value")
            query = (
                frame.writeStream.format("aioproducer")
                .option("kafka.bootstrap.servers", bootstrap)
                .option("topic", topic)
                .option("delivery.guarantee", guarantee)
                .option("checkpointLocation", checkpoint)
                .start()
            )
            deadline = time.monotonic() + 120
            found: list[float] = []
            while len(found) < MICRO_BATCHES and time.monotonic() < deadline:
                time.sleep(0.2)
                done = [each for each in query.recentProgress if each.numInputRows]
                found = [each.durationMs["addBatch"] for each in done]
            query.stop()
        return statistics.median(found[2:])


async def measure(rounds: int, share: float) -> dict[str, Any]:
    """All cases, in turns."""
    results: dict[str, list[dict[str, float]]] = defaultdict(list)
    latencies: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="aioproducer-bench-") as directory:
        async with kafka() as server:
            session = await asyncio.to_thread(Session, directory)
            print(f"PySpark {session.spark.version}, {CONNECTOR}, {server.description}")
            for number in range(rounds + 1):
                order = [_scaled(each, share) for each in cases()]
                for case in order[:: -1 if number % 2 else 1]:
                    figures = await _run(session, case, server)
                    if number:
                        results[case.key].append(figures)
                        print(f"{number} {case.key} {_shown(figures)}", flush=True)
            for guarantee in ("at-least-once", "exactly-once"):
                async with server.topics(1, PARTITIONS) as (topic,):
                    work: Callable[..., float] = session.micro_batches
                    latencies[guarantee] = await asyncio.to_thread(
                        work, server.bootstrap, topic, guarantee
                    )
            version = session.spark.version
            await asyncio.to_thread(session.spark.stop)
    return {"pyspark": version, "cases": dict(results), "micro_batch_ms": latencies}


def _scaled(case: Case, share: float) -> Case:
    rows = max(1000, int(case.rows * share))
    return Case(case.sink, case.codec, case.keyed, case.tasks, rows, case.guarantee)


async def _run(session: Session, case: Case, server: Server) -> dict[str, float]:
    async with server.topics(1, PARTITIONS) as (topic,):
        figures = await asyncio.to_thread(session.write, case, server.bootstrap, topic)
        # A transaction's markers have offsets too: one per partition and transaction at most.
        markers = case.tasks * PARTITIONS if case.guarantee == "exactly-once" else 0
        arrived = await server.arrived([topic])
        if not case.rows <= arrived <= case.rows + markers:
            raise RuntimeError(f"{case.key}: {arrived} of {case.rows} rows arrived")
        return figures


def _shown(figures: dict[str, float]) -> str:
    return f"{figures['rate']:,.0f} rows/s, {figures['cpu_us']:.2f} us CPU per row"


def report(found: dict[str, Any], share: float) -> bool:
    """Prints medians and bars; whether every bar is held."""
    medians = {
        key: {name: spread(run[name] for run in runs) for name in runs[0]}
        for key, runs in found["cases"].items()
    }
    for key, each in medians.items():
        rate, cpu = each["rate"], each["cpu_us"]
        print(
            f"  {key:50} {rate.median:10,.0f} rows/s ({rate.lowest:,.0f} to {rate.highest:,.0f})  "
            f"{cpu.median:5.2f} us CPU per row"
        )
    latencies = found["micro_batch_ms"]
    print(f"  micro-batch of 200 rows, addBatch: {latencies} ms")
    held = True
    for bar in bars():
        ours = medians[_scaled(bar.ours, share).key][bar.measure].median
        theirs = medians[_scaled(bar.theirs, share).key][bar.measure].median
        at_least = bar.measure == "rate"
        good = ours / theirs >= bar.limit if at_least else ours / theirs <= bar.limit
        held = held and good
        sign = ">=" if at_least else "<="
        print(
            f"  {'held  ' if good else 'MISSED'} {bar.text} beside {bar.theirs.sink}: "
            f"{ours / theirs:.2f} ({sign} {bar.limit})"
        )
    return held


def main() -> None:
    rounds = int(os.environ.get("AIOPRODUCER_BENCH_ROUNDS") or ROUNDS)
    share = float(os.environ.get("AIOPRODUCER_BENCH_SHARE") or 1)
    print(f"{describe()}; {rounds} rounds", flush=True)
    found = asyncio.run(measure(rounds, share))
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps({"machine": describe(), **found}, indent=1), encoding="utf-8")
    report(found, share)


if __name__ == "__main__":
    main()
