"""Failures that were not awaited: counted, logged, passed to `on_delivery_error`.

Start with `UnretrievedFailures`. The first failure is logged at once, later ones are summed up per
partition in one line per interval, so that every failure is in the log. Reports are made in the
loop, although the garbage collector may run in any thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from aioproducer._util import log
from aioproducer._util.tasks import HOOK_ERRORS
from aioproducer.core.batching.batch import ProducerBatch, name_of
from aioproducer.errors import KafkaError, TransactionAbortedError
from aioproducer.metrics.totals import ProducerStats
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from aioproducer.config import DeliveryErrorCallback

_log = log.get("runtime")
_MOST_PARTITIONS_NAMED: Final = 10


class UnretrievedFailures:
    """Report the failed batches of one producer whose errors were not retrieved."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stats: ProducerStats,
        on_delivery_error: DeliveryErrorCallback | None,
        client_id: str | None = None,
    ) -> None:
        self._loop = loop
        self._stats = stats
        self._on_delivery_error = on_delivery_error
        self._named = "" if client_id is None else f" [client_id {client_id}]"
        self._totals: Counter[TopicPartition] = Counter()
        self._unwritten: Counter[TopicPartition] = Counter()
        self._last_error: KafkaError | None = None
        self._seen_at = self._next_line_at = -inf
        self._interval_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def on_unretrieved(self, batch: ProducerBatch) -> None:
        """Report a failed batch that is being collected, in any thread; keep no reference to it."""
        outcome = batch.outcome
        if outcome is None or outcome.error is None:
            return
        unseen = batch.count - batch.retrieved
        self.report_soon(batch.topic_partition, unseen, batch.count, outcome.error)

    def report_soon(self, where: TopicPartition, unseen: int, of: int, error: KafkaError) -> None:
        """Report `unseen` failures among `of` records in the loop; callable in any thread."""
        report = (where, unseen, of, error)
        try:
            self._loop.call_soon_threadsafe(self._report, *report)
        except RuntimeError:  # the loop is closed
            self._report(*report)

    def close(self) -> None:
        """Log the totals: the producer is closed."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._write_sums()
        if self._totals:
            _log.error(
                "the producer is closed; %d record(s) failed and their deliveries were not awaited "
                "(%s)%s",
                self._totals.total(),
                _listed(self._totals),
                self._named,
            )
            self._totals.clear()

    def close_soon(self) -> None:
        """Log the totals once pending reports have been made.

        For a producer that ends without `close()`: its loop may be about to end as well.
        """
        self._is_over = True
        try:
            self._loop.call_soon(self.close)
        except RuntimeError:  # the loop is closed
            self.close()

    def _report(self, where: TopicPartition, unseen: int, of: int, error: KafkaError) -> None:
        self._stats.unretrieved_failures += unseen
        if isinstance(error, TransactionAbortedError):
            return  # the application has asked for that, or gets the cause from its transaction
        self._totals[where] += unseen
        now = self._loop.time()
        if now - self._seen_at >= log.LONGEST_INTERVAL_S:
            self._interval_s, self._next_line_at = 0.0, now
        self._seen_at = now
        if now >= self._next_line_at and not self._unwritten:
            _log.error(
                "%s: %d of %d record(s) of a batch failed and their deliveries were not awaited: "
                "%s",
                name_of(where),
                unseen,
                of,
                error,
            )
            self._line_was_written(now)
        else:
            self._unwritten[where] += unseen
            self._last_error = error
            if self._timer is None and not self._loop.is_closed():
                self._timer = self._loop.call_at(self._next_line_at, self._on_timer)
        if self._on_delivery_error is not None:
            try:
                self._on_delivery_error(where, unseen, error)
            except HOOK_ERRORS:
                _log.exception("on_delivery_error raised")
        if self._is_over:
            self.close_soon()

    def _line_was_written(self, now: float) -> None:
        doubled = max(self._interval_s * 2, log.FIRST_INTERVAL_S)
        self._interval_s = min(doubled, log.LONGEST_INTERVAL_S)
        self._next_line_at = now + self._interval_s

    def _on_timer(self) -> None:
        self._timer = None
        self._write_sums()
        self._line_was_written(self._loop.time())

    def _write_sums(self) -> None:
        if self._unwritten:
            _log.error(
                "%d more record(s) failed and their deliveries were not awaited (%s); the last "
                "error: %s",
                self._unwritten.total(),
                _listed(self._unwritten),
                self._last_error,
            )
            self._unwritten.clear()
            self._last_error = None


def _listed(counts: Counter[TopicPartition]) -> str:
    """Return the partitions with most failures, each with their number, as text."""
    # `most_common` imports a module, which fails at the interpreter's exit.
    most = sorted(counts.items(), key=itemgetter(1), reverse=True)[:_MOST_PARTITIONS_NAMED]
    named = [f"{name_of(where)}: {n}" for where, n in most]
    others = len(counts) - len(named)
    return ", ".join(named) + (f", and {others} more partition(s)" if others else "")
