"""The batches without an outcome, in the order in which they expire.

Owns: which batches are incomplete, when the next one's delivery timeout ends. Must not know:
queues, nodes, why a batch fails.

Invariant: batches enter in the order of their creation and share one timeout, so the first one
expires first, whatever left in between; the parts of split batches are older than their place would
say and are kept apart (there are few).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch


class IncompleteBatches:
    """A set of batches, oldest first, that knows who expires.

    Args:
        delivery_timeout: seconds from a batch's creation to its expiry.
    """

    def __init__(self, delivery_timeout: float) -> None:
        self._timeout = delivery_timeout
        # Not a dict: finding its first key gets slower with every one deleted before it.
        self._whole: OrderedDict[ProducerBatch, None] = OrderedDict()
        self._parts: dict[ProducerBatch, None] = {}

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
        """Adds a batch just created."""
        self._whole[batch] = None

    def add_part(self, part: ProducerBatch) -> None:
        """Adds a part of a split batch, as old as that."""
        self._parts[part] = None

    def discard(self, batch: ProducerBatch) -> None:
        """Takes a batch out, if it is in."""
        self._whole.pop(batch, None)
        if self._parts:
            self._parts.pop(batch, None)

    @property
    def next_expiry_at(self) -> float:
        """Loop time at which the oldest batch's delivery timeout ends; inf without batches."""
        earliest = min(map(self._expires_at, self._parts)) if self._parts else inf
        for batch in self._whole:
            return min(earliest, self._expires_at(batch))
        return earliest

    def expired(self, now: float) -> list[ProducerBatch]:
        """The batches whose time is over."""
        expired = [part for part in self._parts if self._expires_at(part) <= now]
        for batch in self._whole:
            if self._expires_at(batch) > now:
                break
            expired.append(batch)
        return expired

    def _expires_at(self, batch: ProducerBatch) -> float:
        # One expression for "when" and "whether": rounding must not let them disagree.
        return batch.created_at + self._timeout
