"""The history of a run, as the checker takes it: from the books, and the logs as readers get them.

Owns: the translation. Not here: what contradicts what, see `support.checker`; guarantees that only
a simulation can observe, see `simulation.oracles`.
"""

from __future__ import annotations

from collections.abc import Iterator

from support.checker import Anomaly, End, History, Logged, Place, Promises, check

from aioproducer.records.batch import DecodedRecord
from aioproducer.types import Persistence
from simulation.evidence import Evidence, Log, name_of
from simulation.ledger import CallState, Entry
from simulation.transactions.book import Outcome, TransactionBook
from simulation.transactions.view import committed_views


def contradictions(e: Evidence) -> list[Anomaly]:
    """Return every contradiction between the outcomes that clients got and the logs."""
    config = e.config
    kept = config.acks_value != 0
    # Without acknowledgements a broker may read a closed connection to its end after the next one.
    one_by_one = kept and config.max_in_flight_requests_per_connection == 1
    promises = Promises(
        kept=kept,
        once=config.effective_idempotence and not e.cluster.producers_lost,
        ordered=(config.effective_idempotence or one_by_one) and not e.may_lose,
    )
    return check(_history_of(e), _logs(e), promises, lost=_lost(e))


def _history_of(e: Evidence) -> History:
    history = History()
    for entry in e.ledger.entries:
        writer = None if entry.task < 0 else entry.task
        history.offer(entry.name, writer=writer, transaction=entry.transaction)
        _add_outcome(history, entry, e.log_of(entry))
    if e.transactions is not None:
        _add_ends(history, e.transactions)
    return history


def _add_outcome(history: History, entry: Entry, log: Log | None) -> None:
    """Add the outcome as often as the client got it; an open one never."""
    if entry.state in {CallState.REFUSED, CallState.CANCELLED}:
        history.refuse(entry.name)
        return
    if entry.state is not CallState.ACCEPTED:
        history.abandon(entry.name)
        return
    history.accept(entry.name)
    error, metadata = entry.error, entry.metadata
    for _ in range(1 if entry.notices is None else entry.notices):
        if error is not None:
            absent = error.persistence is Persistence.NOT_PERSISTED
            history.fail(entry.name, not_persisted=absent)
        elif log is not None and metadata is not None and metadata.offset is not None:
            history.acknowledge(entry.name, Place(log, metadata.offset))
        elif entry.is_acknowledged:
            history.acknowledge(entry.name)
        elif not entry.is_open:
            history.abandon(entry.name)


def _add_ends(history: History, book: TransactionBook) -> None:
    for tx in book.transactions:
        history.begin(tx.number)
        if tx.must_be_absent:
            history.end(tx.number, End.ABORTED)
        else:
            history.end(tx.number, End.ASKED)
            if tx.outcome is Outcome.COMMITTED:
                history.end(tx.number, End.COMMITTED)


def _logs(e: Evidence) -> Iterator[Logged]:
    views = None if e.transactions is None else committed_views(e, e.transactions)
    for log, records in e.logs.items():
        visible = None if views is None else views[log].records
        for record in records.values():
            if log.number >= e.first_logs[name_of(record)]:
                yield _logged(log, record, visible=visible is None or record.offset in visible)


def _lost(e: Evidence) -> list[Logged]:
    """Return what leaders had and their successors did not, where that may happen."""
    if not e.may_lose:
        return []
    return [_logged(log, record) for log, lost in e.lost.items() for record in lost]


def _logged(log: Log, record: DecodedRecord, *, visible: bool = True) -> Logged:
    return Logged(Place(log, record.offset), name_of(record), visible)
