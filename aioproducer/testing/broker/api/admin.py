"""CreateTopics (19), DeleteTopics (20), CreatePartitions (37), DescribeConfigs (32).

Any broker serves them, as a KRaft broker forwards them to the controller.
"""

from __future__ import annotations

from collections import Counter

from aioproducer import errors
from aioproducer.testing.broker.api.context import RequestContext
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.testing.broker.settings import TOPIC_OPTIONS, TopicConfig, TopicSpec
from aioproducer.testing.broker.topics import Topic
from aioproducer.testing.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from aioproducer.testing.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from aioproducer.testing.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from aioproducer.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

_FIRST_DELETE_VERSION_WITH_TOPICS = 6
_RESOURCE_TOPIC, _RESOURCE_BROKER = 2, 4


def create_topics(ctx: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create topics, each on its own account."""
    asked = Counter(topic.name for topic in request.topics)
    results = []
    for wanted in {topic.name: topic for topic in request.topics}.values():
        try:
            if asked[wanted.name] > 1:
                raise RefusedError(errors.InvalidRequestError, "Duplicate topic name.")
            results.append(_create_topic(ctx, wanted, request.validate_only))
        except RefusedError as refusal:
            results.append(
                CreatableTopicResult(
                    name=wanted.name,
                    error_code=refusal.code,
                    error_message=refusal.message,
                )
            )
    return CreateTopicsResponse(topics=results)


def delete_topics(ctx: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete topics by name or, from v6, by id."""
    asked = request.topics
    if ctx.version < _FIRST_DELETE_VERSION_WITH_TOPICS:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    return DeleteTopicsResponse(responses=[_delete_topic(ctx, each) for each in asked])


def create_partitions(
    ctx: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Let topics grow (KIP-195)."""
    return CreatePartitionsResponse(
        results=[_create_partitions(ctx, each, request.validate_only) for each in request.topics]
    )


def describe_configs(
    ctx: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Describe the options of topics and of brokers (the topics' defaults)."""
    return DescribeConfigsResponse(results=[_describe(ctx, each) for each in request.resources])


def _create_topic(
    ctx: RequestContext, wanted: CreatableTopic, validate_only: bool
) -> CreatableTopicResult:
    scripted = ctx.scripted_error(wanted.name)
    if scripted is None or scripted.apply:
        spec = TopicSpec(
            wanted.num_partitions,
            wanted.replication_factor,
            {config.name: config.value or "" for config in wanted.configs},
        )
        assignments = {each.partition_index: each.broker_ids for each in wanted.assignments}
        topic = ctx.cluster.create_topic(
            wanted.name, spec, assignments=assignments, validate_only=validate_only
        )
    if scripted is not None:
        return CreatableTopicResult(
            name=wanted.name, error_code=scripted.code, error_message=scripted.message
        )
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=name, value=topic.config[name], config_source=topic.config.source(name)
            )
            for name in sorted(TOPIC_OPTIONS)
        ],
    )


def _delete_topic(ctx: RequestContext, asked: DeleteTopicState) -> DeletableTopicResult:
    result = DeletableTopicResult(name=asked.name, topic_id=asked.topic_id)
    scripted = ctx.scripted_error(asked.name)
    try:
        topic = ctx.find_topic(asked.name, asked.topic_id, by_id=asked.name is None)
        result.name, result.topic_id = topic.name, topic.topic_id
        if scripted is None or scripted.apply:
            ctx.cluster.delete_topic(topic.name)
    except RefusedError as refusal:
        result.error_code, result.error_message = refusal.code, refusal.message
    if scripted is not None:
        result.error_code, result.error_message = scripted.code, scripted.message
    return result


def _create_partitions(
    ctx: RequestContext, wanted: CreatePartitionsTopic, validate_only: bool
) -> CreatePartitionsTopicResult:
    result = CreatePartitionsTopicResult(name=wanted.name)
    scripted = ctx.scripted_error(wanted.name)
    try:
        if scripted is None or scripted.apply:
            ctx.cluster.create_partitions(wanted.name, wanted.count, validate_only=validate_only)
    except RefusedError as refusal:
        result.error_code, result.error_message = refusal.code, refusal.message
    if scripted is not None:
        result.error_code, result.error_message = scripted.code, scripted.message
    return result


def _describe(ctx: RequestContext, asked: DescribeConfigsResource) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=asked.resource_type, resource_name=asked.resource_name, error_message=None
    )
    topic = ctx.cluster.topics.get(asked.resource_name)
    if asked.resource_type == _RESOURCE_TOPIC and topic is None:
        result.error_code = errors.UnknownTopicOrPartitionError.code
    elif asked.resource_type == _RESOURCE_TOPIC:
        result.configs = _options(ctx, topic, asked.configuration_keys)
    elif asked.resource_type == _RESOURCE_BROKER:
        result.configs = _options(ctx, None, asked.configuration_keys)
    else:
        result.error_code = errors.InvalidRequestError.code
        result.error_message = f"Unsupported resource type {asked.resource_type}"
    return result


def _options(
    ctx: RequestContext, topic: Topic | None, keys: list[str] | None
) -> list[DescribeConfigsResourceResult]:
    config = topic.config if topic else TopicConfig({}, ctx.cluster.settings.topic_defaults)
    return [
        DescribeConfigsResourceResult(
            name=name,
            value=config[name],
            read_only=topic is None,
            config_source=config.source(name),
            documentation=None,
        )
        for name in sorted(TOPIC_OPTIONS if keys is None else TOPIC_OPTIONS.keys() & {*keys})
    ]
