"""One task: the rows of a Spark partition into Kafka, and the report that travels to the driver.

Owns: which producer a guarantee takes, the report, the line it logs. Not here: how rows are
sent; of PySpark it takes the task's place in the job, given to it.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from aioproducer._util import log
from aioproducer.runtime.native_core import missing_core, warn_once
from aioproducer.spark.encoding import encode_batches
from aioproducer.spark.exactly_once import TaskAttempt
from aioproducer.spark.options import Guarantee
from aioproducer.spark.plan import Epoch, SinkPlan, TaskPlace
from aioproducer.spark.pool import POOL
from aioproducer.spark.prefetch import PrefetchIterator
from aioproducer.spark.sending import Sent, Target, send_batches
from aioproducer.spark.wording import in_users_words

if TYPE_CHECKING:
    import pyarrow as pa

    from aioproducer.blocking import Producer
    from aioproducer.spark.exactly_once import Plan, TaskResult
    from aioproducer.types import TopicPartition

_LOG: Final = log.get("spark")
_REUSED_WORKER: Final = "SPARK_REUSE_WORKER"
_tasks = 0


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The result of one task.

    `bytes` are those of the Arrow columns, `retries` records sent again, `result` what the driver
    needs for exactly once, `missing_core` what its process lacks (`missing_core()`).
    """

    place: TaskPlace
    rows: int
    bytes: int
    retries: int
    dead_letters: int
    seconds: float
    offsets: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    result: TaskResult | None = None
    missing_core: str | None = None


def write_task(
    plan: SinkPlan, place: TaskPlace, epoch: Epoch, batches: Iterator[pa.RecordBatch]
) -> TaskReport:
    """Send the rows; return when all are acknowledged, and ended as the guarantee wants it.

    Raises:
        RowError: rows were not delivered.
        KafkaError: the producer could not start or go on.
    """
    spare_collector()
    with in_users_words(plan.options.kafka):
        return _written(plan, place, epoch, batches)


def _written(
    plan: SinkPlan, place: TaskPlace, epoch: Epoch, batches: Iterator[pa.RecordBatch]
) -> TaskReport:
    if plan.encoded:
        batches = encode_batches(batches, plan.encoded, plan.options, place.partition)
    if plan.exactly_once is not None:
        return _prepare_task(plan, plan.exactly_once, place, epoch, batches)
    with (
        PrefetchIterator(batches) as prefetched,
        POOL.producer(plan.options, plan.prefix) as producer,
    ):
        if plan.prefix is None:
            return _send_rows(producer, plan, place, prefetched)
        with producer.transaction():
            return _send_rows(producer, plan, place, prefetched)


def send_rows(
    producer: Producer, plan: SinkPlan, place: TaskPlace, batches: Iterator[pa.RecordBatch]
) -> TaskReport:
    """Send the rows by a producer of the caller's, in its transaction if it has one."""
    if plan.encoded:
        batches = encode_batches(batches, plan.encoded, plan.options, place.partition)
    with PrefetchIterator(batches) as prefetched:
        return _send_rows(producer, plan, place, prefetched)


def _prepare_task(
    plan: SinkPlan,
    exactly_once: Plan,
    place: TaskPlace,
    epoch: Epoch,
    batches: Iterator[pa.RecordBatch],
) -> TaskReport:
    """Leave the transaction open: the driver ends those of all tasks together."""
    attempt = TaskAttempt(
        exactly_once,
        epoch.epoch,
        plan.config,
        partition=place.partition,
        owner=epoch.owner or plan.job or "",
        kind=plan.kind,
    )
    if attempt.is_decided:
        _LOG.info("Spark partition %d: epoch %d is in Kafka already", place.partition, epoch.epoch)
        return TaskReport(place, 0, 0, 0, 0, 0.0, {}, attempt.skip())
    # Spark makes the first rows while the transaction begins.
    with PrefetchIterator(batches) as prefetched, attempt:
        report = _send_rows(attempt.producer, plan, place, prefetched)
        return replace(report, result=attempt.prepare(rows=report.rows))


def _send_rows(
    producer: Producer, plan: SinkPlan, place: TaskPlace, batches: PrefetchIterator[pa.RecordBatch]
) -> TaskReport:
    options = plan.options
    target = Target(
        options.topic,
        plan.columns,
        options.dead_letter_topic,
        place.partition,
        options.topic_timeout_s,
    )
    started = time.monotonic()

    async def sending() -> tuple[Sent, int]:
        inside = producer._producer
        stats = inside._usable().stats
        before = stats.records_retried
        sent = await send_batches(inside, batches, target)
        return sent, stats.records_retried - before

    sent, retries = producer.run(sending)
    report = TaskReport(
        place,
        sent.rows,
        sent.bytes,
        retries,
        sent.dead_letters,
        time.monotonic() - started,
        sent.offsets,
        missing_core=missing_core(),
    )
    _LOG.info(
        "Spark partition %d attempt %d: %d rows, %d bytes, %d retries, %d dead letters, %.3f s",
        *place,
        report.rows,
        report.bytes,
        report.retries,
        report.dead_letters,
        report.seconds,
    )
    return report


def commit(plan: SinkPlan, epoch: int, reports: Sequence[TaskReport | None]) -> None:
    """Publish what the tasks have prepared, where that is asked for; log one line."""
    for each in reports:
        warn_once(_LOG, None if each is None else each.missing_core)
    how = ""
    if plan.options.guarantee is Guarantee.EXACTLY_ONCE:
        with in_users_words(plan.options.kafka):
            done = plan.committed(epoch, _results(reports))
        took = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in done.seconds.items())
        how = ", skipped" if done.skipped else f", {done.transactions} transactions: {took}"
    elif plan.job is not None:  # a stream's next batch does that
        plan.end_orphans()
    _LOG.info("epoch %d written: %s%s", epoch, _totals(reports), how)


def abort(plan: SinkPlan, epoch: int, reports: Sequence[TaskReport | None]) -> None:
    """Give up what the tasks have prepared; what was written at least once stays."""
    if plan.options.guarantee is Guarantee.EXACTLY_ONCE:
        with in_users_words(plan.options.kafka):
            plan.aborted(epoch, _results(reports))
    plan.end_orphans()
    _LOG.warning("epoch %d not written: %s", epoch, _totals(reports))


def _results(reports: Sequence[TaskReport | None]) -> list[TaskResult | None]:
    return [None if each is None else each.result for each in reports]


def _totals(reports: Sequence[TaskReport | None]) -> str:
    known = [each for each in reports if each is not None]
    return (
        f"{len(known)} tasks, {sum(each.rows for each in known)} rows, "
        f"{sum(each.bytes for each in known)} bytes, "
        f"{sum(each.retries for each in known)} retries, "
        f"{sum(each.dead_letters for each in known)} dead letters, "
        f"slowest task {max((each.seconds for each in known), default=0.0):.3f} s"
    )


def spare_collector() -> None:
    """Take objects that last as long as the process out of the garbage collector's sight, once.

    To be called at the beginning of each request to one of Spark's Python workers, be it a task, a
    plan or a commit. A worker that Spark uses again collects all generations after each request
    (`pyspark/daemon.py`): with the modules of PySpark, pandas, Arrow and ours in view that costs
    more than a small task. All of them are there by the second request: some are imported when the
    first returns its message.
    """
    global _tasks
    _tasks += 1
    if _tasks == 2 and os.environ.get(_REUSED_WORKER):
        gc.freeze()
