"""A function for `foreachBatch`: small micro-batches by the driver itself, large ones by tasks.

Streams in `outputMode("update")` take this way, since Spark refuses them for Python sinks, and
streams of small micro-batches, which cost a fraction of a data source's here.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from aioproducer._checks.callables import refuse_coroutine_function
from aioproducer._util import log
from aioproducer._util.secrets import hides_arguments
from aioproducer.errors import ConfigError, IllegalStateError
from aioproducer.runtime.native import missing_core, warn_once
from aioproducer.spark.options import Guarantee, SourceOptions
from aioproducer.spark.reports.epochs import (
    BatchReport,
    QueryReport,
    new_reports,
    report_of,
    uncounted,
)
from aioproducer.spark.wording import option_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from aioproducer.spark.direct import DirectEpochs
    from aioproducer.spark.reports.tasks import TaskReport

_LOG: Final = log.get("spark")

MAX_ROWS: Final = 10_000
"""Rows of the largest micro-batch that the driver writes itself."""
MAX_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the Arrow columns of such a micro-batch."""
_NAME: Final = "aioproducer"
_LARGEST_RESULT: Final = "is bigger than spark.driver.maxResultSize"
_LONGEST_PAUSE: Final = 64
"""Micro-batches after which the driver tries again, at most, once they have become too large."""


@hides_arguments
def batch_writer(
    options: Mapping[str, str],
    *,
    query: str | None = None,
    max_rows: int = MAX_ROWS,
    max_bytes: int = MAX_BYTES,
    on_batch: Callable[[BatchReport], None] | None = None,
) -> Callable[[DataFrame, int], None]:
    """Return a function for `df.writeStream.foreachBatch(...)` that writes micro-batches to Kafka.

    Up to `max_rows` and `max_bytes` the driver writes a micro-batch itself, by a producer that
    stays connected; larger ones are written by tasks. With `delivery.guarantee=exactly-once`, a
    written micro-batch that Spark runs again after a crash is skipped, by its number. So a new
    checkpoint, which numbers from 0 again, needs another `query`. So does each further writer of a
    stream: a micro-batch is written once per `query` and `topic`, and other rows of it raise
    `IllegalStateError`.

    Args:
        options: those of `df.write.format("aioproducer")`; values may be numbers and
            booleans, as there.
        query: names the query, together with its checkpoint; exactly once needs it.
        max_rows: rows of the largest micro-batch that the driver writes; 0 for none.
        max_bytes: bytes of the same.
        on_batch: called after each micro-batch, for metrics.

    Raises:
        ConfigError: an option cannot work, or exactly once is asked for without a `query`.

    Examples:
        >>> counts.writeStream.outputMode("update").foreachBatch(
        ...     batch_writer({"kafka.bootstrap.servers": "localhost:9092", "topic": "counts"})
        ... )
    """
    refuse_coroutine_function("on_batch", on_batch)
    parsed = SourceOptions.parse(options, "write")
    exactly_once = parsed.guarantee is Guarantee.EXACTLY_ONCE
    if exactly_once and not query:
        raise ConfigError("delivery.guarantee=exactly-once needs the argument query")
    for name in ("job.id", "job.epoch"):
        if name in parsed.own:
            raise ConfigError(f"{name} cannot be given: each micro-batch is its own job")
    job = query if exactly_once else None
    return _BatchWriter(dict(options), parsed, job, (max_rows, max_bytes), on_batch)


_last_of: dict[tuple[str | None, ...], tuple[DataFrame, int, str | None]] = {}
"""The last micro-batch of each query, whichever of its writers has written it, and Spark's id."""


