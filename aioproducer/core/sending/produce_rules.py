"""Table of the sender's action for each error code of a Produce response.

Codes that are not in the table follow the broker error table: retriable ones are retried, others
fail the batch. Source: Java's `Sender.completeBatch` and `TransactionManager.canRetry`. Java splits
a batch only if it is too large, and fails all records of a batch that has invalid ones.
"""

from __future__ import annotations

from enum import Enum

from aioproducer.errors import error_for_code


class ProduceAction(Enum):
    """Action for a batch after a response."""

    SUCCEED = "it is written"
    RETRY = "send it again"
    SPLIT = "some of its records are to blame: send it again in parts (KIP-126, KIP-467)"
    OUT_OF_ORDER = "its predecessor is missing: number anew what is not written, send it again"
    NEW_ID = "its producer id is refused: request another one, then as OUT_OF_ORDER"
    FAIL = "it fails; the producer goes on"
    FATAL = "everything fails; only close() is left"


OUT_OF_ORDER_SEQUENCE_NUMBER = 45
DUPLICATE_SEQUENCE_NUMBER = 46

_RULES = {
    0: ProduceAction.SUCCEED,
    10: ProduceAction.SPLIT,  # MESSAGE_TOO_LARGE
    18: ProduceAction.SPLIT,  # RECORD_LIST_TOO_LARGE
    32: ProduceAction.SPLIT,  # INVALID_TIMESTAMP
    DUPLICATE_SEQUENCE_NUMBER: ProduceAction.SUCCEED,  # an earlier attempt was written
    87: ProduceAction.SPLIT,  # INVALID_RECORD
}
_IDEMPOTENT_RULES = {
    31: ProduceAction.FATAL,  # CLUSTER_AUTHORIZATION_FAILED
    35: ProduceAction.FATAL,  # UNSUPPORTED_VERSION
    OUT_OF_ORDER_SEQUENCE_NUMBER: ProduceAction.OUT_OF_ORDER,
    49: ProduceAction.NEW_ID,  # INVALID_PRODUCER_ID_MAPPING: Event Hubs, for a bumped epoch
    53: ProduceAction.FATAL,  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    59: ProduceAction.OUT_OF_ORDER,  # UNKNOWN_PRODUCER_ID (KIP-360)
    90: ProduceAction.FATAL,  # PRODUCER_FENCED
}

NEVER_APPENDED = frozenset(
    {2, 10, 17, 18, 19, 21, 29, 31, 32, 35, 42, 43, 44, 45, 47, 48, 49, 51}
    | {53, 59, 74, 75, 76, 87, 89, 90, 100, 103, 120}
)
"""Codes that a broker returns before the append. Any other may come after it: with acks=all a
broker that loses the leadership (6), the topic (3) or its disk (56) while it waits for its
followers returns the code for a batch that is in its log (Kafka: `DelayedProduce`)."""


def action_for(code: int, *, idempotent: bool) -> ProduceAction:
    """Return the action for an error code of one partition."""
    action = _RULES.get(code)
    if action is None and idempotent:
        action = _IDEMPOTENT_RULES.get(code)
    if action is None:
        action = ProduceAction.RETRY if error_for_code(code).retriable else ProduceAction.FAIL
    return action
