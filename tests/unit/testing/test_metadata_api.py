"""Metadata, DescribeCluster: the description of the cluster that clients get."""

from __future__ import annotations

from uuid import UUID

import pytest

from aioproducer.testing.broker import ClusterState, TopicSpec
from aioproducer.testing.messages.describe_cluster import DescribeClusterRequest
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

from .support import NOW_MS, ask, header_of, make_state

UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, INVALID_TOPIC, UNKNOWN_TOPIC_ID = 3, 5, 17, 100


@pytest.fixture
def state() -> ClusterState:
    state = make_state()
    state.create_topic("t", TopicSpec(3, 2))
    return state


def request_for(*names: str, create: bool = True) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


@pytest.mark.parametrize("version", range(14))
def test_topic_is_described_in_every_version(state: ClusterState, version: int) -> None:
    response = ask(state, request_for("t"), version)
    assert [(node.node_id, node.port) for node in response.brokers] == [
        (1, 9092),
        (2, 9093),
        (3, 9094),
    ]
    topic = response.topics[0]
    assert (topic.error_code, topic.name) == (0, "t")
    assert [each.leader_id for each in topic.partitions] == [1, 2, 3]
    assert topic.partitions[2].replica_nodes == topic.partitions[2].isr_nodes == [3, 1]
    if version >= 7:
        assert topic.partitions[0].leader_epoch == 0
    if version >= 10:
        assert topic.topic_id == state.topics["t"].topic_id


def test_null_means_all_topics_and_empty_means_none_but_all_in_v0(state: ClusterState) -> None:
    state.create_topic("another")
    names = [topic.name for topic in ask(state, MetadataRequest(topics=None), 9).topics]
    assert names == ["another", "t"]
    assert ask(state, request_for(), 9).topics == []
    assert len(ask(state, request_for(), 0).topics) == 2


def test_topic_is_asked_by_id_from_v12(state: ClusterState) -> None:
    known = MetadataRequestTopic(name=None, topic_id=state.topics["t"].topic_id)
    unknown = MetadataRequestTopic(name=None, topic_id=UUID(int=9))
    answers = ask(state, MetadataRequest(topics=[known, unknown]), 12).topics
    assert [(each.error_code, each.name) for each in answers] == [
        (0, "t"),
        (UNKNOWN_TOPIC_ID, None),
    ]
    reply = state.respond(1, header_of(MetadataRequest(topics=[known]), 11), NOW_MS)
    assert reply.close is not None


def test_unknown_topic_is_created_by_asking_and_there_the_next_time(state: ClusterState) -> None:
    assert ask(state, request_for("new"), 9).topics[0].error_code == UNKNOWN_TOPIC
    topic = ask(state, request_for("new"), 9).topics[0]
    assert (topic.error_code, len(topic.partitions)) == (0, 1)


def test_client_may_forbid_creation_and_so_may_the_cluster(state: ClusterState) -> None:
    ask(state, request_for("new", create=False), 9)
    assert "new" not in state.topics
    strict = make_state(auto_create_topics=False)
    assert ask(strict, request_for("new"), 9).topics[0].error_code == UNKNOWN_TOPIC
    assert strict.topics == {}


def test_invalid_name_is_refused_and_not_created(state: ClusterState) -> None:
    assert ask(state, request_for("a b"), 9).topics[0].error_code == INVALID_TOPIC
    assert list(state.topics) == ["t"]


def test_a_name_that_collides_with_another_topics_is_not_created(state: ClusterState) -> None:
    state.create_topic("a.b")
    assert ask(state, request_for("a_b"), 9).topics[0].error_code == UNKNOWN_TOPIC
    assert list(state.topics) == ["t", "a.b"]


def test_broker_that_is_down_is_not_named_and_its_replicas_are_offline(state: ClusterState) -> None:
    state.set_broker_down(1)
    response = ask(state, request_for("t"), 9, node_id=2)
    assert [node.node_id for node in response.brokers] == [2, 3]
    assert response.controller_id == 2
    first = response.topics[0].partitions[0]
    assert (first.leader_id, first.leader_epoch) == (2, 1)
    assert (first.isr_nodes, first.offline_replicas) == ([2], [1])


def test_partition_without_leader_says_so(state: ClusterState) -> None:
    state.set_broker_down(1)
    state.set_broker_down(2)
    first = ask(state, request_for("t"), 9, node_id=3).topics[0].partitions[0]
    assert (first.error_code, first.leader_id) == (LEADER_NOT_AVAILABLE, -1)


def test_broker_that_is_down_closes_the_connection(state: ClusterState) -> None:
    state.set_broker_down(1)
    assert state.respond(1, header_of(request_for("t"), 9), NOW_MS).close is not None


def test_scripted_errors_strike_a_topic_or_a_partition(state: ClusterState) -> None:
    state.faults.error(ApiKey.METADATA, 29, topic="t")
    state.faults.error(ApiKey.METADATA, LEADER_NOT_AVAILABLE, topic="t", partition=1)
    assert ask(state, request_for("t"), 9).topics[0].error_code == 29
    partitions = ask(state, request_for("t"), 9).topics[0].partitions
    assert [each.error_code for each in partitions] == [0, LEADER_NOT_AVAILABLE, 0]


@pytest.mark.parametrize("version", range(3))
def test_cluster_is_described_in_every_version(state: ClusterState, version: int) -> None:
    response = ask(state, DescribeClusterRequest(), version)
    assert (response.cluster_id, response.controller_id) == (state.settings.cluster_id, 1)
    assert [node.broker_id for node in response.brokers] == [1, 2, 3]


def test_controllers_are_not_to_be_asked_at_a_broker(state: ClusterState) -> None:
    response = ask(state, DescribeClusterRequest(endpoint_type=2), 1)
    assert (response.error_code, response.brokers) == (114, [])
