"""What became of a prepared transaction, told from what its coordinator says.

Owns: the one place that knows how the two protocols leave a transaction behind. Must not know:
requests, who asks.

    prepared at epoch e    V1 (KIP-98)             V2 (KIP-890)
    open                   Ongoing, e              Ongoing, e
    committed              ...Commit, e            ...Commit, e + 1
    aborted by an EndTxn   ...Abort, e             ...Abort, e + 1
    aborted by a timeout   as one of e + 1 would   ...Abort, e + 1

Anything else says that the transactional id was used again meanwhile, or forgotten: then nobody
can tell any more. In V2 a repeated EndTxn tells even where the producer id was rotated, so that is
asked first. Verified against Kafka 4.3.
"""

from __future__ import annotations

from enum import Enum

from aioproducer.types import PreparedTransaction, TransactionDescription


class Fate(Enum):
    """How a prepared transaction ended, if it did."""

    OPEN = "still open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "ended in a way nobody can tell any more"


_ENDED_AS = {
    "PrepareCommit": Fate.COMMITTED,
    "CompleteCommit": Fate.COMMITTED,
    "PrepareAbort": Fate.ABORTED,
    "CompleteAbort": Fate.ABORTED,
}


def fate_of(prepared: PreparedTransaction, now: TransactionDescription | None) -> Fate:
    """The fate of a transaction, `now` being what its coordinator says of the transactional id."""
    if now is None or now.producer_id != prepared.producer_id:
        return Fate.UNKNOWN
    if now.state == "Ongoing" and now.epoch == prepared.epoch:
        return Fate.OPEN
    bumps = prepared.transaction_version >= 2
    if now.epoch == prepared.epoch + bumps:
        return _ENDED_AS.get(now.state, Fate.UNKNOWN)
    return Fate.UNKNOWN
