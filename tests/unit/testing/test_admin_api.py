"""CreateTopics, DeleteTopics, CreatePartitions, DescribeConfigs."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer.testing.broker import ClusterState, TopicSpec
from aioproducer.testing.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from aioproducer.testing.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from aioproducer.testing.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

from .support import ask, make_state

UNKNOWN_TOPIC, TOPIC_EXISTS, INVALID_PARTITIONS = 3, 36, 37
INVALID_ASSIGNMENT, NOT_CONTROLLER, INVALID_REQUEST, UNKNOWN_TOPIC_ID = 39, 41, 42, 100


@pytest.fixture
def state() -> ClusterState:
    state = make_state()
    state.create_topic("t", TopicSpec(2, 1))
    return state


def creatable(name: str, partitions: int = 2, factor: int = 3, **more: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **more)


@pytest.mark.parametrize("version", range(2, 8))
def test_topic_is_created_in_every_version(state: ClusterState, version: int) -> None:
    config = CreatableTopicConfig(name="max.message.bytes", value="77")
    request = CreateTopicsRequest(topics=[creatable("new", configs=[config])])
    result = ask(state, request, version).topics[0]
    topic = state.topics["new"]
    assert (result.error_code, len(topic.partitions)) == (0, 2)
    assert topic.config.max_message_bytes == 77
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (2, 3)
        assert {each.name: each.value for each in result.configs}["max.message.bytes"] == "77"
    if version >= 7:
        assert result.topic_id == topic.topic_id


def test_minus_one_means_the_clusters_defaults(state: ClusterState) -> None:
    ask(state, CreateTopicsRequest(topics=[creatable("new", -1, -1)]), 7)
    partitions = state.topics["new"].partitions
    assert (len(partitions), len(partitions[0].replicas)) == (1, 3)


def test_validation_alone_creates_nothing(state: ClusterState) -> None:
    request = CreateTopicsRequest(topics=[creatable("new")], validate_only=True)
    assert ask(state, request, 7).topics[0].error_code == 0
    assert "new" not in state.topics


def test_each_topic_succeeds_or_fails_alone(state: ClusterState) -> None:
    topics = [creatable("a"), creatable("t"), creatable("b"), creatable("b")]
    results = ask(state, CreateTopicsRequest(topics=topics), 7).topics
    codes = {result.name: result.error_code for result in results}
    assert codes == {"a": 0, "t": TOPIC_EXISTS, "b": INVALID_REQUEST}


def test_replicas_may_be_assigned_by_hand(state: ClusterState) -> None:
    def assigned(*replicas: list[int]) -> int:
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in enumerate(replicas)
        ]
        request = CreateTopicsRequest(topics=[creatable("new", -1, -1, assignments=assignments)])
        return ask(state, request, 7).topics[0].error_code

    assert assigned([2, 9]) == INVALID_ASSIGNMENT
    assert assigned([2, 2]) == INVALID_ASSIGNMENT
    assert assigned([2, 1], [3]) == 0
    assert [each.replicas for each in state.topics["new"].partitions] == [(2, 1), (3,)]


@pytest.mark.parametrize("version", range(1, 7))
def test_topic_is_deleted_in_every_version(state: ClusterState, version: int) -> None:
    names = ["t", "nope"]
    if version < 6:
        request = DeleteTopicsRequest(topic_names=names)
    else:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])
    results = ask(state, request, version).responses
    assert [(each.name, each.error_code) for each in results] == [("t", 0), ("nope", UNKNOWN_TOPIC)]
    assert state.topics == {}


def test_topic_is_deleted_by_id(state: ClusterState) -> None:
    topic_id = state.topics["t"].topic_id
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)] * 2)
    results = ask(state, request, 6).responses
    assert [(each.name, each.error_code) for each in results] == [
        ("t", 0),
        (None, UNKNOWN_TOPIC_ID),
    ]


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_in_every_version(state: ClusterState, version: int) -> None:
    def grow(count: int) -> int:
        topics = [CreatePartitionsTopic(name="t", count=count, assignments=None)]
        return ask(state, CreatePartitionsRequest(topics=topics), version).results[0].error_code

    assert grow(5) == 0
    assert len(state.topics["t"].partitions) == 5
    assert grow(5) == INVALID_PARTITIONS


@pytest.mark.parametrize("version", range(1, 5))
def test_options_are_described_with_their_source(state: ClusterState, version: int) -> None:
    state.create_topic("c", TopicSpec(configs={"cleanup.policy": "compact"}))
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name="c", configuration_keys=None),
        DescribeConfigsResource(
            resource_type=2, resource_name="c", configuration_keys=["retention.ms"]
        ),
        DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None),
        DescribeConfigsResource(resource_type=2, resource_name="nope", configuration_keys=None),
        DescribeConfigsResource(resource_type=9, resource_name="x", configuration_keys=None),
    ]
    results = ask(state, DescribeConfigsRequest(resources=resources), version).results
    assert [each.error_code for each in results] == [0, 0, 0, UNKNOWN_TOPIC, INVALID_REQUEST]
    by_name = {each.name: each for each in results[0].configs}
    assert (by_name["cleanup.policy"].value, by_name["cleanup.policy"].config_source) == (
        "compact",
        1,
    )
    assert by_name["retention.ms"].config_source == 5
    assert [each.name for each in results[1].configs] == ["retention.ms"]


def test_scripted_error_strikes_before_or_after_the_change(state: ClusterState) -> None:
    state.faults.error(ApiKey.CREATE_TOPICS, NOT_CONTROLLER)
    state.faults.error(ApiKey.CREATE_TOPICS, 7, apply=True)
    request = CreateTopicsRequest(topics=[creatable("new")])
    assert ask(state, request, 7).topics[0].error_code == NOT_CONTROLLER
    assert "new" not in state.topics
    assert ask(state, request, 7).topics[0].error_code == 7
    assert "new" in state.topics
