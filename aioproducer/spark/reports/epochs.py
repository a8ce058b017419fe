"""Reports of micro-batches, from the process that commits them to the driver's Python.

Spark commits in a worker process beside the driver. What this process adds to an accumulator of the
session has reached the driver when Spark reports the progress of the micro-batch.
`register(spark, metrics=...)` makes such an accumulator (`new_reports`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.metrics.durations import DurationCounts
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


@dataclass(frozen=True, slots=True)
class EpochReport:
    """The result of a micro-batch, for its commit or abort.

    Attributes:
        query: The id of the query; None if no task has reported.
        epoch: The micro-batch's number.
        rows: Rows that were written; 0 where the micro-batch was in Kafka already.
        bytes: Bytes of the Arrow columns.
        retries: Records that were sent again.
        dead_letters: Rows that went elsewhere, by the name of the error.
        delivery_times: Records by the time until they were acknowledged.
        transactions: Its transactions; None where the guarantee has none.
        is_aborted: Whether it was given up.
    """

    query: str | None
    epoch: int
    rows: int
    bytes: int
    retries: int
    dead_letters: Counter[str]
    delivery_times: DurationCounts
    transactions: TransactionCounts | None = None
    is_aborted: bool = False


def report_of(
    epoch: int,
    tasks: Sequence[TaskReport],
    transactions: TransactionCounts | None,
    *,
    is_aborted: bool = False,
) -> EpochReport:
    """Return the sum of the reports of tasks."""
    return EpochReport(
        next((each.query for each in tasks), None),
        epoch,
        sum(each.rows for each in tasks),
        sum(each.bytes for each in tasks),
        sum(each.retries for each in tasks),
        sum((each.dead_letters for each in tasks), Counter()),
        counts_of(*(each.deliveries for each in tasks)),
        transactions,
        is_aborted,
    )


def transactions_of(
    tasks: Sequence[TaskReport], prepared: int, committed: int, settled: Settled = NOTHING_SETTLED
) -> TransactionCounts:
    """Return the transactions of tasks.

    Args:
        tasks: The reports.
        prepared: How many were left open for the commit.
        committed: How many were committed.
        settled: What commit or abort has settled; what the plan has settled is in the reports.
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
    """Return what was added to durations, by bucket; a task's message has no empty ones."""
    counts = after.since(before).counts
    return {bucket: count for bucket, count in enumerate(counts) if count}


def counts_of(*added: Mapping[int, int]) -> DurationCounts:
    """Return the sum of what was added to durations."""
    counts = list(DurationCounts().counts)
    for each in added:
        for bucket, count in each.items():
            counts[bucket] += count
    return DurationCounts(tuple(counts))


# -- to the driver ---------------------------------------------------------------------------------


class LastReports:
    """The last reports, as the value of a PySpark accumulator (`AccumulatorParam`)."""

    def zero(self, value: tuple[EpochReport, ...]) -> tuple[EpochReport, ...]:
        """Return the value that a process begins with."""
        return ()

    def addInPlace(  # noqa: N802 - PySpark's name
        self, value1: tuple[EpochReport, ...], value2: tuple[EpochReport, ...]
    ) -> tuple[EpochReport, ...]:
        """Return both, without the oldest of too many."""
        return (value1 + value2)[-_KEPT:]


def new_reports(spark: SparkSession) -> Any:
    """Return an accumulator of reports; None for Spark Connect, which has none."""
    context = getattr(spark, "sparkContext", None)
    return None if context is None else context.accumulator((), LastReports())
