"""The use of a producer by frameworks on aiokafka."""

from __future__ import annotations

import asyncio
import inspect
import sys
from typing import Any

import aiokafka
import pytest
from aiokafka.partitioner import DefaultPartitioner as TheirPartitioner

from aioproducer.compat.aiokafka import AIOKafkaProducer
from aioproducer.compat.aiokafka.partitioner import DefaultPartitioner
from aioproducer.testing.embedded import EmbeddedCluster


class Recording(AIOKafkaProducer):
    """Notes what passes through `send`."""

    seen: list[Any]

    async def send(self, topic: str, value: Any = None, *args: Any, **kwargs: Any) -> Any:
        self.seen.append(value)
        return await super().send(topic, value, *args, **kwargs)


def made(**options: Any) -> AIOKafkaProducer:
    """One that does not warn of having never been stopped."""
    producer = AIOKafkaProducer(**options)
    producer._closed = True
    return producer


def test_aiokafkas_own_defaults_mean_not_given() -> None:
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(aiokafka.AIOKafkaProducer).parameters.items()
    }
    producer = made(**defaults)
    assert (producer._own_config.acks_value, producer._own_config.partitioner) == (1, "default")
    defaults["enable_idempotence"] = True
    assert made(**defaults)._own_config.acks_value == -1


@pytest.mark.parametrize("partitioner", [TheirPartitioner(), DefaultPartitioner()])
def test_any_default_partitioner_is_the_default(partitioner: Any) -> None:
    assert made(partitioner=partitioner)._own_config.partitioner == "default"


def test_a_subclass_of_the_default_partitioner_is_asked() -> None:
    class First(TheirPartitioner):
        def __call__(self, key: Any, all_partitions: Any, available: Any) -> Any:
            return all_partitions[0]

    assert callable(made(partitioner=First())._own_config.partitioner)


async def test_a_partitioner_gets_the_same_lists_until_the_topics_metadata_change() -> None:
    asked: list[tuple[list[int], list[int]]] = []

    def last(key: bytes | None, every: list[int], available: list[int]) -> int:
        asked.append((every, available))
        return every[-1]

    async with (
        EmbeddedCluster(brokers=1, topics={"t": 3}) as cluster,
        AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, partitioner=last) as producer,
    ):
        answers = [await producer.send_and_wait("t", b"v") for _ in range(2)]
    assert [answer.partition for answer in answers if answer] == [2, 2]
    assert asked[0] == ([0, 1, 2], [0, 1, 2])
    assert asked[0][0] is asked[1][0]


async def test_send_and_wait_passes_through_an_overridden_send() -> None:
    async with (
        EmbeddedCluster(brokers=1, topics={"t": 1}) as cluster,
        Recording(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        producer.seen = []
        answer = await producer.send_and_wait("t", b"v", key=b"k")
        assert (producer.seen, answer.offset) == ([b"v"], 0)


async def test_send_and_wait_of_the_only_task_that_sends_does_not_linger() -> None:
    async with (
        EmbeddedCluster(brokers=1, topics={"t": 1}) as cluster,
        AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=100) as producer,
    ):
        called: list[str] = []
        for _ in range(20):
            called.clear()
            sys.setprofile(lambda frame, *_: called.append(frame.f_code.co_name))
            await producer.send_and_wait("t", b"v")
            sys.setprofile(None)
            for _ in range(5):
                await asyncio.sleep(0)  # other tasks of the producer have their turns
            if "try_hand_out" in called:
                break
    assert "try_hand_out" in called
    assert "enqueue" not in called


async def test_results_are_of_aiokafkas_classes_where_it_is_imported() -> None:
    async with (
        EmbeddedCluster(brokers=1, topics={"t": 1}) as cluster,
        AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        batch = producer.create_batch()
        batch.append(key=None, value=b"v", timestamp=None)
        for answer in (
            await producer.send_and_wait("t", b"v"),
            await (await producer.send("t", b"v")),
            await (await producer.send_batch(batch, "t", partition=0)),
        ):
            assert type(answer) is aiokafka.structs.RecordMetadata
            assert type(answer.topic_partition) is aiokafka.TopicPartition
