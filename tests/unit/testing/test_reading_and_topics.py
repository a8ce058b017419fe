"""The tools over the wire: reading back, creating, deleting, on clusters that make it hard."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aioproducer.errors import (
    InvalidReplicationFactorError,
    KafkaTimeoutError,
    NotControllerError,
    ProtocolError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from aioproducer.records.codecs import CompressionType
from aioproducer.records.reader import DecodedRecord, RecordBatch
from aioproducer.testing import EmbeddedCluster, TopicSpec, VirtualKafka, reader, run_virtual
from aioproducer.testing.admin import create_topic, delete_topic, list_topics
from aioproducer.testing.reader import (
    ReadFrom,
    Start,
    end_offsets,
    read_topic,
    stream_part,
    stream_topic,
)
from aioproducer.testing.wire_client import Link, WireClient, parse_bootstrap
from aioproducer.types import TopicPartition
from aioproducer.wire.api_keys import ApiKey

from .support import make_batch, produce


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(3, topics={"t": TopicSpec(3, 3)}) as cluster:
        yield cluster


def fill(cluster: EmbeddedCluster, batches: int = 4) -> dict[int, list[bytes]]:
    """Every codec in every partition; gives the values by partition."""
    expected: dict[int, list[bytes]] = {}
    for partition in range(3):
        for number in range(batches):
            values = [b"%d-%d-%d" % (partition, number, index) for index in range(20)]
            codec = CompressionType(number % 5)
            answer = produce(cluster.state, make_batch(values, codec=codec), partition=partition)
            assert answer.error_code == 0
            expected.setdefault(partition, []).extend(values)
    return expected


def test_bootstrap_servers_are_parsed() -> None:
    assert parse_bootstrap("a:1, b:2,") == [("a", 1), ("b", 2)]
    assert parse_bootstrap(["[::1]:9092"]) == [("::1", 9092)]
    with pytest.raises(ValueError, match="no bootstrap server"):
        parse_bootstrap(" ,")


async def test_topic_is_read_back_in_order_and_complete(cluster: EmbeddedCluster) -> None:
    expected = fill(cluster, 7)
    found = await read_topic(cluster.bootstrap_servers, "t")
    assert {index: [each.value for each in found[index]] for index in found} == expected
    assert [each.offset for each in found[0]] == list(range(140))


async def test_empty_partitions_are_named(cluster: EmbeddedCluster) -> None:
    assert await read_topic(cluster.bootstrap_servers, "t") == {0: [], 1: [], 2: []}


async def test_records_appended_while_reading_are_left_for_the_next_time(
    cluster: EmbeddedCluster,
) -> None:
    fill(cluster)
    seen = 0
    async for partition, record in stream_topic(cluster.bootstrap_servers, "t"):
        assert partition.topic == "t"
        assert record.value is not None
        seen += 1
        if seen == 1:
            fill(cluster)
    assert seen == 240
    assert await end_offsets(cluster.bootstrap_servers, "t") == {0: 160, 1: 160, 2: 160}


async def test_reading_follows_leaders_that_move_and_survives_errors(
    cluster: EmbeddedCluster,
) -> None:
    fill(cluster)
    faults = [
        cluster.state.faults.error(ApiKey.FETCH, 6),
        cluster.state.faults.drop(ApiKey.FETCH, skip=1),
        cluster.state.faults.error(ApiKey.LIST_OFFSETS, 5),
        cluster.state.faults.cut(7, ApiKey.METADATA),
    ]
    seen = 0
    async for _ in stream_topic(cluster.bootstrap_servers, "t"):
        seen += 1
        if seen == 10:
            for partition in range(3):
                cluster.move_leader("t", partition)
    assert seen == 240
    assert [fault.struck for fault in faults] == [1, 1, 1, 1]


async def test_reading_goes_on_when_a_broker_dies(cluster: EmbeddedCluster) -> None:
    expected = fill(cluster)
    await cluster.stop_broker(1)
    found = await read_topic(cluster.bootstrap_servers, "t")
    assert {index: len(records) for index, records in found.items()} == {
        index: len(values) for index, values in expected.items()
    }


async def test_reading_starts_where_the_log_starts(cluster: EmbeddedCluster) -> None:
    fill(cluster)
    partition = cluster.state.topics["t"].partitions[0]
    partition.log.delete_before(25)
    found = await read_topic(cluster.bootstrap_servers, "t")
    assert [record.offset for record in found[0]] == list(range(25, 80))


async def test_missing_topic_is_said_at_once(cluster: EmbeddedCluster) -> None:
    async with asyncio.timeout(5):
        with pytest.raises(UnknownTopicOrPartitionError):
            await read_topic(cluster.bootstrap_servers, "nope")
    assert "nope" not in cluster.state.topics


async def test_corrupt_batch_is_noticed(cluster: EmbeddedCluster) -> None:
    fill(cluster, 1)
    log = cluster.state.topics["t"].partitions[0].log
    good = log._batches[0]
    log._batches[0] = good._replace(data=good.data[:-1] + b"\xff")
    with pytest.raises(ProtocolError, match="corrupt"):
        await read_topic(cluster.bootstrap_servers, "t")


async def test_cluster_that_does_not_answer_ends_in_a_timeout_naming_the_cause(
    cluster: EmbeddedCluster,
) -> None:
    for node_id in (1, 2, 3):
        await cluster.stop_broker(node_id)
    with pytest.raises(KafkaTimeoutError, match="does not answer"):
        await read_topic(cluster.bootstrap_servers, "t", timeout_s=0.3)


async def test_the_cause_is_named_although_the_time_is_up_at_the_next_broker() -> None:
    async def silent(address: object) -> Link:
        return await asyncio.Future()

    client = WireClient("127.0.0.1:1,127.0.0.1:2", timeout_s=0.05, open_link=silent)
    async with client:
        with pytest.raises(KafkaTimeoutError, match=r"127\.0\.0\.1:1 does not answer"):
            await client.metadata(None)


async def test_silent_broker_ends_in_a_timeout(cluster: EmbeddedCluster) -> None:
    cluster.freeze_broker(1)
    alone = cluster.bootstrap_servers.split(",")[0]
    with pytest.raises(KafkaTimeoutError):
        await end_offsets(alone, "t", timeout_s=0.3)


async def test_topic_is_created_with_its_options_and_deleted(cluster: EmbeddedCluster) -> None:
    servers = cluster.bootstrap_servers
    await create_topic(servers, "new", 4, 2, {"max.message.bytes": "99"})
    topic = cluster.state.topics["new"]
    assert (len(topic.partitions), len(topic.partitions[0].replicas)) == (4, 2)
    assert topic.config.max_message_bytes == 99
    assert [topic.name for topic in await list_topics(servers)] == ["new", "t"]
    await delete_topic(servers, "new")
    assert [topic.name for topic in await list_topics(servers)] == ["t"]


async def test_refusals_of_the_cluster_are_raised(cluster: EmbeddedCluster) -> None:
    servers = cluster.bootstrap_servers
    with pytest.raises(TopicAlreadyExistsError):
        await create_topic(servers, "t")
    with pytest.raises(InvalidReplicationFactorError):
        await create_topic(servers, "new", 1, 9)
    with pytest.raises(UnknownTopicOrPartitionError):
        await delete_topic(servers, "nope")


async def test_changes_are_tried_again_and_a_lost_answer_does_no_harm(
    cluster: EmbeddedCluster,
) -> None:
    servers, faults = cluster.bootstrap_servers, cluster.state.faults
    scripted = [
        faults.error(ApiKey.CREATE_TOPICS, NotControllerError),
        faults.drop(ApiKey.CREATE_TOPICS, skip=1, apply=True),
        faults.error(ApiKey.DELETE_TOPICS, 7, apply=True),
    ]
    await create_topic(servers, "new")
    assert "new" in cluster.state.topics
    await delete_topic(servers, "new")
    assert "new" not in cluster.state.topics
    assert [fault.struck for fault in scripted] == [1, 1, 1]


async def test_creation_waits_until_every_partition_has_a_leader(cluster: EmbeddedCluster) -> None:
    fault = cluster.state.faults.error(ApiKey.METADATA, 5, topic="new", partition=0, times=3)
    await create_topic(cluster.bootstrap_servers, "new")
    assert fault.struck == 3


async def test_creation_waits_for_no_broker_that_leaves(cluster: EmbeddedCluster) -> None:
    cluster.freeze_broker(3)
    creating = asyncio.create_task(create_topic(cluster.bootstrap_servers, "new", timeout_s=5))
    while "new" not in cluster.state.topics:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await cluster.stop_broker(3)
    await creating


def test_postponing_starts_a_clients_time_anew() -> None:
    async def wait_twice(_: VirtualKafka) -> None:
        async with WireClient("localhost:1", timeout_s=10) as client:
            for _round in range(3):
                await asyncio.sleep(8)
                await client.pause()
                client.extend_deadline()
            await asyncio.sleep(10)
            with pytest.raises(KafkaTimeoutError):
                await client.pause()

    run_virtual(wait_twice)


async def test_decoding_ends_at_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """One response may have thousands of batches of kilobytes, each of which takes seconds."""
    decoded = RecordBatch.records

    def slowly(batch: RecordBatch) -> list[DecodedRecord]:
        time.sleep(0.05)
        return decoded(batch)

    async with EmbeddedCluster(1, topics={"t": TopicSpec(1, 1)}) as cluster:
        for _ in range(60):
            produce(cluster.state, make_batch([b"x"]))
        monkeypatch.setattr(RecordBatch, "records", slowly)
        with pytest.raises(KafkaTimeoutError, match=r"no success within 0\.5 s"):
            await read_topic(cluster.bootstrap_servers, "t", timeout_s=0.5)
        assert len((await read_topic(cluster.bootstrap_servers, "t", timeout_s=30))[0]) == 60


@pytest.mark.parametrize("port", [-1, 0, 65_536, 2**31 - 1])
async def test_a_broker_at_a_port_that_cannot_be_is_not_known(
    cluster: EmbeddedCluster, port: int
) -> None:
    cluster.state.set_broker_address(2, "127.0.0.1", port)
    with pytest.raises(KafkaTimeoutError, match="broker 2 is not known"):
        await read_topic(cluster.bootstrap_servers.split(",")[0], "t", timeout_s=0.5)


async def test_nothing_beyond_the_end_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    listed = reader._list_offsets
    records = RecordBatch.records

    async def before_the_others(*arguments: Any) -> dict[int, int]:
        return {index: min(end, 2) for index, end in (await listed(*arguments)).items()}

    def counted(batch: RecordBatch) -> list[DecodedRecord]:
        decoded.append(batch.base_offset)
        return records(batch)

    async with EmbeddedCluster(1, topics={"t": TopicSpec(1, 1)}) as cluster:
        for _ in range(9):
            produce(cluster.state, make_batch([b"x"]))
        monkeypatch.setattr(reader, "_list_offsets", before_the_others)
        monkeypatch.setattr(RecordBatch, "records", counted)
        assert len((await read_topic(cluster.bootstrap_servers, "t"))[0]) == 2
    assert decoded == [0, 1]


async def test_a_broker_without_the_records_it_announced_ends_the_reading(
    cluster: EmbeddedCluster,
) -> None:
    fill(cluster)
    cluster.state.topics["t"].partitions[1].log._batches.clear()
    part = stream_part(cluster.bootstrap_servers, "t", timeout_s=1)
    seen = 0
    async with asyncio.timeout(20):
        with pytest.raises(KafkaTimeoutError, match="no success within 1 s"):
            async for _ in flat(part):
                seen += 1
    assert seen == 160


async def test_the_time_a_reader_takes_for_records_is_no_silence_of_brokers(
    cluster: EmbeddedCluster,
) -> None:
    fill(cluster, 1)
    seen = 0
    async for _ in stream_part(cluster.bootstrap_servers, "t", timeout_s=0.5):
        seen += 1
        await asyncio.sleep(0.6)
    assert seen == 3


async def test_part_of_a_topic_is_read_from_a_place_on(cluster: EmbeddedCluster) -> None:
    fill(cluster, 1)
    read_from = ReadFrom(Start.LAST, 3)
    part = stream_part(cluster.bootstrap_servers, "t", read_from=read_from, partition=2)
    found = [(where.partition, each.offset) async for where, each in flat(part)]
    assert found == [(2, 17), (2, 18), (2, 19)]


async def test_a_partition_is_read_while_others_have_no_leader() -> None:
    async with EmbeddedCluster(2, topics={"t": TopicSpec(2, 1)}) as cluster:
        produce(cluster.state, make_batch([b"x"]), partition=0)
        await cluster.stop_broker(cluster.state.topics["t"].partitions[1].leader)
        part = stream_part(cluster.bootstrap_servers, "t", partition=0, timeout_s=1)
        assert [each.value async for _, each in flat(part)] == [b"x"]


async def flat(
    part: AsyncIterator[tuple[TopicPartition, list[DecodedRecord]]],
) -> AsyncIterator[tuple[TopicPartition, DecodedRecord]]:
    async for where, records in part:
        for record in records:
            yield where, record
