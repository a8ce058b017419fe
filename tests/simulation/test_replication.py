"""Partitions whose followers lag: committed offsets, losses of an election, delayed responses."""

from __future__ import annotations

import random

from aioproducer import errors
from aioproducer.records import RecordBatchBuilder
from aioproducer.records.batch import encode_batch, parse_header
from aioproducer.testing.broker import BrokerSpec, ClusterState, Reply, TopicSpec
from aioproducer.testing.broker.replication import ReplicatedPartition
from aioproducer.testing.broker.settings import TopicConfig
from aioproducer.testing.broker.topics import NO_LEADER, Appended, Partition
from aioproducer.testing.framing import decode_request_header
from aioproducer.wire.framing import decode_response, encode_request
from aioproducer.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_CONFIG = TopicConfig({}, {})
_NOW_MS = 1_000_000


def _batch(count: int = 1, sequence: int = -1) -> bytes:
    builder = RecordBatchBuilder(bytearray(1000))
    for _ in range(count):
        builder.try_append(1, b"k", b"v", ())
    identity = {} if sequence < 0 else {"producer_id": 9, "producer_epoch": 0}
    encoded = encode_batch(
        builder.body(),
        count=count,
        base_timestamp=1,
        max_timestamp=1,
        base_sequence=sequence,
        **identity,
    )
    return b"".join(bytes(part) for part in encoded.buffers)


def _partition(replicas: int = 3) -> ReplicatedPartition:
    nodes = range(1, replicas + 1)
    return ReplicatedPartition("t", 0, list(nodes), {*nodes})


def _append(partition: Partition, count: int = 1, sequence: int = -1) -> Appended:
    data = _batch(count, sequence)
    return partition.append(data, parse_header(data), _CONFIG, _NOW_MS)


def test_the_high_watermark_waits_for_the_slowest_replica_in_sync() -> None:
    partition = _partition()
    _append(partition, 3)
    assert partition.high_watermark == 0
    assert not partition.fetch(2)
    assert partition.fetch(3)
    assert partition.high_watermark == 3


def test_without_the_slow_one_in_the_isr_more_is_committed() -> None:
    partition = _partition()
    _append(partition)
    partition.fetch(2)
    assert partition.shrink_isr(3)
    assert (partition.isr, partition.high_watermark) == ((1, 2), 1)
    assert partition.fetch(3)
    assert partition.isr == (1, 2, 3)


def test_a_new_leader_loses_what_it_had_not_fetched_and_nothing_committed() -> None:
    partition = _partition()
    _append(partition, 2)
    partition.fetch(2)
    partition.fetch(3)
    _append(partition, 5)
    partition.fetch(3)
    assert partition.lose_replica(1)
    assert (partition.leader, partition.leader_epoch) == (2, 1)
    assert partition.log.end_offset == partition.high_watermark == 2
    assert [stored.base_offset for stored in partition.lost] == [2]
    assert _append(partition).base_offset == 2


def test_a_leader_without_followers_has_all_its_records_when_it_returns() -> None:
    partition = _partition()
    partition.shrink_isr(2)
    partition.shrink_isr(3)
    _append(partition)
    assert partition.lose_replica(1)
    assert partition.leader == NO_LEADER
    assert not partition.regain_replica(2, {2, 3})
    assert partition.regain_replica(1, {1, 2, 3})
    assert (partition.leader, partition.log.end_offset, partition.lost) == (1, 1, [])


def test_an_unclean_election_loses_what_was_committed() -> None:
    partition = _partition()
    partition.shrink_isr(2)
    partition.shrink_isr(3)
    _append(partition)
    assert partition.high_watermark == 1
    partition.lose_replica(1)
    partition.elect_unclean(2)
    assert (partition.log.end_offset, len(partition.lost)) == (0, 1)


