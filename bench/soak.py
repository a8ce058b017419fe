"""A long run: records at a steady pace while something breaks every 20 s, read all the time.

Method: three Kafka brokers in JVMs, a topic of 6 partitions with replication 3,
`min.insync.replicas` 2 and bounded retention; a proxy before each broker. The producer runs in a
separate process and checks the outcome of every record; the kernel gives its memory.
confluent-kafka's consumer follows in another process and checks the numbers. The faults are those
of `tests/support/faults`, drawn from a seed; when one is over, all replicas have to be in sync
before the next. None begins in the last 20 s.

It fails when a record is lost, duplicated, reordered, misplaced, failed, refused or unresolved;
when memory grows by 8 MiB or more over the second half (the slope of a straight line through it);
when memory, requests, waiters or tasks are left at the end; when the pace was not kept.

    MINUTES  30
    RATE     20000, records/s
    SEED     1

The outcome goes to bench/soak.json, bench/soak.png and bench/RELIABILITY.md; of a run that is
shorter or slower than that to build/soak/ instead.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import machine
from bench.figures import slope
from bench.workers import Report, Worker, WorkerError, worker

if TYPE_CHECKING:
    from support.faults import FaultGround
    from support.faults.scenarios import Situation

    from bench.soak_faults import Fault

_BENCH = Path(__file__).parent
_ELSEWHERE = _BENCH.parent / "build" / "soak"

MINUTES = 30.0
RATE = 20_000
VALUE_BYTES = 100
FAULT_EVERY_S = 20.0
GROWTH_ALLOWED = 8 << 20
PACE_KEPT = 0.99
FAULTS_HAPPENED = 0.9
OPTIONS = {
    "request_timeout_ms": 5_000,
    "delivery_timeout_ms": 120_000,
    "max_block_ms": 120_000,
    "linger_ms": 5,
}
_TOPIC = "soak"
_FIRST_FAULT_S = 10.0
_ANSWER_S = 60.0
_LATE_S = 60.0
"""How much longer than planned the load may take to catch up."""
_UNRESOLVED_S = 150.0
_READ_S = 150.0
_BREATH_S = 2.0
_SAMPLE_S = 0.5
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of the soak."""

    minutes: float
    rate: int
    seed: int

    @property
    def seconds(self) -> float:
        """The seconds for which records are sent."""
        return self.minutes * 60

    @property
    def records(self) -> int:
        """The number of records to send."""
        return round(self.seconds * self.rate)

    @property
    def faults(self) -> int:
        """The number of faults that begin when none takes longer than it should."""
        return int((self.seconds - FAULT_EVERY_S - _FIRST_FAULT_S) / FAULT_EVERY_S) + 1

    @property
    def short(self) -> bool:
        """Whether it proves less than it should."""
        return self.minutes < MINUTES or self.rate < RATE


