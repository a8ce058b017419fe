"""OffsetCommit (8): commits offsets of a group outside of any transaction.

v1 fences by group member, v6 adds the leader epoch, v7 the static member (KIP-345), v9 is for the
new group protocol (KIP-848), v10 names topics by id. Versions 0 and 1 are retired; 4.0 brokers
refuse them.
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
class OffsetCommitResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = f(int32, "0+")
    error_code: int = f(int16, "0+")


@struct
class OffsetCommitResponseTopic(Struct):
    """The outcome for one topic."""

    name: str = f(string, "0-9", ignorable=True)
    topic_id: UUID = f(uuid, "10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = f(array(OffsetCommitResponsePartition), "0+")


@struct
class OffsetCommitResponse(
    Message, api_key=ApiKey.OFFSET_COMMIT, versions=(0, 10), flexible_from=8
):
    """The result for each offset. From v4 it is sent before the quota delay (KIP-219)."""

    throttle_time_ms: int = f(int32, "3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = f(array(OffsetCommitResponseTopic), "0+")


@struct
class OffsetCommitRequestPartition(Struct):
    """The offset to commit for one partition."""

    partition_index: int = f(int32, "0+")
    committed_offset: int = f(int64, "0+")
    committed_leader_epoch: int = f(int32, "6+", default=-1, ignorable=True)
    commit_timestamp: int = f(int64, "1", default=-1)
    committed_metadata: str | None = f(string, "0+", nullable="0+")


@struct
class OffsetCommitRequestTopic(Struct):
    """The offsets to commit for one topic."""

    name: str = f(string, "0-9", ignorable=True)
    topic_id: UUID = f(uuid, "10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = f(array(OffsetCommitRequestPartition), "0+")


@struct
class OffsetCommitRequest(
    Message,
    api_key=ApiKey.OFFSET_COMMIT,
    versions=(0, 10),
    flexible_from=8,
    response=OffsetCommitResponse,
):
    """The offsets, and the member of the group that commits them."""

    group_id: str = f(string, "0+")
    generation_id_or_member_epoch: int = f(int32, "1+", default=-1, ignorable=True)
    member_id: str = f(string, "1+", ignorable=True)
    group_instance_id: str | None = f(string, "7+", nullable="7+", default=None)
    retention_time_ms: int = f(int64, "2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = f(array(OffsetCommitRequestTopic), "0+")
