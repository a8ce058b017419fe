"""The embedded broker answers a produced batch as a real one does, good or bad."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import pytest
from crc32c import crc32c
from support.clusters import unique_topic

from aioproducer.errors import NotLeaderOrFollowerError
from aioproducer.records import RecordBatchBuilder
from aioproducer.records.batch import encode_batch
from aioproducer.records.codecs import CompressionType, codec_for
from aioproducer.testing import ClusterSettings, EmbeddedCluster, create_topic
from aioproducer.testing.kafka import KafkaBackend
from aioproducer.testing.wire_client import WireClient
from aioproducer.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

NOW_MS = int(time.time() * 1000)
HOUR_MS = 3_600_000


def batch(
    values: list[bytes] | None = None,
    *,
    keys: list[bytes | None] | None = None,
    times: list[int] | None = None,
    codec: CompressionType = CompressionType.NONE,
    **stamps: Any,
) -> bytes:
    given = values or [b"v"]
    times = times or [NOW_MS] * len(given)
    builder = RecordBatchBuilder(bytearray(10_000))
    for index, value in enumerate(given):
        builder.try_append(times[index], keys[index] if keys else None, value, ())
    body = bytes(builder.body())
    encoded = encode_batch(
        codec_for(codec).compress(body) if codec else body,
        count=len(given),
        base_timestamp=times[0],
        max_timestamp=max(times),
        codec=codec,
        **stamps,
    )
    return b"".join(encoded.buffers)


def changed(data: bytes, at: int, layout: str, value: int) -> bytes:
    """The batch with one header field changed and a CRC that fits."""
    copy = bytearray(data)
    struct.pack_into(layout, copy, at, value)
    struct.pack_into(">I", copy, 17, crc32c(bytes(copy[21:])))
    return bytes(copy)


def sequenced(epoch: int, sequence: int) -> bytes:
    return batch(producer_id=77, producer_epoch=epoch, base_sequence=sequence)


class Case(NamedTuple):
    batches: list[bytes]
    configs: Mapping[str, str] = {}
    acks: int = -1
    version: int = 9


CASES: Mapping[str, Case] = {
    "good": Case([batch(), batch([b"a", b"b"]), batch()]),
    "every codec": Case([batch([b"x" * 200] * 3, codec=codec) for codec in CompressionType]),
    "no batch": Case([b""]),
    "two batches": Case([batch() * 2]),
    "cut short": Case([batch()[:-1], batch()[:30], batch()[:5]]),
    "old magic": Case([changed(batch(), 16, ">b", 1)]),
    "wrong CRC": Case([batch()[:-1] + b"?"]),
    "wrong count": Case([changed(batch([b"a", b"b"]), 57, ">i", 3)]),
    "wrong last offset": Case([changed(batch([b"a", b"b"]), 23, ">i", 5)]),
    "wrong base offset": Case([changed(batch(), 0, ">q", 5)]),
    "wrong record": Case([changed(batch(), 61, ">b", 4)]),
    "control batch": Case([changed(batch(), 21, ">h", 0x20)]),
    "transactional without an id": Case(
        [batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)]
    ),
    "producer id without sequence": Case([batch(producer_id=1, producer_epoch=0)]),
    "zstd before v7": Case([batch([b"z" * 99], codec=CompressionType.ZSTD)], version=6),
    "too large": Case([batch([b"x" * 99])], {"max.message.bytes": "100"}),
    "no key on a compacted topic": Case(
        [batch([b"a", b"b", b"c"], keys=[b"k", None, None])], {"cleanup.policy": "compact"}
    ),
    "far future": Case([batch([b"a", b"b"], times=[NOW_MS, NOW_MS + 2 * HOUR_MS])]),
    "past": Case([batch(times=[0])]),
    "past where it is bounded": Case(
        [batch(times=[0])], {"message.timestamp.before.max.ms": "1000"}
    ),
    "log append time": Case(
        [batch(times=[5]), batch([b"x" * 99] * 2, codec=CompressionType.LZ4)],
        {"message.timestamp.type": "LogAppendTime"},
    ),
    "impossible acks": Case([batch()], acks=2),
    "more in-sync replicas asked for than there are": Case([batch()], {"min.insync.replicas": "2"}),
    "sequences": Case(
        [
            sequenced(epoch, sequence)
            for epoch, sequence in [(0, 3), (0, 3), (0, 5), (1, 2), (1, 0), (0, 4), (1, 0), (1, 1)]
        ]
    ),
}

Answer = tuple[int, int, bool, int, list[int]]


async def answers(servers: str, case: Case) -> list[Answer]:
    """Return the answers of a cluster to the batches of a case, one request each."""
    topic = unique_topic()
    await create_topic(servers, topic, 1, 1, case.configs)
    async with WireClient(servers, timeout_s=30) as client:
        leader = (await client.metadata([topic])).topics[0].partitions[0].leader_id
        return [await _answer(client, leader, topic, case, data) for data in case.batches]


async def _answer(client: WireClient, leader: int, topic: str, case: Case, data: bytes) -> Answer:
    partition = PartitionProduceData(index=0, records=data)
    request = ProduceRequest(
        acks=case.acks,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name=topic, partition_data=[partition])],
    )
    for _ in range(100):
        asked = await client.ask(leader, request, case.version, case.version)
        answer = cast(ProduceResponse, asked).responses[0].partition_responses[0]
        if answer.error_code != NotLeaderOrFollowerError.code:
            break
        await asyncio.sleep(0.05)  # a busy broker lists a topic before it takes the lead
    return (
        answer.error_code,
        answer.base_offset,
        answer.log_append_time_ms >= 0,
        answer.log_start_offset,
        [each.batch_index for each in answer.record_errors],
    )


@pytest.mark.kafka
@pytest.mark.parametrize("name", CASES)
async def test_embedded_broker_answers_as_kafka_does(
    kafka_cluster: KafkaBackend, name: str
) -> None:
    settings = ClusterSettings(verify_records=True)
    async with EmbeddedCluster(1, settings=settings) as embedded:
        ours = await answers(embedded.bootstrap_servers, CASES[name])
    assert ours == await answers(kafka_cluster.bootstrap_servers, CASES[name])
