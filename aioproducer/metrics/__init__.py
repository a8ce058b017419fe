"""Metrics: their names in the Java client, their kinds and values, and exporters.

Applications may add their own (KIP-1076); brokers get them by OpenTelemetry's names (KIP-714).

`totals` has what a producer counts; `reporters` the callbacks for metrics as they come and go;
`prometheus` and `opentelemetry` are exporters, imported only when used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from aioproducer._util.arguments import utf8_size

__all__ = ["ApplicationMetric", "LiveMetric", "Metric", "MetricKind"]


class MetricKind(Enum):
    """The kind of a metric: one that goes up and down, or only up."""

    GAUGE = "gauge"
    COUNTER = "counter"


class Metric(NamedTuple):
    """One metric and its value at the time of the call.

    `name` and `group` are Java's (`record-send-total` of `producer-metrics`); `tags` distinguish
    the metrics of several brokers or topics.
    """

    name: str
    group: str
    kind: MetricKind
    value: float
    description: str = ""
    tags: tuple[tuple[str, str], ...] = ()

    @property
    def telemetry_name(self) -> str:
        """The name in OpenTelemetry: `org.apache.kafka.producer.record.send.total` (KIP-714)."""
        group = self.group.removesuffix("-metrics")
        return f"org.apache.kafka.{group}.{self.name}".replace("-", ".")


@dataclass(frozen=True, slots=True)
class LiveMetric:
    """One metric that can be read at any time (Java: `KafkaMetric`).

    `read` is called in the event loop.
    """

    name: str
    group: str
    read: Callable[[], float]
    kind: MetricKind = MetricKind.GAUGE
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        """The metric's identity."""
        return self.group, self.name, tuple(sorted(self.tags.items()))

    def measured(self) -> Metric:
        """Return its value now."""
        group, name, tags = self.identity
        return Metric(name, group, self.kind, float(self.read()), self.description, tags)


@dataclass(frozen=True, slots=True)
class ApplicationMetric(LiveMetric):
    """A metric of the application's own, read whenever metrics are handed out (KIP-1076).

    `read` is called often; it must be quick and must not wait. One that raises is left out.

    Raises:
        TypeError: Name, group, description or a tag is not text: exporters would fail as a whole.
        ValueError: One of them is not valid Unicode, or the name of a tag is empty, likewise.
    """

    def __post_init__(self) -> None:
        texts = (self.name, self.group, self.description, *self.tags, *self.tags.values())
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(f"names and tags of a metric are text, not {text!r}")
            if utf8_size(text) < 0:
                raise ValueError(f"names and tags of a metric are valid Unicode, not {text!r}")
        if "" in self.tags:
            raise ValueError(f"a tag of the metric {self.name!r} has no name")
