"""`aioproducer perf`: how fast this machine, this configuration and this cluster are together.

Owns: the paced sending of generated records and the latency figures. Must not know: the producer's
insides.

A record's latency is the time from the call of `send()` to its acknowledgement, waiting for room
included; it is taken of every record, or of evenly spaced ones when there are more than
`_SAMPLES`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

import typer

from aioproducer.cli import options
from aioproducer.cli.connecting import started_producer
from aioproducer.cli.console import megabytes, print_facts, print_json, say
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.cli.interrupts import Interrupts, run_command
from aioproducer.config import ProducerConfig
from aioproducer.producer import Producer

_SAMPLES = 200_000
_PERCENTILES = (50.0, 95.0, 99.0, 99.9)
_REPORT_EVERY_S = 5.0
_RECORDS_PER_TURN = 100


@dataclass(frozen=True, slots=True)
class PerfPlan:
    """What to send; `throughput` is records per second, 0 for as fast as it goes."""

    topic: str
    records: int
    size: int
    throughput: float


@dataclass(slots=True)
class Measurement:
    """What was seen so far."""

    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    elapsed_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Acknowledged records per second."""
        return self.acknowledged / self.elapsed_s if self.elapsed_s else 0.0

    def percentiles_ms(self) -> Iterator[tuple[str, float]]:
        """Latencies by name, in ms."""
        ordered = sorted(self.latencies_s)
        if not ordered:
            return
        for percentile in _PERCENTILES:
            place = min(len(ordered) - 1, int(len(ordered) * percentile / 100))
            yield f"p{percentile:g}", ordered[place] * 1000
        yield "max", ordered[-1] * 1000


def perf(
    *,
    topic: options.Topic,
    num_records: Annotated[int, typer.Option("--num-records", "-n", min=1)] = 100_000,
    record_size: Annotated[int, typer.Option("--record-size", "-s", min=0, help="Bytes.")] = 1000,
    throughput: Annotated[
        float, typer.Option("--throughput", help="Records per second; 0: no limit.")
    ] = 0.0,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    bootstrap_server: options.BootstrapServer = None,
    config_file: options.ConfigFile = None,
    properties: options.Properties = None,
) -> int:
    """Send generated records; print the rate and the latency percentiles."""
    plan = PerfPlan(topic, num_records, record_size, throughput)
    config = options.producer_config(bootstrap_server, config_file, properties)
    return run_command(partial(_perf, config, plan, as_json=as_json, quiet=quiet))


async def _perf(
    config: ProducerConfig, plan: PerfPlan, interrupts: Interrupts, *, as_json: bool, quiet: bool
) -> int:
    measurement = Measurement()
    async with started_producer(config) as producer:
        await producer.warm_up([plan.topic])
        run = _Run(producer, plan, measurement, quiet=quiet)
        interrupts.on_stop(run.stop)
        await run.run()
        metrics = producer.metrics()
    if as_json:
        print_json(_as_dict(plan, measurement, metrics))
    else:
        print_facts(f"{plan.size} byte records -> {plan.topic}", _facts(plan, measurement, metrics))
    if interrupts.code is not None:
        return interrupts.code
    return ExitCode.SOME_FAILED if measurement.failed else ExitCode.OK


class _Run:
    def __init__(
        self, producer: Producer, plan: PerfPlan, measurement: Measurement, *, quiet: bool
    ) -> None:
        self._producer = producer
        self._plan = plan
        self._seen = measurement
        self._quiet = quiet
        self._stopped = False
        self._every = -(-plan.records // _SAMPLES)
        self._loop = asyncio.get_running_loop()
        self._started_at = self._reported_at = self._loop.time()

    def stop(self) -> None:
        """Sends no more."""
        self._stopped = True

    async def run(self) -> None:
        """Sends everything and waits for the acknowledgements."""
        # Random bytes, the same in every run: no codec makes them look smaller than they are.
        value = random.Random(0).randbytes(self._plan.size)
        self._started_at = self._reported_at = self._loop.time()
        for start in range(0, self._plan.records, _RECORDS_PER_TURN):
            if self._stopped:
                break
            await self._send(value, start, min(self._plan.records, start + _RECORDS_PER_TURN))
            self._report_now_and_then()
            await self._pace()
        await self._producer.flush()
        # Callbacks of the last deliveries are called by the loop's next turn.
        await asyncio.sleep(0)
        self._count()

    async def _send(self, value: bytes, start: int, end: int) -> None:
        producer, topic, loop = self._producer, self._plan.topic, self._loop
        for number in range(start, end):
            called_at = loop.time()
            delivery = await producer.send(topic, value)
            if number % self._every == 0:
                delivery.add_done_callback(partial(self._acknowledged, called_at))
        self._seen.sent = end

    def _acknowledged(self, called_at: float, delivery: Any) -> None:
        if delivery.exception() is None:
            self._seen.latencies_s.append(self._loop.time() - called_at)

    async def _pace(self) -> None:
        ahead_s = 0.0
        if self._plan.throughput > 0:
            due = self._started_at + self._seen.sent / self._plan.throughput
            ahead_s = due - self._loop.time()
        await asyncio.sleep(max(0.0, ahead_s))

    def _count(self) -> None:
        metrics = self._producer.metrics()
        self._seen.acknowledged = int(metrics["record_acknowledged_total"])
        self._seen.failed = int(metrics["record_error_total"])
        self._seen.elapsed_s = self._loop.time() - self._started_at

    def _report_now_and_then(self) -> None:
        now = self._loop.time()
        if self._quiet or now - self._reported_at < _REPORT_EVERY_S:
            return
        self._reported_at = now
        self._count()
        seen, size = self._seen, self._plan.size
        say(
            f"{seen.acknowledged:,} acknowledged, {seen.rate:,.0f} records/s "
            f"({megabytes(seen.rate * size)}/s), {seen.failed:,} failed"
        )


def _facts(
    plan: PerfPlan, seen: Measurement, metrics: Mapping[str, float]
) -> Iterator[tuple[str, str]]:
    yield "records acknowledged", f"{seen.acknowledged:,}"
    yield "failed", f"{seen.failed:,}"
    yield "seconds", f"{seen.elapsed_s:,.2f}"
    yield "records/s", f"{seen.rate:,.0f}"
    yield "data/s", megabytes(seen.rate * plan.size)
    yield "records per batch", f"{metrics['records_per_batch_avg']:,.1f}"
    yield "retries", f"{metrics['record_retry_total']:,.0f}"
    for name, latency in seen.percentiles_ms():
        yield f"latency {name}", f"{latency:,.1f} ms"


def _as_dict(plan: PerfPlan, seen: Measurement, metrics: Mapping[str, float]) -> dict[str, Any]:
    return {
        "topic": plan.topic,
        "record_size": plan.size,
        "sent": seen.sent,
        "acknowledged": seen.acknowledged,
        "failed": seen.failed,
        "seconds": round(seen.elapsed_s, 3),
        "records_per_second": round(seen.rate, 1),
        "bytes_per_second": round(seen.rate * plan.size),
        "records_per_batch": round(metrics["records_per_batch_avg"], 1),
        "retries": metrics["record_retry_total"],
        "latency_ms": {name: round(value, 3) for name, value in seen.percentiles_ms()},
    }