def test_a_replica_that_is_cut_back_loses_the_last_batches_of_the_log_when_it_leads() -> None:
    partition = _partition()
    for sequence in range(3):
        _append(partition, sequence=sequence)
    partition.fetch(2)
    partition.fetch(3)
    partition.cut_back(2, 2)
    partition.elect_unclean(2)
    assert partition.log.end_offset == 1
    assert [each.base_offset for each in partition.lost] == [1, 2]
    assert _append(partition, sequence=1).base_offset == 1


def test_the_memory_of_producers_goes_back_with_the_log() -> None:
    partition = _partition()
    _append(partition, sequence=0)
    partition.fetch(2)
    partition.fetch(3)
    _append(partition, sequence=1)
    partition.lose_replica(1)
    assert not _append(partition, sequence=0).is_new
    again = _append(partition, sequence=1)
    assert (again.is_new, again.base_offset) == (True, 1)


class _Cluster(ClusterState):
    """Three brokers; their followers fetch when the test makes them."""

    def __init__(self) -> None:
        brokers = [BrokerSpec(node, "h", node) for node in (1, 2, 3)]
        super().__init__(brokers, rng=random.Random(1))
        self.create_topic("t", TopicSpec(1, 3, {"min.insync.replicas": "2"}))

    def new_partition(self, topic: str, index: int, replicas: object) -> Partition:
        return _partition()

    @property
    def only(self) -> ReplicatedPartition:
        found = self.partition("t", 0)
        assert isinstance(found, ReplicatedPartition)
        return found

    def produce(self, acks: int = -1) -> Reply:
        data = [PartitionProduceData(index=0, records=_batch())]
        request = ProduceRequest(
            acks=acks, timeout_ms=500, topic_data=[TopicProduceData(name="t", partition_data=data)]
        )
        header = decode_request_header(encode_request(request, 11, 1, None)[4:])
        return self.respond(1, header, _NOW_MS)

    def reread(self, reply: Reply, now_ms: int = _NOW_MS) -> Reply:
        header = decode_request_header(encode_request(ProduceRequest(), 11, 1, None)[4:])
        return self.respond(1, header, now_ms, wait=reply.wait)


def _answer(reply: Reply) -> PartitionProduceResponse:
    assert reply.frame is not None
    response = decode_response(ProduceRequest, 11, reply.frame[4:])[1]
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0]


def test_acks_all_is_answered_when_the_isr_has_the_batch() -> None:
    cluster = _Cluster()
    reply = cluster.produce()
    assert reply.wait is not None
    assert reply.wait.deadline_ms == _NOW_MS + 500
    cluster.only.fetch(2)
    assert cluster.reread(reply).wait is not None
    cluster.only.fetch(3)
    assert _answer(cluster.reread(reply)).base_offset == 0
    assert cluster.only.log.end_offset == 1, "a wait must not append again"


def test_acks_1_is_answered_at_once() -> None:
    assert _answer(_Cluster().produce(acks=1)).base_offset == 0


def test_a_wait_that_takes_too_long_ends_in_request_timed_out() -> None:
    cluster = _Cluster()
    reply = cluster.reread(cluster.produce(), _NOW_MS + 500)
    assert _answer(reply).error_code == errors.RequestTimedOutError.code


def test_an_isr_that_shrank_meanwhile_is_reported_after_the_append() -> None:
    cluster = _Cluster()
    reply = cluster.produce()
    cluster.only.shrink_isr(2)
    cluster.only.shrink_isr(3)
    code = _answer(cluster.reread(reply)).error_code
    assert code == errors.NotEnoughReplicasAfterAppendError.code


def test_a_leader_that_was_replaced_meanwhile_cannot_report_the_outcome_of_the_batch() -> None:
    cluster = _Cluster()
    reply = cluster.produce()
    cluster.only.fetch(2)
    cluster.move_leader("t", 0, 2)
    answer = _answer(cluster.reread(reply))
    assert answer.error_code == errors.NotLeaderOrFollowerError.code
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 1)
    assert cluster.only.log.end_offset == 1, "the new leader has it all the same"
