"""A cluster state machine under test, and requests that go to it as bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from aioproducer.records import RecordBatchBuilder
from aioproducer.records.batch import encode_batch
from aioproducer.records.codecs import CompressionType, codec_for
from aioproducer.testing.broker import BrokerSpec, ClusterSettings, ClusterState
from aioproducer.testing.framing import RequestHeader, decode_request_header
from aioproducer.wire.framing import SIZE_BYTES, decode_response, encode_request
from aioproducer.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from aioproducer.wire.schema import Message

NOW_MS = 1_700_000_000_000


def make_state(brokers: int = 3, seed: int = 1, **settings: Any) -> ClusterState:
    specs = [BrokerSpec(node, "localhost", 9091 + node) for node in range(1, brokers + 1)]
    return ClusterState(specs, settings=ClusterSettings(**settings), rng=random.Random(seed))


def header_of(request: Message, version: int, correlation_id: int = 7) -> RequestHeader:
    return decode_request_header(
        encode_request(request, version, correlation_id, "tests")[SIZE_BYTES:]
    )


def ask(
    state: ClusterState, request: Message, version: int, *, node_id: int = 1, now_ms: int = NOW_MS
) -> Any:
    """The decoded response, or None where the broker sends none."""
    frame = state.handle(node_id, header_of(request, version), now_ms)
    if frame is None:
        return None
    correlation_id, response = decode_response(type(request), version, frame[SIZE_BYTES:])
    assert correlation_id == 7
    return response


def make_batch(
    values: Sequence[bytes | None] = (b"value",),
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamps: Sequence[int] | None = None,
    codec: CompressionType = CompressionType.NONE,
    **stamps: Any,
) -> bytes:
    times = timestamps or [NOW_MS] * len(values)
    builder = RecordBatchBuilder(bytearray(100 + sum(len(value or b"") + 100 for value in values)))
    for index, value in enumerate(values):
        key = keys[index] if keys else None
        assert builder.try_append(times[index], key, value, ()) == index
    body = bytes(builder.body())
    if codec is not CompressionType.NONE:
        body = codec_for(codec).compress(body)
    encoded = encode_batch(
        body,
        count=len(values),
        base_timestamp=times[0],
        max_timestamp=max(times),
        codec=codec,
        **stamps,
    )
    return b"".join(encoded.buffers)


def produce_request(
    topic: str, partition: int, data: bytes | None, *, acks: int = -1
) -> ProduceRequest:
    records = PartitionProduceData(index=partition, records=data)
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=[records])],
    )


def produce(
    state: ClusterState,
    data: bytes | None,
    *,
    topic: str = "t",
    partition: int = 0,
    version: int = 9,
    acks: int = -1,
    node_id: int | None = None,
    now_ms: int = NOW_MS,
) -> PartitionProduceResponse:
    """Produce one batch to the partition's leader (or `node_id`)."""
    found = state.partition(topic, partition)
    leader = node_id or (found.leader if found else 1)
    request = produce_request(topic, partition, data, acks=acks)
    if version >= 13 and topic in state.topics:
        request.topic_data[0].topic_id = state.topics[topic].topic_id
    response = ask(state, request, version, node_id=leader, now_ms=now_ms)
    answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
    return answer
