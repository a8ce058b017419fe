"""Metrics of micro-batches: for Prometheus, OpenTelemetry or any function.

    feed = prometheus_feed()                                 # or opentelemetry_feed()
    register(spark, metrics=QueryMetrics(feed))              # format("aioproducer")
    batch_writer(options, on_batch=partial(feed, "orders"))  # foreachBatch

Without `register(spark, metrics=...)`, and with Spark Connect, a listener gets what Spark counts:
rows, and bytes by `observed(frame)`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from aioproducer._checks.extras import needed, required
from aioproducer.spark.reports.epochs import BatchReport, new_reports, uncounted

with required(__name__, "spark"):
    from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from prometheus_client import CollectorRegistry
    from pyspark.sql import DataFrame, SparkSession
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

_COUNTERS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "rows": ("Rows written to Kafka.", ()),
    "bytes": ("Bytes of keys and values written to Kafka.", ()),
    "retries": ("Records sent again.", ()),
    "dead_letters": ("Rows written to the dead letter topic or path.", ()),
    "dead_letters_by_reason": (
        "Rows written to the dead letter topic or path, by the name of the error.",
        ("reason",),
    ),
    "transactions": (
        "Transactions of micro-batches: opened, prepared, committed, aborted, and in_doubt for "
        "those that were committed again.",
        ("state",),
    ),
    "batches_aborted": ("Micro-batches that failed, each of which ended its query.", ()),
}
"""The text of each counter, and its labels besides `query`."""
_SECONDS: Final = "Time of a micro-batch."
_DELIVERY: Final = "Time within which 99% of the records of a micro-batch were acknowledged."
_UNKNOWN_BATCH: Final = -1
"""The number of a micro-batch with which a query failed before any other."""


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
    """Feeds the micro-batches of a session's queries: `register(spark, metrics=QueryMetrics(...))`.

    As a mere listener it feeds what Spark counts. Spark counts nothing for `foreachBatch`: give
    `batch_writer` its `on_batch`.

    Args:
        feed: Is called after each micro-batch.
        queries: The names of the queries; None for all.
    """

    def __init__(self, feed: Feed, *, queries: Collection[str] | None = None) -> None:
        super().__init__()
        self._feed = feed
        self._queries = queries
        self._fed: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._last_ended = ""
        self._aborted: dict[str, BatchReport] = {}
        self._reports: Any = None

    def listen(self, spark: SparkSession) -> Any:
        """Add this listener to a session; return the accumulator for reports of its commits."""
        if self._reports is None:
            self._reports = new_reports(spark)
        spark.streams.addListener(self)
        return self._reports

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Keep the name of the query: the event of its end has none."""
        self._names[str(event.runId)] = event.name or str(event.id)

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
        report = BatchReport(
            progress.batchId,
            by_driver=False,
            rows=rows,
            bytes=None if counted is None else counted["bytes"],
            retries=None,
            dead_letters=None,
            seconds=progress.durationMs.get("addBatch", 0) / 1000,
        )
        query = str(progress.id)
        for each in reversed(self._reports_of(query)):
            if each.batch == progress.batchId and not each.is_aborted:
                size = each.bytes if report.bytes is None else report.bytes
                report = each._replace(bytes=size, seconds=report.seconds)
                break
        self._feed(progress.name or query, report)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Feed the micro-batch that the query has failed with, if it has; remove the query."""
        run, query = str(event.runId), str(event.id)
        if run == self._last_ended:  # a listener that was added twice gets each event twice
            return
        self._last_ended = run
        last = self._fed.pop(run, None)
        name = self._names.pop(run, query)
        if self._queries is not None and name not in self._queries:
            return
        known = self._reports_of(query)
        if known and known[-1].is_aborted and known[-1] is not self._aborted.get(query):
            self._aborted[query] = known[-1]
            self._feed(name, known[-1])
        elif event.exception is not None:  # no task has succeeded, or there are no reports
            batch = _UNKNOWN_BATCH if last is None else last + 1
            self._feed(name, uncounted(batch)._replace(is_aborted=True))

    def _reports_of(self, query: str) -> list[BatchReport]:
        """Return the reports of a query that are kept, the newest at the end."""
        kept = () if self._reports is None else self._reports.value
        return [each.report for each in kept if each.query == query]


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
        name: make.Counter(f"aioproducer_spark_{name}", text, ["query", *labels], **given)
        for name, (text, labels) in _COUNTERS.items()
    }
    seconds = make.Histogram("aioproducer_spark_batch_seconds", _SECONDS, ["query"], **given)
    delivery = make.Histogram(
        "aioproducer_spark_delivery_p99_seconds", _DELIVERY, ["query"], **given
    )

    def feed(query: str, report: BatchReport) -> None:
        for name, count, labels in _counted(report):
            counters[name].labels(query, *labels).inc(count)
        if (slowest := _p99(report)) is not None:
            delivery.labels(query).observe(slowest)
        if not report.is_aborted:
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
        for name, (text, _) in _COUNTERS.items()
    }
    seconds = meter.create_histogram(
        "aioproducer.spark.batch.duration", unit="s", description=_SECONDS
    )
    delivery = meter.create_histogram(
        "aioproducer.spark.delivery.p99", unit="s", description=_DELIVERY
    )

    def feed(query: str, report: BatchReport) -> None:
        for name, count, labels in _counted(report):
            named = zip(_COUNTERS[name][1], labels, strict=True)
            counters[name].add(count, {"query": query, **dict(named)})
        if (slowest := _p99(report)) is not None:
            delivery.record(slowest, {"query": query})
        if not report.is_aborted:
            seconds.record(report.seconds, {"query": query})

    return feed


def _counted(report: BatchReport) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Yield the counts that are known, each with the values of its labels."""
    for name in ("rows", "bytes", "retries", "dead_letters"):
        if (count := getattr(report, name)) is not None:
            yield name, count, ()
    for reason, count in (report.dead_letter_reasons or {}).items():
        yield "dead_letters_by_reason", count, (reason,)
    if report.transactions is not None:
        for state, count in report.transactions._asdict().items():
            yield "transactions", count, (state,)
    yield "batches_aborted", int(report.is_aborted), ()


def _p99(report: BatchReport) -> float | None:
    """Return the seconds within which 99% of the records were acknowledged."""
    return None if report.delivery_times is None else report.delivery_times.percentile(0.99)
