"""Rows that a bulk call appends: start with `RowSource`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aioproducer.records.bulk import Rows

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import RecordParts
    from aioproducer.runtime.send.pending import PendingParts


class RowSource(Rows, Protocol):
    """Rows that can also be read one by one."""

    def record(self, row: int) -> RecordParts | PendingParts:
        """Return one row, or an awaitable of it; raise `KafkaError` if it cannot be sent."""
        ...


class ReadyRows(RowSource, Protocol):
    """Rows that need no serializer."""

    def record(self, row: int) -> RecordParts:
        """See `RowSource`."""
        ...
