"""Metrics of a producer: a row per metric with its name and how it is read.

Nothing is computed until a metric is read. Names are those of Java's client, if it has the metric.
Rates, means and peaks are those of the last `metrics_num_samples` samples. Java's metrics of the
selector (`select-*`, `io-*`) are left out: the event loop belongs to the application.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aioproducer.core.transactions.operations import OperationKind
from aioproducer.metrics import MetricKind

if TYPE_CHECKING:
    import asyncio

    from aioproducer.core.batching.buffer_pool import BufferPool
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.metrics.totals import IOStats, NodeIOStats, ProducerStats, TopicStats
    from aioproducer.net.client import NetworkClient
    from aioproducer.runtime.send.appender import RecordAppender
    from aioproducer.runtime.tasks.transactions import TransactionTask

_NS = 1_000_000_000


class Measured(Protocol):
    """The parts of a started producer that its metrics are read from."""

    started_at_ms: int
    loop: asyncio.AbstractEventLoop
    stats: ProducerStats
    metadata: Metadata
    pool: BufferPool
    client: NetworkClient
    appender: RecordAppender
    transactions: TransactionTask | None

    def buffer_wait_ratio(self) -> float:
        """Return the part of the time since the start in which calls waited for memory."""


class _View(NamedTuple):
    """A producer at one moment."""

    engine: Measured
    now: float

    @property
    def stats(self) -> ProducerStats:
        return self.engine.stats

    @property
    def nodes(self) -> Iterator[NodeIOStats]:
        return iter(self.io_stats.nodes.values())

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

    @property
    def io_stats(self) -> IOStats:
        return self.engine.client.io_stats

    def connections(self, total: str) -> float:
        return self.io_stats.rate(total, self.now)

    def transaction_ns(self, kind: OperationKind) -> float:
        transactions = self.engine.transactions
        return 0.0 if transactions is None else transactions.seconds[kind] * _NS

    @property
    def in_flight(self) -> int:
        client = self.engine.client
        return sum(map(client.in_flight, self.engine.metadata.cluster.nodes))


class Row(NamedTuple):
    """One metric of a producer, a topic or a broker; `read(subject, now)` returns its value."""

    name: str
    read: Callable[[Any, float], float]
    kind: MetricKind
    description: str = ""


def _rows(reads: Mapping[str, Callable[[Any, float], float]]) -> list[Row]:
    return [Row(name, read, _kind_of(name)) for name, read in reads.items()]


def _row(name: str, read: Callable[[_View], float], description: str) -> Row:
    """Return a metric of the producer as a whole."""
    return Row(name, lambda engine, now: read(_View(engine, now)), _kind_of(name), description)


def _kind_of(name: str) -> MetricKind:
    return MetricKind.COUNTER if name.endswith("-total") else MetricKind.GAUGE


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _transaction_row(kind: OperationKind) -> Row:
    name = kind.name.lower().replace("_", "-")
    return _row(
        f"txn-{name}-time-ns-total",
        lambda view: view.transaction_ns(kind),
        f"Time in {kind.value}(), in ns",
    )


def _authentication_rows(name: str, total: str) -> tuple[Row, Row]:
    """Return the rows of authentications (KIP-368), by TLS or by SASL."""
    what = f"{name.replace('-', ' ')}s".capitalize()
    return (
        _row(f"{name}-rate", lambda v: v.connections(total), f"{what} per second"),
        _row(f"{name}-total", lambda v: getattr(v.io_stats, total), what),
    )


PRODUCER_ROWS = (
    _row("batch-size-avg", lambda v: v.mean("bytes_sent", "batches_sent"), "Bytes per batch"),
    _row("batch-size-max", lambda v: v.stats.peak("batch_size_max", v.now), "Largest batch"),
    _row("batch-total", lambda v: v.stats.batches_sent, "Batches sent"),
    _row("batch-byte-total", lambda v: v.stats.bytes_sent, "Bytes of the batches sent"),
    _row("batch-split-rate", lambda v: v.rate("batches_split"), "Batches split per second"),
    _row("batch-split-total", lambda v: v.stats.batches_split, "Batches split"),
    _row(
        "compression-rate-avg",
        lambda v: v.mean("bytes_sent", "uncompressed_bytes"),
        "Size of batches after compression, as a part of that before",
    ),
    _row(
        "record-queue-time-avg",
        lambda v: v.mean_ms("queue_time", "batches_sent"),
        "How long batches were queued, in ms",
    ),
    _row(
        "record-queue-time-max",
        lambda v: v.peak_ms("queue_time_max"),
        "The longest time a batch was queued, in ms",
    ),
    _row(
        "record-size-avg",
        lambda v: v.mean("uncompressed_bytes", "records_sent"),
        "Bytes per record",
    ),
    _row(
        "record-size-max",
        lambda v: v.stats.peak("record_size_max", v.now),
        "Largest record, in bytes before compression",
    ),
    _row("record-send-rate", lambda v: v.rate("records_sent"), "Records sent per second"),
    _row("record-send-total", lambda v: v.stats.records_appended, "Records accepted"),
    _row(
        "record-acknowledged-total", lambda v: v.stats.records_acknowledged, "Records acknowledged"
    ),
    _row("record-retry-rate", lambda v: v.rate("records_retried"), "Retries per second"),
    _row("record-retry-total", lambda v: v.stats.records_retried, "Records sent again"),
    _row("record-error-rate", lambda v: v.rate("records_failed"), "Failures per second"),
    _row("record-error-total", lambda v: v.stats.records_failed, "Records that failed"),
    _row(
        "unretrieved-failure-total",
        lambda v: v.stats.unretrieved_failures,
        "Failed records whose errors were not retrieved",
    ),
    _row(
        "records-per-batch-avg",
        lambda v: _ratio(v.stats.records_sent, v.stats.batches_sent),
        "Records per batch since the start",
    ),
    _row(
        "records-per-request-avg",
        lambda v: v.mean("records_sent", "requests_sent"),
        "Records per Produce request",
    ),
    _row(
        "request-latency-avg",
        lambda v: v.mean_ms("latency", "responses"),
        "How long Produce requests took, in ms",
    ),
    _row(
        "request-latency-max",
        lambda v: v.peak_ms("latency_max"),
        "The longest a Produce request took, in ms",
    ),
    _row(
        "produce-throttle-time-avg",
        lambda v: v.mean_ms("throttle_time", "responses"),
        "How long brokers throttled Produce requests, in ms",
    ),
    _row(
        "produce-throttle-time-max",
        lambda v: v.peak_ms("throttle_time_max"),
        "The longest a broker throttled a Produce request, in ms",
    ),
    _row("requests-in-flight", lambda v: v.in_flight, "Requests without an answer"),
    _row("request-rate", lambda v: v.node_rate("requests"), "Requests per second"),
    _row("request-total", lambda v: v.sum("requests"), "Requests sent"),
    _row("produce-request-total", lambda v: v.stats.requests_sent, "Produce requests sent"),
    _row(
        "request-size-avg",
        lambda v: _ratio(v.node_rate("bytes_out"), v.node_rate("requests")),
        "Bytes per request",
    ),
    _row(
        "request-size-max",
        lambda v: max((node.peak("request_size_max", v.now) for node in v.nodes), default=0.0),
        "Largest request",
    ),
    _row("response-rate", lambda v: v.node_rate("responses"), "Answers per second"),
    _row("response-total", lambda v: v.sum("responses"), "Answers to all requests"),
    _row(
        "network-io-rate",
        lambda v: v.node_rate("requests") + v.node_rate("responses"),
        "Requests and answers per second",
    ),
    _row(
        "network-io-total", lambda v: v.sum("requests") + v.sum("responses"), "Requests and answers"
    ),
    _row("outgoing-byte-rate", lambda v: v.node_rate("bytes_out"), "Bytes sent per second"),
    _row("outgoing-byte-total", lambda v: v.sum("bytes_out"), "Bytes of all requests"),
    _row("incoming-byte-rate", lambda v: v.node_rate("bytes_in"), "Bytes read per second"),
    _row("incoming-byte-total", lambda v: v.sum("bytes_in"), "Bytes of all answers"),
    _row(
        "connection-creation-rate",
        lambda v: v.connections("connections_created"),
        "Connections opened per second",
    ),
    _row(
        "connection-creation-total", lambda v: v.io_stats.connections_created, "Connections opened"
    ),
    _row(
        "connection-close-rate",
        lambda v: v.connections("connections_closed"),
        "Connections ended per second",
    ),
    _row("connection-close-total", lambda v: v.io_stats.connections_closed, "Connections ended"),
    _row("connection-count", lambda v: v.io_stats.open_connections, "Connections that are open"),
    *_authentication_rows("successful-authentication", "authentications"),
    *_authentication_rows("failed-authentication", "failed_authentications"),
    *_authentication_rows("successful-reauthentication", "renewals"),
    *_authentication_rows("failed-reauthentication", "failed_renewals"),
    _row(
        "successful-authentication-no-reauth-total",
        lambda v: v.io_stats.endless_authentications,
        "Authentications that a broker wants no renewal of",
    ),
    _row(
        "reauthentication-latency-avg",
        lambda v: 1000 * v.io_stats.mean("renewal_time", "renewals", v.now),
        "How long renewals of authentications took, in ms",
    ),
    _row(
        "reauthentication-latency-max",
        lambda v: 1000 * v.io_stats.peak("renewal_time_max", v.now),
        "The longest a renewal of an authentication took, in ms",
    ),
    _row("buffer-total-bytes", lambda v: v.engine.pool.total, "Memory for records"),
    _row("buffer-available-bytes", lambda v: v.engine.pool.available, "Memory left"),
    _row("buffer-exhausted-rate", lambda v: v.rate("buffer_exhausted"), "Refusals per second"),
    _row(
        "buffer-exhausted-total",
        lambda v: v.stats.buffer_exhausted,
        "Records refused because no memory became free in time",
    ),
    _row("bufferpool-wait-total", lambda v: v.stats.buffer_waits, "Waits for memory"),
    _row(
        "bufferpool-wait-time-seconds-total",
        lambda v: v.stats.buffer_wait_time,
        "Time with a wait for memory, in seconds",
    ),
    _row(
        "bufferpool-wait-time-ns-total",
        lambda v: v.stats.buffer_wait_time * _NS,
        "Time with a wait for memory, in ns",
    ),
    _row(
        "bufferpool-wait-ratio",
        lambda v: v.engine.buffer_wait_ratio(),
        "The part of the time in which calls waited for memory",
    ),
    _row("waiting-threads", lambda v: v.engine.appender.waiting, "Calls in line for memory"),
    _row("flush-time-ns-total", lambda v: v.stats.flush_time * _NS, "Time in flush(), in ns"),
    _row(
        "metadata-wait-time-ns-total",
        lambda v: v.stats.metadata_wait_time * _NS,
        "Time in which calls waited for metadata, in ns",
    ),
    _row(
        "metadata-age",
        lambda v: v.now - v.engine.metadata.answered_at,
        "Seconds since the metadata were refreshed",
    ),
    _row("metadata-version", lambda v: v.engine.metadata.version, "Version of the metadata"),
    *map(_transaction_row, OperationKind),
)
"""Metrics without tags; `record-send-total` counts accepted records, before the first attempt."""


def producer_values(engine: Measured | None) -> dict[str, float]:
    """Return the producer's own metrics by Java's names, with underscores instead of dashes."""
    if engine is None:
        return {}
    now = engine.loop.time()
    return {row.name.replace("-", "_"): row.read(engine, now) for row in PRODUCER_ROWS}


_TOPIC: Mapping[str, Callable[[TopicStats, float], float]] = {
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
_NODE: Mapping[str, Callable[[NodeIOStats, float], float]] = {
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
TOPIC_ROWS, NODE_ROWS = _rows(_TOPIC), _rows(_NODE)
INFO_ROWS = [
    Row("start-time-ms", lambda e, _: e.started_at_ms, MetricKind.GAUGE, "When it was started")
]
