"""The batches without an outcome, in the order in which they expire.

Invariants
- Batches are added in the order of their creation and share one timeout: the first one expires
  first.
- The parts of other batches are older than their position. A heap has them by age: there can be
  thousands, those of early records. Its first entry is never one that was removed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch


class IncompleteBatches:
    """A set of batches, oldest first, with their expiry.

    Args:
        delivery_timeout: seconds from a batch's creation to its expiry.
    """

    def __init__(self, delivery_timeout: float) -> None:
        self._timeout = delivery_timeout
        # Not a dict: finding its first key gets slower with every deleted key before it.
        self._whole: OrderedDict[ProducerBatch, None] = OrderedDict()
        self._parts: dict[ProducerBatch, int] = {}
        self._numbers: set[int] = set()
        self._by_age: list[tuple[float, int]] = []
        self._added = 0

    def __bool__(self) -> bool:
        return bool(self._whole or self._parts)

    def __len__(self) -> int:
        return len(self._whole) + len(self._parts)

    def __contains__(self, batch: object) -> bool:
        return batch in self._whole or batch in self._parts

    def __iter__(self) -> Iterator[ProducerBatch]:
        yield from self._parts
        yield from self._whole

    def add(self, batch: ProducerBatch) -> None:
        """Add a new batch."""
        self._whole[batch] = None

    def add_part(self, part: ProducerBatch) -> None:
        """Add a part of other batches, which is as old as they are."""
        self._added += 1
        self._parts[part] = self._added
        self._numbers.add(self._added)
        heappush(self._by_age, (self._expires_at(part), self._added))

    def discard(self, batch: ProducerBatch) -> None:
        """Remove a batch if it is present."""
        self._whole.pop(batch, None)
        if self._parts and (number := self._parts.pop(batch, None)) is not None:
            self._numbers.discard(number)
            while self._by_age and self._by_age[0][1] not in self._numbers:
                heappop(self._by_age)

    @property
    def next_expiry_at(self) -> float:
        """Loop time at which the oldest batch expires; inf without batches."""
        earliest = self._by_age[0][0] if self._by_age else inf
        for batch in self._whole:
            return min(earliest, self._expires_at(batch))
        return earliest

    def expired(self, now: float) -> list[ProducerBatch]:
        """Return the batches past their delivery timeout."""
        if self.next_expiry_at > now:
            return []
        expired = [part for part in self._parts if self._expires_at(part) <= now]
        for batch in self._whole:
            if self._expires_at(batch) > now:
                break
            expired.append(batch)
        return expired

    def _expires_at(self, batch: ProducerBatch) -> float:
        # One expression for both uses, so that rounding cannot make them differ.
        return batch.created_at + self._timeout
