"""Transactions in partitions whose followers lag: what is stable, what an election undoes."""

from __future__ import annotations

import random
from collections.abc import Sequence

from aioproducer.records.batch import parse_header
from aioproducer.testing.broker import BrokerSpec, ClusterState, TopicSpec
from aioproducer.testing.broker.markers import Marker
from aioproducer.testing.broker.replication import ReplicatedPartition
from aioproducer.testing.broker.settings import TopicConfig
from aioproducer.testing.broker.topics import Partition
from aioproducer.testing.broker.transactions.endings import RETRY_MS
from aioproducer.testing.broker.transactions.states import TransactionState

from .support import NOW_MS, make_batch
from .transactional import V1_VERSIONS, V2_VERSIONS, TransactionalProducer, fetch

_CONFIG = TopicConfig({}, {})
_LEADER, _FOLLOWER = 1, 2


def _partition() -> ReplicatedPartition:
    nodes = [_LEADER, _FOLLOWER]
    return ReplicatedPartition("t", 0, nodes, set(nodes))


def _append(partition: Partition, producer_id: int = 7, epoch: int = 0, sequence: int = 0) -> None:
    data = make_batch(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )
    partition.append(data, parse_header(data), _CONFIG, NOW_MS)


def test_an_end_counts_once_its_marker_is_replicated() -> None:
    partition = _partition()
    _append(partition)
    partition.fetch(_FOLLOWER)
    partition.append_marker(Marker(7, 0, is_commit=True, coordinator_epoch=0), NOW_MS)
    assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
    partition.fetch(_FOLLOWER)
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)


def test_a_transaction_whose_marker_is_lost_is_open_again() -> None:
    partition = _partition()
    _append(partition)
    partition.fetch(_FOLLOWER)
    partition.append_marker(Marker(7, 1, is_commit=False, coordinator_epoch=0), NOW_MS)
    assert (partition.transactions.aborted != [], partition.producers.epoch_of(7)) == (True, 1)
    partition.lead_by(_FOLLOWER)
    assert partition.transactions.aborted == []
    assert partition.has_open_transaction(7, 0)
    assert partition.last_stable_offset == 0


def test_what_survives_an_election_is_remembered_from_the_log() -> None:
    partition = _partition()
    _append(partition, 7)
    _append(partition, 8)
    partition.append_marker(Marker(7, 1, is_commit=False, coordinator_epoch=0), NOW_MS)
    partition.fetch(_FOLLOWER)
    _append(partition, 9)
    partition.lead_by(_FOLLOWER)
    assert partition.transactions.open_producers == {8: 1}
    assert [each.producer_id for each in partition.transactions.aborted] == [7]
    assert partition.producers.epoch_of(7) == 1


class _Cluster(ClusterState):
    """Two brokers; their followers fetch when the test makes them."""

    def __init__(self) -> None:
        brokers = [BrokerSpec(node, "h", node) for node in (_LEADER, _FOLLOWER)]
        super().__init__(brokers, rng=random.Random(1))
        self.create_topic("t", TopicSpec(1, 2), assignments={0: [_LEADER, _FOLLOWER]})

    def new_partition(self, topic: str, index: int, replicas: Sequence[int]) -> Partition:
        return ReplicatedPartition(topic, index, replicas, self._live)

    @property
    def only(self) -> ReplicatedPartition:
        found = self.partition("t", 0)
        assert isinstance(found, ReplicatedPartition)
        return found


def test_a_marker_that_is_lost_before_it_is_replicated_is_written_again() -> None:
    for versions in (V1_VERSIONS, V2_VERSIONS):
        cluster = _Cluster()
        producer = TransactionalProducer(cluster, versions)
        assert producer.initialize() == 0
        transaction = cluster.transactions.transactions["tx"]
        identity = producer.identity
        _append(cluster.only, *identity)
        cluster.only.fetch(_FOLLOWER)
        assert producer.add(0) == [0]
        assert producer.end() == 0
        assert cluster.only.log.end_offset == 2
        assert transaction.state is TransactionState.PREPARE_COMMIT, "the marker is not replicated"
        cluster.move_leader("t", 0, _FOLLOWER)
        assert cluster.only.log.end_offset == 1
        cluster.advance(NOW_MS + RETRY_MS)
        assert cluster.only.log.end_offset == 2
        cluster.only.fetch(_LEADER)
        cluster.advance(NOW_MS + 2 * RETRY_MS)
        assert transaction.state is TransactionState.COMPLETE_COMMIT
        assert cluster.only.log.end_offset == cluster.only.last_stable_offset == 2


def test_a_marker_that_is_deleted_with_its_topic_is_written_to_the_new_one() -> None:
    cluster = _Cluster()
    producer = TransactionalProducer(cluster, V2_VERSIONS)
    assert producer.initialize() == 0
    _append(cluster.only, *producer.identity)
    assert producer.add(0) == [0]
    assert producer.end() == 0
    cluster.delete_topic("t")
    cluster.create_topic("t", TopicSpec(1, 2), assignments={0: [_LEADER, _FOLLOWER]})
    cluster.advance(NOW_MS + RETRY_MS)
    assert cluster.only.log.end_offset == 1
    cluster.only.fetch(_FOLLOWER)
    cluster.advance(NOW_MS + 2 * RETRY_MS)
    assert cluster.transactions.transactions["tx"].state is TransactionState.COMPLETE_COMMIT


def test_records_that_are_not_replicated_are_not_read() -> None:
    cluster = _Cluster()
    _append(cluster.only)
    for committed in (True, False):
        data = fetch(cluster, committed=committed)
        assert (data.high_watermark, data.last_stable_offset, data.records) == (0, 0, b"")
    cluster.only.fetch(_FOLLOWER)
    assert fetch(cluster).records == b"", "undecided"
    assert len(fetch(cluster, committed=False).records or b"") > 0
