"""The PySpark data source `aioproducer`: DataFrames and streams into Kafka, and topics read back.

    spark.dataSource.register(AioproducerSource), that is aioproducer.spark.register(spark)
    driver    options.py, columns/     refuse what cannot work, before any task starts
              exactly_once/            one decision for all tasks
    executor  pool.py                  producers that outlive tasks
              sending.py               record batches into `send_arrow`'s encoder
              task.py                  one task: what it sends, what it reports

PySpark is imported by `source.py`, `writers.py`, `reader.py` and `metrics.py` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakSet

from aioproducer._util.lazy import lazy_names
from aioproducer._util.secrets import hides_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from aioproducer.spark.foreach import batch_writer as batch_writer
    from aioproducer.spark.metrics import QueryMetrics
    from aioproducer.spark.reports.epochs import BatchReport as BatchReport
    from aioproducer.spark.reports.epochs import TransactionCounts as TransactionCounts
    from aioproducer.spark.rows import RowError as RowError
    from aioproducer.spark.source import AioproducerSource as AioproducerSource

_NAMES = {
    "foreach": "batch_writer",
    "reports.epochs": "BatchReport TransactionCounts",
    "rows": "RowError",
    "source": "AioproducerSource",
}

__all__ = [name for names in ("register", *_NAMES.values()) for name in names.split()]

REGISTERED: WeakSet[SparkSession] = WeakSet()
"""The sessions that `register` was called for."""


@hides_arguments
def register(
    spark: SparkSession,
    *,
    options: Mapping[str, str] | None = None,
    metrics: QueryMetrics | None = None,
) -> None:
    """Make `format("aioproducer")` known to a session, Spark Connect's too.

    Spark finds the installed package by itself as well, unless one of all modules named `pyspark_*`
    cannot be imported; this call works always.

    Args:
        options: hold for all reads, writes and tables of the session that have no others, such as
            `{"kafka.bootstrap.servers": "localhost:9092"}`. Secrets belong into environment
            variables (`kafka.sasl.password.env`).
        metrics: is added to the listeners of the session, and feeds retries, delivery times, dead
            letters and transactions of the micro-batches of queries that start after this call.
            With Spark Connect it feeds what Spark counts.
    """
    from aioproducer.spark.source import AioproducerSource

    REGISTERED.add(spark)
    if not options and metrics is None:
        spark.dataSource.register(AioproducerSource)
        return

    lower = {name.lower(): value for name, value in (options or {}).items()}
    made = None if metrics is None else metrics.listen(spark)

    class Registered(AioproducerSource):
        defaults: ClassVar[Mapping[str, str]] = lower
        reports: ClassVar[Any] = made

    spark.dataSource.register(Registered)


if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__ = lazy_names(__name__, _NAMES)
