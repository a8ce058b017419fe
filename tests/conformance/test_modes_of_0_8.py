"""A properties file of the 0.8 producer works as it did, on both kinds of cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.clusters import ClusterUnderTest

from aioproducer import Producer, ProducerConfig
from aioproducer.blocking import Producer as BlockingProducer
from aioproducer.records.hashing import java_string_partition
from aioproducer.testing.reader import read_topic

_FILE = """\
metadata.broker.list={servers}
producer.type={mode}
serializer.class=kafka.serializer.StringEncoder
request.required.acks=-1
compression.codec=gzip
queue.buffering.max.ms=60000
queue.buffering.max.messages=1000
queue.enqueue.timeout.ms=-1
batch.num.messages=50
topic.metadata.refresh.interval.ms=-1
"""


def config_of(cluster: ClusterUnderTest, path: Path, mode: str) -> ProducerConfig:
    file = path / "producer.properties"
    file.write_text(_FILE.format(servers=cluster.bootstrap_servers, mode=mode), encoding="utf-8")
    return ProducerConfig.from_file(file)


def pairs(count: int) -> list[tuple[str, str]]:
    return [(f"k{number % 17}", f"value {number}") for number in range(count)]


async def check(cluster: ClusterUnderTest, topic: str, sent: list[tuple[str, str]]) -> None:
    """Every record is written once, in order, where 0.8 would have put its key."""
    read = await read_topic(cluster.bootstrap_servers, topic)
    for partition, records in read.items():
        expected = [
            (key.encode(), value.encode())
            for key, value in sent
            if java_string_partition(key.encode(), len(read)) == partition
        ]
        assert [(record.key, record.value) for record in records] == expected


async def test_asynchronous_sends_go_in_batches(cluster: ClusterUnderTest, tmp_path: Path) -> None:
    topic = await cluster.create_topic()
    sent = pairs(5_000)
    async with Producer(config_of(cluster, tmp_path, "async")) as producer:
        for key, value in sent:
            await producer.send(topic, value, key)
    await check(cluster, topic, sent)


async def test_synchronous_sends_return_with_the_delivery(
    cluster: ClusterUnderTest, tmp_path: Path
) -> None:
    topic = await cluster.create_topic()
    sent = pairs(60)
    async with Producer(config_of(cluster, tmp_path, "sync")) as producer:
        for key, value in sent:
            delivery = await producer.send(topic, value, key)
            assert delivery.result().offset is not None
    await check(cluster, topic, sent)


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_synchronous_callers_have_the_same_modes(
    cluster: ClusterUnderTest, tmp_path: Path, mode: str
) -> None:
    topic = await cluster.create_topic()
    sent = pairs(60)

    def send_all() -> None:
        with BlockingProducer(config_of(cluster, tmp_path, mode)) as producer:
            for key, value in sent:
                assert producer.send(topic, value, key).done() or mode == "async"

    await asyncio.to_thread(send_all)
    await check(cluster, topic, sent)
