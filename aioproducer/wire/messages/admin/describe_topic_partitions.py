"""DescribeTopicPartitions (75): partitions of topics, page by page (KIP-966).

Brings what Metadata does not: eligible leader replicas and the last known ones. An answer that is
cut off at `response_partition_limit` names the cursor to go on from.
"""

from __future__ import annotations

from uuid import UUID

from aioproducer.wire.schema import (
    ApiKey,
    Message,
    Struct,
    array,
    boolean,
    f,
    int16,
    int32,
    string,
    struct,
    uuid,
)


@struct
class DescribeTopicPartitionsResponsePartition(Struct):
    """A partition, with its eligible and last known leaders (KIP-966)."""

    error_code: int = f(int16, "0+")
    partition_index: int = f(int32, "0+")
    leader_id: int = f(int32, "0+")
    leader_epoch: int = f(int32, "0+", default=-1, ignorable=True)
    replica_nodes: list[int] = f(array(int32), "0+")
    isr_nodes: list[int] = f(array(int32), "0+")
    eligible_leader_replicas: list[int] | None = f(array(int32), "0+", nullable="0+", default=None)
    last_known_elr: list[int] | None = f(array(int32), "0+", nullable="0+", default=None)
    offline_replicas: list[int] = f(array(int32), "0+", ignorable=True)


@struct
class DescribeTopicPartitionsResponseTopic(Struct):
    """A topic and those of its partitions that are on this page."""

    error_code: int = f(int16, "0+")
    name: str | None = f(string, "0+", nullable="0+")
    topic_id: UUID = f(uuid, "0+", ignorable=True)
    is_internal: bool = f(boolean, "0+", ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = f(
        array(DescribeTopicPartitionsResponsePartition), "0+"
    )
    topic_authorized_operations: int = f(int32, "0+", default=-(2**31))


@struct
class Cursor(Struct):
    """The partition a page begins at."""

    topic_name: str = f(string, "0+")
    partition_index: int = f(int32, "0+")


@struct
class DescribeTopicPartitionsResponse(
    Message, api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), flexible_from=0
):
    """One page, and the cursor of the next one if there is more."""

    throttle_time_ms: int = f(int32, "0+", ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = f(
        array(DescribeTopicPartitionsResponseTopic), "0+"
    )
    next_cursor: Cursor | None = f(Cursor, "0+", nullable="0+", default=None)


@struct
class TopicRequest(Struct):
    """A topic to describe."""

    name: str = f(string, "0+")


@struct
class DescribeTopicPartitionsRequest(
    Message,
    api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    versions=(0, 0),
    flexible_from=0,
    response=DescribeTopicPartitionsResponse,
):
    """Asks for a page that begins at the cursor."""

    topics: list[TopicRequest] = f(array(TopicRequest), "0+")
    response_partition_limit: int = f(int32, "0+", default=2000)
    cursor: Cursor | None = f(Cursor, "0+", nullable="0+", default=None)
