"""Reports of micro-batches on their way to the driver."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from aioproducer.metrics.totals import Durations
from aioproducer.spark.exactly_once.attempts import Settled
from aioproducer.spark.plan import TaskPlace
from aioproducer.spark.reports.epochs import (
    BatchReport,
    LastReports,
    QueryReport,
    TransactionCounts,
    added,
    counts_of,
    new_reports,
    report_of,
    transactions_of,
)
from aioproducer.spark.reports.tasks import TaskReport


def report(epoch: int) -> QueryReport:
    return QueryReport("q", BatchReport(epoch, False, 1, 2, 0, 0, 0.0))


def task(partition: int, transactions: int, letters: int, deliveries: dict[int, int]) -> TaskReport:
    return TaskReport(
        TaskPlace(partition, 0),
        10,
        100,
        partition,
        Counter(SerializationError=letters),
        0.5,
        query="q",
        deliveries=deliveries,
        transactions=transactions,
        settled=Settled(3, 4),
    )


def test_a_report_is_the_sum_of_those_of_the_tasks() -> None:
    tasks = [task(1, 1, 2, {0: 4, 30: 6}), task(2, 3, 1, {30: 10})]
    counts = transactions_of(tasks, 2, 2, Settled(10, 20))
    # What the plan has settled is in the report of each task, and counts once.
    assert counts == TransactionCounts(4, 2, 2, aborted=2 + 4 + 20, in_doubt=3 + 10)
    query, found = report_of(7, tasks, counts)
    assert (query, found.batch, found.rows, found.bytes) == ("q", 7, 20, 200)
    assert (found.retries, found.dead_letters) == (3, 3)
    assert found.delivery_times is not None
    assert (found.delivery_times.total, found.delivery_times.counts[30]) == (20, 16)


def test_a_micro_batch_without_tasks_belongs_to_no_query() -> None:
    query, found = report_of(0, [], transactions_of([], 0, 0), is_aborted=True)
    assert (query, found.rows, found.transactions) == (None, None, TransactionCounts())


def test_a_task_reports_the_delivery_times_of_its_records_alone() -> None:
    times = Durations()
    times.add(0.5, 100)
    before = times.snapshot()
    times.add(0.001, 8)
    times.add(2000.0, 2)
    deliveries = added(before, times.snapshot())
    assert sorted(deliveries.values()) == [2, 8]
    assert counts_of(deliveries, deliveries).total == 20
    slowest = counts_of(deliveries).percentile(0.5)
    assert slowest is not None and slowest < 0.0012


def test_the_driver_keeps_a_bounded_number_of_reports() -> None:
    last = LastReports()
    value = last.zero(())
    for epoch in range(600):
        value = last.addInPlace(value, (report(epoch),))
    assert [each.report.batch for each in value] == list(range(88, 600))


def test_spark_connect_has_no_accumulators() -> None:
    made: list[Any] = []
    context = SimpleNamespace(accumulator=lambda *given: made.append(given) or "accumulator")
    connect: Any = SimpleNamespace()
    classic: Any = SimpleNamespace(sparkContext=context)
    assert new_reports(connect) is None
    assert new_reports(classic) == "accumulator"
    assert made[0][0] == ()
