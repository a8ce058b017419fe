"""Metadata (3) and DescribeCluster (60): brokers, topics and leaders.

A topic auto-created by a request is answered UNKNOWN_TOPIC_OR_PARTITION that once and is there the
next time, as with a real broker, whose creation takes a moment (Java: AutoTopicCreationManager).
"""

from __future__ import annotations

from contextlib import suppress

from aioproducer import errors
from aioproducer.testing.broker.api.context import DisconnectError, RequestContext
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.testing.broker.topics import (
    NO_LEADER,
    Partition,
    Topic,
    check_topic_name,
)
from aioproducer.testing.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from aioproducer.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_BROKER_ENDPOINTS = 1
_FIRST_VERSION_WITH_IDS = 12
_EVERY_OPERATION = sum(1 << number for number in (3, 4, 5, 6, 7, 8, 10, 11))
"""All of Java's AclOperation that make sense for a topic, as without an authorizer (KIP-430)."""


def metadata(ctx: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """Describe the cluster, and the topics asked for (null, in v0 an empty list: all)."""
    cluster = ctx.cluster
    asked = request.topics
    if asked is None or (ctx.version == 0 and not asked):
        asked = [MetadataRequestTopic(name=name) for name in sorted(cluster.topics)]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=node.node_id, host=node.host, port=node.port, rack=node.rack
            )
            for node in cluster.known_brokers(ctx.node_id)
        ],
        cluster_id=cluster.settings.cluster_id,
        controller_id=cluster.controller_id,
        topics=[_topic(ctx, each, request) for each in asked],
    )


def describe_cluster(
    ctx: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Describe the brokers (KIP-700)."""
    cluster = ctx.cluster
    answer = DescribeClusterResponse(
        cluster_id=cluster.settings.cluster_id, controller_id=cluster.controller_id
    )
    if request.endpoint_type != _BROKER_ENDPOINTS:
        answer.error_code = errors.MismatchedEndpointTypeError.code
        answer.error_message = "The request was sent to an endpoint of the wrong type."
        return answer
    if ctx.version >= 1:
        answer.endpoint_type = _BROKER_ENDPOINTS
    answer.brokers = [
        DescribeClusterBroker(
            broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack
        )
        for node in cluster.live_brokers
    ]
    return answer


def _topic(
    ctx: RequestContext, asked: MetadataRequestTopic, request: MetadataRequest
) -> MetadataResponseTopic:
    if asked.name is None and ctx.version < _FIRST_VERSION_WITH_IDS:
        raise DisconnectError(f"Metadata v{ctx.version} asks for a topic without a name")
    if (scripted := ctx.scripted_error(asked.name)) is not None:
        return _failed(asked, scripted.code)
    try:
        topic = ctx.find_topic(asked.name, asked.topic_id, by_id=asked.name is None)
    except RefusedError as refusal:
        return _unknown(ctx, asked, refusal, request.allow_auto_topic_creation)
    described = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            _partition(ctx, topic, each)
            for each in ctx.cluster.known_partitions(ctx.node_id, topic)
        ],
    )
    if request.include_topic_authorized_operations:
        described.topic_authorized_operations = _EVERY_OPERATION
    return described


def _unknown(
    ctx: RequestContext, asked: MetadataRequestTopic, refusal: RefusedError, may_create: bool
) -> MetadataResponseTopic:
    if asked.name is None:
        return _failed(asked, refusal.code)
    try:
        check_topic_name(asked.name)
    except RefusedError as invalid:
        return _failed(asked, invalid.code)
    if may_create and ctx.cluster.settings.auto_create_topics:
        with suppress(RefusedError):  # only the broker's log says why there is no topic
            ctx.cluster.create_topic(asked.name)
    return _failed(asked, refusal.code)


def _failed(asked: MetadataRequestTopic, code: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=asked.name, topic_id=asked.topic_id)


def _partition(
    ctx: RequestContext, topic: Topic, partition: Partition
) -> MetadataResponsePartition:
    cluster = ctx.cluster
    scripted = ctx.scripted_error(topic.name, partition.index)
    known = cluster.known_leadership(ctx.node_id, partition)
    if scripted is not None:
        code = scripted.code
    elif known.leader == NO_LEADER:
        code = errors.LeaderNotAvailableError.code
    else:
        code = 0
    return MetadataResponsePartition(
        error_code=code,
        partition_index=partition.index,
        leader_id=known.leader,
        leader_epoch=known.epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(known.isr),
        offline_replicas=[node for node in partition.replicas if not cluster.is_live(node)],
    )
