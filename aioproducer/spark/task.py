"""One task: the rows of a Spark partition into Kafka, and the report that travels to the driver."""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from aioproducer._util import log
from aioproducer.errors import KafkaError
from aioproducer.runtime.native import missing_core, warn_once
from aioproducer.spark import replay
from aioproducer.spark.columns.encoding import encode_batches
from aioproducer.spark.dead_letter_files import DeadLetterPart
from aioproducer.spark.exactly_once.writes import TaskAttempt
from aioproducer.spark.options import Guarantee
from aioproducer.spark.plan import Epoch, SinkPlan, TaskPlace
from aioproducer.spark.pool import POOL
from aioproducer.spark.prefetch import PrefetchIterator
from aioproducer.spark.reports import epochs
from aioproducer.spark.reports.tasks import TaskReport
from aioproducer.spark.rows import KEPT_BYTES, RefusedRow
from aioproducer.spark.sending import Sending, Sent, Target
from aioproducer.spark.wording import option_errors

if TYPE_CHECKING:
    import pyarrow as pa

    from aioproducer.blocking import Producer
    from aioproducer.spark.exactly_once.attempts import Plan, TaskResult

_LOG: Final = log.get("spark")
_REUSED_WORKER: Final = "SPARK_REUSE_WORKER"
_tasks = 0


def write_task(
    plan: SinkPlan, place: TaskPlace, epoch: Epoch, batches: Iterator[pa.RecordBatch]
) -> TaskReport:
    """Send the rows of a task as its guarantee requires; return when all are acknowledged."""
    freeze_modules()
    with option_errors(plan.options.kafka):
        return replace(_written(plan, place, epoch, batches), query=epoch.owner)


def _written(
    plan: SinkPlan, place: TaskPlace, epoch: Epoch, batches: Iterator[pa.RecordBatch]
) -> TaskReport:
    if plan.exactly_once is not None:
        return _prepare_task(plan, plan.exactly_once, place, epoch, batches)
    with (
        PrefetchIterator(_encoded(plan, place, batches)) as prefetched,
        POOL.producer(plan.options, plan.prefix) as producer,
    ):
        if plan.prefix is None:
            return _send_rows(producer, plan, place, prefetched)
        items = _replayable(plan, prefetched)

        def write(refused: replay.Refused, begun: int) -> TaskReport:
            with producer.transaction():
                report = _send_rows(producer, plan, place, items, refused)
            return replace(report, transactions=begun)

        return replay.written_without_refused(write, items.rewind)


def send_rows(
    producer: Producer,
    plan: SinkPlan,
    place: TaskPlace,
    batches: Iterator[pa.RecordBatch],
    refused: replay.Refused,
) -> TaskReport:
    """Send all rows but the refused ones, in the open transaction of a producer."""
    with PrefetchIterator(_encoded(plan, place, batches)) as prefetched:
        return _send_rows(producer, plan, place, prefetched, refused)


def _encoded(
    plan: SinkPlan, place: TaskPlace, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch | RefusedRow]:
    if not plan.encoded:
        return batches
    return encode_batches(batches, plan.encoded, plan.options, place.partition, plan.columns)


def _replayable(
    plan: SinkPlan, items: PrefetchIterator[pa.RecordBatch | RefusedRow]
) -> replay.Replay[pa.RecordBatch | RefusedRow]:
    """Return the items of a task; they are kept if its transaction can be repeated without rows."""
    limit = KEPT_BYTES if plan.options.keeps_refused else -1
    return replay.Replay(
        items, lambda item: item.size if isinstance(item, RefusedRow) else int(item.nbytes), limit
    )


def _prepare_task(
    plan: SinkPlan,
    exactly_once: Plan,
    place: TaskPlace,
    epoch: Epoch,
    batches: Iterator[pa.RecordBatch],
) -> TaskReport:
    """Send the rows in a transaction that stays open: the driver ends those of all tasks."""

    def new_attempt() -> TaskAttempt:
        return TaskAttempt(
            exactly_once,
            epoch.epoch,
            plan.config,
            partition=place.partition,
            owner=epoch.owner or plan.job or "",
            kind=plan.kind,
        )

    first = new_attempt()
    if first.is_decided:
        _LOG.info("Spark partition %d: epoch %d is in Kafka already", place.partition, epoch.epoch)
        settled = exactly_once.settled
        return TaskReport(place, 0, 0, 0, Counter(), 0.0, first.skip(), settled=settled)

    # Spark makes the first rows while the transaction begins.
    with PrefetchIterator(_encoded(plan, place, batches)) as prefetched:
        items = _replayable(plan, prefetched)

        def write(refused: replay.Refused, begun: int) -> TaskReport:
            # A new attempt takes a new id: the driver may have given up meanwhile.
            with new_attempt() if refused else first as attempt:
                try:
                    report = _send_rows(attempt.producer, plan, place, items, refused)
                except replay.RowsRefusedError:
                    attempt.producer.abort_transaction()
                    raise
                result = attempt.prepare(rows=report.rows)
            return replace(
                report,
                result=result,
                transactions=begun - (result.part is None),
                settled=exactly_once.settled,
            )

        return replay.written_without_refused(write, items.rewind)


