"""ListOffsets (2): the offset that belongs to a timestamp.

The timestamps -1 and -2 ask for the end and the start of the log, -3 for the largest timestamp
(v7, KIP-734), -4 and -5 for ends of tiered storage (v8, v9), -6 for what is not uploaded yet
(v11). Version 0 answered with several offsets; 4.0 brokers refuse it.
"""

from __future__ import annotations

from aioproducer.wire.schema import ApiKey, Message, Struct, array, f, struct


@struct
class ListOffsetsPartitionResponse(Struct):
    """The offset found in one partition, -1 where there is none."""

    partition_index: int = f("int32", "0+")
    error_code: int = f("int16", "0+")
    old_style_offsets: list[int] = f(array("int64"), "0")
    timestamp: int = f("int64", "1+", default=-1)
    offset: int = f("int64", "1+", default=-1)
    leader_epoch: int = f("int32", "4+", default=-1)


@struct
class ListOffsetsTopicResponse(Struct):
    """The offsets found in one topic."""

    name: str = f("string", "0+")
    partitions: list[ListOffsetsPartitionResponse] = f(array(ListOffsetsPartitionResponse), "0+")


@struct
class ListOffsetsResponse(Message, api_key=ApiKey.LIST_OFFSETS, versions=(0, 11), flexible_from=6):
    """The offsets found. From v3 it is sent before the quota delay (KIP-219)."""

    throttle_time_ms: int = f("int32", "2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = f(array(ListOffsetsTopicResponse), "0+")


@struct
class ListOffsetsPartition(Struct):
    """The timestamp to look up in one partition."""

    partition_index: int = f("int32", "0+")
    current_leader_epoch: int = f("int32", "4+", default=-1, ignorable=True)
    timestamp: int = f("int64", "0+")
    max_num_offsets: int = f("int32", "0", default=1)


@struct
class ListOffsetsTopic(Struct):
    """The timestamps to look up in one topic."""

    name: str = f("string", "0+")
    partitions: list[ListOffsetsPartition] = f(array(ListOffsetsPartition), "0+")


@struct
class ListOffsetsRequest(Message, response=ListOffsetsResponse):
    """The partitions, and a timestamp for each."""

    replica_id: int = f("int32", "0+")
    isolation_level: int = f("int8", "2+")
    topics: list[ListOffsetsTopic] = f(array(ListOffsetsTopic), "0+")
    timeout_ms: int = f("int32", "10+", ignorable=True)
