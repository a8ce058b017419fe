"""Outcome of a prepared transaction, derived from the description by its coordinator.

    prepared at epoch e    V1 (KIP-98)             V2 (KIP-890)
    open                   Ongoing, e              Ongoing, e
    committed              ...Commit, e            ...Commit, e + 1
    aborted by an EndTxn   ...Abort, e             ...Abort, e + 1
    aborted by a timeout   as one of e + 1 would   ...Abort, e + 1

Any other description means that the transactional id was used again or expired: the outcome is
unknown. In V2 a repeated EndTxn gives the outcome even if the producer id was rotated, so it is
sent first. Verified against Kafka 4.3.
"""

from __future__ import annotations

from enum import Enum

from aioproducer.types import PreparedTransaction, TransactionDescription


class PreparedOutcome(Enum):
    """Outcome of a prepared transaction."""

    OPEN = "still open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "ended with an unknown outcome"


_ENDED_AS = {
    "PrepareCommit": PreparedOutcome.COMMITTED,
    "CompleteCommit": PreparedOutcome.COMMITTED,
    "PrepareAbort": PreparedOutcome.ABORTED,
    "CompleteAbort": PreparedOutcome.ABORTED,
}


def prepared_outcome(
    prepared: PreparedTransaction, now: TransactionDescription | None
) -> PreparedOutcome:
    """Return the outcome of a transaction; `now` is the coordinator's current description."""
    if now is None or now.producer_id != prepared.producer_id:
        return PreparedOutcome.UNKNOWN
    if now.state == "Ongoing" and now.epoch == prepared.epoch:
        return PreparedOutcome.OPEN
    bumps = prepared.transaction_version >= 2
    if now.epoch == prepared.epoch + bumps:
        return _ENDED_AS.get(now.state, PreparedOutcome.UNKNOWN)
    return PreparedOutcome.UNKNOWN
