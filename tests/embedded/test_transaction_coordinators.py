"""Transactions of the embedded cluster, driven and read by confluent-kafka (librdkafka)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from support.confluent import read_all_confluent

from aioproducer.testing import (
    ClusterSettings,
    EmbeddedCluster,
    TopicSpec,
    end_offsets,
    read_topic,
    stream_topic,
)
from aioproducer.testing.broker.transactions.shards import CoordinatorKind
from aioproducer.wire.api_keys import ApiKey

TIMEOUT_S = 15
PER_TRANSACTION = 30


@pytest.fixture(
    params=[(1, 0), (2, 0), (2, 3)], ids=["version 1", "version 2", "version 2, slow markers"]
)
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedCluster]:
    version, marker_delay_ms = request.param
    settings = ClusterSettings(
        verify_records=True, transaction_version=version, marker_delay_ms=marker_delay_ms
    )
    topics = {"t": TopicSpec(3, 3), "in": TopicSpec(2, 3)}
    async with EmbeddedCluster(3, topics=topics, settings=settings) as cluster:
        yield cluster


def make_producer(cluster: EmbeddedCluster, **options: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": "tx",
            "log_level": 0,
            "linger.ms": 1,
            "retry.backoff.ms": 10,
            **options,
        }
    )


def make_consumer(cluster: EmbeddedCluster) -> Consumer:
    return Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 0}
    )


def write(producer: Producer, number: int) -> None:
    for index in range(PER_TRANSACTION):
        producer.produce("t", f"{number}-{index}".encode(), partition=index % 3)


def whole(numbers: list[int]) -> set[bytes]:
    return {f"{number}-{index}".encode() for number in numbers for index in range(PER_TRANSACTION)}


async def in_thread(work: Callable[[], Any]) -> Any:
    async with asyncio.timeout(60):
        return await asyncio.to_thread(work)


async def test_a_committed_read_sees_committed_transactions_and_all_of_each(
    cluster: EmbeddedCluster,
) -> None:
    def work() -> None:
        producer = make_producer(cluster)
        producer.init_transactions(TIMEOUT_S)
        for number in range(9):
            producer.begin_transaction()
            write(producer, number)
            if number % 3 == 1:
                producer.flush(TIMEOUT_S)
                producer.abort_transaction(TIMEOUT_S)
            else:
                producer.commit_transaction(TIMEOUT_S)
        producer.begin_transaction()
        write(producer, 9)
        assert producer.flush(TIMEOUT_S) == 0

    await in_thread(work)
    servers = cluster.bootstrap_servers
    committed = whole([0, 2, 3, 5, 6, 8])
    seen = await read_all_confluent(servers, "t", "read_committed")
    assert {record.value for record in seen} == committed
    assert len(seen) == len(committed)
    own = await read_topic(servers, "t", isolation_level="read_committed")
    assert {each.value for records in own.values() for each in records} == committed
    streamed = [each async for _, each in stream_topic(servers, "t")]
    assert {each.value for each in streamed} == whole(list(range(10)))
    stable = await end_offsets(servers, "t", isolation_level="read_committed")
    ends = await end_offsets(servers, "t")
    assert {index: ends[index] - stable[index] for index in ends} == dict.fromkeys(range(3), 10)


async def test_offsets_are_committed_with_their_transaction(cluster: EmbeddedCluster) -> None:
    asked = [TopicPartition("in", 0), TopicPartition("in", 1)]

    def work() -> list[list[int]]:
        producer, consumer = make_producer(cluster), make_consumer(cluster)
        producer.init_transactions(TIMEOUT_S)
        group = consumer.consumer_group_metadata()
        found = []
        for offset, end in [(7, producer.commit_transaction), (8, producer.abort_transaction)]:
            producer.begin_transaction()
            producer.produce("t", b"v", partition=0)
            producer.send_offsets_to_transaction(
                [TopicPartition("in", 0, offset), TopicPartition("in", 1, offset)],
                group,
                TIMEOUT_S,
            )
            end(TIMEOUT_S)
            found.append([each.offset for each in consumer.committed(asked, timeout=TIMEOUT_S)])
        consumer.close()
        return found

    assert await in_thread(work) == [[7, 7], [7, 7]]


async def test_a_new_incarnation_fences_the_old(cluster: EmbeddedCluster) -> None:
    def work() -> tuple[int, bool]:
        old = make_producer(cluster)
        old.init_transactions(TIMEOUT_S)
        old.begin_transaction()
        write(old, 0)
        assert old.flush(TIMEOUT_S) == 0
        new = make_producer(cluster)
        new.init_transactions(TIMEOUT_S)
        with pytest.raises(KafkaException) as caught:
            old.commit_transaction(TIMEOUT_S)
        new.begin_transaction()
        write(new, 1)
        new.commit_transaction(TIMEOUT_S)
        error = caught.value.args[0]
        return error.code(), error.fatal()

    assert await in_thread(work) == (KafkaError._FENCED, True)
    seen = await read_all_confluent(cluster.bootstrap_servers, "t", "read_committed")
    assert {record.value for record in seen} == whole([1])


@pytest.mark.slow
async def test_coordinators_and_leaders_stop_in_the_middle_of_transactions(
    cluster: EmbeddedCluster,
) -> None:
    loop = asyncio.get_running_loop()

    async def restart_coordinator() -> None:
        node_id = cluster.state.shards.shard(CoordinatorKind.TRANSACTION, "tx").leader
        await cluster.stop_broker(node_id)
        await cluster.start_broker(node_id)

    def restart() -> None:
        asyncio.run_coroutine_threadsafe(restart_coordinator(), loop).result(TIMEOUT_S)

    def work() -> None:
        producer = make_producer(cluster)
        producer.init_transactions(TIMEOUT_S)
        for number in range(6):
            producer.begin_transaction()
            if number % 2:
                restart()
            write(producer, number)
            assert producer.flush(TIMEOUT_S) == 0
            restart()
            producer.commit_transaction(TIMEOUT_S)

    await in_thread(work)
    seen = await read_all_confluent(cluster.bootstrap_servers, "t", "read_committed")
    assert {record.value for record in seen} == whole(list(range(6)))
    assert len(seen) == 6 * PER_TRANSACTION


@pytest.mark.slow
async def test_lost_answers_and_passing_errors_change_nothing(cluster: EmbeddedCluster) -> None:
    faults = cluster.state.faults
    scripted = []
    for api in (ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN):
        scripted += [
            faults.drop(api, apply=True),
            faults.error(api, 14),
            faults.error(api, 16),
            faults.error(api, 51),
        ]

    def work() -> None:
        producer = make_producer(cluster)
        producer.init_transactions(TIMEOUT_S)
        for number in range(4):
            producer.begin_transaction()
            write(producer, number)
            producer.commit_transaction(TIMEOUT_S)

    await in_thread(work)
    assert [fault.struck for fault in scripted] == [1] * len(scripted)
    seen = await read_all_confluent(cluster.bootstrap_servers, "t", "read_committed")
    assert sorted(record.value or b"" for record in seen) == sorted(whole([0, 1, 2, 3]))


async def test_an_idle_cluster_aborts_what_takes_too_long() -> None:
    topics = {"t": TopicSpec(3, 1)}
    async with EmbeddedCluster(1, topics=topics) as cluster:
        markers = asyncio.Event()

        def work() -> Producer:
            producer = make_producer(cluster, **{"transaction.timeout.ms": 1000})
            producer.init_transactions(TIMEOUT_S)
            producer.begin_transaction()
            write(producer, 0)
            assert producer.flush(TIMEOUT_S) == 0
            return producer

        producer = await in_thread(work)
        cluster.state.subscribe(lambda _: markers.set())
        async with asyncio.timeout(TIMEOUT_S):
            await markers.wait()
        with pytest.raises(KafkaException):
            await in_thread(lambda: producer.commit_transaction(TIMEOUT_S))
        assert await read_all_confluent(cluster.bootstrap_servers, "t", "read_committed") == []
