"""Tables of the reaction to each error code of each transactional request.

Codes that are not in a table are retried if Kafka calls them retriable; otherwise the table's
`others` applies. Source: the handlers of Java's `TransactionManager`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple

from aioproducer._util.backoff import ExponentialBackoff
from aioproducer.errors import error_for_code


class Rpc(Enum):
    """The requests of a transactional producer, in the order in which they take precedence."""

    FIND_COORDINATOR = "FindCoordinator"
    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    END = "EndTxn"


class Reaction(Enum):
    """Reaction to an error."""

    RETRY = "send the request again after a backoff"
    FIND_COORDINATOR = "find the coordinator again, then send the request to it"
    ABORTABLE = "the transaction can only be aborted"
    BUMP = "the transaction can only be aborted, and the next one needs a new epoch"
    REFUSED = "no producer id was given; the application may ask again"
    FENCED = "a newer producer has taken over, or so the coordinator says; only close() is left"
    FATAL = "only close() is left"


class _Rules(NamedTuple):
    by_code: dict[int, Reaction]
    others: Reaction


INVALID_TXN_STATE: Final = 48
OPERATION_NOT_ATTEMPTED: Final = 55
TRANSACTION_ABORTABLE: Final = 120

_CONCURRENT_BACKOFF: Final = 0.02

_COORDINATOR_MOVED: Final = dict.fromkeys((15, 16), Reaction.FIND_COORDINATOR)
"""COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR"""
_FENCED: Final = dict.fromkeys((47, 90), Reaction.FENCED)
"""INVALID_PRODUCER_EPOCH (from old coordinators) and PRODUCER_FENCED"""
_ABORTABLE: Final = {TRANSACTION_ABORTABLE: Reaction.ABORTABLE}
_FATAL_STATES: Final = dict.fromkeys((48, 49, 53), Reaction.FATAL)
"""INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, TRANSACTIONAL_ID_AUTHORIZATION_FAILED"""
_UNKNOWN_PRODUCER: Final = {59: Reaction.BUMP}

_BEFORE_ANY_CHANGE: Final = frozenset({3, 29, 30, 35, 42, 47, 48, 49, 51, 53, 55, 59, 90, 120})
"""Codes that a transaction coordinator returns before any change. Any other code may come after it:
a write to its log that seemed to fail may be found there by the next coordinator."""

_RULES: Final = {
    Rpc.FIND_COORDINATOR: _Rules(
        # GROUP_AUTHORIZATION_FAILED
        {30: Reaction.ABORTABLE, **_ABORTABLE},
        others=Reaction.FATAL,
    ),
    Rpc.INIT_PRODUCER_ID: _Rules(
        {
            **_COORDINATOR_MOVED,
            **_FENCED,
            31: Reaction.REFUSED,  # CLUSTER_AUTHORIZATION_FAILED
            53: Reaction.REFUSED,  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            TRANSACTION_ABORTABLE: Reaction.REFUSED,
        },
        others=Reaction.FATAL,
    ),
    Rpc.ADD_PARTITIONS: _Rules(
        {**_COORDINATOR_MOVED, **_FENCED, **_FATAL_STATES, **_UNKNOWN_PRODUCER},
        others=Reaction.ABORTABLE,
    ),
    Rpc.ADD_OFFSETS: _Rules(
        {
            **_COORDINATOR_MOVED,
            **_FENCED,
            **_UNKNOWN_PRODUCER,
            **_ABORTABLE,
            30: Reaction.ABORTABLE,  # GROUP_AUTHORIZATION_FAILED
        },
        others=Reaction.FATAL,
    ),
    Rpc.COMMIT_OFFSETS: _Rules(
        {
            **_COORDINATOR_MOVED,
            7: Reaction.FIND_COORDINATOR,  # REQUEST_TIMED_OUT
            **_FENCED,
            **_ABORTABLE,
            22: Reaction.ABORTABLE,  # ILLEGAL_GENERATION
            25: Reaction.ABORTABLE,  # UNKNOWN_MEMBER_ID
            30: Reaction.ABORTABLE,  # GROUP_AUTHORIZATION_FAILED
            69: Reaction.ABORTABLE,  # GROUP_ID_NOT_FOUND
            82: Reaction.ABORTABLE,  # FENCED_INSTANCE_ID
            113: Reaction.ABORTABLE,  # STALE_MEMBER_EPOCH
        },
        others=Reaction.FATAL,
    ),
    Rpc.END: _Rules(
        {
            **_COORDINATOR_MOVED,
            **_FENCED,
            **_UNKNOWN_PRODUCER,
            **_ABORTABLE,
            # The transaction took too long and the coordinator has aborted it.
            # Fatal in Java, although V2 coordinators accept an abort from such a producer.
            INVALID_TXN_STATE: Reaction.ABORTABLE,
        },
        # Includes UNKNOWN_SERVER_ERROR: only a success proves that the transaction ended.
        others=Reaction.FATAL,
    ),
}


def reaction_to(
    rpc: Rpc, code: int, *, ending: bool = False, may_be_committed: bool = False
) -> Reaction:
    """Return the reaction to an error code.

    `ending`: the transaction is being aborted already, or may have ended. Requests are then
    retried, except that a refused EndTxn is fatal (KIP-890). `may_be_committed`: a newer epoch does
    not undo that.
    """
    rules = _RULES[rpc]
    reaction = rules.by_code.get(code)
    if reaction is None:
        reaction = Reaction.RETRY if error_for_code(code).retriable else rules.others
    if ending and reaction is Reaction.ABORTABLE:
        return Reaction.FATAL if rpc is Rpc.END else Reaction.RETRY
    if may_be_committed and reaction is Reaction.BUMP:
        return Reaction.FATAL
    return reaction


def may_have_worked(code: int) -> bool:
    """Return whether a request with this error code may have had its effect nevertheless."""
    return code not in _BEFORE_ANY_CHANGE


def gravest(rpc: Rpc, codes: Iterable[int]) -> int:
    """Return the error code of a response with the gravest reaction."""
    gravity = list(Reaction)
    return max(codes, key=lambda code: gravity.index(reaction_to(rpc, code)))


def concurrent_backoff(backoff: ExponentialBackoff) -> ExponentialBackoff:
    """Return a backoff that starts short: the previous transaction is about to end.

    See KIP-98 and KIP-890.
    """
    return replace(backoff, initial_s=min(_CONCURRENT_BACKOFF, backoff.initial_s))