@dataclass(slots=True)
class Soak:
    """The measurements of the soak."""

    plan: Plan
    description: str = ""
    began: float = 0.0
    sent_at: float = 0.0
    rss: list[tuple[float, int]] = field(default_factory=list)
    counters: list[Report] = field(default_factory=list)
    reading: Report = field(default_factory=dict)
    faults: list[tuple[float, float, str]] = field(default_factory=list)
    """Begin, end (all in sync again), name."""
    struck: dict[str, int] = field(default_factory=dict)
    peak: int = 0
    settled: Report = field(default_factory=dict)
    closed: Report = field(default_factory=dict)
    findings: Report = field(default_factory=dict)

    @property
    def pace(self) -> float:
        """Records per second, on average."""
        return float(self.settled["sent"] / (self.sent_at - self.began))

    @property
    def growth(self) -> float:
        """Bytes by which memory grew over the second half: slope times duration."""
        middle = (self.began + self.sent_at) / 2
        half = [(at, size) for at, size in self.rss if middle <= at <= self.sent_at]
        return slope(half) * (self.sent_at - middle)

    def verdict(self) -> dict[str, int]:
        """Everything that has to be 0."""
        settled, found = self.settled, self.findings
        return {
            "lost": found["lost"],
            "duplicated": found["duplicated"],
            "reordered": found["reordered"],
            "misplaced": settled["misplaced"],
            "unresolved": settled["pending"],
            "failed": settled["failed"],
            "refused": settled["refused"],
            "wrongly not persisted": found["wrongly_denied"],
            "bytes of buffer memory left": round(settled["buffer_used"]),
            "waiters left": round(settled["waiting"]),
            "requests left": round(settled["requests_in_flight"]),
            "batches left": settled["batches_pending"],
            "tasks left": self.closed["tasks"],
        }

    def violations(self) -> list[str]:
        """The broken guarantees, and reasons why the run is worthless."""
        wrong = [f"{name}: {count:,}" for name, count in self.verdict().items() if count]
        if self.growth >= GROWTH_ALLOWED:
            wrong.append(f"memory grew by {self.growth / _MIB:.1f} MiB over the second half")
        if self.settled["sent"] < self.plan.records:
            wrong.append(f"only {self.settled['sent']:,} of {self.plan.records:,} records sent")
        if self.pace < PACE_KEPT * self.plan.rate:
            wrong.append(f"the pace was {self.pace:,.0f} records/s, not {self.plan.rate:,}")
        if not self.settled["retried"]:
            wrong.append("no fault was felt")
        if len(self.faults) < FAULTS_HAPPENED * self.plan.faults:
            wrong.append(f"only {len(self.faults)} of {self.plan.faults} faults happened")
        return wrong

    def fault_counts(self) -> dict[str, int]:
        """The number of faults of each kind."""
        names = [name for _, _, name in self.faults]
        return {name: names.count(name) for name in sorted(set(names))}

    def summary(self) -> dict[str, Any]:
        """The figures, for the results file."""
        return {
            "machine": machine.describe(),
            "cluster": self.description,
            "minutes": self.plan.minutes,
            "rate": self.plan.rate,
            "seed": self.plan.seed,
            "options": OPTIONS,
            "sent": self.settled["sent"],
            "acknowledged": self.settled["acknowledged"],
            "read": self.findings["read"],
            "retried_records": round(self.settled["retried"]),
            "records_per_batch": round(self.settled["records_per_batch"], 1),
            "records_per_second": round(self.pace),
            "verdict": self.verdict(),
            "reasons": self.settled["reasons"],
            "faults": len(self.faults),
            "faults_by_kind": self.fault_counts(),
            "pieces_struck_by_the_network": self.struck,
            "rss_peak_bytes": self.peak,
            "rss_growth_second_half_bytes": round(self.growth),
            "violations": self.violations(),
        }


# -- living through it -------------------------------------------------------------------------


async def _run(plan: Plan) -> Soak:
    from support.faults import Ledger, fault_ground
    from support.faults.ground import PARTITIONS
    from support.faults.scenarios import Situation

    soak = Soak(plan)
    async with AsyncExitStack() as stack:
        ground = await stack.enter_async_context(fault_ground())
        soak.description = ground.cluster.description
        await ground.create_topic(_TOPIC)
        await ground.wait_in_sync(_TOPIC)
        reader = await stack.enter_async_context(
            worker(
                "reader",
                "bench.reader",
                bootstrap=ground.bootstrap_servers,
                topic=_TOPIC,
                value_bytes=VALUE_BYTES,
            )
        )
        load = await stack.enter_async_context(
            worker(
                "load",
                "bench.soak_load",
                bootstrap=ground.proxied_bootstrap_servers,
                topic=_TOPIC,
                partitions=PARTITIONS,
                value_bytes=VALUE_BYTES,
                options=OPTIONS,
            )
        )
        await reader.report("ready", _ANSWER_S)
        await load.report("ready", _ANSWER_S)
        situation = Situation(ground, {_TOPIC: Ledger()}, OPTIONS["request_timeout_ms"] / 1000)
        await _live_through(soak, situation, load, reader)
        await _conclude(soak, ground, reader)
    return soak


