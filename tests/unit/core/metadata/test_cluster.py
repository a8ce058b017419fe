from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.core.metadata.cluster import ZERO_ID, Cluster, merge_partitions
from aioproducer.errors import ProtocolError
from aioproducer.types import Node, PartitionMetadata, TopicMetadata
from aioproducer.wire.messages.metadata import MetadataResponsePartition

NODES = {1: Node(1, "a", 9092), 2: Node(2, "b", 9092)}
ID = UUID(int=7)


def partition(index: int, leader: int = 1, epoch: int = 5, error: int = 0):
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[1, 2],
        isr_nodes=[leader] if leader >= 0 else [],
    )


def topic(*leaders: int, name: str = "t", topic_id: UUID = ID, epoch: int = 5) -> TopicMetadata:
    partitions = tuple(
        PartitionMetadata(i, leader, epoch, (1, 2), (leader,)) for i, leader in enumerate(leaders)
    )
    return TopicMetadata(name, topic_id, partitions, False, NODES)


def updated(
    cluster: Cluster, *topics: TopicMetadata, nodes=NODES, gone: tuple[str, ...] = ()
) -> bool:
    changes = {t.name: t for t in topics} | dict.fromkeys(gone)
    return cluster.update(changes, nodes=nodes, cluster_id="c", controller_id=1)


def cluster_of(*topics: TopicMetadata) -> Cluster:
    cluster = Cluster()
    updated(cluster, *topics)
    cluster.pop_changed_topics()
    return cluster


def test_available_partitions_are_those_led_by_known_nodes():
    assert topic(1, -1, 9, 2).available == (0, 3)


def test_without_a_list_of_nodes_every_leader_counts_as_known():
    partitions = (PartitionMetadata(0, 9), PartitionMetadata(1, -1))
    assert TopicMetadata("t", ID, partitions).available == (0,)


def test_leader_is_none_for_no_leader_an_unknown_node_and_an_unknown_partition():
    cluster = cluster_of(topic(1, -1, 9))
    assert [cluster.leader("t", p) for p in (0, 1, 2, 3, -1)] == [1, None, None, None, None]
    assert cluster.leader("other", 0) is None
    assert cluster.partition("t", -1) is None


def test_the_topics_cannot_be_changed_from_outside():
    cluster = cluster_of(topic(1))
    with pytest.raises(TypeError):
        cluster.topics["x"] = topic(1)  # type: ignore[index]


def test_an_update_leaves_untouched_topics_and_equal_nodes_the_same_objects():
    cluster = cluster_of(topic(1), topic(2, name="other"))
    other, nodes = cluster.topics["other"], cluster.nodes
    assert updated(cluster, topic(2), nodes=dict(NODES))
    assert cluster.leader("t", 0) == 2
    assert cluster.topics["other"] is other
    assert cluster.nodes is nodes
    assert cluster.pop_changed_topics() == ["t"]


def test_an_update_with_the_same_topics_and_nodes_is_no_news():
    cluster = cluster_of(topic(1))
    assert not updated(cluster, cluster.topics["t"], gone=("x",))
    assert cluster.pop_changed_topics() == []


def test_topics_given_as_none_are_taken_out():
    cluster = cluster_of(topic(1), topic(2, name="other"))
    assert updated(cluster, gone=("t", "x"))
    assert set(cluster.topics) == {"other"}
    assert cluster.pop_changed_topics() == ["t"]


def test_a_broker_that_leaves_makes_its_partitions_unavailable_in_untouched_topics_too():
    cluster = cluster_of(topic(1, 2), topic(1, 1, name="other"))
    other = cluster.topics["other"]
    assert updated(cluster, nodes={1: NODES[1]})
    assert cluster.topics["t"].available == (0,)
    assert cluster.topics["other"] is other
    assert cluster.pop_changed_topics() == ["t"]
    assert updated(cluster)
    assert cluster.topics["t"].available == (0, 1)


def test_a_broker_that_leaves_makes_its_partitions_unavailable_in_topics_kept_as_they_were_too():
    cluster = cluster_of(topic(1, 2))
    assert updated(cluster, cluster.topics["t"], nodes={2: NODES[2]})
    assert cluster.topics["t"].available == (1,)


