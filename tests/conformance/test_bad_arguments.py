"""Wrong arguments of any kind: that call raises, and no other call is affected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aioproducer import Producer, Record
from aioproducer.errors import (
    InvalidPartitionError,
    InvalidTopicError,
    SerializationError,
    WrongLoopError,
)
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic
from aioproducer.wire.api_keys import ApiKey

BAD_TOPICS: list[Any] = ["\ud800", "x" * 40_000, "a b", "", "..", b"bytes", 123, None, []]
BAD_PARTITIONS: list[Any] = ["0", 1.5, 0.0, -1, True, False]
BAD_RECORDS: list[dict[str, Any]] = [
    {"timestamp_ms": 2**63},
    {"timestamp_ms": 1.5},
    {"timestamp_ms": "1"},
    {"headers": [("\ud800", b"")]},
    {"headers": [("name", "a str")]},
]


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=1, topics={"t": 1}) as cluster:
        yield cluster


@pytest.mark.parametrize("topic", BAD_TOPICS, ids=lambda topic: ascii(topic)[:12])
async def test_a_bad_topic_is_refused_and_affects_no_other_call(
    cluster: EmbeddedCluster, topic: Any
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with pytest.raises(InvalidTopicError):
            await producer.send(topic, b"v")
        with pytest.raises(InvalidTopicError):
            producer.send_nowait(topic, b"v")
        with pytest.raises(InvalidTopicError):
            await producer.partitions_for(topic)
        (failed,) = (await producer.send_many(topic, [b"v"])).failed
        assert isinstance(failed.error, InvalidTopicError)
        assert (await producer.send_and_wait("t", b"v")).offset == 0


@pytest.mark.parametrize("partition", BAD_PARTITIONS)
async def test_a_bad_partition_is_refused_and_affects_no_other_call(
    cluster: EmbeddedCluster, partition: Any
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for topic in ("t", "unknown-yet"):
            with pytest.raises(InvalidPartitionError):
                await producer.send(topic, b"v", partition=partition)
            with pytest.raises(InvalidPartitionError):
                producer.send_nowait(topic, b"v", partition=partition)
        assert (await producer.send_and_wait("t", b"v", partition=0)).offset == 0


@pytest.mark.parametrize("chosen", [*BAD_PARTITIONS, 1])
async def test_a_partitioner_that_chooses_no_valid_partition_is_reported(
    cluster: EmbeddedCluster, chosen: Any
) -> None:
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, partitioner=lambda *_: chosen
    ) as producer:
        with pytest.raises(InvalidPartitionError):
            await producer.send("t", b"v")
        assert (await producer.send_and_wait("t", b"v", partition=0)).offset == 0


@pytest.mark.parametrize("raised", [StopIteration, asyncio.CancelledError])
async def test_what_a_coroutine_cannot_raise_is_reported_as_the_error_of_the_partitioner(
    cluster: EmbeddedCluster, raised: type[BaseException]
) -> None:
    def choose(topic: str, key: object, value: object, meta: object) -> int:
        raise raised

    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, partitioner=choose
    ) as producer:
        for refused in (producer.send, producer.send_nowait):
            with pytest.raises(InvalidPartitionError, match=f"raised {raised.__name__}") as caught:
                await refused("t", b"v")
            assert caught.value.topic == "t"
            assert isinstance(caught.value.__cause__, raised)
        assert (await producer.send_and_wait("t", b"v", partition=0)).offset == 0


@pytest.mark.parametrize("bad", BAD_RECORDS, ids=ascii)
async def test_a_record_that_cannot_be_written_is_refused_and_costs_no_memory(
    cluster: EmbeddedCluster, bad: dict[str, Any]
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=50) as producer:
        with pytest.raises(SerializationError):
            await producer.send("t", b"v", **bad)
        good = await producer.send("t", b"v")
        with pytest.raises(SerializationError):  # also where a batch is open
            await producer.send("t", b"v", **bad)
        assert (await good).offset == 0
        health = producer.health()
        assert health.buffer_available == health.buffer_total


@pytest.mark.parametrize(
    "bad",
    [
        *[Record(b"v", **record) for record in BAD_RECORDS],
        *[Record(b"v", partition=partition) for partition in BAD_PARTITIONS],
        (b"k", b"v", None, None, "0"),
    ],
    ids=ascii,
)
async def test_send_many_counts_a_bad_item_as_failed_and_goes_on(
    cluster: EmbeddedCluster, bad: object
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        result = await producer.send_many("t", [b"a", bad, b"b"])
    assert (result.count, result.delivered) == (3, 2)
    assert [failed.index for failed in result.failed] == [1]


async def test_a_refusal_by_the_broker_is_a_new_error_for_every_call(
    cluster: EmbeddedCluster,
) -> None:
    cluster.state.faults.error(ApiKey.METADATA, InvalidTopicError, topic="odd", times=None)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        errors = []
        for _ in range(3):
            with pytest.raises(InvalidTopicError):
                await producer.send("odd", b"v")
            with pytest.raises(InvalidTopicError) as caught:
                producer.send_nowait("odd", b"v")
            errors.append(caught.value)
    # One object raised again and again would collect the frames of every call.
    assert len(set(map(id, errors))) == 3


async def test_warm_up_refuses_a_str_in_place_of_its_letters(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with pytest.raises(TypeError, match=r"\['orders'\]"):
            await producer.warm_up("orders")
    assert sorted(cluster.state.topics) == ["t"]


async def test_mutable_key_and_value_are_snapshotted_at_send(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        cluster.state.faults.delay(200, ApiKey.METADATA)
        key, value = bytearray(b"key"), bytearray(b"value")
        waiting = asyncio.create_task(producer.send("new", memoryview(value), key))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        key[:], value[:] = b"yek", b"eulav"
        await (await waiting)
    (record,) = (await read_topic(cluster.bootstrap_servers, "new", timeout_s=20))[0]
    assert (record.key, record.value) == (b"key", b"value")


async def test_send_nowait_without_a_running_loop_says_so(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.warm_up(["t"])
        with pytest.raises(WrongLoopError):
            await asyncio.to_thread(producer.send_nowait, "t", b"v")
        assert producer.metrics()["record_send_total"] == 0
