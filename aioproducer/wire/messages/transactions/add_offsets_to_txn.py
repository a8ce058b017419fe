"""AddOffsetsToTxn (25): announces that a transaction will commit offsets of a group (KIP-98).

Not needed any more where TxnOffsetCommit v5 is used (KIP-890).
"""

from __future__ import annotations

from aioproducer.wire.schema import ApiKey, Message, f, int16, int32, int64, string, struct


@struct
class AddOffsetsToTxnResponse(
    Message, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4), flexible_from=3
):
    """The result for the group. From v1 it is sent before the quota delay (KIP-219)."""

    throttle_time_ms: int = f(int32, "0+")
    error_code: int = f(int16, "0+")


@struct
class AddOffsetsToTxnRequest(
    Message,
    api_key=ApiKey.ADD_OFFSETS_TO_TXN,
    versions=(0, 4),
    flexible_from=3,
    response=AddOffsetsToTxnResponse,
):
    """The group whose offsets the transaction will commit."""

    transactional_id: str = f(string, "0+")
    producer_id: int = f(int64, "0+")
    producer_epoch: int = f(int16, "0+")
    group_id: str = f(string, "0+")
