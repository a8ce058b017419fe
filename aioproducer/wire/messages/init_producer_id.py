"""InitProducerId (22): a producer id and epoch, for idempotence and transactions (KIP-98).

v3 lets a producer name the id and epoch it had, to recover after a fatal sequence error (KIP-360),
v4 may answer PRODUCER_FENCED, v6 brings two-phase commit (KIP-939).
"""

from __future__ import annotations

from aioproducer.wire.schema import ApiKey, Message, f, struct


@struct
class InitProducerIdResponse(
    Message, api_key=ApiKey.INIT_PRODUCER_ID, versions=(0, 6), flexible_from=2
):
    """The id and epoch to write with. From v1 it is sent before the quota delay (KIP-219)."""

    throttle_time_ms: int = f("int32", "0+", ignorable=True)
    error_code: int = f("int16", "0+")
    producer_id: int = f("int64", "0+", default=-1)
    producer_epoch: int = f("int16", "0+")
    ongoing_txn_producer_id: int = f("int64", "6+", default=-1)
    ongoing_txn_producer_epoch: int = f("int16", "6+", default=-1)


@struct
class InitProducerIdRequest(Message, response=InitProducerIdResponse):
    """Asks for a producer id, or for the next epoch of the one a transactional id has."""

    transactional_id: str | None = f("string", "0+", nullable="0+")
    transaction_timeout_ms: int = f("int32", "0+")
    producer_id: int = f("int64", "3+", default=-1)
    producer_epoch: int = f("int16", "3+", default=-1)
    enable2_pc: bool = f("bool", "6+")
    keep_prepared_txn: bool = f("bool", "6+")
