"""The producer's use of answers about the cluster: metadata, leader hints, produce results.

Input: responses one after the other, each a kind, a version and its body after a length.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from aioproducer._util.backoff import ExponentialBackoff
from aioproducer.core.metadata.metadata import Metadata
from aioproducer.core.sending.produce_answers import (
    leader_hints,
    match_answers,
    named_record_errors,
    position_of,
)
from aioproducer.core.sending.produce_rules import action_for
from aioproducer.errors import ProtocolError
from aioproducer.wire.messages.common import LeaderIdAndEpoch, NodeEndpoint
from aioproducer.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from aioproducer.wire.schema import Message
from fuzz.guard import Target, require
from fuzz.messages import samples
from fuzz.source import Source, blob

_MOST_ANSWERS = 6
_TOPICS = ("orders", "a")
_KINDS: list[type[Message]] = [MetadataResponse, ProduceResponse]


def run(data: bytes) -> None:
    source = Source(data)
    metadata = Metadata(
        max_age_s=300.0,
        max_idle_s=300.0,
        backoff=ExponentialBackoff(0.1, 1.0),
        allow_auto_create=False,
        rng=Random(0),
    )
    for topic in _TOPICS:
        metadata.add_topic(topic, 0.0)
    for now in range(_MOST_ANSWERS):
        if not source.left:
            return
        kind = source.one_of(_KINDS)
        lowest, highest = kind.VALID_VERSIONS
        version = lowest + source.number(1) % (highest - lowest + 1)
        try:
            answer = kind.decode(source.blob(2), version)
        except ProtocolError:
            return
        before = metadata.version
        if isinstance(answer, MetadataResponse):
            metadata.start_request(float(now))
            metadata.on_response(answer, float(now), reliable_epochs=version >= 9)
        elif isinstance(answer, ProduceResponse):
            _take_produce_answer(metadata, answer)
        require(metadata.version >= before, "the version of the metadata went back")
        _check_cluster(metadata)


def _take_produce_answer(metadata: Metadata, response: ProduceResponse) -> None:
    names = {topic.topic_id: name for name, topic in metadata.cluster.topics.items()}
    answers = match_answers(response, names)
    for answer in answers.values():
        if answer.error_code:
            named_record_errors(answer, 3, action_for(answer.error_code, idempotent=True))
        else:
            position_of(answer)
    hints = leader_hints(answers)
    if metadata.on_leader_hints(hints, response.node_endpoints):
        leaders = [metadata.cluster.leader(*topic_partition) for topic_partition in hints]
        require(any(leader is not None for leader in leaders), "no leader of {} is known", hints)


def _check_cluster(metadata: Metadata) -> None:
    cluster = metadata.cluster
    for node_id, node in cluster.nodes.items():
        require(node.id == node_id >= 0 and node.host, "{} cannot be dialled", node)
        require(0 < node.port < 65536, "{} cannot be dialled", node)
    for name, topic in cluster.topics.items():
        require(name in _TOPICS, "{!r} was not asked for", name)
        numbers = [partition.partition for partition in topic.partitions]
        require(numbers == list(range(len(numbers))), "{} has the partitions {}", name, numbers)
        for number in topic.available:
            leader = cluster.leader(name, number)
            require(leader is not None, "{}-{} counts as available without a leader", name, number)
        require(len(cluster.partition_infos(name)) == len(numbers), "partitions are left out")
    for name in _TOPICS:
        metadata.explain(name, 0)
        metadata.topic_failure(name)


def _entry(kind: type[Message], answer: Message, version: int) -> bytes:
    head = bytes([_KINDS.index(kind), version - kind.VALID_VERSIONS[0]])
    return head + blob(answer.encode(version), 2)


def _good_metadata(version: int, epoch: int) -> bytes:
    partitions = [
        MetadataResponsePartition(
            partition_index=index,
            leader_id=index,
            leader_epoch=epoch,
            replica_nodes=[0, 1],
            isr_nodes=[0],
        )
        for index in range(2)
    ]
    brokers = [
        MetadataResponseBroker(node_id=node, host="localhost", port=9092) for node in range(2)
    ]
    topics = [MetadataResponseTopic(name=name, partitions=partitions) for name in _TOPICS]
    answer = MetadataResponse(brokers=brokers, topics=topics, cluster_id="c", controller_id=1)
    return _entry(MetadataResponse, answer, version)


def _hint(version: int, epoch: int) -> bytes:
    refusal = PartitionProduceResponse(
        index=1, error_code=6, current_leader=LeaderIdAndEpoch(leader_id=5, leader_epoch=epoch)
    )
    answer = ProduceResponse(
        responses=[TopicProduceResponse(name="orders", partition_responses=[refusal])],
        node_endpoints=[NodeEndpoint(node_id=5, host="newer", port=9093)],
    )
    return _entry(ProduceResponse, answer, version)


def seeds() -> Iterator[bytes]:
    lowest, highest = MetadataResponse.VALID_VERSIONS
    for version in range(lowest, highest + 1):
        yield _good_metadata(version, 3) + _good_metadata(version, 2) + _hint(10, 4)
        for answer in samples(MetadataResponse, version):
            yield _good_metadata(9, 3) + _entry(MetadataResponse, answer, version)
    lowest, highest = ProduceResponse.VALID_VERSIONS
    for version in range(lowest, highest + 1):
        for answer in samples(ProduceResponse, version):
            yield _good_metadata(12, 3) + _entry(ProduceResponse, answer, version)


# A partition in the wrong place may leave a thousand holes before it.
TARGET = Target("cluster", run, seeds, bytes_per_byte=128, extra_bytes=4 * 1024 * 1024)
