"""The writers of batch jobs and of streams: Spark's calls for writes.

Spark pickles a writer into every task, and runs commit and abort in other processes on other
copies: all they need travels in the plan or in the tasks' messages.

Spark makes a stream's writer for each micro-batch and pickles it for the tasks, and makes others to
commit and abort; tasks get the batch number by a local property alone. So exactly once begins when
a writer is pickled: the only moment on the driver that comes once per batch and before its tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioproducer._checks.extras import required
from aioproducer.errors import IllegalStateError
from aioproducer.spark.plan import QUERY_ID, Epoch, SinkPlan, TaskPlace
from aioproducer.spark.task import abort, commit, freeze_modules, write_task

with required(__name__, "spark"):
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceStreamArrowWriter,
        WriterCommitMessage,
    )

if TYPE_CHECKING:
    import pyarrow as pa

    from aioproducer.spark.reports.epochs import QueryReport
    from aioproducer.spark.reports.tasks import TaskReport

_End = Callable[["SinkPlan", int, Sequence["TaskReport | None"]], "QueryReport"]
_BATCH = "streaming.sql.batchId"


@dataclass
class TaskMessage(WriterCommitMessage):
    """The report of a task to the driver."""

    report: TaskReport


class _Writer:
    """The common part of both writers; `reports` is the accumulator for the driver, if any."""

    def __init__(self, plan: SinkPlan, reports: Any = None) -> None:
        self._plan = plan
        self._reports = reports

    def _end(self, end: _End, epoch: int, messages: list[WriterCommitMessage | None]) -> None:
        """Commit or abort, and report it; a task that sent no message has no report."""
        tasks = [each.report if isinstance(each, TaskMessage) else None for each in messages]
        report = end(self._plan, epoch, tasks)
        if self._reports is not None:
            self._reports.add((report,))


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a DataFrame."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Send the rows of one task; called on an executor."""
        return TaskMessage(write_task(self._plan, _this_task(), self._plan.epoch, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit: all tasks have succeeded."""
        freeze_modules()
        self._end(commit, self._plan.epoch.epoch, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort: a task failed for good, or the commit did."""
        freeze_modules()
        self._end(abort, self._plan.epoch.epoch, messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    _is_begun: bool = False

    def __getstate__(self) -> dict[str, Any]:
        """Begin the epoch when Spark pickles the writer for the first of two times."""
        if not self._is_begun:
            self._plan, self._is_begun = self._plan.begun(), True
        return {**self.__dict__, "_reports": None}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Send the rows of one task of a micro-batch."""
        return TaskMessage(write_task(self._plan, _this_task(), _this_epoch(), iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit: all tasks of the batch have succeeded."""
        self._end(commit, batchId, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort: a task failed for good, or the commit did."""
        self._end(abort, batchId, messages)


def _this_task() -> TaskPlace:
    """Return the number of the running task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:  # a driver that calls the writer by itself
        return TaskPlace(0, 0)
    return TaskPlace(context.partitionId(), context.attemptNumber())


def _this_epoch() -> Epoch:
    from pyspark import TaskContext

    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty(_BATCH)
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    if batch is None or query is None:
        raise IllegalStateError("Spark gives this task no number of its micro-batch")
    return Epoch(int(batch), query)
