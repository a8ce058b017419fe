"""Offsets of groups, in transactions and outside, as clients read them back."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer.testing.broker import ClusterState, TopicSpec
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from aioproducer.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from .support import ask, make_state
from .transactional import (
    V1_VERSIONS,
    V2_VERSIONS,
    TransactionalProducer,
    committed_offset,
    group_coordinator_of,
)

BOTH = pytest.mark.parametrize("versions", [V1_VERSIONS, V2_VERSIONS], ids=["v1", "v2"])
UNSTABLE = 88


@pytest.fixture
def state() -> ClusterState:
    state = make_state()
    state.create_topic("t", TopicSpec(2, 3))
    return state


def _producer(state: ClusterState, versions: dict[str, int]) -> TransactionalProducer:
    producer = TransactionalProducer(state, versions)
    assert producer.initialize() == 0
    if not producer.is_v2:
        assert producer.add_group() == 0
    return producer


def _commit(state: ClusterState, offset: int, version: int = 7, **member: Any) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    if version >= 10:
        topic.topic_id = state.topics["t"].topic_id
    request = OffsetCommitRequest(group_id="g", topics=[topic], **member)
    answer = ask(state, request, version, node_id=group_coordinator_of(state))
    return int(answer.topics[0].partitions[0].error_code)


@BOTH
@pytest.mark.parametrize(("commit", "expected"), [(True, 42), (False, -1)])
def test_offsets_count_once_their_transaction_commits(
    state: ClusterState, versions: dict[str, int], commit: bool, expected: int
) -> None:
    producer = _producer(state, versions)
    assert producer.commit_offset(42) == 0
    assert committed_offset(state).committed_offset == -1
    unstable = committed_offset(state, require_stable=True)
    assert (unstable.error_code, unstable.committed_offset) == (UNSTABLE, -1)
    assert producer.end(commit=commit) == 0
    found = committed_offset(state, require_stable=True)
    assert (found.error_code, found.committed_offset) == (0, expected)
    assert found.metadata == ("m" if commit else "")


@BOTH
def test_offsets_in_a_topic_end_with_it(state: ClusterState, versions: dict[str, int]) -> None:
    assert _commit(state, 5) == 0
    producer = _producer(state, versions)
    assert producer.commit_offset(42) == 0
    state.create_topic("other")
    state.delete_topic("other")
    assert committed_offset(state).committed_offset == 5
    state.delete_topic("t")
    state.create_topic("t", TopicSpec(2, 3))
    assert committed_offset(state).committed_offset == -1
    assert producer.end(commit=True) == 0
    assert committed_offset(state, require_stable=True).committed_offset == -1


def test_before_v2_the_group_has_to_be_added(state: ClusterState) -> None:
    producer = TransactionalProducer(state, V1_VERSIONS)
    assert producer.initialize() == 0
    assert producer.commit_offset(1) == 120
    producer.versions = {**V1_VERSIONS, "offsets": 3}
    assert producer.commit_offset(1) == 48


def test_a_fenced_producer_commits_no_offsets(state: ClusterState) -> None:
    old = _producer(state, V2_VERSIONS)
    assert old.commit_offset(1) == 0
    new = TransactionalProducer(state, V2_VERSIONS)
    assert [new.initialize(), new.initialize()] == [51, 0]
    assert old.commit_offset(2) == 47
    assert committed_offset(state).committed_offset == -1


def test_a_later_commit_is_not_overtaken_by_an_earlier_transaction(state: ClusterState) -> None:
    producer = _producer(state, V2_VERSIONS)
    assert producer.commit_offset(1) == 0
    assert _commit(state, 2) == 0
    assert producer.end() == 0
    assert committed_offset(state).committed_offset == 2


@BOTH
def test_members_of_a_group_are_distinguished_from_those_that_left(
    state: ClusterState, versions: dict[str, int]
) -> None:
    state.groups.set_members("g", 5, {"m1": None, "m2": "static"})
    producer = _producer(state, versions)
    member = {"generation_id_or_member_epoch": 5, "member_id": "m1"}
    assert producer.commit_offset(1, **member) == 0
    assert producer.commit_offset(1) == 0, "before KIP-447 no request has a member"
    assert producer.commit_offset(1, **member | {"generation_id_or_member_epoch": 4}) == 22
    assert producer.commit_offset(1, **member | {"member_id": "gone"}) == 25
    static = {"generation_id_or_member_epoch": 5, "group_instance_id": "static"}
    assert producer.commit_offset(1, **static, member_id="m2") == 0
    assert producer.commit_offset(1, **static, member_id="m1") == 82
    assert producer.commit_offset(1, **static | {"group_instance_id": "x"}, member_id="m1") == 25


def test_a_generation_of_a_group_that_is_not_there_is_illegal(state: ClusterState) -> None:
    producer = _producer(state, V2_VERSIONS)
    assert producer.commit_offset(1, generation_id_or_member_epoch=1, member_id="m") == 22


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_are_committed_without_a_transaction_too(state: ClusterState, version: int) -> None:
    assert _commit(state, 9, version) == 0
    assert committed_offset(state).committed_offset == 9
    state.groups.set_members("g", 1, {"m": None})
    assert _commit(state, 10, version) == 25


@pytest.mark.parametrize("version", [8, 9, 10])
def test_many_groups_are_asked_for_at_once(state: ClusterState, version: int) -> None:
    assert _commit(state, 9) == 0
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])
    if version >= 10:
        topic.topic_id = state.topics["t"].topic_id
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="g", topics=[topic]),
            OffsetFetchRequestGroup(group_id="g", topics=None),
        ]
    )
    answer = ask(state, request, version, node_id=group_coordinator_of(state))
    asked, everything = (
        [each.committed_offset for each in group.topics[0].partitions] for group in answer.groups
    )
    assert (asked, everything) == ([9, -1], [9])


def test_other_brokers_do_not_coordinate_the_group(state: ClusterState) -> None:
    coordinator = group_coordinator_of(state)
    other = next(node for node in (1, 2, 3) if node != coordinator)
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    assert ask(state, request, 8, node_id=other).groups[0].error_code == 16
    request.groups[0].group_id = ""
    assert ask(state, request, 8, node_id=coordinator).groups[0].error_code == 24


def test_what_is_wrong_with_one_partition_is_not_with_the_others(state: ClusterState) -> None:
    producer = _producer(state, V2_VERSIONS)
    partitions = [
        TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=7, committed_metadata=metadata
        )
        for index, metadata in [(0, None), (1, "x" * 5000), (9, None)]
    ]
    request = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[
            TxnOffsetCommitRequestTopic(topic_id=state.topics["t"].topic_id, partitions=partitions)
        ],
    )
    answer = ask(state, request, 6, node_id=group_coordinator_of(state))
    assert [each.error_code for each in answer.topics[0].partitions] == [0, 12, 3]
    assert producer.end() == 0
    assert committed_offset(state).committed_offset == 7


def test_faults_strike_commits(state: ClusterState) -> None:
    producer = _producer(state, V2_VERSIONS)
    for code, apply in [(14, False), (3, False), (16, True)]:
        state.faults.error(ApiKey.TXN_OFFSET_COMMIT, code, topic="t", apply=apply)
        state.faults.error(ApiKey.OFFSET_FETCH, code, topic="g")
        assert producer.commit_offset(code) == code
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        answer = ask(state, request, 8, node_id=group_coordinator_of(state))
        assert answer.groups[0].error_code == code
    assert producer.end() == 0
    assert committed_offset(state).committed_offset == 16
