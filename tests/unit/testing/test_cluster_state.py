"""Leaders, epochs, replicas and topics as brokers come and go."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from aioproducer.testing.broker import ClusterState, RefusedError, TopicSpec
from aioproducer.types import TopicPartition

from .support import make_batch, make_state, produce

BROKERS = 4


class ClusterChanges(RuleBasedStateMachine):
    """Any sequence of outages, moves and writes keeps leaders legitimate and logs complete."""

    state: ClusterState

    @initialize(factor=st.integers(1, BROKERS))
    def create(self, factor: int) -> None:
        self.state = make_state(BROKERS)
        self.state.create_topic("t", TopicSpec(3, factor))
        self.epochs = {partition.index: 0 for partition in self.partitions}
        self.written = dict.fromkeys(self.epochs, 0)

    @property
    def partitions(self) -> list:
        return self.state.topics["t"].partitions

    @rule(node_id=st.integers(1, BROKERS))
    def down(self, node_id: int) -> None:
        self.state.set_broker_down(node_id)

    @rule(node_id=st.integers(1, BROKERS))
    def up(self, node_id: int) -> None:
        self.state.set_broker_up(node_id)

    @rule(index=st.integers(0, 2))
    def move(self, index: int) -> None:
        partition = self.partitions[index]
        if partition.leader != -1:
            before = partition.leader, partition.leader_epoch
            moved = self.state.move_leader("t", index)
            assert (moved != before[0]) == (partition.leader_epoch == before[1] + 1)

    @rule(index=st.integers(0, 2))
    def write(self, index: int) -> None:
        partition = self.partitions[index]
        if partition.leader != -1:
            answer = produce(self.state, make_batch(), partition=index)
            assert (answer.error_code, answer.base_offset) == (0, self.written[index])
            self.written[index] += 1

    @invariant()
    def leaders_are_live_and_in_sync(self) -> None:
        for partition in self.partitions:
            assert partition.isr
            assert set(partition.isr) <= set(partition.replicas)
            if partition.leader == -1:
                assert not any(self.state.is_live(node) for node in partition.isr)
            else:
                assert self.state.is_live(partition.leader)
                assert all(self.state.is_live(node) for node in partition.isr)
                assert partition.leader in partition.isr
            assert partition.leader_epoch >= self.epochs[partition.index]
            self.epochs[partition.index] = partition.leader_epoch
            assert partition.log.end_offset == self.written[partition.index]


TestClusterChanges = ClusterChanges.TestCase
TestClusterChanges.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def state_with_topic(partitions: int = 3, factor: int = 3) -> ClusterState:
    state = make_state()
    state.create_topic("t", TopicSpec(partitions, factor))
    return state


def test_leaders_are_spread_over_the_brokers() -> None:
    state = state_with_topic(6)
    assert sorted(each.leader for each in state.topics["t"].partitions) == [1, 1, 2, 2, 3, 3]


def test_topics_of_one_partition_do_not_all_share_a_leader() -> None:
    state = make_state()
    leaders = {state.create_topic(f"t{n}", TopicSpec(1, 1)).partitions[0].leader for n in range(3)}
    assert leaders == {1, 2, 3}


def test_same_seed_gives_the_same_topic_ids_and_another_seed_others() -> None:
    ids = [make_state(seed=seed).create_topic("t").topic_id for seed in (1, 1, 2)]
    assert ids[0] == ids[1] != ids[2]


def test_topic_created_again_has_another_id() -> None:
    state = state_with_topic()
    first = state.topics["t"].topic_id
    state.delete_topic("t")
    assert state.create_topic("t").topic_id != first
    assert state.topic_by_id(first) is None


def test_leader_moves_to_the_next_in_sync_replica_under_a_new_epoch() -> None:
    state = state_with_topic()
    partition = state.topics["t"].partitions[0]
    assert (partition.leader, partition.leader_epoch) == (1, 0)
    assert state.move_leader("t", 0) == 2
    assert state.move_leader("t", 0, 1) == 1
    assert partition.leader_epoch == 2


def test_leader_cannot_move_to_a_broker_that_is_not_in_sync() -> None:
    state = state_with_topic()
    state.set_broker_down(2)
    with pytest.raises(ValueError, match="not an in-sync replica"):
        state.move_leader("t", 0, 2)
    with pytest.raises(ValueError, match="there is no partition"):
        state.move_leader("t", 9)


def test_only_replica_that_goes_down_leaves_no_leader_and_leads_again_when_back() -> None:
    state = state_with_topic(1, 1)
    partition = state.topics["t"].partitions[0]
    node = partition.leader
    state.set_broker_down(node)
    assert (partition.leader, partition.leader_epoch) == (-1, 1)
    state.set_broker_up(node)
    assert (partition.leader, partition.leader_epoch) == (node, 2)


def test_only_the_last_in_sync_replica_may_lead_again() -> None:
    state = state_with_topic(1, 2)
    partition = state.topics["t"].partitions[0]
    assert partition.replicas == (1, 2)
    state.set_broker_down(1)
    state.set_broker_down(2)
    state.set_broker_up(1)
    assert partition.leader == -1
    state.set_broker_up(2)
    assert partition.leader == 2
    assert set(partition.isr) == {1, 2}


def test_subscribers_hear_of_appends_and_moves() -> None:
    state = state_with_topic()
    heard: list[TopicPartition] = []
    state.subscribe(heard.append)
    produce(state, make_batch(), partition=1)
    state.move_leader("t", 2)
    assert heard == [("t", 1), ("t", 2)]


@pytest.mark.parametrize(
    ("name", "spec", "error"),
    [
        ("t", TopicSpec(), "TOPIC_ALREADY_EXISTS"),
        ("", TopicSpec(), "INVALID_TOPIC_EXCEPTION"),
        ("..", TopicSpec(), "INVALID_TOPIC_EXCEPTION"),
        ("a b", TopicSpec(), "INVALID_TOPIC_EXCEPTION"),
        ("ä", TopicSpec(), "INVALID_TOPIC_EXCEPTION"),
        ("x" * 250, TopicSpec(), "INVALID_TOPIC_EXCEPTION"),
        ("u", TopicSpec(0), "INVALID_PARTITIONS"),
        ("u", TopicSpec(2**31 - 1), "POLICY_VIOLATION"),
        ("u", TopicSpec(1, 4), "INVALID_REPLICATION_FACTOR"),
        ("u", TopicSpec(1, 1, {"no.such": "1"}), "INVALID_CONFIG"),
        ("u", TopicSpec(1, 1, {"compression.type": "rar"}), "INVALID_CONFIG"),
        ("u", TopicSpec(1, 1, {"remote.storage.enable": "true"}), "INVALID_CONFIG"),
    ],
)
def test_topic_that_kafka_would_refuse_is_refused(name: str, spec: TopicSpec, error: str) -> None:
    state = state_with_topic()
    with pytest.raises(RefusedError) as caught:
        state.create_topic(name, spec)
    assert caught.value.error.error_name == error
    assert list(state.topics) == ["t"]


def test_topic_options_come_from_the_topic_then_the_cluster_then_kafka() -> None:
    state = make_state(topic_defaults={"max.message.bytes": "500", "retention.bytes": "9"})
    config = state.create_topic("t", TopicSpec(configs={"max.message.bytes": "7"})).config
    assert (config.max_message_bytes, config.retention_bytes) == (7, 9)
    assert config.min_insync_replicas == 1


def test_options_that_change_nothing_here_are_kept() -> None:
    given = {
        "compression.type": "zstd",
        "leader.replication.throttled.replicas": "0:1",
        "local.retention.ms": "1000",
        "remote.storage.enable": "false",
    }
    config = make_state().create_topic("t", TopicSpec(configs=given)).config
    assert {name: config[name] for name in given} == given


@pytest.mark.parametrize(("first", "second"), [("a.b_c", "a_b.c"), ("a_b", "a.b"), ("a.b", "a_b")])
def test_topics_whose_metrics_would_have_the_same_names_exclude_each_other(
    first: str, second: str
) -> None:
    state = make_state()
    state.create_topic(first)
    with pytest.raises(RefusedError, match=f"collides with existing topic: {first}") as caught:
        state.create_topic(second)
    assert caught.value.error.error_name == "INVALID_TOPIC_EXCEPTION"
    state.create_topic("ab")
    state.delete_topic(first)
    state.create_topic(second)
    assert sorted(state.topics) == sorted([second, "ab"])


def test_cluster_without_brokers_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one broker"):
        make_state(0)


def test_retention_by_size_bounds_what_a_partition_keeps() -> None:
    state = make_state()
    data = make_batch([b"x" * 1000])
    state.create_topic("t", TopicSpec(1, 1, {"retention.bytes": str(3 * len(data))}))
    for offset in range(10):
        answer = produce(state, data)
        assert answer.base_offset == offset
    assert answer.log_start_offset == 7
    assert state.topics["t"].partitions[0].log.size_bytes == 3 * len(data)
