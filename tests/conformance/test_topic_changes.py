"""Topics that grow, go and come back while a producer writes to them."""

from __future__ import annotations

import asyncio
import time

import pytest
from support.clusters import ClusterUnderTest
from support.confluent import grow_topic_confluent

from aioproducer import Producer
from aioproducer.errors import KafkaError, UnknownTopicIdError, UnknownTopicOrPartitionError
from aioproducer.records import murmur2_partition
from aioproducer.testing.admin import create_topic, delete_topic
from aioproducer.testing.reader import read_topic

WATCHFUL = {"metadata_max_age_ms": 200, "retry_backoff_ms": 20, "retry_backoff_max_ms": 200}


async def until_partitions(producer: Producer, topic: str, count: int) -> None:
    """Waits until the producer has learnt of a topic's growth."""
    async with asyncio.timeout(30):
        while len(await producer.partitions_for(topic)) != count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_new_partitions_are_used_and_what_is_batched_stays(
    cluster: ClusterUnderTest,
) -> None:
    topic = await cluster.create_topic(1)
    keys = [b"key-%d" % number for number in range(30)]
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000, **WATCHFUL
    ) as producer:
        before = [await producer.send(topic, b"v", key=key) for key in keys]
        await grow_topic_confluent(cluster.bootstrap_servers, topic, 4)
        await until_partitions(producer, topic, 4)
        keyed = [await producer.send(topic, b"v", key=key) for key in keys]
        await producer.flush()
        assert {(await each).partition for each in before} == {0}
        partitions = [(await each).partition for each in keyed]
        assert partitions == [murmur2_partition(key, 4) for key in keys]
        assert set(partitions) == {0, 1, 2, 3}


async def test_the_sticky_partitioner_uses_new_partitions(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, batch_size=1000, linger_ms=0, **WATCHFUL
    ) as producer:
        await producer.send_and_wait(topic, b"v")
        await grow_topic_confluent(cluster.bootstrap_servers, topic, 4)
        await until_partitions(producer, topic, 4)
        sent = [await producer.send(topic, b"v" * 400) for _ in range(200)]
        assert {(await each).partition for each in sent} == {0, 1, 2, 3}


async def test_records_of_a_deleted_topic_fail_in_time_and_say_why(
    cluster: ClusterUnderTest,
) -> None:
    topic, other = await cluster.create_topic(1), await cluster.create_topic(1)
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        allow_auto_create_topics=False,
        linger_ms=1000,
        request_timeout_ms=1000,
        delivery_timeout_ms=3000,
        **WATCHFUL,
    ) as producer:
        started = time.monotonic()
        delivery = await producer.send(topic, b"v")
        await delete_topic(cluster.bootstrap_servers, topic)
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC") as caught:
            await delivery
        assert time.monotonic() - started < 5
        error = caught.value
        causes = (UnknownTopicOrPartitionError, UnknownTopicIdError)
        assert isinstance(error, causes) or isinstance(error.__cause__, causes)
        assert (error.topic, error.partition) == (topic, 0)
        assert (await producer.send_and_wait(other, b"v")).offset == 0


async def test_a_topic_created_anew_is_written_to_from_its_beginning(
    cluster: ClusterUnderTest,
) -> None:
    topic = await cluster.create_topic(2)
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, allow_auto_create_topics=False, **WATCHFUL
    ) as producer:
        for _ in range(3):
            await producer.send_and_wait(topic, b"old", partition=0)
        await delete_topic(cluster.bootstrap_servers, topic)
        await create_topic(cluster.bootstrap_servers, topic, 2)
        values = [b"new-%d" % number for number in range(50)]
        sent = [await producer.send(topic, value, partition=0) for value in values]
        metadata = await asyncio.gather(*sent)
    assert [each.offset for each in metadata] == list(range(50))
    read = await read_topic(cluster.bootstrap_servers, topic, timeout_s=20)
    assert [record.value for record in read[0]] == values
