"""The simulated cluster is replaced, its topics created anew, its brokers left out of metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from aioproducer.testing.broker import ClusterSettings, TopicSpec
from aioproducer.testing.broker.transactions.shards import CoordinatorKind
from aioproducer.testing.world.cluster import ReplicationTiming, SimCluster
from aioproducer.testing.world.loop import VirtualLoop
from aioproducer.testing.world.spec import Chance, WorldSpec
from aioproducer.testing.world.world import SimWorld


def _cluster() -> SimCluster:
    with _open_cluster() as cluster:
        return cluster


@contextmanager
def _open_cluster() -> Iterator[SimCluster]:
    chance = Chance(1)
    spec = WorldSpec((1, 2, 3), {"t": TopicSpec(2, 2)}, {}, ReplicationTiming(), 1024, 0.001, False)
    loop = VirtualLoop(chance.of("executor"))
    try:
        yield SimWorld(chance, loop, spec).cluster
    finally:
        loop.close()


def test_a_topic_created_anew_has_another_id_and_other_brokers() -> None:
    cluster = _cluster()
    before = cluster.topics["t"]
    cluster.move_leader("t", 0)
    cluster.recreate_topic("t")
    now = cluster.topics["t"]
    assert now.topic_id != before.topic_id
    assert [len(each.replicas) for each in now.partitions] == [2, 2]
    assert now.partitions[0].replicas != before.partitions[0].replicas
    assert now.partitions[0].leader_epoch == 0
    assert cluster.deleted == [before]


def test_a_lagging_broker_names_no_leader_of_a_deleted_topic_for_the_new_one() -> None:
    cluster = _cluster()
    cluster.stop_learning(1)
    cluster.move_leader("t", 0)
    cluster.recreate_topic("t")
    partition = cluster.topics["t"].partitions[0]
    assert cluster.known_leadership(1, partition) == partition.leadership


def test_a_lagging_broker_has_no_new_partitions_until_it_learns() -> None:
    cluster = _cluster()
    cluster.stop_learning(1)
    cluster.create_partitions("t", 3)
    sizes = [len(cluster.known_partitions(each, cluster.topics["t"])) for each in (1, 2)]
    cluster.learn(1)
    assert [*sizes, len(cluster.known_partitions(1, cluster.topics["t"]))] == [2, 3, 3]


def test_a_lagging_broker_has_all_partitions_of_a_topic_created_anew() -> None:
    cluster = _cluster()
    cluster.stop_learning(1)
    cluster.recreate_topic("t")
    assert len(cluster.known_partitions(1, cluster.topics["t"])) == 2


def test_a_topic_created_anew_is_as_large_as_it_was_at_first() -> None:
    cluster = _cluster()
    cluster.create_partitions("t", 3)
    cluster.recreate_topic("t")
    assert len(cluster.topics["t"].partitions) == 2


def test_a_partition_that_came_later_was_not_there_all_the_time() -> None:
    with _open_cluster() as cluster:
        cluster.loop.run_until_complete(asyncio.sleep(1.0))
        cluster.create_partitions("t", 3)
        assert cluster.has_had("t", 0.5, 9.0, 1)
        assert not cluster.has_had("t", 0.5, 9.0, 2)
        assert cluster.has_had("t", 1.0, 9.0, 2)
        assert not cluster.has_had("t", 1.0, 9.0, 3)


def test_another_cluster_has_another_id_and_gives_other_producer_ids() -> None:
    cluster = _cluster()
    first, topic = cluster.new_producer_id(), cluster.topics["t"]
    cluster.replace()
    second = cluster.new_producer_id()
    assert cluster.settings.cluster_id != ClusterSettings().cluster_id
    assert cluster.ids_given == {first: 0, second: 1}
    assert cluster.topics["t"].topic_id != topic.topic_id


def test_another_cluster_has_no_transactions() -> None:
    cluster = _cluster()
    shard = cluster.shards.shard(CoordinatorKind.TRANSACTION, "id")
    cluster.transactions.initialize("id", 1000, None, node_id=shard.leader, now_ms=0)
    cluster.replace()
    assert cluster.transactions.transactions == {}
    assert cluster.transactions.next_due_ms is None


def test_an_unlisted_broker_is_left_out_until_everything_heals() -> None:
    cluster = _cluster()
    cluster.unlisted.add(2)
    assert [each.node_id for each in cluster.known_brokers(1)] == [1, 3]
    assert cluster.unlisted_answers[2] == 1
    cluster.heal()
    assert [each.node_id for each in cluster.known_brokers(1)] == [1, 2, 3]


def test_unaware_brokers_list_no_broker_until_everything_heals() -> None:
    cluster = _cluster()
    cluster.unaware.add(2)
    assert cluster.known_brokers(2) == []
    assert len(cluster.known_brokers(1)) == 3
    assert cluster.unaware_answers == 1
    cluster.heal()
    assert len(cluster.known_brokers(2)) == 3


def test_a_follower_that_lacks_the_end_of_the_log_leads() -> None:
    with _open_cluster() as cluster:
        partition = cluster.topics["t"].partitions[0]
        before, follower = partition.leader, partition.replicas[1]
        assert cluster.lose_end("t", 0, 1) == 1
        assert (partition.leader, partition.isr) == (follower, (follower,))
        cluster.crash(before)
        assert cluster.lose_end("t", 0, 1) == 0
        assert cluster.lose_end("absent", 0, 1) == 0
