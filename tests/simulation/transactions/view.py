"""The view of a log that a consumer with `isolation.level=read_committed` has.

Owns: deciding it from the log alone, marker by marker. Not here: the brokers' own index of
aborted transactions, coordinators.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from aioproducer.records.batch import DecodedRecord, RecordBatch, read_batches
from aioproducer.testing.broker.log import StoredBatch
from aioproducer.testing.broker.markers import Marker
from simulation.evidence import Log, name_of
from simulation.transactions.book import Outcome, TransactionBook

if TYPE_CHECKING:
    from simulation.evidence import Evidence


class CommittedView(NamedTuple):
    """A log as far as it is decided.

    Attributes:
        records: The visible ones by offset.
        aborted: The offsets of those that never will be.
        undecided: The records of every open transaction, by producer id.
    """

    records: dict[int, DecodedRecord]
    aborted: set[int]
    undecided: dict[int, list[DecodedRecord]]


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
    undecided = {
        producer: [record for batch in batches for record in batch.records()]
        for producer, batches in waiting.items()
    }
    return CommittedView(dict(sorted(visible.items())), aborted, undecided)


def committed_views(e: Evidence, book: TransactionBook) -> dict[Log, CommittedView]:
    """Reads all logs of a run.

    A deleted log gets no marker any more. A transaction that is open in it has the same end there
    as in the other logs, or the one that was reported.
    """
    views = {log: committed_view(partition.log.batches) for log, partition in e.traced_partitions}
    owners = {entry.name: entry.transaction for entry in e.ledger.entries}
    committed: set[int | None] = {
        tx.number for tx in book.transactions if tx.outcome is Outcome.COMMITTED
    }
    committed |= {
        owners.get(name_of(record)) for view in views.values() for record in view.records.values()
    }
    for log in e.deleted_logs:
        view = views[log]
        for records in view.undecided.values():
            shown = [each for each in records if owners.get(name_of(each)) in committed]
            view.records.update((each.offset, each) for each in shown)
        view.undecided.clear()
    return views
