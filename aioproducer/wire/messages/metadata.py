"""Metadata (3): the brokers of the cluster, and the leaders of the topics' partitions.

v4 lets the client forbid auto-creation, v7 brings leader epochs (KIP-320), v9 is the first
flexible version, v10 brings topic ids (KIP-516; to be asked by id only from v12), v13 an error
code for the whole response (KIP-1102: REBOOTSTRAP_REQUIRED).
"""

from __future__ import annotations

from uuid import UUID

from aioproducer.wire.schema import ApiKey, Message, Struct, array, f, struct


@struct
class MetadataResponseBroker(Struct):
    """A broker and the address clients reach it at."""

    node_id: int = f("int32", "0+")
    host: str = f("string", "0+")
    port: int = f("int32", "0+")
    rack: str | None = f("string", "1+", nullable="1+", default=None, ignorable=True)


@struct
class MetadataResponsePartition(Struct):
    """The state of a partition: its leader (-1: none), replicas and in-sync replicas."""

    error_code: int = f("int16", "0+")
    partition_index: int = f("int32", "0+")
    leader_id: int = f("int32", "0+")
    leader_epoch: int = f("int32", "7+", default=-1, ignorable=True)
    replica_nodes: list[int] = f(array("int32"), "0+")
    isr_nodes: list[int] = f(array("int32"), "0+")
    offline_replicas: list[int] = f(array("int32"), "5+", ignorable=True)


@struct
class MetadataResponseTopic(Struct):
    """A topic, or an error in its place."""

    error_code: int = f("int16", "0+")
    name: str | None = f("string", "0+", nullable="12+")
    topic_id: UUID = f("uuid", "10+", ignorable=True)
    is_internal: bool = f("bool", "1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = f(array(MetadataResponsePartition), "0+")
    topic_authorized_operations: int = f("int32", "8+", default=-(2**31))


@struct
class MetadataResponse(Message, api_key=ApiKey.METADATA, versions=(0, 13), flexible_from=9):
    """The cluster in the broker's metadata. From v6 it is sent before the quota delay."""

    throttle_time_ms: int = f("int32", "3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = f(array(MetadataResponseBroker), "0+")
    cluster_id: str | None = f("string", "2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = f("int32", "1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = f(array(MetadataResponseTopic), "0+")
    cluster_authorized_operations: int = f("int32", "8-10", default=-(2**31))
    error_code: int = f("int16", "13+", ignorable=True)


@struct
class MetadataRequestTopic(Struct):
    """A topic by name or, from v12, by id with a null name."""

    topic_id: UUID = f("uuid", "10+", ignorable=True)
    name: str | None = f("string", "0+", nullable="10+")


@struct
class MetadataRequest(Message, response=MetadataResponse):
    """Asks about some topics or all of them.

    No topics mean all topics in v0 and none afterwards, where null means all.
    """

    topics: list[MetadataRequestTopic] | None = f(array(MetadataRequestTopic), "0+", nullable="1+")
    allow_auto_topic_creation: bool = f("bool", "4+", default=True)
    include_cluster_authorized_operations: bool = f("bool", "8-10")
    include_topic_authorized_operations: bool = f("bool", "8+")
