"""Failures nobody looked at: counted, logged once per batch, told to `on_delivery_error`.

Owns: what is said about a failed batch whose deliveries were dropped. Must not know: why it failed,
when a batch is forgotten.

Invariants
- One report per batch, never one per record; a storm of batches that one broker lets fail is
  bounded by the rate limit of the log, whose next line says how many it left out.
- Reports are made on the loop: garbage is collected in whatever thread comes by.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioproducer import log
from aioproducer.core.producer_batch import ProducerBatch
from aioproducer.core.stats import ProducerStats
from aioproducer.errors import KafkaError
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from aioproducer.config import DeliveryErrorCallback

_log = log.get("runtime")


class UnretrievedFailures:
    """Reports the failed batches of one producer that are forgotten unseen."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stats: ProducerStats,
        on_delivery_error: DeliveryErrorCallback | None,
    ) -> None:
        self._loop = loop
        self._stats = stats
        self._on_delivery_error = on_delivery_error
        self._warnings = log.RateLimitedLog(_log)

    def on_unretrieved(self, batch: ProducerBatch) -> None:
        """A failed batch is being collected; in any thread. Keeps no reference to it."""
        outcome = batch.outcome
        if outcome is None or outcome.error is None:
            return
        unseen = batch.count - batch.retrieved
        self.report_soon(batch.topic_partition, unseen, batch.count, outcome.error)

    def report_soon(self, where: TopicPartition, unseen: int, of: int, error: KafkaError) -> None:
        """Reports `unseen` failures among `of` records, on the loop; in any thread."""
        report = (where, unseen, of, error)
        try:
            self._loop.call_soon_threadsafe(self._report, *report)
        except RuntimeError:  # the loop is closed
            self._report(*report)

    def _report(self, where: TopicPartition, unseen: int, of: int, error: KafkaError) -> None:
        self._stats.unretrieved_failures += unseen
        self._warnings.warning(
            self._loop.time(),
            error.node_id,
            type(error).__name__,
            "%s-%d: %d of %d record(s) of a batch failed and nobody looked: %s",
            *where,
            unseen,
            of,
            error,
        )
        if self._on_delivery_error is not None:
            try:
                self._on_delivery_error(where, unseen, error)
            except Exception:
                _log.exception("on_delivery_error raised")
