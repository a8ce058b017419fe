"""Messages of the offsets of consumer groups, outside of transactions.

- OffsetCommit (8): commits offsets of a group outside of any transaction. v1 fences by group
  member, v6 adds the leader epoch, v7 the static member (KIP-345), v9 is for the new group protocol
  (KIP-848), v10 names topics by id. Versions 0 and 1 are retired; 4.0 brokers refuse them.
- OffsetFetch (9): the offsets groups have committed. v2 can ask for all topics with null, v7 can
  insist on offsets no open transaction may change (KIP-447), v8 asks for many groups at once
  (KIP-709), v9 is for the new group protocol (KIP-848), v10 names topics by id. Version 0 read from
  ZooKeeper; 4.0 brokers refuse it.
"""

from __future__ import annotations

from uuid import UUID

from aioproducer.wire.schema import ApiKey, Message, Struct, array, f, struct


@struct
class OffsetCommitResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = f("int32", "0+")
    error_code: int = f("int16", "0+")


@struct
class OffsetCommitResponseTopic(Struct):
    """The outcome for one topic."""

    name: str = f("string", "0-9", ignorable=True)
    topic_id: UUID = f("uuid", "10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = f(array(OffsetCommitResponsePartition), "0+")


@struct
class OffsetCommitResponse(
    Message, api_key=ApiKey.OFFSET_COMMIT, versions=(0, 10), flexible_from=8
):
    """The result for each offset. From v4 it is sent before the quota delay (KIP-219)."""

    throttle_time_ms: int = f("int32", "3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = f(array(OffsetCommitResponseTopic), "0+")


@struct
class OffsetCommitRequestPartition(Struct):
    """The offset to commit for one partition."""

    partition_index: int = f("int32", "0+")
    committed_offset: int = f("int64", "0+")
    committed_leader_epoch: int = f("int32", "6+", default=-1, ignorable=True)
    commit_timestamp: int = f("int64", "1", default=-1)
    committed_metadata: str | None = f("string", "0+", nullable="0+")


@struct
class OffsetCommitRequestTopic(Struct):
    """The offsets to commit for one topic."""

    name: str = f("string", "0-9", ignorable=True)
    topic_id: UUID = f("uuid", "10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = f(array(OffsetCommitRequestPartition), "0+")


@struct
class OffsetCommitRequest(Message, response=OffsetCommitResponse):
    """The offsets, and the member of the group that commits them."""

    group_id: str = f("string", "0+")
    generation_id_or_member_epoch: int = f("int32", "1+", default=-1, ignorable=True)
    member_id: str = f("string", "1+", ignorable=True)
    group_instance_id: str | None = f("string", "7+", nullable="7+", default=None)
    retention_time_ms: int = f("int64", "2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = f(array(OffsetCommitRequestTopic), "0+")


@struct
class OffsetFetchResponsePartition(Struct):
    """A committed offset (v0-7); -1 where there is none."""

    partition_index: int = f("int32", "0-7")
    committed_offset: int = f("int64", "0-7")
    committed_leader_epoch: int = f("int32", "5-7", default=-1, ignorable=True)
    metadata: str | None = f("string", "0-7", nullable="0-7")
    error_code: int = f("int16", "0-7")


@struct
class OffsetFetchResponseTopic(Struct):
    """The committed offsets of one topic (v0-7)."""

    name: str = f("string", "0-7")
    partitions: list[OffsetFetchResponsePartition] = f(array(OffsetFetchResponsePartition), "0-7")


@struct
class OffsetFetchResponsePartitions(Struct):
    """A committed offset (v8+); -1 where there is none."""

    partition_index: int = f("int32", "8+")
    committed_offset: int = f("int64", "8+")
    committed_leader_epoch: int = f("int32", "8+", default=-1, ignorable=True)
    metadata: str | None = f("string", "8+", nullable="8+")
    error_code: int = f("int16", "8+")


@struct
class OffsetFetchResponseTopics(Struct):
    """The committed offsets of one topic (v8+)."""

    name: str = f("string", "8-9", ignorable=True)
    topic_id: UUID = f("uuid", "10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = f(array(OffsetFetchResponsePartitions), "8+")


@struct
class OffsetFetchResponseGroup(Struct):
    """The committed offsets of one group."""

    group_id: str = f("string", "8+")
    topics: list[OffsetFetchResponseTopics] = f(array(OffsetFetchResponseTopics), "8+")
    error_code: int = f("int16", "8+")


@struct
class OffsetFetchResponse(Message, api_key=ApiKey.OFFSET_FETCH, versions=(0, 10), flexible_from=6):
    """The committed offsets. From v4 it is sent before the quota delay (KIP-219)."""

    throttle_time_ms: int = f("int32", "3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = f(array(OffsetFetchResponseTopic), "0-7")
    error_code: int = f("int16", "2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = f(array(OffsetFetchResponseGroup), "8+")


@struct
class OffsetFetchRequestTopic(Struct):
    """Partitions of one topic (v0-7)."""

    name: str = f("string", "0-7")
    partition_indexes: list[int] = f(array("int32"), "0-7")


@struct
class OffsetFetchRequestTopics(Struct):
    """Partitions of one topic of a group (v8+)."""

    name: str = f("string", "8-9", ignorable=True)
    topic_id: UUID = f("uuid", "10+", ignorable=True)
    partition_indexes: list[int] = f(array("int32"), "8+")


@struct
class OffsetFetchRequestGroup(Struct):
    """A group; null topics ask for all of them."""

    group_id: str = f("string", "8+")
    member_id: str | None = f("string", "9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = f("int32", "9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = f(
        array(OffsetFetchRequestTopics), "8+", nullable="8+"
    )


@struct
class OffsetFetchRequest(Message, response=OffsetFetchResponse):
    """One group and its topics (v0-7), or many groups (v8+)."""

    group_id: str = f("string", "0-7")
    topics: list[OffsetFetchRequestTopic] | None = f(
        array(OffsetFetchRequestTopic), "0-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = f(array(OffsetFetchRequestGroup), "8+")
    require_stable: bool = f("bool", "7+")
