"""CreateTopics (19): creates topics; must reach the controller on old clusters.

v1 adds the dry run, v4 lets the broker choose partitions and replicas with -1 (KIP-464), v5
answers with the topic's configuration (KIP-525), v6 may answer THROTTLING_QUOTA_EXCEEDED
(KIP-599), v7 answers with the topic id. Versions 0 and 1 are for brokers before 0.11; 4.0 brokers
refuse them.
"""

from __future__ import annotations

from uuid import UUID

from aioproducer.wire.schema import ApiKey, Message, Struct, array, f, struct


@struct
class CreatableTopicConfigs(Struct):
    """One configuration value the new topic has (KIP-525)."""

    name: str = f("string", "5+")
    value: str | None = f("string", "5+", nullable="5+")
    read_only: bool = f("bool", "5+")
    config_source: int = f("int8", "5+", default=-1, ignorable=True)
    is_sensitive: bool = f("bool", "5+")


@struct
class CreatableTopicResult(Struct):
    """The result for one topic; `configs` is null where the client may not see them."""

    name: str = f("string", "0+")
    topic_id: UUID = f("uuid", "7+", ignorable=True)
    error_code: int = f("int16", "0+")
    error_message: str | None = f("string", "1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = f("int16", "5+", tag=0, ignorable=True)
    num_partitions: int = f("int32", "5+", default=-1, ignorable=True)
    replication_factor: int = f("int16", "5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = f(
        array(CreatableTopicConfigs), "5+", nullable="5+", ignorable=True
    )


@struct
class CreateTopicsResponse(Message, api_key=ApiKey.CREATE_TOPICS, versions=(0, 7), flexible_from=5):
    """The result for each topic. From v3 it is sent before the quota delay (KIP-219)."""

    throttle_time_ms: int = f("int32", "2+", ignorable=True)
    topics: list[CreatableTopicResult] = f(array(CreatableTopicResult), "0+")


@struct
class CreatableReplicaAssignment(Struct):
    """The brokers chosen by hand for one partition."""

    partition_index: int = f("int32", "0+")
    broker_ids: list[int] = f(array("int32"), "0+")


@struct
class CreatableTopicConfig(Struct):
    """One configuration value of the topic to create."""

    name: str = f("string", "0+")
    value: str | None = f("string", "0+", nullable="0+")


@struct
class CreatableTopic(Struct):
    """A topic to create; -1 leaves a number to the broker (v4+) or to the assignments."""

    name: str = f("string", "0+")
    num_partitions: int = f("int32", "0+")
    replication_factor: int = f("int16", "0+")
    assignments: list[CreatableReplicaAssignment] = f(array(CreatableReplicaAssignment), "0+")
    configs: list[CreatableTopicConfig] = f(array(CreatableTopicConfig), "0+")


@struct
class CreateTopicsRequest(Message, response=CreateTopicsResponse):
    """The topics to create."""

    topics: list[CreatableTopic] = f(array(CreatableTopic), "0+")
    timeout_ms: int = f("int32", "0+", default=60000)
    validate_only: bool = f("bool", "1+")
