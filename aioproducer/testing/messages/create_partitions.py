"""CreatePartitions (37): makes topics wider (KIP-195).

v3 may answer THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from aioproducer.wire.schema import ApiKey, Message, Struct, array, f, struct


@struct
class CreatePartitionsTopicResult(Struct):
    """The result for one topic."""

    name: str = f("string", "0+")
    error_code: int = f("int16", "0+")
    error_message: str | None = f("string", "0+", nullable="0+", default=None)


@struct
class CreatePartitionsResponse(
    Message, api_key=ApiKey.CREATE_PARTITIONS, versions=(0, 3), flexible_from=2
):
    """The result for each topic. From v1 it is sent before the quota delay (KIP-219)."""

    throttle_time_ms: int = f("int32", "0+")
    results: list[CreatePartitionsTopicResult] = f(array(CreatePartitionsTopicResult), "0+")


@struct
class CreatePartitionsAssignment(Struct):
    """The brokers chosen by hand for one new partition."""

    broker_ids: list[int] = f(array("int32"), "0+")


@struct
class CreatePartitionsTopic(Struct):
    """The partition count a topic shall have; null assignments leave the rest to Kafka."""

    name: str = f("string", "0+")
    count: int = f("int32", "0+")
    assignments: list[CreatePartitionsAssignment] | None = f(
        array(CreatePartitionsAssignment), "0+", nullable="0+"
    )


@struct
class CreatePartitionsRequest(Message, response=CreatePartitionsResponse):
    """The topics, and the partition counts they shall have."""

    topics: list[CreatePartitionsTopic] = f(array(CreatePartitionsTopic), "0+")
    timeout_ms: int = f("int32", "0+")
    validate_only: bool = f("bool", "0+")
