"""The one registry of a producer's metrics: what is counted, under the names of Java's client.

Owns: which metrics there are, with group, tags, kind and meaning; the application's own beside them
(KIP-1076). Must not know: who asks (`Producer.metrics`, exporters, telemetry).

Invariants: nothing is computed until somebody asks; the names are Java's where Java has the metric,
and rates, means and peaks are those of the last `metrics_num_samples` samples; a metric of the
application that raises is left out and named in the log once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from aioproducer import log
from aioproducer.core.transaction_operations import OperationKind
from aioproducer.errors import IllegalStateError
from aioproducer.metrics import ApplicationMetric, LiveMetric, Metric, MetricKind

if TYPE_CHECKING:
    from aioproducer.core.stats import ProducerStats, TopicStats
    from aioproducer.net.traffic import NodeTraffic
    from aioproducer.runtime.engine import ProducerEngine

PRODUCER, TOPIC, NODE, APPLICATION_INFO = (
    "producer-metrics",
    "producer-topic-metrics",
    "producer-node-metrics",
    "app-info",
)
_GAUGE, _COUNTER = MetricKind.GAUGE, MetricKind.COUNTER
_NS = 1_000_000_000

_log = log.get("runtime")


class _View(NamedTuple):
    """A producer at one moment."""

    engine: ProducerEngine
    now: float

    @property
    def stats(self) -> ProducerStats:
        return self.engine.stats

    @property
    def nodes(self) -> Iterator[NodeTraffic]:
        return iter(self.engine.client.traffic.nodes.values())

    def sum(self, total: str) -> float:
        return sum(float(getattr(node, total)) for node in self.nodes)

    def mean(self, total: str, count: str) -> float:
        return self.stats.mean(total, count, self.now)

    def mean_ms(self, total: str, count: str) -> float:
        return 1000 * self.mean(total, count)

    def peak_ms(self, name: str) -> float:
        return 1000 * self.stats.peak(name, self.now)

    def rate(self, total: str) -> float:
        return self.stats.rate(total, self.now)

    def node_rate(self, total: str) -> float:
        return sum(node.rate(total, self.now) for node in self.nodes)

    def connections(self, total: str) -> float:
        return self.engine.client.traffic.rate(total, self.now)

    def transaction_ns(self, kind: OperationKind) -> float:
        transactions = self.engine.transactions
        return 0.0 if transactions is None else transactions.seconds[kind] * _NS

    @property
    def in_flight(self) -> int:
        client = self.engine.client
        return sum(map(client.in_flight, self.engine.metadata.cluster.nodes))


class _Row(NamedTuple):
    """One metric of the producer as a whole."""

    name: str
    kind: MetricKind
    read: Callable[[_View], float]
    description: str

    def value(self, engine: ProducerEngine, now: float) -> float:
        return self.read(_View(engine, now))


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads one metric; equal to another that reads the same of the same subject."""

    subject: Any
    read: Callable[[Any, float], float]
    clock: Callable[[], float]

    def __call__(self) -> float:
        return float(self.read(self.subject, self.clock()))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _transaction_row(kind: OperationKind) -> _Row:
    name = kind.name.lower().replace("_", "-")
    return _Row(
        f"txn-{name}-time-ns-total",
        _COUNTER,
        lambda view: view.transaction_ns(kind),
        f"Time in {kind.value}(), in ns",
    )


