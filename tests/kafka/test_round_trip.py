"""100,000 random records through the producer, read back by other people's clients.

On real Kafka the cases of this file add up to 100,000 records, 200 of them of 900 KiB; on the
embedded cluster to a tenth of that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.clusters import ClusterUnderTest
from support.comparison import Acknowledged, SendingTime, differences
from support.confluent import read_all_confluent
from support.foreign import ReaderMissingError, digest_partitions
from support.java_consumer import digest_topics_java
from support.records import SampleRecord, sample_records

from aioproducer import Producer, TimestampType
from aioproducer.records.batch import read_batches
from aioproducer.records.codecs import CompressionType
from aioproducer.testing.kafka import KafkaCluster

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 4
CASES = {
    # of 100,000 records and 200 large ones: five codecs each have these many
    TimestampType.CREATE_TIME: (16_000, 32),
    TimestampType.LOG_APPEND_TIME: (4_000, 8),
}
EMBEDDED_SHARE = 10

pytestmark = pytest.mark.timeout(300)


async def send_all(
    bootstrap: str, topic: str, samples: Iterable[SampleRecord], codec: str
) -> list[Acknowledged]:
    """Send every record and wait for every acknowledgement."""
    async with Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
        pending = [
            (
                sample,
                await producer.send(
                    topic,
                    sample.value,
                    sample.key,
                    headers=sample.headers,
                    partition=sample.partition,
                    timestamp_ms=sample.timestamp_ms,
                ),
            )
            for sample in samples
        ]
        await producer.flush()
        return [Acknowledged(sample, await delivery) for sample, delivery in pending]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("timestamp_type", CASES)
@pytest.mark.parametrize("codec", CODECS)
async def test_random_records_are_read_back_identical(
    cluster: ClusterUnderTest, codec: str, timestamp_type: TimestampType
) -> None:
    count, large = (n // (1 if cluster.is_real else EMBEDDED_SHARE) for n in CASES[timestamp_type])
    appended = timestamp_type is TimestampType.LOG_APPEND_TIME
    topic = await cluster.create_topic(
        PARTITIONS,
        configs={"message.timestamp.type": "LogAppendTime" if appended else "CreateTime"},
    )
    begin = now_ms()
    samples = sample_records(
        seed=CODECS.index(codec) * 2 + appended,
        count=count,
        large=large,
        partitions=PARTITIONS,
        now_ms=begin,
    )
    sent = await send_all(cluster.bootstrap_servers, topic, samples, codec)
    sending_time = SendingTime(begin, now_ms())

    read = await read_all_confluent(cluster.bootstrap_servers, topic)

    assert len(sent) == count
    assert differences(sent, read, timestamp_type, sending_time)[:10] == []
    if isinstance(cluster.handle, KafkaCluster):
        assert CompressionType[codec.upper()] in await asyncio.to_thread(
            codecs_in_log, cluster.handle.data_dirs.values(), topic
        )
    try:
        digests = await digest_topics_java(cluster.bootstrap_servers, [topic])
    except ReaderMissingError as error:
        pytest.skip(f"identical for confluent-kafka; not read by Java: {error}")
    assert digests[topic] == digest_partitions(read)


def codecs_in_log(data_dirs: Iterable[Path], topic: str) -> set[CompressionType]:
    """The codecs of the batches as the brokers keep them."""
    return {
        batch.codec
        for directory in data_dirs
        for segment in directory.glob(f"{topic}-*/*.log")
        for batch in read_batches(segment.read_bytes())
    }
