"""TxnOffsetCommit (28): commits offsets of a group as part of a transaction (KIP-98).

v3 fences by group member (KIP-447), v5 adds the group to the transaction implicitly (KIP-890), v6
names topics by id (KIP-1319).
"""

from __future__ import annotations

from uuid import UUID

from aioproducer.wire.schema import (
    ApiKey,
    Message,
    Struct,
    array,
    f,
    int16,
    int32,
    int64,
    string,
    struct,
    uuid,
)


@struct
class TxnOffsetCommitResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = f(int32, "0+")
    error_code: int = f(int16, "0+")


@struct
class TxnOffsetCommitResponseTopic(Struct):
    """The outcome for one topic."""

    name: str = f(string, "0-5", ignorable=True)
    topic_id: UUID = f(uuid, "6+", ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = f(
        array(TxnOffsetCommitResponsePartition), "0+"
    )


@struct
class TxnOffsetCommitResponse(
    Message, api_key=ApiKey.TXN_OFFSET_COMMIT, versions=(0, 6), flexible_from=3
):
    """The result for each offset. From v1 it is sent before the quota delay (KIP-219)."""

    throttle_time_ms: int = f(int32, "0+")
    topics: list[TxnOffsetCommitResponseTopic] = f(array(TxnOffsetCommitResponseTopic), "0+")


@struct
class TxnOffsetCommitRequestPartition(Struct):
    """The offset to commit for one partition."""

    partition_index: int = f(int32, "0+")
    committed_offset: int = f(int64, "0+")
    committed_leader_epoch: int = f(int32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = f(string, "0+", nullable="0+")


@struct
class TxnOffsetCommitRequestTopic(Struct):
    """The offsets to commit for one topic."""

    name: str = f(string, "0-5", ignorable=True)
    topic_id: UUID = f(uuid, "6+", ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = f(
        array(TxnOffsetCommitRequestPartition), "0+"
    )


@struct
class TxnOffsetCommitRequest(
    Message,
    api_key=ApiKey.TXN_OFFSET_COMMIT,
    versions=(0, 6),
    flexible_from=3,
    response=TxnOffsetCommitResponse,
):
    """The offsets, and the transaction and group member they belong to."""

    transactional_id: str = f(string, "0+")
    group_id: str = f(string, "0+")
    producer_id: int = f(int64, "0+")
    producer_epoch: int = f(int16, "0+")
    generation_id_or_member_epoch: int = f(int32, "3+", default=-1)
    member_id: str = f(string, "3+")
    group_instance_id: str | None = f(string, "3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = f(array(TxnOffsetCommitRequestTopic), "0+")
