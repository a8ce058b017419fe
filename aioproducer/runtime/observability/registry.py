"""Registry of a producer's metrics: its own (`rows.py`) and the application's (KIP-1076).

It has the metrics that exist now, with group and tags.

Invariants: nothing is computed until a metric is read; a metric of the application that raises is
left out and logged once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from aioproducer._util import log
from aioproducer._util.tasks import HOOK_ERRORS
from aioproducer.errors import IllegalStateError
from aioproducer.metrics import ApplicationMetric, LiveMetric, Metric
from aioproducer.runtime.observability.rows import (
    INFO_ROWS,
    NODE_ROWS,
    PRODUCER_ROWS,
    TOPIC_ROWS,
    Measured,
    Row,
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

    def sources(self, engine: Measured | None) -> Iterator[Source]:
        """Yield what has metrics: the producer, its topics and brokers, the application."""
        if engine is not None:
            yield from _sources(engine)
        for identity, metric in tuple(self._own.items()):
            yield ApplicationSource(identity, metric)

    def collect(self, engine: Measured | None) -> list[Metric]:
        """Return all metrics with their current values."""
        collected: list[Metric] = []
        if engine is not None:
            now = engine.loop.time()
            for source in _sources(engine):
                subject, group, tags = source.subject, source.group, tuple(source.tags.items())
                collected += [
                    Metric(name, group, kind, float(read(subject, now)), description, tags)
                    for name, read, kind, description in source.rows
                ]
        for metric in tuple(self._own.values()):
            try:
                collected.append(metric.measured())
            except HOOK_ERRORS:
                if metric.identity not in self._broken:
                    self._broken[metric.identity] = None
                    _log.exception("metric %s of the application raised", metric.name)
        return collected


class ApplicationSource(NamedTuple):
    """One metric of the application."""

    identity: object
    subject: LiveMetric

    def live(self) -> Iterator[LiveMetric]:
        """Yield the metric."""
        yield self.subject


class ClientSource(NamedTuple):
    """One producer, topic or broker with its metrics."""

    identity: object
    subject: Any
    group: str
    tags: Mapping[str, str]
    rows: Sequence[Row]
    clock: Callable[[], float]

    def live(self) -> Iterator[LiveMetric]:
        """Yield its metrics."""
        for name, read, kind, description in self.rows:
            reading = _Reading(self.subject, read, self.clock)
            yield LiveMetric(name, self.group, reading, kind, description, self.tags)


Source = ApplicationSource | ClientSource
"""Two with the same `identity` and equal subjects have the same metrics."""


def _sources(engine: Measured) -> Iterator[ClientSource]:
    """Yield the sources of a started producer."""
    clock = engine.loop.time
    yield ClientSource(PRODUCER, engine, PRODUCER, {}, PRODUCER_ROWS, clock)
    for name, topic in engine.stats.topics.items():
        yield ClientSource((TOPIC, name), topic, TOPIC, {"topic": name}, TOPIC_ROWS, clock)
    for node_id, node in engine.client.io_stats.nodes.items():
        tags = {"node-id": f"node-{node_id}"}
        yield ClientSource((NODE, node_id), node, NODE, tags, NODE_ROWS, clock)
    yield ClientSource(APPLICATION_INFO, engine, APPLICATION_INFO, {}, INFO_ROWS, clock)