_ROWS = (
    _Row(
        "batch-size-avg", _GAUGE, lambda v: v.mean("bytes_sent", "batches_sent"), "Bytes per batch"
    ),
    _Row(
        "batch-size-max", _GAUGE, lambda v: v.stats.peak("batch_size_max", v.now), "Largest batch"
    ),
    _Row("batch-total", _COUNTER, lambda v: v.stats.batches_sent, "Batches sent"),
    _Row("batch-byte-total", _COUNTER, lambda v: v.stats.bytes_sent, "Bytes of the batches sent"),
    _Row("batch-split-rate", _GAUGE, lambda v: v.rate("batches_split"), "Batches split per second"),
    _Row("batch-split-total", _COUNTER, lambda v: v.stats.batches_split, "Batches split"),
    _Row(
        "compression-rate-avg",
        _GAUGE,
        lambda v: v.mean("bytes_sent", "uncompressed_bytes"),
        "Size of batches after compression, as a part of that before",
    ),
    _Row(
        "record-queue-time-avg",
        _GAUGE,
        lambda v: v.mean_ms("queue_time", "batches_sent"),
        "How long batches were queued, in ms",
    ),
    _Row(
        "record-queue-time-max",
        _GAUGE,
        lambda v: v.peak_ms("queue_time_max"),
        "The longest time a batch was queued, in ms",
    ),
    _Row(
        "record-size-avg",
        _GAUGE,
        lambda v: v.mean("uncompressed_bytes", "records_sent"),
        "Bytes per record",
    ),
    _Row("record-send-rate", _GAUGE, lambda v: v.rate("records_sent"), "Records sent per second"),
    _Row("record-send-total", _COUNTER, lambda v: v.stats.records_appended, "Records accepted"),
    _Row(
        "record-acknowledged-total",
        _COUNTER,
        lambda v: v.stats.records_acknowledged,
        "Records acknowledged",
    ),
    _Row("record-retry-rate", _GAUGE, lambda v: v.rate("records_retried"), "Retries per second"),
    _Row("record-retry-total", _COUNTER, lambda v: v.stats.records_retried, "Records sent again"),
    _Row("record-error-rate", _GAUGE, lambda v: v.rate("records_failed"), "Failures per second"),
    _Row("record-error-total", _COUNTER, lambda v: v.stats.records_failed, "Records that failed"),
    _Row(
        "unretrieved-failure-total",
        _COUNTER,
        lambda v: v.stats.unretrieved_failures,
        "Failed records whose deliveries nobody looked at",
    ),
    _Row(
        "records-per-batch-avg",
        _GAUGE,
        lambda v: _ratio(v.stats.records_sent, v.stats.batches_sent),
        "Records per batch since the start",
    ),
    _Row(
        "records-per-request-avg",
        _GAUGE,
        lambda v: v.mean("records_sent", "requests_sent"),
        "Records per Produce request",
    ),
    _Row(
        "request-latency-avg",
        _GAUGE,
        lambda v: v.mean_ms("latency", "responses"),
        "How long Produce requests took, in ms",
    ),
    _Row(
        "request-latency-max",
        _GAUGE,
        lambda v: v.peak_ms("latency_max"),
        "The longest a Produce request took, in ms",
    ),
    _Row(
        "produce-throttle-time-avg",
        _GAUGE,
        lambda v: v.mean_ms("throttle_time", "responses"),
        "How long brokers throttled Produce requests, in ms",
    ),
    _Row(
        "produce-throttle-time-max",
        _GAUGE,
        lambda v: v.peak_ms("throttle_time_max"),
        "The longest a broker throttled a Produce request, in ms",
    ),
    _Row("requests-in-flight", _GAUGE, lambda v: v.in_flight, "Requests without an answer"),
    _Row("request-rate", _GAUGE, lambda v: v.node_rate("requests"), "Requests per second"),
    _Row("request-total", _COUNTER, lambda v: v.sum("requests"), "Requests sent"),
    _Row(
        "produce-request-total",
        _COUNTER,
        lambda v: v.stats.requests_sent,
        "Produce requests sent",
    ),
    _Row("response-rate", _GAUGE, lambda v: v.node_rate("responses"), "Answers per second"),
    _Row("response-total", _COUNTER, lambda v: v.sum("responses"), "Answers to all requests"),
    _Row("outgoing-byte-rate", _GAUGE, lambda v: v.node_rate("bytes_out"), "Bytes sent per second"),
    _Row("outgoing-byte-total", _COUNTER, lambda v: v.sum("bytes_out"), "Bytes of all requests"),
    _Row("incoming-byte-rate", _GAUGE, lambda v: v.node_rate("bytes_in"), "Bytes read per second"),
    _Row("incoming-byte-total", _COUNTER, lambda v: v.sum("bytes_in"), "Bytes of all answers"),
    _Row(
        "connection-creation-rate",
        _GAUGE,
        lambda v: v.connections("connections_created"),
        "Connections opened per second",
    ),
    _Row(
        "connection-creation-total",
        _COUNTER,
        lambda v: v.engine.client.traffic.connections_created,
        "Connections opened",
    ),
    _Row(
        "connection-close-rate",
        _GAUGE,
        lambda v: v.connections("connections_closed"),
        "Connections ended per second",
    ),
    _Row(
        "connection-close-total",
        _COUNTER,
        lambda v: v.engine.client.traffic.connections_closed,
        "Connections ended",
    ),
    _Row(
        "connection-count",
        _GAUGE,
        lambda v: v.engine.client.traffic.open_connections,
        "Connections that are open",
    ),
    _Row("buffer-total-bytes", _GAUGE, lambda v: v.engine.pool.total, "Memory for records"),
    _Row("buffer-available-bytes", _GAUGE, lambda v: v.engine.pool.available, "Memory left"),
    _Row(
        "buffer-exhausted-rate", _GAUGE, lambda v: v.rate("buffer_exhausted"), "Refusals per second"
    ),
    _Row(
        "buffer-exhausted-total",
        _COUNTER,
        lambda v: v.stats.buffer_exhausted,
        "Records refused because no memory became free in time",
    ),
    _Row("bufferpool-wait-total", _COUNTER, lambda v: v.stats.buffer_waits, "Waits for memory"),
    _Row(
        "bufferpool-wait-time-seconds-total",
        _COUNTER,
        lambda v: v.stats.buffer_wait_time,
        "Time with a wait for memory, in seconds",
    ),
    _Row(
        "bufferpool-wait-time-ns-total",
        _COUNTER,
        lambda v: v.stats.buffer_wait_time * _NS,
        "Time with a wait for memory, in ns",
    ),
    _Row(
        "bufferpool-wait-ratio",
        _GAUGE,
        lambda v: v.engine.buffer_wait_ratio(),
        "The part of the time in which somebody waited for memory",
    ),
    _Row(
        "waiting-threads", _GAUGE, lambda v: v.engine.appender.waiting, "Calls in line for memory"
    ),
    _Row(
        "flush-time-ns-total",
        _COUNTER,
        lambda v: v.stats.flush_time * _NS,
        "Time in flush(), in ns",
    ),
    _Row(
        "metadata-wait-time-ns-total",
        _COUNTER,
        lambda v: v.stats.metadata_wait_time * _NS,
        "Time in which calls waited for metadata, in ns",
    ),
    _Row(
        "metadata-age",
        _GAUGE,
        lambda v: max(0.0, v.now - v.engine.metadata.refreshed_at),
        "Seconds since the metadata were refreshed",
    ),
    _Row(
        "metadata-version", _GAUGE, lambda v: v.engine.metadata.version, "Version of the metadata"
    ),
    *map(_transaction_row, OperationKind),
)
"""Everything without tags; `record-send-total` counts acceptance, before the first attempt."""


