"""The blocking drop-ins on real Kafka: each writes what the client writes, and moves positions."""

from __future__ import annotations

import asyncio
import time
import warnings
from typing import Any

import confluent_kafka
import pytest
from support.clusters import ClusterUnderTest, unique_topic
from support.confluent import read_all_confluent

from aioproducer.compat import confluent
from aioproducer.compat.kafka import KafkaProducer

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own, of how it reads its schemas
    import kafka as kafka_python

    from aioproducer.compat.kafka.structs import OffsetAndMetadata, TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

WAIT_S = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def send_with_kafka_python(client: Any, servers: str, topic: str, codec: str) -> list[Any]:
    producer = client(
        bootstrap_servers=servers,
        compression_type=None if codec == "none" else codec,
        max_block_ms=20_000,
    )
    with producer:
        futures = [
            producer.send(
                topic,
                b"value %d" % number,
                b"key %d" % (number % 7),
                headers=[("number", b"%d" % number)],
                timestamp_ms=1_700_000_000_000 + number,
            )
            for number in range(500)
        ]
        producer.flush(timeout=WAIT_S)
        return [(f.get().partition, f.get().offset, f.get().timestamp) for f in futures]


@pytest.mark.parametrize("codec", CODECS)
async def test_kafka_python_and_ours_write_the_same(kafka: ClusterUnderTest, codec: str) -> None:
    found = []
    for client in (kafka_python.KafkaProducer, KafkaProducer):
        topic = await kafka.create_topic(partitions=3)
        servers = kafka.bootstrap_servers
        # kafka-python brings no snappy; what is stored is the same.
        used = "none" if codec == "snappy" and client is not KafkaProducer else codec
        sent = await asyncio.to_thread(send_with_kafka_python, client, servers, topic, used)
        records = await read_all_confluent(servers, topic)
        found.append((sorted(sent), sorted((r.partition, r.offset, r.value) for r in records)))
        assert len(records) == 500
        assert all(r.headers == (("number", r.value.split()[1]),) for r in records)
    assert found[0] == found[1]


def stable_position(consumer: kafka_python.KafkaConsumer, place: Any) -> int | None:
    """The committed position; markers are written after the end of a transaction is answered."""
    until = time.monotonic() + WAIT_S
    while (position := consumer.committed(place)) is None and time.monotonic() < until:
        time.sleep(0.05)
    return position


def commit_positions(client: Any, servers: str, topic: str, group: str) -> list[int]:
    """Return what a group has committed after one transaction that ended well and one aborted."""
    place = kafka_python.TopicPartition(topic, 0)
    consumer = kafka_python.KafkaConsumer(
        bootstrap_servers=servers, group_id=group, enable_auto_commit=False
    )
    producer = client(bootstrap_servers=servers, transactional_id=group, max_block_ms=20_000)
    committed = []
    try:
        consumer.assign([place])
        producer.init_transactions()
        for position, ends in ((3, producer.commit_transaction), (9, producer.abort_transaction)):
            producer.begin_transaction()
            producer.send(topic, b"v", partition=0)
            offsets = {TopicPartition(*place): OffsetAndMetadata(position, "", -1)}
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            ends()
            committed.append(stable_position(consumer, place))
    finally:
        producer.close()
        consumer.close()
    return committed


async def test_positions_are_committed_with_the_transaction_of_kafka_pythons_drop_in(
    kafka: ClusterUnderTest,
) -> None:
    topic = await kafka.create_topic(partitions=1)
    committed = await asyncio.to_thread(
        commit_positions, KafkaProducer, kafka.bootstrap_servers, topic, unique_topic()
    )
    assert committed == [3, 3]
    assert len(await read_all_confluent(kafka.bootstrap_servers, topic)) == 1


def partition_count(producer: Any, topic: str) -> int:
    """The topic's partitions; a broker that does not have a new topic yet is asked again."""
    until = time.monotonic() + WAIT_S
    while not (found := producer.list_topics(topic, WAIT_S).topics[topic].partitions):
        assert time.monotonic() < until
        time.sleep(0.05)
    return len(found)


def produce_with_confluent(client: Any, servers: str, topic: str, codec: str) -> list[Any]:
    reported: list[Any] = []
    producer = client.Producer(
        {"bootstrap.servers": servers, "compression.type": codec, "enable.idempotence": True}
    )
    assert partition_count(producer, topic) == 3
    for number in range(500):
        producer.produce(
            topic,
            b"value %d" % number,
            b"key %d" % (number % 7),
            on_delivery=lambda error, message: reported.append((error, message)),
            headers=[("number", b"%d" % number)],
        )
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    assert [error for error, _ in reported if error is not None] == []
    return [(m.partition(), m.offset(), m.value()) for _, m in reported]


@pytest.mark.parametrize("codec", CODECS)
async def test_confluent_kafka_and_ours_write_the_same(kafka: ClusterUnderTest, codec: str) -> None:
    found = []
    for client in (confluent_kafka, confluent):
        topic = await kafka.create_topic(partitions=3)
        servers = kafka.bootstrap_servers
        reported = await asyncio.to_thread(produce_with_confluent, client, servers, topic, codec)
        records = await read_all_confluent(servers, topic)
        assert sorted(reported) == sorted((r.partition, r.offset, r.value) for r in records)
        found.append(sorted(reported))
    assert found[0] == found[1]
