"""EndTxn (26): commits or aborts the ongoing transaction (KIP-98).

From v5 every end of a transaction brings a new epoch (KIP-890, part 2).
"""

from __future__ import annotations

from aioproducer.wire.schema import ApiKey, Message, boolean, f, int16, int32, int64, string, struct


@struct
class EndTxnResponse(Message, api_key=ApiKey.END_TXN, versions=(0, 5), flexible_from=3):
    """The result of the request. From v1 it is sent before the quota delay (KIP-219)."""

    throttle_time_ms: int = f(int32, "0+")
    error_code: int = f(int16, "0+")
    producer_id: int = f(int64, "5+", default=-1, ignorable=True)
    producer_epoch: int = f(int16, "5+", default=-1, ignorable=True)


@struct
class EndTxnRequest(
    Message, api_key=ApiKey.END_TXN, versions=(0, 5), flexible_from=3, response=EndTxnResponse
):
    """Asks the coordinator to commit or to abort."""

    transactional_id: str = f(string, "0+")
    producer_id: int = f(int64, "0+")
    producer_epoch: int = f(int16, "0+")
    committed: bool = f(boolean, "0+")
