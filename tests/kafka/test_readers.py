"""The foreign readers agree with each other about records that a foreign client wrote.

This checks the readers and the random records of the other tests, and that the embedded cluster
serves other people's clients as real brokers do.
"""

from __future__ import annotations

import asyncio
import time

import pytest
from confluent_kafka import Message, Producer
from support.clusters import ClusterUnderTest
from support.comparison import Acknowledged, SendingTime, differences
from support.confluent import read_all_confluent
from support.foreign import ForeignRecord, ReaderMissingError, digest_partitions
from support.java_consumer import digest_topics_java
from support.kcat import KcatRecord, read_all_kcat
from support.records import SampleRecord, sample_records

from aioproducer.types import RecordMetadata, TimestampType

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
COUNT, LARGE = 2_000, 4


def write_by_confluent(
    bootstrap: str, topic: str, samples: list[SampleRecord], codec: str
) -> list[Acknowledged]:
    """librdkafka writes; it chooses the timestamp where the sample has none."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "message.max.bytes": 1 << 20}
    )
    acknowledged: list[Acknowledged] = []

    def on_delivery(sample: SampleRecord, error: object, message: Message) -> None:
        assert error is None
        _, timestamp = message.timestamp()
        metadata = RecordMetadata(
            topic,
            message.partition(),
            message.offset(),
            timestamp,
            TimestampType.CREATE_TIME,
            -1 if sample.key is None else len(sample.key),
            -1 if sample.value is None else len(sample.value),
        )
        acknowledged.append(Acknowledged(sample, metadata))

    for sample in samples:
        producer.produce(
            topic,
            sample.value,
            sample.key,
            -1 if sample.partition is None else sample.partition,
            timestamp=sample.timestamp_ms or 0,
            headers=list(sample.headers),
            on_delivery=lambda error, message, sample=sample: on_delivery(sample, error, message),
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    return acknowledged


@pytest.fixture(params=CODECS)
async def written(
    cluster: ClusterUnderTest, request: pytest.FixtureRequest
) -> tuple[str, list[Acknowledged], SendingTime]:
    topic = await cluster.create_topic(PARTITIONS)
    begin = time.time_ns() // 1_000_000
    samples = list(sample_records(1, COUNT, large=LARGE, partitions=PARTITIONS, now_ms=begin))
    acknowledged = await asyncio.to_thread(
        write_by_confluent, cluster.bootstrap_servers, topic, samples, request.param
    )
    return topic, acknowledged, SendingTime(begin, time.time_ns() // 1_000_000)


@pytest.mark.slow
async def test_the_readers_agree_with_the_writer(
    cluster: ClusterUnderTest, written: tuple[str, list[Acknowledged], SendingTime]
) -> None:
    topic, acknowledged, sending_time = written
    read = await read_all_confluent(cluster.bootstrap_servers, topic)
    assert len(read) == COUNT
    assert differences(acknowledged, read, TimestampType.CREATE_TIME, sending_time)[:10] == []
    missing = []
    for check in (check_by_java, check_by_kcat):
        try:
            await check(cluster.bootstrap_servers, topic, read)
        except ReaderMissingError as error:
            missing.append(str(error))
    if missing:
        pytest.skip("read by confluent-kafka only: " + "; ".join(missing))


async def check_by_java(bootstrap: str, topic: str, read: list[ForeignRecord]) -> None:
    digests = await digest_topics_java(bootstrap, [topic])
    assert digests[topic] == digest_partitions(read)


async def check_by_kcat(bootstrap: str, topic: str, read: list[ForeignRecord]) -> None:
    by_kcat = await read_all_kcat(bootstrap, topic)
    wanted = [KcatRecord(r.partition, r.offset, r.timestamp, r.key, r.value) for r in read]
    by_place = sorted(by_kcat, key=lambda record: (record.partition, record.offset))
    assert by_place == sorted(wanted, key=lambda record: (record.partition, record.offset))


def test_sample_records_hold_every_kind_the_acceptance_names() -> None:
    samples = list(sample_records(7, 3000, large=6, partitions=3, now_ms=1_700_000_000_000))
    assert len(samples) == 3000
    assert sum(len(s.value or b"") == 900 * 1024 for s in samples) == 6
    assert {None, b""} < {s.value for s in samples}
    assert {None, b""} < {s.key for s in samples}
    assert any(s.key and not s.key.isascii() and s.key.decode(errors="ignore") for s in samples)
    names = [[name for name, _ in s.headers] for s in samples]
    assert any(len(set(given)) < len(given) for given in names)
    assert any(value is None for s in samples for _, value in s.headers)
    assert {s.partition for s in samples} == {None, 0, 1, 2}
    assert any(s.timestamp_ms is None for s in samples)
    assert min(s.timestamp_ms for s in samples if s.timestamp_ms is not None) < 1_600_000_000_000


def test_the_same_seed_gives_the_same_records() -> None:
    def some(seed: int) -> list[SampleRecord]:
        return list(sample_records(seed, 200, large=1, partitions=3, now_ms=1_700_000_000_000))

    assert some(3) == some(3)
    assert some(3) != some(4)
