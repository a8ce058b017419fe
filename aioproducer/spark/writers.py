"""The writers of batch jobs and of streams: Spark's calls for writes.

Spark pickles a writer into every task, and runs commit and abort in other processes on other
copies: all they need travels in the plan or in the tasks' messages.

Spark makes a stream's writer for each micro-batch and pickles it for the tasks, and makes others to
commit and abort; tasks get the batch number by a local property alone. So exactly once begins when
a writer is pickled: the only moment on the driver that comes once per batch and before its tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioproducer._checks.extras import required
from aioproducer.errors import IllegalStateError
from aioproducer.spark.plan import Epoch, SinkPlan, TaskPlace
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

_BATCH = "streaming.sql.batchId"
_QUERY = "sql.streaming.queryId"


@dataclass
class TaskMessage(WriterCommitMessage):
    """The report of a task to the driver."""

    report: TaskReport


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, plan: SinkPlan, reports: Any = None) -> None:
        self._plan = plan
        self._reports = reports

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Send the rows of one task; called on an executor."""
        return TaskMessage(write_task(self._plan, _this_task(), self._plan.epoch, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit: all tasks have succeeded."""
        freeze_modules()
        _add(self._reports, commit(self._plan, self._plan.epoch.epoch, _reports_of(messages)))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort: a task failed for good, or the commit did."""
        freeze_modules()
        _add(self._reports, abort(self._plan, self._plan.epoch.epoch, _reports_of(messages)))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def __init__(self, plan: SinkPlan, reports: Any = None) -> None:
        self._plan = plan
        self._is_begun = False
        self._reports = reports

    def __getstate__(self) -> dict[str, Any]:
        """Begin the epoch when Spark pickles the writer for the first of two times."""
        if not self._is_begun:
            self._plan, self._is_begun = self._plan.begun(), True
        return {**self.__dict__, "_reports": None}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Send the rows of one task of a micro-batch."""
        return TaskMessage(write_task(self._plan, _this_task(), _this_epoch(), iterator))

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Commit: all tasks of the batch have succeeded."""
        _add(self._reports, commit(self._plan, batchId, _reports_of(messages)))

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Abort: a task failed for good, or the commit did."""
        _add(self._reports, abort(self._plan, batchId, _reports_of(messages)))


def _add(reports: Any, report: QueryReport) -> None:
    """Add a report to the accumulator by which the driver gets it, if there is one."""
    if reports is not None:
        reports.add((report,))


def _reports_of(messages: list[WriterCommitMessage | None]) -> list[TaskReport | None]:
    """Return the reports of the tasks; None for one that sent none."""
    return [each.report if isinstance(each, TaskMessage) else None for each in messages]


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
    query = None if context is None else context.getLocalProperty(_QUERY)
    if batch is None or query is None:
        raise IllegalStateError("Spark gives this task no number of its micro-batch")
    return Epoch(int(batch), query)
