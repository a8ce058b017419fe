"""Reading partitions: the requests, and the batches that readers of committed records may see.

Aborted transactions are those that Java's `CompletedFetch` leaves out (KIP-98).

Invariant: a transaction named as aborted begins at its first offset and ends at its marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from aioproducer.records.batch import DecodedRecord, RecordBatch, read_batches
from aioproducer.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from aioproducer.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
"""The record with the largest timestamp (KIP-734)."""

FETCH_BYTES: Final = 8 * 1024 * 1024
FETCH_VERSIONS: Final = (4, 12)
"""The first version has isolation levels; the last one has names of topics, not ids."""
_MAX_WAIT_MS: Final = 500


def offsets_request(
    topic: str, partitions: Iterable[int], timestamp: int, isolation_level: int = 0
) -> ListOffsetsRequest:
    """Return the request for the offset at a timestamp, which may be one of the constants here."""
    wanted = [
        ListOffsetsPartition(partition_index=each, timestamp=timestamp) for each in partitions
    ]
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic, partitions=wanted)],
    )


def fetch_request(
    topic: str, positions: Mapping[int, int], isolation_level: int, partition_bytes: int
) -> FetchRequest:
    """Return the request for the records of partitions from their positions on."""
    wanted = [
        FetchPartition(partition=each, fetch_offset=offset, partition_max_bytes=partition_bytes)
        for each, offset in positions.items()
    ]
    return FetchRequest(
        max_wait_ms=_MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic=topic, partitions=wanted)],
    )


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