def _send_rows(
    producer: Producer,
    plan: SinkPlan,
    place: TaskPlace,
    batches: replay.Items[pa.RecordBatch | RefusedRow],
    refused: replay.Refused = MappingProxyType({}),
) -> TaskReport:
    options, started = plan.options, time.monotonic()
    path = options.dead_letter_path
    with nullcontext() if path is None else DeadLetterPart(path, options.topic, *place) as part:
        target = Target(options, plan.columns, place.partition, refused, part)

        async def sending() -> tuple[Sent, int, dict[int, int]]:
            inside = producer._producer
            stats = inside._usable().stats
            before, times = stats.records_retried, stats.delivery_times.snapshot()
            sent = await Sending(inside, batches, target).run()
            deliveries = epochs.added(times, stats.delivery_times.snapshot())
            return sent, stats.records_retried - before, deliveries

        sent, retries, deliveries = producer.run(sending)
        # Before the transaction is prepared: a commit must not precede the rows it leaves out.
        if part is not None:
            part.publish()
    report = TaskReport(
        place,
        sent.rows,
        sent.bytes,
        retries,
        sent.dead_letters,
        time.monotonic() - started,
        missing_core=missing_core(),
        deliveries=deliveries,
    )
    _LOG.info(
        "Spark partition %d attempt %d: %d rows, %d bytes, %d retries, %s, %.3f s",
        *place,
        report.rows,
        report.bytes,
        report.retries,
        _shown(report.dead_letters),
        report.seconds,
    )
    return report


def commit(plan: SinkPlan, epoch: int, reports: Sequence[TaskReport | None]) -> epochs.QueryReport:
    """Commit the transactions of the tasks (`exactly-once`); log and return the counts."""
    known = [each for each in reports if each is not None]
    for each in known:
        warn_once(_LOG, each.missing_core)
    what, how, say = "written", "", _LOG.info
    counts: epochs.TransactionCounts | None = None
    if plan.options.guarantee is Guarantee.EXACTLY_ONCE:
        with option_errors(plan.options.kafka):
            done = plan.driver().commit(epoch, _results(reports))
        took = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in done.seconds.items())
        how = f", {done.transactions} transactions: {took}"
        if done.skipped:
            what, how = "is in Kafka already, nothing was written", ""
            if plan.job is not None:  # which may be a second job with one job.id
                say = _LOG.warning
        counts = epochs.transactions_of(known, done.transactions, done.transactions, done.settled)
    elif plan.job is not None:  # a stream's next batch does that
        _end_orphans(plan)
    if plan.options.guarantee is Guarantee.TASK_TRANSACTIONS:
        counts = epochs.transactions_of(known, 0, sum(each.transactions > 0 for each in known))
    say("epoch %d %s: %s%s", epoch, what, _totals(known), how)
    return epochs.report_of(epoch, known, counts)


def abort(plan: SinkPlan, epoch: int, reports: Sequence[TaskReport | None]) -> epochs.QueryReport:
    """Abort the transactions of the tasks; rows without transactions remain written.

    A commit may fail after it has decided, as when its process is killed: then all is written.
    """
    known = [each for each in reports if each is not None]
    is_decided = False
    counts: epochs.TransactionCounts | None = None
    if plan.options.guarantee is Guarantee.EXACTLY_ONCE:
        with option_errors(plan.options.kafka):
            is_decided, settled = plan.driver().abort(epoch, _results(reports), plan.exactly_once)
        prepared = sum(each.result is not None and each.result.part is not None for each in known)
        counts = epochs.transactions_of(known, prepared, prepared * is_decided, settled)
    _end_orphans(plan)
    how = "written, although its commit failed" if is_decided else "not written"
    _LOG.warning("epoch %d %s: %s", epoch, how, _totals(known))
    return epochs.report_of(epoch, known, counts, is_aborted=True)


def _end_orphans(plan: SinkPlan) -> None:
    """Abort the transactions of killed tasks; a failure does not change the result of the job."""
    try:
        plan.end_orphans()
    except KafkaError as error:
        _LOG.warning("transactions of killed tasks end at the brokers' timeout: %s", error)


def _results(reports: Sequence[TaskReport | None]) -> list[TaskResult | None]:
    return [None if each is None else each.result for each in reports]


def _totals(known: Sequence[TaskReport]) -> str:
    return (
        f"{len(known)} tasks, {sum(each.rows for each in known)} rows, "
        f"{sum(each.bytes for each in known)} bytes, "
        f"{sum(each.retries for each in known)} retries, "
        f"{_shown(sum((each.dead_letters for each in known), Counter()))}, "
        f"slowest task {max((each.seconds for each in known), default=0.0):.3f} s"
    )


def _shown(dead_letters: Counter[str]) -> str:
    reasons = ", ".join(f"{name} {count}" for name, count in sorted(dead_letters.items()))
    return f"{dead_letters.total()} dead letters" + (f" ({reasons})" if reasons else "")


def freeze_modules() -> None:
    """Exclude imported modules from garbage collection (`gc.freeze`), once per worker.

    Called at the beginning of each request to a Python worker of Spark: a task, a plan or a commit.
    A worker that is reused collects all generations after each request (`pyspark/daemon.py`), which
    costs more than a small task. The second request is the first for which all modules are
    imported: some are imported when the first one returns its message.
    """
    global _tasks
    _tasks += 1
    if _tasks == 2 and os.environ.get(_REUSED_WORKER):
        gc.freeze()
