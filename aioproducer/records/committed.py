"""The batches of a fetched run of a partition that readers of committed records may see.

Aborted transactions are those that Java's `CompletedFetch` leaves out (KIP-98).

Invariant: a transaction named as aborted begins at its first offset and ends at its marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aioproducer.records.batch import DecodedRecord, RecordBatch, read_batches
from aioproducer.wire.messages.fetch import AbortedTransaction, PartitionData


class CommittedView:
    """Decides batch by batch; without aborted transactions it leaves out markers alone."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._producers: set[int] = set()

    def is_shown(self, batch: RecordBatch) -> bool:
        """Return whether a batch's records count; call it in offset order."""
        while self._ahead and self._ahead[-1].first_offset <= batch.last_offset:
            self._producers.add(self._ahead.pop().producer_id)
        if batch.is_control:
            # Whatever the marker says: a producer's next records belong to another transaction.
            self._producers.discard(batch.producer_id)
            return False
        return not (batch.is_transactional and batch.producer_id in self._producers)


def batches_between(
    data: PartitionData, start: int, end: int
) -> Iterator[tuple[RecordBatch, list[DecodedRecord]]]:
    """Yield the batches of a Fetch response with their records from `start` up to before `end`.

    Batches before `start` are left out; markers and aborted batches come without records.
    """
    view = CommittedView(data.aborted_transactions or [])
    for batch in read_batches(data.records or b"", allow_partial=True):
        if start >= end:
            return  # decoding the rest of the response could take hours
        batch.check_crc()
        is_shown = view.is_shown(batch)
        if batch.last_offset < start:
            continue
        records = batch.records() if is_shown else []
        wanted = [record for record in records if start <= record.offset < end]
        start = batch.last_offset + 1
        yield batch, wanted