def test_changes_are_reported_once_and_those_of_several_updates_together():
    cluster = cluster_of(topic(1))
    updated(cluster, topic(2))
    updated(cluster, topic(1, name="other"))
    updated(cluster, topic(1))
    assert cluster.pop_changed_topics() == ["t", "other"]
    assert cluster.pop_changed_topics() == []


def test_public_partition_infos_say_none_where_nothing_is_known():
    infos = cluster_of(topic(1, -1)).partition_infos("t")
    assert [(i.partition, i.leader, i.leader_epoch, i.replicas) for i in infos] == [
        (0, 1, 5, (1, 2)),
        (1, None, 5, (1, 2)),
    ]
    assert cluster_of().partition_infos("t") == []


@pytest.mark.parametrize(("epoch", "expected"), [(-1, None), (0, 0), (1, 1)])
def test_public_partition_infos_have_the_first_leader_epoch_and_none_without_one(epoch, expected):
    (info,) = cluster_of(topic(1, epoch=epoch)).partition_infos("t")
    assert info.leader_epoch == expected


def test_a_partition_described_with_an_older_epoch_keeps_what_is_known():
    known = topic(1, 1)
    merged = merge_partitions(
        "t", [partition(0, 2, 4), partition(1, 2, 6)], known, reliable_epochs=True
    )
    assert [(p.leader, p.leader_epoch) for p in merged] == [(1, 5), (2, 6)]


def test_the_same_epoch_again_is_taken_for_its_replicas():
    merged = merge_partitions("t", [partition(0, 2, 5)], topic(1), reliable_epochs=True)
    assert merged[0].isr == (2,)


def test_epochs_of_old_brokers_are_not_kept_and_refuse_nothing():
    merged = merge_partitions("t", [partition(0, 2, 1)], topic(1), reliable_epochs=False)
    assert (merged[0].leader, merged[0].leader_epoch) == (2, -1)


def test_fewer_partitions_of_the_same_topic_id_are_a_stale_answer():
    merged = merge_partitions("t", [partition(0)], topic(1, 2, 1), reliable_epochs=True)
    assert [p.leader for p in merged] == [1, 2, 1]


def test_fewer_partitions_are_believed_where_topics_have_no_id():
    known = topic(1, 2, topic_id=ZERO_ID)
    assert len(merge_partitions("t", [partition(0)], known, reliable_epochs=True)) == 1


def test_holes_are_partitions_without_a_leader():
    merged = merge_partitions("t", [partition(2)], None, reliable_epochs=True)
    assert [p.partition for p in merged] == [0, 1, 2]
    assert [p.leader for p in merged] == [-1, -1, 1]


@pytest.mark.parametrize("index", [-1, 2**31 - 1, 5000])
def test_impossible_partition_ids_are_refused_before_anything_is_allocated(index: int):
    with pytest.raises(ProtocolError, match="partition"):
        merge_partitions("t", [partition(index)], None, reliable_epochs=True)


def test_a_topic_does_not_grow_without_end():
    known = TopicMetadata("t", ID, tuple(PartitionMetadata(i) for i in range(99_500)))
    merged = merge_partitions("t", [partition(99_999)], known, reliable_epochs=True)
    assert len(merged) == 100_000
    with pytest.raises(ProtocolError, match="partition 100000"):
        merge_partitions("t", [partition(100_000)], known, reliable_epochs=True)


@given(
    known=st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 9)), max_size=8),
    answer=st.dictionaries(
        st.integers(0, 12), st.tuples(st.integers(-5, 3), st.integers(-9, 9)), max_size=10
    ),
)
def test_merging_keeps_ids_in_place_and_epochs_never_go_back(
    known: list[tuple[int, int]], answer: dict[int, tuple[int, int]]
):
    partitions = tuple(PartitionMetadata(i, *facts) for i, facts in enumerate(known))
    previous = TopicMetadata("t", ID, partitions)
    described = [partition(i, *facts) for i, facts in answer.items()]
    merged = merge_partitions("t", described, previous, reliable_epochs=True)
    assert [p.partition for p in merged] == list(
        range(max([*answer, len(known) - 1], default=-1) + 1)
    )
    for old, new in zip(partitions, merged, strict=False):
        # An answer without an epoch (an error) is taken; any epoch it has may not be older.
        assert new.leader_epoch >= old.leader_epoch or new.leader_epoch == -1
