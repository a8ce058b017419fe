"""A function for `foreachBatch`, for what Spark does not let Python sinks do by themselves.

Owns: the calls that write one micro-batch as a batch job. Must not know: how it is written. Streams
in `outputMode("update")` take this way: Spark refuses them for Python sinks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aioproducer.errors import ConfigError
from aioproducer.spark.options import Guarantee, SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def batch_writer(
    options: Mapping[str, str], *, query: str | None = None
) -> Callable[[DataFrame, int], None]:
    """What `df.writeStream.foreachBatch(...)` takes: it writes each micro-batch to Kafka.

    With `delivery.guarantee=exactly-once` each micro-batch is a job of its own, and one that Spark
    runs again after a crash writes nothing. Spark must then give the batches of a checkpoint the
    same numbers, which it does; a new checkpoint needs another `query`.

    Args:
        options: those of `df.write.format("aioproducer")`.
        query: names the query, together with its checkpoint; exactly once needs it.

    Raises:
        ConfigError: an option cannot work, or exactly once is asked for without a `query`.

    Example:
        >>> counts.writeStream.outputMode("update").foreachBatch(
        ...     batch_writer({"kafka.bootstrap.servers": "localhost:9092", "topic": "counts"})
        ... )
    """
    parsed = SourceOptions.parse(options, "write")
    exactly_once = parsed.guarantee is Guarantee.EXACTLY_ONCE
    if exactly_once and not query:
        raise ConfigError("delivery.guarantee=exactly-once needs the argument query")
    if "job.id" in parsed.own:
        raise ConfigError("job.id cannot be given: each micro-batch is a job of its own")

    def write(frame: DataFrame, batch: int) -> None:
        writer = frame.write.format("aioproducer").mode("append").options(**options)
        if exactly_once:
            writer = writer.option("job.id", f"{query}/{batch}")
        writer.save()

    return write
