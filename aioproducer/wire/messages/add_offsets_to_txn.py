"""AddOffsetsToTxn (25): announces that a transaction will commit offsets of a group (KIP-98).

Not needed any more where TxnOffsetCommit v5 is used (KIP-890).
"""

from __future__ import annotations

from aioproducer.wire.schema import ApiKey, Message, f, int16, int32, int64, string, struct


@struct
class AddOffsetsToTxnResponse(Message):
    """Whether the group was added. From v1 it is sent before the quota delay (KIP-219)."""

    API_KEY = ApiKey.ADD_OFFSETS_TO_TXN
    VALID_VERSIONS = (0, 4)
    FLEXIBLE_FROM = 3

    throttle_time_ms: int = f(int32, "0+")
    error_code: int = f(int16, "0+")


@struct
class AddOffsetsToTxnRequest(Message):
    """The group whose offsets the transaction will commit."""

    API_KEY = ApiKey.ADD_OFFSETS_TO_TXN
    VALID_VERSIONS = (0, 4)
    FLEXIBLE_FROM = 3
    RESPONSE = AddOffsetsToTxnResponse

    transactional_id: str = f(string, "0+")
    producer_id: int = f(int64, "0+")
    producer_epoch: int = f(int16, "0+")
    group_id: str = f(string, "0+")
