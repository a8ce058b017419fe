"""Registry of a producer's metrics: its own (`rows.py`) and the application's (KIP-1076).

It has the metrics that exist now, with group and tags.

Invariants: nothing is computed until a metric is read; a metric of the application that raises is
left out and logged once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aioproducer._util import log
from aioproducer._util.tasks import HOOK_ERRORS
from aioproducer.errors import IllegalStateError
from aioproducer.metrics import ApplicationMetric, LiveMetric, Metric
from aioproducer.runtime.observability.rows import (
    NODE_ROWS,
    PRODUCER_ROWS,
    TOPIC_ROWS,
    Measured,
    kind_of,
)

PRODUCER, TOPIC, NODE, APPLICATION_INFO = (
    "producer-metrics",
    "producer-topic-metrics",
    "producer-node-metrics",
    "app-info",
)

_log = log.get("runtime")


@dataclass(frozen=True, slots=True)
class _Reading:
    """Read one metric; equal to another that reads the same of the same subject."""

    subject: Any
    read: Callable[[Any, float], float]
    clock: Callable[[], float]

    def __call__(self) -> float:
        return float(self.read(self.subject, self.clock()))


class MetricsRegistry:
    """All metrics of a producer, whether it runs or not."""

    def __init__(self) -> None:
        self._own: dict[object, ApplicationMetric] = {}
        self._broken: dict[object, None] = {}

    def register(self, metric: ApplicationMetric) -> None:
        """Add a metric of the application; one with the same name and tags is replaced."""
        if metric.group in {PRODUCER, TOPIC, NODE, APPLICATION_INFO}:
            raise IllegalStateError(f"{metric.group} is the group of the producer's own metrics")
        self._own[metric.identity] = metric

    def unregister(self, metric: ApplicationMetric) -> None:
        """Remove a metric, if it is registered."""
        self._own.pop(metric.identity, None)

    def live(self, engine: Measured | None) -> Iterator[LiveMetric]:
        """Yield all metrics; equal to those of another call while nothing changes."""
        if engine is not None:
            yield from _of_engine(engine)
        yield from tuple(self._own.values())

    def collect(self, engine: Measured | None) -> list[Metric]:
        """Return all metrics with their current values."""
        collected = []
        for metric in self.live(engine):
            try:
                collected.append(metric.measured())
            except HOOK_ERRORS:
                if metric.identity not in self._broken:
                    self._broken[metric.identity] = None
                    _log.exception("metric %s of the application raised", metric.name)
        return collected


def _of_engine(engine: Measured) -> Iterator[LiveMetric]:
    clock = engine.loop.time
    for row in PRODUCER_ROWS:
        yield LiveMetric(
            row.name,
            PRODUCER,
            _Reading(engine, row.value, clock),
            kind_of(row.name),
            row.description,
        )
    for name, topic in engine.stats.topics.items():
        yield from _tagged(TOPIC, {"topic": name}, TOPIC_ROWS, topic, clock)
    for node_id, node in engine.client.io_stats.nodes.items():
        yield from _tagged(NODE, {"node-id": f"node-{node_id}"}, NODE_ROWS, node, clock)
    yield LiveMetric(
        "start-time-ms",
        APPLICATION_INFO,
        _Reading(engine, _started_at_ms, clock),
        description="When it was started",
    )


def _started_at_ms(engine: Measured, now: float) -> float:
    return engine.started_at_ms


def _tagged(
    group: str,
    tags: Mapping[str, str],
    rows: Mapping[str, Callable[[Any, float], float]],
    subject: object,
    clock: Callable[[], float],
) -> Iterator[LiveMetric]:
    for name, read in rows.items():
        yield LiveMetric(name, group, _Reading(subject, read, clock), kind_of(name), tags=tags)
