"""Fetch (1): record batches from the partitions a broker leads.

v4 is the first with record batches of format v2, v7 brings fetch sessions (KIP-227), v11 the rack
and the preferred replica (KIP-392), v12 is the first flexible version, v13 names topics by id
(KIP-516), v15 moves the replica id into `replica_state` (KIP-903), v16 has new leaders'
endpoints (KIP-951), v17 and v18 are for replicas (KIP-853, KIP-1166). Versions 0 to 3 are for
brokers before 0.11; 4.0 brokers refuse them.
"""

from __future__ import annotations

from uuid import UUID

from aioproducer.wire.messages.common import LeaderIdAndEpoch, NodeEndpoint
from aioproducer.wire.schema import ApiKey, Message, Struct, array, f, struct


@struct
class EpochEndOffset(Struct):
    """The offset at which the follower's log diverges from the leader's."""

    epoch: int = f("int32", "12+", default=-1)
    end_offset: int = f("int64", "12+", default=-1)


@struct
class SnapshotId(Struct):
    """The snapshot to fetch instead of the log."""

    end_offset: int = f("int64", "0+", default=-1)
    epoch: int = f("int32", "0+", default=-1)


@struct
class AbortedTransaction(Struct):
    """An aborted transaction whose records a committed read skips."""

    producer_id: int = f("int64", "4+")
    first_offset: int = f("int64", "4+")


@struct
class PartitionData(Struct):
    """The data read from one partition.

    `records` may end in the middle of a batch; the rest comes with the next fetch.
    """

    partition_index: int = f("int32", "0+")
    error_code: int = f("int16", "0+")
    high_watermark: int = f("int64", "0+")
    last_stable_offset: int = f("int64", "4+", default=-1, ignorable=True)
    log_start_offset: int = f("int64", "5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = f(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = f(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = f(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = f(
        array(AbortedTransaction), "4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = f("int32", "11+", default=-1)
    records: bytes | memoryview | None = f("records", "0+", nullable="0+")


@struct
class FetchableTopicResponse(Struct):
    """The data read from one topic."""

    topic: str = f("string", "0-12", ignorable=True)
    topic_id: UUID = f("uuid", "13+", ignorable=True)
    partitions: list[PartitionData] = f(array(PartitionData), "0+")


@struct
class FetchResponse(Message, api_key=ApiKey.FETCH, versions=(0, 18), flexible_from=12):
    """The batches that were read. From v8 it is sent before the quota delay (KIP-219)."""

    throttle_time_ms: int = f("int32", "1+", ignorable=True)
    error_code: int = f("int16", "7+", ignorable=True)
    session_id: int = f("int32", "7+")
    responses: list[FetchableTopicResponse] = f(array(FetchableTopicResponse), "0+")
    node_endpoints: list[NodeEndpoint] = f(array(NodeEndpoint), "16+", tag=0)


@struct
class ReplicaState(Struct):
    """The follower that fetches; consumers leave it at its defaults."""

    replica_id: int = f("int32", "15+", default=-1)
    replica_epoch: int = f("int64", "15+", default=-1)


@struct
class FetchPartition(Struct):
    """The position in one partition."""

    partition: int = f("int32", "0+")
    current_leader_epoch: int = f("int32", "9+", default=-1, ignorable=True)
    fetch_offset: int = f("int64", "0+")
    last_fetched_epoch: int = f("int32", "12+", default=-1)
    log_start_offset: int = f("int64", "5+", default=-1, ignorable=True)
    partition_max_bytes: int = f("int32", "0+")
    replica_directory_id: UUID = f("uuid", "17+", tag=0, ignorable=True)
    high_watermark: int = f("int64", "18+", default=2**63 - 1, tag=1, ignorable=True)


@struct
class FetchTopic(Struct):
    """The positions in one topic."""

    topic: str = f("string", "0-12", ignorable=True)
    topic_id: UUID = f("uuid", "13+", ignorable=True)
    partitions: list[FetchPartition] = f(array(FetchPartition), "0+")


@struct
class ForgottenTopic(Struct):
    """Partitions to drop from the fetch session."""

    topic: str = f("string", "7-12", ignorable=True)
    topic_id: UUID = f("uuid", "13+", ignorable=True)
    partitions: list[int] = f(array("int32"), "7+")


@struct
class FetchRequest(Message, response=FetchResponse):
    """Positions, the amount of data, and the time to wait for it."""

    cluster_id: str | None = f("string", "12+", nullable="12+", default=None, tag=0, ignorable=True)
    replica_id: int = f("int32", "0-14", default=-1)
    replica_state: ReplicaState = f(ReplicaState, "15+", tag=1)
    max_wait_ms: int = f("int32", "0+")
    min_bytes: int = f("int32", "0+")
    max_bytes: int = f("int32", "3+", default=0x7FFF_FFFF, ignorable=True)
    isolation_level: int = f("int8", "4+", ignorable=True)
    session_id: int = f("int32", "7+", ignorable=True)
    session_epoch: int = f("int32", "7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = f(array(FetchTopic), "0+")
    forgotten_topics_data: list[ForgottenTopic] = f(array(ForgottenTopic), "7+")
    rack_id: str = f("string", "11+", ignorable=True)