def producer_values(engine: ProducerEngine | None) -> dict[str, float]:
    """The producer's own metrics by Java's names, dashes turned into underscores."""
    if engine is None:
        return {}
    view = _View(engine, engine.loop.time())
    return {row.name.replace("-", "_"): row.read(view) for row in _ROWS}


class MetricsRegistry:
    """All metrics of a producer, whether it runs or not."""

    def __init__(self) -> None:
        self._own: dict[object, ApplicationMetric] = {}
        self._broken: dict[object, None] = {}

    def register(self, metric: ApplicationMetric) -> None:
        """Adds a metric of the application; one with the same name and tags is replaced.

        Raises:
            IllegalStateError: its group belongs to the producer.
        """
        if metric.group in {PRODUCER, TOPIC, NODE, APPLICATION_INFO}:
            raise IllegalStateError(f"{metric.group} is the group of the producer's own metrics")
        self._own[metric.identity] = metric

    def unregister(self, metric: ApplicationMetric) -> None:
        """Takes it away; nothing happens if it is not there."""
        self._own.pop(metric.identity, None)

    def live(self, engine: ProducerEngine | None) -> Iterator[LiveMetric]:
        """Every metric there is now; equal to those of another call while nothing changes."""
        if engine is not None:
            yield from _of_engine(engine)
        yield from tuple(self._own.values())

    def collect(self, engine: ProducerEngine | None) -> list[Metric]:
        """Every metric with its value now."""
        collected = []
        for metric in self.live(engine):
            try:
                collected.append(metric.measured())
            except Exception:
                if metric.identity not in self._broken:
                    self._broken[metric.identity] = None
                    _log.exception("metric %s of the application raised", metric.name)
        return collected


