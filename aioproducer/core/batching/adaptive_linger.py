"""When lingering brings nothing any more, because everybody who sends waits for an answer.

Owns: how many records are awaited at once when no more are to come. Must not know: queues, nodes,
time.

A linger waits for records to come. Where every record is awaited by whoever sent it, as with tasks
that `send_and_wait` in a loop, there is a moment from which on none can come: everybody waits. How
many everybody is shows when a linger ends by the clock. From then on one ends as soon as that many
records are there, on their way or still here; a single awaiting task does not linger at all. As
soon as there are more, lingers take their time again.

Of a large crowd half should be served while the other half asks: `PLENTY` records are worth a
request while none is under way.

Invariants
- `linger_ms` stays the upper bound, and the rule where some record is not awaited.
- A look costs the same however many batches there are: beyond some dozens it says no.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch

PLENTY = 500
_MOST_BATCHES = 64


class Crowd:
    """Those who await what they have sent."""

    def __init__(self) -> None:
        self._size: float = inf

    def has_waited(
        self, incomplete: Collection[ProducerBatch], lingering: int, *, lingered: bool
    ) -> bool:
        """Whether the batches that linger should go.

        Args:
            incomplete: the batches without an outcome.
            lingering: how many of them linger.
            lingered: whether some linger ends now anyway.
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
        return self._size < inf and records >= PLENTY and lingering == len(incomplete)
