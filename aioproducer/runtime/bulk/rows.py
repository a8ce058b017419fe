"""Rows that a bulk call appends: start with `RowSource`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aioproducer.records.bulk import Rows
from aioproducer.types import HeaderPairs

if TYPE_CHECKING:
    from aioproducer.runtime.send.pending import PendingParts

RowParts = tuple[str | None, bytes | None, bytes | None, HeaderPairs, int | None, int | None]
"""Topic, key, value, headers, partition and timestamp in ms of one record."""


class RowSource(Rows, Protocol):
    """Rows that can also be read one by one."""

    def record(self, row: int) -> RowParts | PendingParts:
        """Return one row, or an awaitable of it.

        Raises:
            KafkaError: it cannot be sent.
        """
        ...


class ReadyRows(RowSource, Protocol):
    """Rows that need no serializer."""

    def record(self, row: int) -> RowParts:
        """See `RowSource`."""
        ...