async def _live_through(soak: Soak, situation: Situation, load: Worker, reader: Worker) -> None:
    plan = soak.plan
    load.on_report = lambda report: _keep(soak, report)
    reader.on_report = lambda report: _keep(soak, report)
    soak.began = time.monotonic()
    load.say("send", rate=plan.rate, records=plan.records)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(_watch(soak, load, reader))
        disturbing = group.create_task(_disturb(soak, situation))
        await _wait_until_sent(load, plan.seconds + _LATE_S)
        soak.sent_at = time.monotonic()
        await disturbing
        soak.settled = await load.report("settled", _UNRESOLVED_S)
        soak.peak = load.peak_rss()
        soak.closed = await load.report("closed", _ANSWER_S)
        watching.cancel()


async def _wait_until_sent(load: Worker, timeout_s: float) -> None:
    try:
        await load.report("sent", timeout_s)
    except WorkerError:
        load.say("stop")  # too slow: what was sent is judged all the same
        await load.report("sent", _ANSWER_S)


async def _disturb(soak: Soak, situation: Situation) -> None:
    """A fault every 20 s, or as soon as the one before is over; the last 20 s are calm."""
    from bench.soak_faults import plan

    draw = random.Random(soak.plan.seed)
    last = soak.began + soak.plan.seconds - FAULT_EVERY_S
    for number, fault in enumerate(plan(draw)):
        begin = max(
            soak.began + _FIRST_FAULT_S + number * FAULT_EVERY_S, time.monotonic() + _BREATH_S
        )
        if begin > last:
            return
        await asyncio.sleep(begin - time.monotonic())
        await _happen(soak, situation, fault, draw)


async def _happen(soak: Soak, situation: Situation, fault: Fault, draw: random.Random) -> None:
    begin = time.monotonic()
    await fault.happen(situation, draw)
    await situation.wait_in_sync()
    soak.faults.append((begin, time.monotonic(), fault.name))


async def _watch(soak: Soak, load: Worker, reader: Worker) -> None:
    """Sample memory, show progress, and raise when a worker has ended."""
    shown = 0.0
    while True:
        load.check()
        reader.check()
        now = time.monotonic()
        soak.rss.append((now, load.rss()))
        if now - shown >= (1 if sys.stderr.isatty() else 10) and soak.counters:
            shown = now
            _show(soak, now)
        await asyncio.sleep(_SAMPLE_S)


def _keep(soak: Soak, report: Report) -> None:
    if report["kind"] == "counters":
        soak.counters.append(report)
    elif report["kind"] == "progress":
        soak.reading = report


async def _conclude(soak: Soak, ground: FaultGround, reader: Worker) -> None:
    from support.faults.proxy import NetworkFault

    settled = soak.settled
    reader.say(
        "finish",
        sent=settled["sent_by_partition"],
        failed=settled["failed_numbers"],
        denied=settled["denied_numbers"],
    )
    soak.findings = await reader.report("findings", _READ_S)
    for proxy in ground.proxies.values():
        for fault, count in proxy.struck.items():
            if fault is not NetworkFault.NONE:
                soak.struck[fault.value] = soak.struck.get(fault.value, 0) + count
    if sys.stderr.isatty():
        print(file=sys.stderr)


def _show(soak: Soak, now: float) -> None:
    last, read = soak.counters[-1], soak.reading
    done = (now - soak.began) / soak.plan.seconds
    line = (
        f"{_clock(now - soak.began)} of {_clock(soak.plan.seconds)} {done:4.0%}  "
        f"{last['sent']:,} sent, {last['pending']:,} pending, {read.get('read', 0):,} read, "
        f"{len(soak.faults)} faults, {soak.rss[-1][1] / _MIB:.0f} MiB"
    )
    wrong = read.get("missing", 0) + read.get("duplicated", 0) + read.get("reordered", 0)
    wrong += last["failed"] + last["misplaced"]
    if wrong:
        line += f", {wrong:,} WRONG"
    end = "\r" if sys.stderr.isatty() else "\n"
    print(line, end=end, file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def main() -> None:
    machine.find_tests()
    # Imported here: they need `support`.
    from bench import soak_report

    plan = Plan(
        float(os.environ.get("MINUTES") or MINUTES),
        int(os.environ.get("RATE") or RATE),
        int(os.environ.get("SEED") or 1),
    )
    soak = asyncio.run(_run(plan))
    soak_report.write(soak, _ELSEWHERE if plan.short else _BENCH)
    if soak.violations():
        sys.exit(1)
