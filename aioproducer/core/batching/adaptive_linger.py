"""Adaptive linger: batches are sent early when every task that sends is waiting for a response.

When every buffered record is awaited, as by tasks that call `send_and_wait` in a loop, no task can
add more. The number of such tasks is learned when a linger ends by the clock. From then on linger
ends as soon as that many records are awaited, queued or in flight. When more records come, the
number is learned again. The record of a single task does not linger at all: if it is sent by
`send_and_wait`, it is sent in that call (`has_one_sender`, `runtime/send/batch_appender.py`).

With many tasks, half of them should be served while the other half sends:
`EARLY_FLUSH_RECORDS` records are sent at once while no request is in flight.

Invariants
- `linger_ms` is the upper bound, and is kept if any record is not awaited.
- The cost of a check is bounded: with more than `_MOST_BATCHES` batches it returns False.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch

EARLY_FLUSH_RECORDS = 500
_MOST_BATCHES = 64


class AdaptiveLinger:
    """Number of records that tasks await at once, learned from lingers that ended by the clock."""

    def __init__(self) -> None:
        self._size: float = inf

    @property
    def has_one_sender(self) -> bool:
        """Whether one task sends, which waits for the outcome of each record: no other follows."""
        return self._size == 1

    def should_flush(
        self, incomplete: Collection[ProducerBatch], lingering: int, *, lingered: bool
    ) -> bool:
        """Return whether the lingering batches should be sent now.

        Args:
            lingering: how many of them linger.
            lingered: whether a linger ends by the clock now.
        """
        if len(incomplete) > _MOST_BATCHES:
            return False
        records = 0
        for batch in incomplete:
            if batch.watchers < batch.count:
                return False
            records += batch.count
        if lingered:
            self._size = records
        elif records > self._size:
            self._size = records
            return False
        if records == self._size:
            return True
        return self._size < inf and records >= EARLY_FLUSH_RECORDS and lingering == len(incomplete)