def _of_engine(engine: ProducerEngine) -> Iterator[LiveMetric]:
    clock = engine.loop.time
    for row in _ROWS:
        yield LiveMetric(
            row.name, PRODUCER, _Reading(engine, row.value, clock), row.kind, row.description
        )
    for name, topic in engine.stats.topics.items():
        yield from _tagged(TOPIC, {"topic": name}, _TOPIC_ROWS, topic, clock)
    for node_id, node in engine.client.traffic.nodes.items():
        yield from _tagged(NODE, {"node-id": f"node-{node_id}"}, _NODE_ROWS, node, clock)
    yield LiveMetric(
        "start-time-ms",
        APPLICATION_INFO,
        _Reading(engine, _started_at_ms, clock),
        description="When it was started",
    )


def _started_at_ms(engine: ProducerEngine, now: float) -> float:
    return engine.started_at_ms


def _tagged(
    group: str,
    tags: Mapping[str, str],
    rows: Mapping[str, Callable[[Any, float], float]],
    subject: object,
    clock: Callable[[], float],
) -> Iterator[LiveMetric]:
    for name, read in rows.items():
        kind = _COUNTER if name.endswith("-total") else _GAUGE
        yield LiveMetric(name, group, _Reading(subject, read, clock), kind, tags=tags)


_TOPIC_ROWS: Mapping[str, Callable[[TopicStats, float], float]] = {
    "record-send-rate": lambda topic, now: topic.rate("records_sent", now),
    "record-send-total": lambda topic, now: topic.records_sent,
    "byte-rate": lambda topic, now: topic.rate("bytes_sent", now),
    "byte-total": lambda topic, now: topic.bytes_sent,
    "compression-rate": lambda topic, now: topic.mean("bytes_sent", "uncompressed_bytes", now),
    "record-retry-rate": lambda topic, now: topic.rate("records_retried", now),
    "record-retry-total": lambda topic, now: topic.records_retried,
    "record-error-rate": lambda topic, now: topic.rate("records_failed", now),
    "record-error-total": lambda topic, now: topic.records_failed,
}
_NODE_ROWS: Mapping[str, Callable[[NodeTraffic, float], float]] = {
    "request-rate": lambda node, now: node.rate("requests", now),
    "request-total": lambda node, now: node.requests,
    "request-size-avg": lambda node, now: node.mean("bytes_out", "requests", now),
    "request-size-max": lambda node, now: node.peak("request_size_max", now),
    "outgoing-byte-rate": lambda node, now: node.rate("bytes_out", now),
    "outgoing-byte-total": lambda node, now: node.bytes_out,
    "response-rate": lambda node, now: node.rate("responses", now),
    "response-total": lambda node, now: node.responses,
    "incoming-byte-rate": lambda node, now: node.rate("bytes_in", now),
    "incoming-byte-total": lambda node, now: node.bytes_in,
    "request-latency-avg": lambda node, now: 1000 * node.mean("latency", "responses", now),
    "request-latency-max": lambda node, now: 1000 * node.peak("latency_max", now),
}
