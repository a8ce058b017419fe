"""The writer of streams.

Owns: Spark's calls for micro-batches; which epoch a task works for. Not here: how rows are
sent.

Spark makes a writer for each micro-batch and pickles it for the tasks, and makes others to commit
and abort; tasks get the batch number by a local property alone. So exactly once begins when a
writer is pickled: the only moment on the driver that comes once per batch and before its tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from aioproducer.errors import IllegalStateError
from aioproducer.spark.plan import Epoch
from aioproducer.spark.source import TaskMessage, reports_of, this_task
from aioproducer.spark.task import abort, commit, write_task

if TYPE_CHECKING:
    import pyarrow as pa

    from aioproducer.spark.plan import SinkPlan

_BATCH = "streaming.sql.batchId"
_QUERY = "sql.streaming.queryId"


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan
        self._is_begun = False

    def __getstate__(self) -> dict[str, Any]:
        """Spark pickles a writer twice, in the function of the tasks and by itself."""
        if not self._is_begun:
            self._plan, self._is_begun = self._plan.begun(), True
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Send the rows of one task of a micro-batch."""
        return TaskMessage(write_task(self._plan, this_task(), _this_epoch(), iterator))

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Commit: all tasks of the batch have succeeded."""
        commit(self._plan, batchId, reports_of(messages))

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Abort: a task failed for good, or the commit did."""
        abort(self._plan, batchId, reports_of(messages))


def _this_epoch() -> Epoch:
    from pyspark import TaskContext

    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty(_BATCH)
    query = None if context is None else context.getLocalProperty(_QUERY)
    if batch is None or query is None:
        raise IllegalStateError("Spark gives this task no number of its micro-batch")
    return Epoch(int(batch), query)
