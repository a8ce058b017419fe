"""The sending that `aioproducer perf` measures, and its figures.

A record's latency is the time from the call of `send()` to its acknowledgement, including the wait
for buffer memory; it is taken of every record, or of evenly spaced ones when there are more than
`_SAMPLES`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aioproducer.client.producer import Producer

_SAMPLES = 200_000
_PERCENTILES = (50.0, 95.0, 99.0, 99.9)
_RECORDS_PER_TURN = 100
_TURN_S = 0.01
"""How much of a limited rate is sent at once: more would be bursts, whose latencies differ."""


@dataclass(frozen=True, slots=True)
class PerfPlan:
    """The work of a run; `throughput` is records per second, 0 for as fast as it goes."""

    topic: str
    records: int
    size: int
    throughput: float

    @property
    def records_per_turn(self) -> int:
        """The number of records that are sent without a pause between them."""
        if self.throughput <= 0:
            return _RECORDS_PER_TURN
        return max(1, int(min(_RECORDS_PER_TURN, self.throughput * _TURN_S)))


def percentiles_ms(latencies_s: Sequence[float]) -> Iterator[tuple[str, float]]:
    """Yield latencies in ms, by name."""
    ordered = sorted(latencies_s)
    if not ordered:
        return
    for percentile in _PERCENTILES:
        place = min(len(ordered) - 1, int(len(ordered) * percentile / 100))
        yield f"p{percentile:g}", ordered[place] * 1000
    yield "max", ordered[-1] * 1000


@dataclass(slots=True)
class Measurement:
    """The figures of a run so far."""

    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    elapsed_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Acknowledged records per second."""
        return self.acknowledged / self.elapsed_s if self.elapsed_s else 0.0


@dataclass(frozen=True, slots=True)
class Interval:
    """The figures between two reports; `failed` counts since the start."""

    until_s: float
    rate: float
    failed: int
    latencies_ms: dict[str, float]


class PerfRun:
    """Sends the records of a plan, and measures."""

    def __init__(
        self,
        producer: Producer,
        plan: PerfPlan,
        measurement: Measurement,
        *,
        every_s: float,
        on_interval: Callable[[Interval], None],
    ) -> None:
        self._producer = producer
        self._plan = plan
        self._seen = measurement
        self._every_s = every_s
        self._on_interval = on_interval
        self._stopped = asyncio.Event()
        self._sampled = -(-plan.records // _SAMPLES)
        self._loop = asyncio.get_running_loop()
        self._started_at = self._reported_at = self._loop.time()
        self._reported = (0, 0)

    def stop(self) -> None:
        """Stop sending; `run()` then waits for the acknowledgements."""
        self._stopped.set()

    async def run(self) -> None:
        """Send everything and wait for the acknowledgements."""
        # Random bytes, the same in every run: codecs cannot shrink them.
        value = random.Random(0).randbytes(self._plan.size)
        self._started_at = self._reported_at = self._loop.time()
        at_once = self._plan.records_per_turn
        for start in range(0, self._plan.records, at_once):
            if self._stopped.is_set():
                break
            await self._send(value, start, min(self._plan.records, start + at_once))
            self._report_periodically()
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
            if number % self._sampled == 0:
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
        if ahead_s <= 0:
            await asyncio.sleep(0)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(ahead_s):
                await self._stopped.wait()

    def _count(self) -> None:
        metrics = self._producer.metrics()
        self._seen.acknowledged = int(metrics["record_acknowledged_total"])
        self._seen.failed = int(metrics["record_error_total"])
        self._seen.elapsed_s = self._loop.time() - self._started_at

    def _report_periodically(self) -> None:
        now = self._loop.time()
        lasted_s = now - self._reported_at
        if lasted_s < self._every_s:
            return
        self._count()
        seen = self._seen
        acknowledged, samples = self._reported
        self._reported_at = now
        self._reported = (seen.acknowledged, len(seen.latencies_s))
        self._on_interval(
            Interval(
                seen.elapsed_s,
                (seen.acknowledged - acknowledged) / lasted_s,
                seen.failed,
                dict(percentiles_ms(seen.latencies_s[samples:])),
            )
        )
