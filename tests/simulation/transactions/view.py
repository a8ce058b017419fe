"""The view of a log that a consumer with `isolation.level=read_committed` has.

Owns: deciding it from the log alone, marker by marker. Not here: the brokers' own index of
aborted transactions, coordinators.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from aioproducer.records.batch import DecodedRecord, RecordBatch, read_batches
from aioproducer.testing.broker.log import StoredBatch
from aioproducer.testing.broker.markers import Marker


class CommittedView(NamedTuple):
    """A log as far as it is decided.

    Attributes:
        records: The visible ones by offset.
        aborted: The offsets of those that never will be.
        undecided: The first offset of every open transaction, by producer id.
    """

    records: dict[int, DecodedRecord]
    aborted: set[int]
    undecided: dict[int, int]


def committed_view(stored: Iterable[StoredBatch]) -> CommittedView:
    """Reads a log from its beginning to its end."""
    visible: dict[int, DecodedRecord] = {}
    aborted: set[int] = set()
    waiting: dict[int, list[RecordBatch]] = {}
    for each in stored:
        for batch in read_batches(each.data):
            if batch.is_control:
                marker = Marker.of(batch)
                decided = waiting.pop(marker.producer_id, [])
                records = [record for one in decided for record in one.records()]
                if marker.is_commit:
                    visible.update((record.offset, record) for record in records)
                else:
                    aborted.update(record.offset for record in records)
            elif batch.is_transactional:
                waiting.setdefault(batch.producer_id, []).append(batch)
            else:
                visible.update((record.offset, record) for record in batch.records())
    undecided = {producer: batches[0].base_offset for producer, batches in waiting.items()}
    return CommittedView(dict(sorted(visible.items())), aborted, undecided)
