"""The states of a transactional producer and their transitions.

    UNINITIALIZED ---init---> INITIALIZING ---> READY ---begin---> IN_TRANSACTION
          ^                     |  ^  ^          | ^                |    |    |
          +-------refused-------+  |  +--renew---+ |             commit  |  a record failed
                                   |               |                |  abort  |
                                   |               |                v    |    v
                                   +--renew--------+---ended--- COMMITTING -> ABORTABLE_ERROR
                                   |               |                     |    |
                                   +--renew--------+---ended--- ABORTING <----+ abort

    IN_TRANSACTION ---prepare---> PREPARED ---commit, abort---> COMMITTING, ABORTING
    PREPARED -----> ABORTABLE_ERROR
    PREPARED ---another id assumed---> UNINITIALIZED
    any state -----> FATAL_ERROR, which has no way out

`renew`: the producer id gets a new epoch before the next transaction begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
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


_S = TransactionState

_EACH: Final = {
    _S.UNINITIALIZED: {_S.INITIALIZING},
    _S.INITIALIZING: {_S.READY, _S.UNINITIALIZED},
    _S.READY: {_S.IN_TRANSACTION, _S.INITIALIZING},
    _S.IN_TRANSACTION: {_S.PREPARED, _S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR},
    _S.PREPARED: {_S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR, _S.UNINITIALIZED},
    _S.COMMITTING: {_S.READY, _S.INITIALIZING, _S.ABORTABLE_ERROR},
    _S.ABORTING: {_S.READY, _S.INITIALIZING},
    _S.ABORTABLE_ERROR: {_S.ABORTING},
    _S.FATAL_ERROR: set[TransactionState](),
}

TRANSITIONS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = MappingProxyType(
    {
        source: frozenset(targets | ({_S.FATAL_ERROR} if source is not _S.FATAL_ERROR else set()))
        for source, targets in _EACH.items()
    }
)
"""From each state, the states that may follow."""
