"""The states of a transactional producer and their transitions; ARCHITECTURE.md has them as a list.

READY, COMMITTING and ABORTING lead to INITIALIZING where the producer id gets a new epoch before
the next transaction. PREPARED leads to UNINITIALIZED when another transactional id is assumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import Enum, auto
from typing import Final


class TransactionState(Enum):
    """State of a transactional producer."""

    UNINITIALIZED = "not initialized"
    INITIALIZING = "being initialized"
    READY = "not in a transaction"
    IN_TRANSACTION = "in a transaction"
    PREPARED = "in a prepared transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in a transaction that has failed"
    FATAL_ERROR = "at its end"


class EpochRenewal(Enum):
    """The need of a new epoch for the next transaction, and the steps to it.

    A new epoch leads back to NOT_NEEDED.
    """

    NOT_NEEDED = auto()
    NEEDED = auto()
    NEEDED_AFTER_ABORT = auto()
    """A late addition of this epoch may have begun a transaction, which has to end first."""
    ABORTED = auto()
    """It has ended; if InitProducerId is refused, another may have begun meanwhile."""
    POSSIBLY_DONE = auto()
    """InitProducerId may have changed the epoch, which another abort would not fit."""


_S = TransactionState

TRANSITIONS: Final[Mapping[TransactionState, Set[TransactionState]]] = {
    _S.UNINITIALIZED: {_S.INITIALIZING},
    _S.INITIALIZING: {_S.READY, _S.UNINITIALIZED},
    _S.READY: {_S.IN_TRANSACTION, _S.INITIALIZING},
    _S.IN_TRANSACTION: {_S.PREPARED, _S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR},
    _S.PREPARED: {_S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR, _S.UNINITIALIZED},
    _S.COMMITTING: {_S.READY, _S.INITIALIZING, _S.ABORTABLE_ERROR},
    _S.ABORTING: {_S.READY, _S.INITIALIZING},
    _S.ABORTABLE_ERROR: {_S.ABORTING},
    _S.FATAL_ERROR: set(),
}
"""From each state, the states that may follow; FATAL_ERROR may follow any, by `fail`."""
