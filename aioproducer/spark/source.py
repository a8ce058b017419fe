"""The data source as PySpark sees it, and the writer of batch jobs.

Owns: Spark's calls for batch writes, what is refused on the driver. Must not know: how rows are
sent. It is imported in every session that looks for data sources, so it imports PySpark's own
module and nothing else that costs.

Spark pickles a writer into every task, and runs commit and abort in other processes on other
copies: whatever they need travels in the plan or in the tasks' messages.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioproducer._extras import required

with required(__name__, "spark"):
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        WriterCommitMessage,
    )

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from aioproducer.spark.plan import SinkPlan, TaskPlace
    from aioproducer.spark.task import TaskReport


class AioproducerSource(DataSource):
    """`format("aioproducer")`: DataFrames and streams into Kafka, and topics read back."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given: dict[str, str] = dict(options)

    @classmethod
    def name(cls) -> str:
        """What `format()` is given."""
        return "aioproducer"

    def schema(self) -> str:
        """The columns of a read."""
        from aioproducer.spark.options import SourceOptions
        from aioproducer.spark.reader import columns_read

        return columns_read(SourceOptions.parse(self._given, "read"))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a topic from some offsets to others; for verification and backfills."""
        from aioproducer.spark.options import SourceOptions
        from aioproducer.spark.reader import TopicReader

        return TopicReader(SourceOptions.parse(self._given, "read"), schema.fieldNames())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Checks options and columns; Spark calls it once per write, before any task.

        Raises:
            ConfigError: an option cannot work, or `mode("overwrite")` was asked for.
            SerializationError: a column cannot be sent.
            KafkaError: exactly once could not begin.
        """
        from aioproducer.spark.plan import SinkPlan

        plan = SinkPlan.of_batch(self._given, _fields(schema), overwrite=overwrite)
        return BatchWriter(plan.begun())

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """As `writer`; Spark calls it for each micro-batch, and again to commit or abort it."""
        from aioproducer.spark.plan import SinkPlan
        from aioproducer.spark.streaming import StreamWriter

        return StreamWriter(SinkPlan.of_stream(self._given, _fields(schema), overwrite=overwrite))


def _fields(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


@dataclass
class TaskMessage(WriterCommitMessage):
    """What a task tells the driver."""

    report: TaskReport


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Sends the rows of one task."""
        from aioproducer.spark.plan import JOB
        from aioproducer.spark.task import write_task

        return TaskMessage(write_task(self._plan, this_task(), JOB, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have succeeded."""
        from aioproducer.spark.plan import JOB
        from aioproducer.spark.task import commit

        commit(self._plan, JOB.epoch, reports_of(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task failed for good, or the commit did."""
        from aioproducer.spark.plan import JOB
        from aioproducer.spark.task import abort

        abort(self._plan, JOB.epoch, reports_of(messages))


def reports_of(messages: list[WriterCommitMessage | None]) -> list[TaskReport | None]:
    """The reports of the tasks; None for one that sent none."""
    return [each.report if isinstance(each, TaskMessage) else None for each in messages]


def this_task() -> TaskPlace:
    """The task this runs in."""
    from pyspark import TaskContext

    from aioproducer.spark.plan import TaskPlace

    context = TaskContext.get()
    if context is None:  # a driver that calls the writer by itself
        return TaskPlace(0, 0)
    return TaskPlace(context.partitionId(), context.attemptNumber())
