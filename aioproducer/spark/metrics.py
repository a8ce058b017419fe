"""Metrics of micro-batches: for Prometheus, OpenTelemetry or any function.

    feed = prometheus_feed()                                 # or opentelemetry_feed()
    spark.streams.addListener(QueryMetrics(feed))            # format("aioproducer")
    batch_writer(options, on_batch=partial(feed, "orders"))  # foreachBatch

Spark counts the rows of a stream; `observed(frame)` makes it count the bytes as well. Retries and
dead letters are in the report of `batch_writer`, and in the log lines of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from aioproducer._checks.extras import needed, required
from aioproducer.spark.foreach import BatchReport

with required(__name__, "spark"):
    from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from prometheus_client import CollectorRegistry
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

__all__ = ["Feed", "QueryMetrics", "observed", "opentelemetry_feed", "prometheus_feed"]

Feed = Callable[[str, BatchReport], None]
"""Takes the name of a query, or its id, and what became of one of its micro-batches."""

OBSERVED: Final = "aioproducer"
"""What `observed` calls its metrics in `StreamingQueryProgress.observedMetrics`."""

_COUNTS: Final[Mapping[str, str]] = {
    "rows": "Rows written to Kafka.",
    "bytes": "Bytes of keys and values written to Kafka.",
    "retries": "Records sent again.",
    "dead_letters": "Rows written to the dead letter topic or path.",
}

_REASONS: Final = "Rows written to the dead letter topic or path, by the name of the error."


def observed(frame: DataFrame) -> DataFrame:
    """Let Spark count rows and bytes of keys and values that are text or binary.

    The counts are in the progress of the query, as `observedMetrics["aioproducer"]`.
    """
    from pyspark.sql import functions

    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    sizes = [
        functions.coalesce(functions.octet_length(name), functions.lit(0))
        for name in ("key", "value")
        if kinds.get(name) in {"string", "binary"}
    ]
    size = sum(sizes, functions.lit(0).cast("bigint"))
    return frame.observe(
        OBSERVED,
        functions.count(functions.lit(1)).alias("rows"),
        functions.coalesce(functions.sum(size), functions.lit(0)).alias("bytes"),
    )


class QueryMetrics(StreamingQueryListener):
    """Feeds the micro-batches of a session's queries, by the rows that Spark counts.

    Spark counts none for `foreachBatch`: give `batch_writer` its `on_batch`.

    Args:
        feed: Is called after each micro-batch.
        queries: The names of the queries; None for all.
    """

    def __init__(self, feed: Feed, *, queries: Collection[str] | None = None) -> None:
        super().__init__()
        self._feed = feed
        self._queries = queries
        self._fed: dict[str, int] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Do nothing: nothing is counted yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing: nothing was written."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Feed a micro-batch; Spark also reports times without one, by the last number."""
        progress = event.progress
        rows, run = progress.sink.numOutputRows, str(progress.runId)
        if self._queries is not None and progress.name not in self._queries:
            return
        if rows < 0 or self._fed.get(run) == progress.batchId:
            return
        self._fed[run] = progress.batchId
        counted = (progress.observedMetrics or {}).get(OBSERVED)
        self._feed(
            progress.name or str(progress.id),
            BatchReport(
                progress.batchId,
                by_driver=False,
                rows=rows,
                bytes=None if counted is None else counted["bytes"],
                retries=None,
                dead_letters=None,
                seconds=progress.durationMs.get("addBatch", 0) / 1000,
            ),
        )

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Remove the query."""
        self._fed.pop(str(event.runId), None)


def prometheus_feed(registry: CollectorRegistry | None = None) -> Feed:
    """Return a feed of counters and a histogram, `aioproducer_spark_...`, by `query`.

    Args:
        registry: Takes them; the default one if left out. A registry takes them once.
    """
    with needed("prometheus_client", "for prometheus_feed", install="aioproducer[metrics]"):
        import prometheus_client

    given = {"registry": registry} if registry is not None else {}
    make: Any = prometheus_client
    counters = {
        name: make.Counter(f"aioproducer_spark_{name}", text, ["query"], **given)
        for name, text in _COUNTS.items()
    }
    reasons = make.Counter(
        "aioproducer_spark_dead_letters_by_reason", _REASONS, ["query", "reason"], **given
    )
    seconds = make.Histogram(
        "aioproducer_spark_batch_seconds", "Time of a micro-batch.", ["query"], **given
    )

    def feed(query: str, report: BatchReport) -> None:
        for name, count in _counted(report):
            counters[name].labels(query).inc(count)
        for reason, count in (report.dead_letter_reasons or {}).items():
            reasons.labels(query, reason).inc(count)
        seconds.labels(query).observe(report.seconds)

    return feed


def opentelemetry_feed(provider: MeterProvider | None = None) -> Feed:
    """Return a feed of counters and a histogram, `aioproducer.spark...`, by `query`.

    Args:
        provider: Makes the meter; the global one if left out.
    """
    with needed("opentelemetry", "for opentelemetry_feed", install="aioproducer[otel]"):
        from opentelemetry import metrics

    meter = metrics.get_meter("aioproducer.spark", meter_provider=provider)
    counters = {
        name: meter.create_counter(f"aioproducer.spark.{name}", description=text)
        for name, text in _COUNTS.items()
    }
    reasons = meter.create_counter("aioproducer.spark.dead_letters_by_reason", description=_REASONS)
    seconds = meter.create_histogram(
        "aioproducer.spark.batch.duration", unit="s", description="Time of a micro-batch."
    )

    def feed(query: str, report: BatchReport) -> None:
        for name, count in _counted(report):
            counters[name].add(count, {"query": query})
        for reason, count in (report.dead_letter_reasons or {}).items():
            reasons.add(count, {"query": query, "reason": reason})
        seconds.record(report.seconds, {"query": query})

    return feed


def _counted(report: BatchReport) -> Iterator[tuple[str, int]]:
    for name in _COUNTS:
        count = getattr(report, name)
        if count is not None:
            yield name, count
