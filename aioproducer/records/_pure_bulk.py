"""The pure-Python fallback of `_bulk.pyx`: it has the same state, and writes nothing by itself.

Without native code a second path into a batch, besides that of `send()`, gains nothing.
"""

from __future__ import annotations

from aioproducer.records import RecordBatchBuilder

Bounds = tuple[int, int, int, int, int, int]
"""The bounds of a `fill`.

The first row; the row after the last one; what row 0 is called in a `Share`; the timestamp in ms of
rows that have none; the bytes that the bound of a record's size, batch header included, may reach;
the bytes after which it stops, though it could go on.
"""


class Share:
    """See `bulk.py`."""

    __slots__ = ("_runs", "records")

    def __init__(self, builder: RecordBatchBuilder) -> None:
        self.records: int = 0
        self._runs: list[list[int]] = []

    def add(self, row: int, index: int, /) -> None:
        """Note a record that was appended otherwise."""
        self.records += 1
        if self._runs:
            last = self._runs[-1]
            if last[0] + last[2] == row and last[1] + last[2] == index:
                last[2] += 1
                return
        self._runs.append([row, index, 1])

    @property
    def first_index(self) -> int:
        """The lowest index in the batch that a record of the call has."""
        return self._runs[0][1]

    @property
    def last_index(self) -> int:
        """The highest one."""
        _, index, count = self._runs[-1]
        return index + count - 1

    def runs(self) -> list[tuple[int, int, int]]:
        """`(row, index, count)` for rows that follow one another in the batch too."""
        return [(row, index, count) for row, index, count in self._runs]


class OpenBatches:
    """See `bulk.py`."""

    __slots__ = ()

    def __init__(self, partitions: int, hashes_keys: bool) -> None:
        """Keep nothing."""

    def add_batch(self, partition: int, share: Share, /) -> None:
        """Write rows of this partition to the batch of `share` from now on."""

    def stick(self, partition: int, room: int, /) -> None:
        """Send rows without key and partition to this partition while less than `room` is used."""

    def take_sticky_bytes(self) -> int:
        """End `stick`: nothing was used."""
        return 0


def fill_items(
    items: list[object], batches: OpenBatches | None, partition: object, *bounds: *Bounds
) -> tuple[int, bool]:
    """Leave every row to the caller."""
    del items, batches, partition
    return bounds[0], True
