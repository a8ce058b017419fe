"""The embedded cluster, given request frames by any client.

Input: request frames without their sizes, each after its length.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from uuid import UUID

from aioproducer.errors import KafkaError, ProtocolError
from aioproducer.records import RecordBatchBuilder
from aioproducer.records.batch import encode_batch
from aioproducer.records.codecs import codec_for
from aioproducer.testing.broker.cluster import ClusterState
from aioproducer.testing.broker.dispatch import SERVED
from aioproducer.testing.broker.settings import BrokerSpec, ClusterSettings, TopicSpec
from aioproducer.testing.framing import REQUEST_TYPES, RequestHeader, decode_request_header
from aioproducer.testing.messages.create_partitions import CreatePartitionsRequest
from aioproducer.testing.messages.create_topics import CreateTopicsRequest
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.framing import SIZE_BYTES, decode_response, encode_request
from aioproducer.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aioproducer.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aioproducer.wire.messages.metadata import MetadataRequest
from aioproducer.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from aioproducer.wire.schema import Message
from fuzz.guard import Target, require
from fuzz.messages import samples
from fuzz.source import Source, blob

_NOW_MS = 1_700_000_000_000
_FIRST_PRODUCE_BY_ID = 13
_FIRST_FETCH_BY_ID = 13
_MOST_FRAMES = 8
_MOST_PARTITIONS = 50
"""Thousands are allowed, and each takes its memory and time: none of that is worth fuzzing."""


def run(data: bytes) -> None:
    source = Source(data)
    cluster = _cluster()
    for _ in range(_MOST_FRAMES):
        if not source.left:
            return
        try:
            header = decode_request_header(source.blob(2))
        except ProtocolError:
            return
        if _asks_for_too_much(header):
            return
        frame = cluster.handle(1, header, _NOW_MS)
        if frame is not None:
            _check_answer(header, frame)


def _cluster() -> ClusterState:
    brokers = [BrokerSpec(node, "localhost", 9092 + node) for node in (1, 2)]
    settings = ClusterSettings(verify_records=True)
    cluster = ClusterState(brokers, settings=settings, rng=Random(0))
    cluster.create_topic("orders", TopicSpec(partitions=2))
    cluster.create_topic("compact", TopicSpec(configs={"cleanup.policy": "compact"}))
    return cluster


def _asks_for_too_much(header: RequestHeader) -> bool:
    if header.api_key not in {ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS}:
        return False
    try:
        request = REQUEST_TYPES[ApiKey(header.api_key)].decode(header.body, header.api_version)
    except KafkaError:
        return False
    match request:
        case CreateTopicsRequest(topics=topics):
            return any(topic.num_partitions > _MOST_PARTITIONS for topic in topics)
        case CreatePartitionsRequest(topics=topics):
            return any(topic.count > _MOST_PARTITIONS for topic in topics)
    return False


def _check_answer(header: RequestHeader, frame: bytes) -> None:
    version = header.api_version
    key = ApiKey(header.api_key)
    if not SERVED[key].lowest <= version <= SERVED[key].highest:
        version = 0  # how ApiVersions is refused (KIP-511); of any other API nothing is answered
    request_type = REQUEST_TYPES[key]
    correlation_id, _ = decode_response(request_type, version, frame[SIZE_BYTES:])
    require(correlation_id == header.correlation_id, "the answer is to another request")


def _batch(codec: str) -> bytes:
    builder = RecordBatchBuilder(bytearray(512))
    for index in range(3):
        builder.try_append(_NOW_MS, b"key", b"value" * 20 * index, (("h", None),))
    chosen = codec_for(codec)
    batch = encode_batch(
        chosen.compress(builder.body()),
        count=builder.count,
        base_timestamp=builder.base_timestamp,
        max_timestamp=builder.max_timestamp,
        codec=chosen.type,
    )
    return b"".join(batch.buffers)


def _produce(topic_id: UUID, version: int, codec: str) -> Iterator[Message]:
    data = [PartitionProduceData(index=0, records=_batch(codec))]
    for name in ("orders", "compact"):
        topic = TopicProduceData(name=name, partition_data=data)
        if version >= _FIRST_PRODUCE_BY_ID:
            topic = TopicProduceData(topic_id=topic_id, partition_data=data)
        yield ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def seeds() -> Iterator[bytes]:
    topic_id = _cluster().topics["orders"].topic_id
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    for version in range(3, 14):
        requests = _produce(topic_id, version, codecs[version % len(codecs)])
        produce = b"".join(_frame(request, version) for request in requests)
        fetch_version = version + 4
        topic = FetchTopic(partitions=[FetchPartition(partition=0, partition_max_bytes=9999)])
        if fetch_version >= _FIRST_FETCH_BY_ID:
            topic.topic_id = topic_id
        else:
            topic.topic = "orders"
        fetch = FetchRequest(max_wait_ms=10, min_bytes=1, max_bytes=9999, topics=[topic])
        yield produce + _frame(fetch, fetch_version)
    for version in range(1, 11):
        asked = ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(timestamp=-1)])
        yield _frame(ListOffsetsRequest(replica_id=-1, topics=[asked]), version)
    for key, api in SERVED.items():
        for version in range(api.lowest, api.highest + 1):
            for request in samples(REQUEST_TYPES[key], version):
                yield _frame(request, version)
    yield _frame(MetadataRequest(topics=None), 12)


def _frame(request: Message, version: int) -> bytes:
    return blob(encode_request(request, version, 5, "fuzz")[SIZE_BYTES:], 2)


TARGET = Target("broker", run, seeds, bytes_per_byte=128, extra_bytes=8 * 1024 * 1024)
