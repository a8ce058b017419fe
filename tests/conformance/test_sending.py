"""A reader finds what was sent, on the embedded cluster and on real Kafka alike."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
from support.clusters import ClusterUnderTest, unique_topic

from aioproducer import Producer, Record, TimestampType
from aioproducer.errors import (
    BufferFullError,
    InvalidPartitionError,
    MetadataTimeoutError,
    RecordTooLargeError,
    SerializationError,
    WouldBlockError,
)
from aioproducer.records import murmur2_partition
from aioproducer.testing.reader import read_topic

Headers = tuple[tuple[str, bytes | None], ...]


async def contents(
    cluster: ClusterUnderTest, topic: str
) -> dict[int, list[tuple[bytes | None, bytes | None, Headers]]]:
    read = await read_topic(cluster.bootstrap_servers, topic, timeout_s=20)
    return {
        partition: [(r.key, r.value, tuple(r.headers)) for r in records]
        for partition, records in read.items()
        if records
    }


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_one_record_arrives_with_any_acks(cluster: ClusterUnderTest, acks: int | str) -> None:
    topic = await cluster.create_topic(1)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, acks=acks) as producer:
        metadata = await producer.send_and_wait(topic, b"value", key=b"key")
        assert (metadata.topic, metadata.partition) == (topic, 0)
        assert metadata.offset == (None if acks == 0 else 0)
        assert (metadata.serialized_key_size, metadata.serialized_value_size) == (3, 5)
        assert metadata.timestamp_type is TimestampType.CREATE_TIME
    # Readers see what all replicas have; a record after it with acks=all shows that they do.
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b"after")
    assert (await contents(cluster, topic))[0][0] == (b"key", b"value", ())


async def test_topic_is_created_by_the_first_record_for_it(cluster: ClusterUnderTest) -> None:
    topic = unique_topic()
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        written = await producer.send_and_wait(topic, b"first")
    assert written.offset == 0
    assert await contents(cluster, topic) == {written.partition: [(None, b"first", ())]}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_keeps_order_keys_nulls_and_headers(
    cluster: ClusterUnderTest, codec: str
) -> None:
    topic = await cluster.create_topic(1)
    headers: Headers = (("a", b"1"), ("a", None), ("\u00fc", b""))
    sent: list[tuple[bytes | None, bytes | None, Headers]] = [
        (None, None, ()),
        (b"", b"", ()),
        (b"\x00\xff", b"x" * 200_000, headers),
        *[(b"k%d" % i, b"value %d " % i * 20, headers[:1]) for i in range(500)],
    ]
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, compression_type=codec
    ) as producer:
        for key, value, pairs in sent:
            await producer.send(topic, value, key, headers=pairs)
        assert await producer.flush() == 0
    assert (await contents(cluster, topic))[0] == sent


async def test_offsets_are_consecutive_and_in_send_order(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=1) as producer:
        deliveries = [await producer.send(topic, b"%d" % i) for i in range(1000)]
        offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == list(range(1000))


async def test_keys_go_where_java_puts_them(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(5)
    keys = [b"key-%d" % i for i in range(50)]
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for key in keys:
            metadata = await (await producer.send(topic, b"v", key))
            assert metadata.partition == murmur2_partition(key, 5)


async def test_an_explicit_partition_wins_over_the_key(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(3)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for partition in (2, 0, 1):
            metadata = await producer.send_and_wait(topic, b"v", b"same", partition=partition)
            assert metadata.partition == partition


async def test_records_without_keys_reach_all_partitions(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(3)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, batch_size=2000) as producer:
        for i in range(2000):
            await producer.send(topic, b"%0100d" % i)
        await producer.flush()
    assert sorted(await contents(cluster, topic)) == [0, 1, 2]


async def test_timestamps_are_kept_or_taken_from_the_broker(cluster: ClusterUnderTest) -> None:
    created = await cluster.create_topic(1)
    stamped = await cluster.create_topic(1, configs={"message.timestamp.type": "LogAppendTime"})
    past = 1_500_000_000_000
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        before = time.time_ns() // 1_000_000 - 1
        kept = await producer.send_and_wait(created, b"v", timestamp_ms=past)
        now = await producer.send_and_wait(created, b"v")
        broker = await producer.send_and_wait(stamped, b"v", timestamp_ms=past)
    assert kept.timestamp_ms == past
    assert before <= now.timestamp_ms <= time.time_ns() // 1_000_000 + 1
    assert broker.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert broker.timestamp_ms >= before
    (record,) = (await read_topic(cluster.bootstrap_servers, stamped, timeout_s=20))[0]
    assert record.timestamp_ms == broker.timestamp_ms


async def test_headers_are_snapshotted_at_send(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    headers = [("trace", b"1")]
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=50) as producer:
        delivery = await producer.send(topic, b"v", headers=headers)
        headers.append(("late", b"2"))
        await delivery
        await producer.send_and_wait(topic, b"w", headers={"mapping": b"3"})
    assert [h for _, _, h in (await contents(cluster, topic))[0]] == [
        (("trace", b"1"),),
        (("mapping", b"3"),),
    ]


async def test_send_many_takes_values_tuples_and_records(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    items = [
        b"plain",
        (b"key", b"value"),
        (b"key", b"value", [("h", b"1")]),
        (None, b"value", None, 1_600_000_000_000, 0),
        Record(b"record", key=b"rk", headers={"h": b"2"}),
    ]
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        result = await producer.send_many(topic, items)
    assert (result.count, result.delivered, result.failed) == (5, 5, [])
    assert list(result.offsets.values()) == [(0, 4)]
    assert [value for _, value, _ in (await contents(cluster, topic))[0]] == [
        b"plain",
        b"value",
        b"value",
        b"value",
        b"record",
    ]


async def test_send_many_counts_refused_items_and_goes_on(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(2)

    async def items() -> AsyncIterator[object]:
        yield b"good"
        yield b"x" * 2_000_000
        yield "a str"
        yield (b"k", b"v", None, None, None, "six")
        yield b"good too"

    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        result = await producer.send_many(topic, items())
    assert (result.count, result.delivered) == (5, 2)
    assert [failed.index for failed in result.failed] == [1, 2, 3]
    assert isinstance(result.failed[0].error, RecordTooLargeError)
    assert isinstance(result.failed[1].error, SerializationError)


async def test_serializers_run_and_their_errors_name_them(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        value_serializer=str.encode,
        key_serializer=lambda key: None if key is None else b"%d" % key,
    ) as producer:
        await producer.send_and_wait(topic, "text", 7)
        with pytest.raises(SerializationError, match="value_serializer"):
            await producer.send(topic, 1)
    assert (await contents(cluster, topic))[0] == [(b"7", b"text", ())]


async def test_send_nowait_raises_where_send_would_wait(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        buffer_memory=16384,
        linger_ms=60_000,
        delivery_timeout_ms=120_000,
    ) as producer:
        with pytest.raises(WouldBlockError, match="metadata") as caught:
            producer.send_nowait(topic, b"v")
        assert not isinstance(caught.value, BufferFullError)
        await producer.warm_up([topic])
        delivery = producer.send_nowait(topic, b"v" * 16_000)
        with pytest.raises(BufferFullError, match="buffer_memory"):
            producer.send_nowait(topic, b"v" * 16_000)
        await producer.flush()
        assert (await delivery).offset == 0
        producer.send_nowait(topic, b"v")


async def test_user_mistakes_are_raised_by_the_call(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=1500) as producer:
        with pytest.raises(SerializationError):
            await producer.send(topic, "not bytes")
        with pytest.raises(SerializationError):
            await producer.send(topic, b"v", headers=[("no pair",)])  # type: ignore[list-item]
        with pytest.raises(SerializationError, match="timestamp_ms"):
            await producer.send(topic, b"v", timestamp_ms=-1)
        with pytest.raises(InvalidPartitionError):
            await producer.send(topic, b"v", partition=-1)
        with pytest.raises(RecordTooLargeError, match="max_request_size"):
            await producer.send(topic, b"v" * 1_048_576)
        with pytest.raises(MetadataTimeoutError, match=r"partition 7, after 1(4|5)\d\d ms"):
            await producer.send(topic, b"v", partition=7)
        assert (await producer.send_and_wait(topic, b"still works")).offset == 0


async def test_a_topic_that_may_not_be_created_times_out_with_the_reason(
    cluster: ClusterUnderTest,
) -> None:
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        max_block_ms=800,
        allow_auto_create_topics=False,
    ) as producer:
        with pytest.raises(MetadataTimeoutError) as caught:
            await producer.send("no-such-topic", b"v")
    assert "no-such-topic" in str(caught.value)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in str(caught.value)


async def test_partitions_for_describes_the_topic(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(4)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        partitions = await producer.partitions_for(topic)
    assert [p.partition for p in partitions] == [0, 1, 2, 3]
    assert all(p.leader in p.replicas for p in partitions)


async def test_health_and_metrics_show_what_happened(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
    assert not producer.health().ready
    async with producer:
        await producer.send_many(topic, [b"v"] * 100)
        health, metrics = producer.health(), producer.metrics()
        assert health.ready
        assert health.state == "running"
        assert len(health.nodes) == cluster.brokers
        assert health.buffer_available == health.buffer_total
        assert metrics["record_send_total"] == metrics["record_acknowledged_total"] == 100
        assert metrics["record_error_total"] == 0
        assert 1 <= metrics["batch_total"] <= 100
    assert not producer.health().ready


async def test_close_delivers_what_was_accepted(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000, delivery_timeout_ms=120_000
    ) as producer:
        deliveries = [await producer.send(topic, b"%d" % i) for i in range(100)]
    assert [delivery.result().offset for delivery in deliveries] == list(range(100))


@pytest.mark.parametrize("name", ["murmur2", "random", "round_robin", "consistent_random"])
async def test_named_partitioners_work(cluster: ClusterUnderTest, name: str) -> None:
    topic = await cluster.create_topic(3)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, partitioner=name) as producer:
        result = await producer.send_many(topic, [(b"k%d" % i, b"v") for i in range(30)])
    assert result.delivered == 30


async def test_a_callable_partitioner_decides(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(3)
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        partitioner=lambda topic, key, value, meta: len(meta.partitions) - 1,
    ) as producer:
        assert (await producer.send_and_wait(topic, b"v")).partition == 2
