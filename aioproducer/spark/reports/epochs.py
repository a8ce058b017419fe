"""Reports of micro-batches, from the process that commits them to the driver's Python.

Spark commits in a worker process beside the driver. What this process adds to an accumulator of the
session has reached the driver when Spark reports the progress of the micro-batch.
`register(spark, metrics=...)` makes such an accumulator (`new_reports`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.metrics.totals import DurationCounts
from aioproducer.spark.exactly_once.attempts import NOTHING_SETTLED, Settled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aioproducer.spark.reports.tasks import TaskReport

_KEPT: Final = 512
"""The newest reports that the driver keeps, those of all queries."""


class TransactionCounts(NamedTuple):
    """The transactions of a micro-batch, and those that were found open beside them.

    Attributes:
        opened: Transactions that the tasks have written to; none of attempts that failed.
        prepared: Those of them that were left open for the commit, with `exactly-once`.
        committed: Those of them that were committed.
        aborted: Those of them that were aborted, and open ones of attempts that failed, of an
            earlier driver or of a micro-batch that was given up.
        in_doubt: Transactions of a decision that were committed again: whether all commits were
            done was not known. Usually they are those of an earlier micro-batch.
    """

    opened: int = 0
    prepared: int = 0
    committed: int = 0
    aborted: int = 0
    in_doubt: int = 0


class BatchReport(NamedTuple):
    """The result of a micro-batch.

    Attributes:
        batch: Its number; -1 if a query failed with its first one.
        by_driver: Whether the driver has written it itself. If not, tasks have. Of theirs,
            `batch_writer` gets no counts with Spark Connect: those below are None then, and in the
            workers' logs.
        rows: Rows that were written; 0 also where the micro-batch was in Kafka already.
        bytes: Bytes of the Arrow columns.
        retries: Records that were sent again.
        dead_letters: Rows that went to `dead.letter.topic` or `dead.letter.path`.
        seconds: How long the call took.
        dead_letter_reasons: Those rows by the name of the error, such as `RecordTooLargeError`.
        delivery_times: Records by the time from their append to their acknowledgement.
        transactions: The transactions of tasks; None without any.
        is_aborted: Whether it was given up; `rows` and `bytes` are None then, and `seconds` is 0.
    """

    batch: int
    by_driver: bool
    rows: int | None
    bytes: int | None
    retries: int | None
    dead_letters: int | None
    seconds: float
    dead_letter_reasons: Mapping[str, int] | None = None
    delivery_times: DurationCounts | None = None
    transactions: TransactionCounts | None = None
    is_aborted: bool = False


class QueryReport(NamedTuple):
    """A micro-batch that a query has committed or given up; `query` is None without any task."""

    query: str | None
    report: BatchReport


def uncounted(batch: int) -> BatchReport:
    """Return the report of a micro-batch of which nothing else is known."""
    return BatchReport(batch, False, None, None, None, None, 0.0)


def report_of(
    epoch: int,
    tasks: Sequence[TaskReport],
    transactions: TransactionCounts | None,
    *,
    is_aborted: bool = False,
) -> QueryReport:
    """Return the sum of the reports of tasks."""
    letters = sum((each.dead_letters for each in tasks), Counter[str]())
    report = BatchReport(
        epoch,
        by_driver=False,
        rows=None if is_aborted else sum(each.rows for each in tasks),
        bytes=None if is_aborted else sum(each.bytes for each in tasks),
        retries=sum(each.retries for each in tasks),
        dead_letters=letters.total(),
        seconds=0.0,
        dead_letter_reasons=dict(letters),
        delivery_times=counts_of(*(each.deliveries for each in tasks)),
        transactions=transactions,
        is_aborted=is_aborted,
    )
    return QueryReport(next((each.query for each in tasks), None), report)


def transactions_of(
    tasks: Sequence[TaskReport], prepared: int, committed: int, settled: Settled = NOTHING_SETTLED
) -> TransactionCounts:
    """Count the transactions of tasks.

    `settled` are those that commit or abort has ended; those of the plan are in the reports.
    """
    planned = next((each.settled for each in tasks), NOTHING_SETTLED)
    opened = sum(each.transactions for each in tasks)
    replaced = sum(max(0, each.transactions - 1) for each in tasks)
    return TransactionCounts(
        opened,
        prepared,
        committed,
        replaced + planned.aborted + settled.aborted,
        planned.recommitted + settled.recommitted,
    )


def added(before: DurationCounts, after: DurationCounts) -> dict[int, int]:
    """Return the durations that were added between two snapshots, by bucket; without empty ones."""
    counts = after.since(before).counts
    return {bucket: count for bucket, count in enumerate(counts) if count}


def counts_of(*added: Mapping[int, int]) -> DurationCounts:
    """Return the sum of durations by bucket."""
    counts = list(DurationCounts().counts)
    for each in added:
        for bucket, count in each.items():
            counts[bucket] += count
    return DurationCounts(tuple(counts))


# -- to the driver ---------------------------------------------------------------------------------


class LastReports:
    """The last reports, as the value of a PySpark accumulator (`AccumulatorParam`)."""

    def zero(self, value: tuple[QueryReport, ...]) -> tuple[QueryReport, ...]:
        """Return the value that a process begins with."""
        return ()

    def addInPlace(  # noqa: N802 - PySpark's name
        self, value1: tuple[QueryReport, ...], value2: tuple[QueryReport, ...]
    ) -> tuple[QueryReport, ...]:
        """Return both, without the oldest of too many."""
        return (value1 + value2)[-_KEPT:]


def new_reports(spark: SparkSession) -> Any:
    """Return an accumulator of reports; None for Spark Connect, which has none."""
    context = getattr(spark, "sparkContext", None)
    return None if context is None else context.accumulator((), LastReports())