class _BatchWriter:
    """See `batch_writer`; it pickles for Spark Connect, without its connections."""

    def __init__(
        self,
        options: dict[str, str],
        parsed: SourceOptions,
        job: str | None,
        bounds: tuple[int, int],
        on_batch: Callable[[BatchReport], None] | None,
    ) -> None:
        self._options = options
        self._parsed = parsed
        self._job = job
        self._id = str(uuid.uuid4())
        self._bounds = bounds
        self._on_batch = on_batch
        self._direct: DirectEpochs | None = None
        own = parsed.own.get("transactional.id.prefix")
        self._query = (job, parsed.topic, own, parsed.kafka.get("bootstrap.servers"))
        self._source = _ReportingSource()
        self._pause = 0
        """How many micro-batches tasks write before the driver tries again."""
        self._last_pause = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_direct": None, "_source": _ReportingSource()}

    def __call__(self, frame: DataFrame, batch: int) -> None:
        if self._job is not None:
            self._refuse_other_rows(frame, batch)
        began = time.monotonic()
        report = self._by_driver(frame, batch) if self._may_try() else None
        if report is None:
            report = self._by_tasks(frame, batch)
        report = report._replace(seconds=time.monotonic() - began)
        if self._job is not None:
            _last_of[self._query] = frame, batch, _query_id(frame)
        if self._on_batch is not None:
            self._on_batch(report)

    def _refuse_other_rows(self, frame: DataFrame, batch: int) -> None:
        """Refuse other rows of a micro-batch that is written: they would be skipped."""
        last, written, query = _last_of.get(self._query, (frame, None, None))
        if written != batch:
            return
        # A query that is started again has another session, and other plans for the same rows.
        if _is_one_session(frame, last):
            has_other_rows = not frame.sameSemantics(last)
        else:
            has_other_rows = _query_id(frame) != query
        if has_other_rows:
            raise IllegalStateError(
                f"micro-batch {batch} of query {self._job!r} is written already, and a second call "
                "with other rows of it would write nothing",
                advice="use another batch_writer, with another query, for these rows",
            )

    def _may_try(self) -> bool:
        if self._pause:
            self._pause -= 1
        return not self._pause and self._bounds[0] > 0

    def _by_driver(self, frame: DataFrame, batch: int) -> BatchReport | None:
        """Write a micro-batch here; None if it is too large."""
        max_rows, max_bytes = self._bounds
        table = _collected(frame, max_rows + 1)
        if table is None or table.num_rows > max_rows or table.nbytes > max_bytes:
            self._last_pause = min(max(1, 2 * self._last_pause), _LONGEST_PAUSE)
            self._pause = self._last_pause
            return None
        self._last_pause = 0
        with option_errors(self._parsed.kafka):
            report = self._written(frame, batch, table.to_batches())
        warn_once(_LOG, missing_core())
        if report is None:
            _LOG.warning(
                "epoch %d of query %r is in Kafka already, nothing was written; if the checkpoint "
                "is new, give another query",
                batch,
                self._job,
            )
            return BatchReport(batch, True, 0, 0, 0, 0, 0.0, {})
        _LOG.info(
            "epoch %d written by the driver: %d rows, %d bytes", batch, report.rows, report.bytes
        )
        return report_of(batch, [report], None).report._replace(by_driver=True)

    @hides_arguments
    def _written(self, frame: DataFrame, batch: int, batches: list[Any]) -> TaskReport | None:
        from aioproducer.spark.direct import DirectEpochs
        from aioproducer.spark.plan import JOB, SinkPlan, TaskPlace
        from aioproducer.spark.task import write_task

        fields = [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]
        plan = SinkPlan.of_batch(self._options | self._names(batch), fields, overwrite=False)
        if self._job is None:
            return write_task(plan, TaskPlace(0, 0), JOB, iter(batches))
        if self._direct is None:
            self._direct = DirectEpochs()
        return self._direct.write(plan, plan.epoch, batches)

    def _by_tasks(self, frame: DataFrame, batch: int) -> BatchReport:
        if self._direct is not None:
            self._direct.leave()
        name = self._source.format_for(frame.sparkSession)
        writer = frame.write.format(name).mode("append").options(**self._options)
        writer.options(**self._names(batch)).save()
        found = self._source.last()
        return uncounted(batch) if found is None else found.report._replace(batch=batch)

    def _names(self, batch: int) -> dict[str, str]:
        """Return the options that name the micro-batch, or the producers of all of them."""
        if self._job is not None:
            return {"job.id": self._job, "job.epoch": str(batch)}
        if self._parsed.guarantee is Guarantee.TASK_TRANSACTIONS:
            # Else each micro-batch would have new producers, and brokers keep their ids for days.
            # Queries that share this function call it in different threads at the same time.
            return {"job.id": f"{self._id}/{threading.get_ident()}"}
        return {}


def _query_id(frame: DataFrame) -> str | None:
    """Return Spark's id of the running query, which its checkpoint keeps; None with Connect."""
    from aioproducer.spark.plan import QUERY_ID

    context = getattr(frame.sparkSession, "sparkContext", None)
    return None if context is None else context.getLocalProperty(QUERY_ID)


def _is_one_session(frame: DataFrame, other: DataFrame) -> bool:
    """Return whether two DataFrames have one session, which has a new Python object for each."""
    one, two = (
        getattr(each.sparkSession, "_jsparkSession", each.sparkSession) for each in (frame, other)
    )
    # Names of objects in a JVM that has ended mean other objects in the next one.
    jvms = {id(getattr(each, "_gateway_client", None)) for each in (one, two)}
    return len(jvms) == 1 and bool(one == two)


def _collected(frame: DataFrame, rows: int) -> pa.Table | None:
    """Return the first rows; None if they are more bytes than Spark lets a driver have."""
    try:
        return frame.limit(rows).toArrow()
    except Exception as error:
        if _LARGEST_RESULT not in str(error):
            raise
        return None


class _ReportingSource:
    """The data source under a name by which its commits report to one batch writer."""

    def __init__(self) -> None:
        self._name = f"{_NAME}_{uuid.uuid4().hex}"
        self._session: Any = None
        self._reports: Any = None
        self._last: QueryReport | None = None

    def format_for(self, spark: SparkSession) -> str:
        """Return the name for `format()`; with Spark Connect that of the source without reports."""
        session = getattr(spark, "_jsparkSession", None)
        if session is None:
            return _NAME
        # Each run of a query has another session, and sources are registered in one.
        if self._session != session:
            self._register(spark)
            self._session = session
        return self._name

    def _register(self, spark: SparkSession) -> None:
        from aioproducer.spark.source import AioproducerSource

        made, named = new_reports(spark), self._name

        class Reporting(AioproducerSource):
            reports: ClassVar[Any] = made

            @classmethod
            def name(cls) -> str:
                return named

        spark.dataSource.register(Reporting)
        self._reports = made

    def last(self) -> QueryReport | None:
        """Return the report of the commit that came last; None if it has not reported."""
        kept = () if self._reports is None else self._reports.value
        if not kept or kept[-1] is self._last:
            return None
        self._last = kept[-1]
        return self._last
