"""The same small programs on aiokafka and on the drop-in for it: results, types, errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiokafka
import pytest
from aiokafka.protocol.admin import CreateTopicsRequest
from aiokafka.protocol.metadata import MetadataRequest
from support.clusters import ClusterUnderTest, unique_topic
from support.confluent import read_all_confluent

from aioproducer.compat import aiokafka as compat
from aioproducer.compat.aiokafka import partitioner, structs
from aioproducer.errors import CommitOutcomeUnknownError
from aioproducer.testing import ClusterSettings, EmbeddedCluster

START = 1_700_000_000_000
Program = Callable[[Any, ClusterUnderTest], Awaitable[Any]]


def producer_of(client: Any, cluster: ClusterUnderTest, **options: Any) -> Any:
    # With acks=1, the default, what is acknowledged may not be there for readers yet.
    options = {"acks": "all", **options}
    return client.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options)


async def reported(call: Awaitable[Any]) -> Any:
    """Return the result of a call, or its error's type and text."""
    try:
        return await call
    except Exception as error:
        return type(error).__name__, str(error)


def plain(metadata: Any) -> dict[str, Any] | None:
    """Metadata by field."""
    if metadata is None:
        return None
    facts = {key: value for key, value in metadata._asdict().items() if key != "topic"}
    return facts | {"topic_partition": facts["topic_partition"].partition}


async def stored(cluster: ClusterUnderTest, topic: str) -> list[tuple[Any, ...]]:
    """Return the content of the topic as foreign clients read it."""
    records = await read_all_confluent(cluster.bootstrap_servers, topic)
    return sorted(
        (each.partition, each.offset, each.key, each.value, each.headers, each.timestamp)
        for each in records
    )


# -- programs ------------------------------------------------------------------------------------


async def sends_everything_a_record_can_have(client: Any, cluster: ClusterUnderTest) -> Any:
    topic = await cluster.create_topic(2)
    answers = []
    async with producer_of(client, cluster, enable_idempotence=True) as producer:
        for number in range(6):
            future = await producer.send(
                topic,
                b"value-%d" % number if number else None,
                b"key",
                number % 2,
                START + number,
                [("name", b"content"), ("name", b"")],
            )
            assert isinstance(future, asyncio.Future)
            first, again = await future, await future
            assert first == again
            answers.append(plain(first))
    return answers, await stored(cluster, topic)


async def serializes_json_and_waits(client: Any, cluster: ClusterUnderTest) -> Any:
    topic = await cluster.create_topic(3)
    async with producer_of(
        client,
        cluster,
        acks="all",
        compression_type="gzip",
        linger_ms=5,
        key_serializer=str.encode,
        value_serializer=lambda value: json.dumps(value).encode(),
    ) as producer:
        answers = [
            plain(
                await producer.send_and_wait(
                    topic, {"n": number}, key=f"key-{number}", timestamp_ms=START
                )
            )
            for number in range(5)
        ]
        partitions = await producer.partitions_for(topic)
        with pytest.raises(TypeError, match="descriptor 'encode'"):
            await producer.send(topic, 1, key=5)
        with pytest.raises(TypeError, match="not JSON serializable"):
            await producer.send(topic, object(), "key")
    return answers, partitions, await stored(cluster, topic)


async def sends_batches(client: Any, cluster: ClusterUnderTest) -> Any:
    topic = await cluster.create_topic(2)
    answers: list[Any] = []
    # All replicas, so that a consumer sees at once what is acknowledged.
    async with producer_of(client, cluster, max_batch_size=300, acks="all") as producer:
        for _ in range(3):
            batch = producer.create_batch()
            while batch.append(key=None, value=b"x" * 50, timestamp=START) is not None:
                pass
            future = await producer.send_batch(batch, topic, partition=1)
            answers.append((batch.record_count(), batch.closed(), plain(await future)))
        empty = await producer.send_batch(producer.create_batch(), topic, partition=0)
        answers.append(await empty)
        answers.append(await reported(producer.send_batch(batch, topic, partition=9)))
    return answers, await stored(cluster, topic)


async def asks_for_no_acknowledgement(client: Any, cluster: ClusterUnderTest) -> Any:
    topic = await cluster.create_topic(1)
    async with producer_of(client, cluster, acks=0) as producer:
        answers = [
            await producer.send_and_wait(topic, b"1"),
            await (await producer.send(topic, b"")),
        ]
        await producer.flush()
    return answers


async def has_a_partitioner(client: Any, cluster: ClusterUnderTest) -> Any:
    topic = await cluster.create_topic(4)
    seen = []

    def last(key: bytes | None, everything: list[int], available: list[int]) -> int:
        seen.append((key, sorted(everything), sorted(available)))
        return max(everything)

    async with producer_of(client, cluster, partitioner=last) as producer:
        answer = await producer.send_and_wait(topic, b"v", b"k")
        await producer.send_and_wait(topic, b"v", partition=0)
    return seen, answer.partition


async def makes_mistakes(client: Any, cluster: ClusterUnderTest) -> Any:
    topic = await cluster.create_topic(2)
    mistakes: list[dict[str, Any]] = [
        {},
        {"value": "text"},
        {"value": b"", "key": "text"},
        {"value": 5},
        {"value": b"", "partition": 7},
        {"value": b"", "partition": -1},
        {"value": b"", "partition": "1"},
        {"value": b"", "headers": {"a": b"b"}},
        {"value": b"", "headers": (("a", b"b"),)},
        {"value": b"", "headers": [("a", "b")]},
        {"value": b"", "headers": [(b"a", b"b")]},
        {"value": b"", "headers": [("a", b"b", 1)]},
        {"value": b"", "headers": [("a",)]},
        {"value": b"", "headers": [()]},
        {"value": b"", "headers": [["a", b"b"]]},
        {"value": b"", "timestamp_ms": "now"},
        {"value": b"v" * 2_000_000},
        {"value": b"v" * 1_000, "headers": [("h" * 200_000, b"v" * 900_000)]},
    ]
    async with producer_of(client, cluster) as producer:
        answers = [await reported(producer.send(topic, **mistake)) for mistake in mistakes]
        answers += [
            await reported(producer.begin_transaction()),
            await reported(producer.commit_transaction()),
            await reported(producer.abort_transaction()),
            await reported(producer.send_offsets_to_transaction({}, "group")),
        ]
    answers.append(await reported(producer.send(topic, b"v")))
    return answers, await stored(cluster, topic)


async def keeps_transactions(client: Any, cluster: ClusterUnderTest) -> Any:
    topic = await cluster.create_topic(1)
    place = aiokafka.TopicPartition(topic, 0)
    async with producer_of(client, cluster, transactional_id=unique_topic()) as producer:
        answers: list[Any] = [await reported(producer.send(topic, b"outside"))]
        answers.append(await reported(producer.send_offsets_to_transaction({place: 1}, "group")))
        async with producer.transaction():
            await producer.send(topic, b"committed", timestamp_ms=START)
            answers += [
                await reported(producer.send_offsets_to_transaction(offsets, group))
                for offsets, group in [
                    ({place: 1}, ""),
                    ({place: 1}, 5),
                    ({}, "group"),
                    ({(1, 2): 1}, "group"),
                    ({place: (1, 5)}, "group"),
                    ({place: 1}, "group"),
                    ({place: aiokafka.OffsetAndMetadata(2, "m")}, "group"),
                ]
            ]
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait(topic, b"aborted", timestamp_ms=START)
                raise ZeroDivisionError
        await producer.begin_transaction()
        await producer.send(topic, b"again", timestamp_ms=START)
        await producer.commit_transaction()
    values = [row[3] for row in await stored(cluster, topic)]
    return [repr(answer).replace(topic, "topic") for answer in answers], values


async def uses_private_members(client: Any, cluster: ClusterUnderTest) -> Any:
    """Use the producer as faust, ddtrace, OpenTelemetry and kstreams do."""
    topic = unique_topic()
    key = dict.fromkeys(("partition", "key", "value", "serialized_value"))
    async with producer_of(client, cluster, client_id="me") as producer:
        inside = producer.client
        nodes = sorted(each.nodeId for each in inside.cluster.brokers())
        described = await inside.send(nodes[0], MetadataRequest([]))
        request = CreateTopicsRequest([(topic, 4, 1, [], [])], 10_000, False)
        created = await inside.send(described.controller_id, request)
        again = await inside.send(described.controller_id, request)
        known = await inside._wait_on_metadata(topic)
        answers = [await producer.send_and_wait(topic, b"v", b"%d" % each) for each in range(5)]
        return (
            inside.get_random_node() in nodes,
            nodes,
            described.cluster_id,
            [each[1] for each in (*created.topic_errors, *again.topic_errors)],
            known,
            [producer._partition(topic, serialized_key=b"%d" % each, **key) for each in range(5)],
            [answer.partition for answer in answers],
            await inside.force_metadata_update(),
            topic in inside.cluster.topics(),
            producer._metadata.available_partitions_for_topic(topic),
            producer._metadata.leader_for_partition(structs.TopicPartition(topic, 0)) in nodes,
            (inside._client_id, inside._bootstrap_servers, producer._request_timeout_ms),
            producer._closed,
        )


@pytest.mark.parametrize(
    "program",
    [
        sends_everything_a_record_can_have,
        serializes_json_and_waits,
        sends_batches,
        asks_for_no_acknowledgement,
        has_a_partitioner,
        makes_mistakes,
        keeps_transactions,
        uses_private_members,
    ],
    ids=lambda program: program.__name__,
)
async def test_a_program_sees_the_same_on_either_client(
    cluster: ClusterUnderTest, program: Program
) -> None:
    assert await program(compat, cluster) == await program(aiokafka, cluster)


# -- where ours is right -------------------------------------------------------------------------


async def test_each_record_of_a_batch_reports_its_own_timestamp(
    cluster: ClusterUnderTest,
) -> None:
    topic = await cluster.create_topic(1)
    async with producer_of(compat, cluster, linger_ms=20) as producer:
        futures = [await producer.send(topic, b"v", timestamp_ms=START - n) for n in range(3)]
        answers = [await future for future in futures]
    assert [answer.timestamp for answer in answers] == [START, START - 1, START - 2]


async def test_a_transaction_with_a_failed_record_is_not_committed(
    cluster: ClusterUnderTest,
) -> None:
    topic = await cluster.create_topic(1, configs={"max.message.bytes": "2000"})
    async with producer_of(compat, cluster, transactional_id=unique_topic()) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"small")
        future = await producer.send(topic, b"v" * 5_000)
        with pytest.raises(aiokafka.errors.MessageSizeTooLargeError):
            await producer.commit_transaction()
        with pytest.raises(compat.errors.MessageSizeTooLargeError):
            await future
        await producer.abort_transaction()
    assert await stored(cluster, topic) == []


async def test_a_commit_whose_outcome_is_unknown_says_so_in_the_cause() -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        producer = compat.AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, transactional_id="x"
        )
        await producer.start()
        cluster.faults.next("end_txn").answers("UNKNOWN_SERVER_ERROR", after_the_work=True)
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"v")
        with pytest.raises(aiokafka.errors.KafkaError) as caught:
            await producer.commit_transaction()
        await producer.stop()
        assert isinstance(caught.value.__cause__, CommitOutcomeUnknownError)
        assert not isinstance(caught.value, aiokafka.errors.KafkaTimeoutError)
        assert caught.value.__cause__.transaction is not None


async def test_the_older_of_two_transactional_producers_is_fenced(
    cluster: ClusterUnderTest,
) -> None:
    topic, name = await cluster.create_topic(1), unique_topic()
    async with (
        producer_of(compat, cluster, transactional_id=name) as older,
        producer_of(compat, cluster, transactional_id=name) as newer,
    ):
        await older.begin_transaction()
        with pytest.raises(aiokafka.errors.ProducerFenced):
            await older.send_and_wait(topic, b"zombie")
        with pytest.raises(compat.errors.ProducerFenced):
            await older.commit_transaction()
        async with newer.transaction():
            await newer.send_and_wait(topic, b"heir")


async def test_calls_in_the_wrong_order_are_refused(cluster: ClusterUnderTest) -> None:
    async with producer_of(compat, cluster, transactional_id=unique_topic()) as producer:
        for call in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(compat.IllegalOperation, match="is not possible"):
                await call()
        await producer.begin_transaction()
        with pytest.raises(compat.IllegalOperation, match="is not possible"):
            await producer.begin_transaction()
        await producer.start()  # as there, not refused


async def test_a_topic_that_does_not_come_ends_the_call_in_time() -> None:
    settings = ClusterSettings(auto_create_topics=False)
    async with (
        EmbeddedCluster(1, settings=settings) as brokers,
        compat.AIOKafkaProducer(
            bootstrap_servers=brokers.bootstrap_servers, request_timeout_ms=300
        ) as producer,
    ):
        with pytest.raises(aiokafka.errors.UnknownTopicOrPartitionError):
            await producer.send("absent", b"v")
        with pytest.raises(aiokafka.errors.UnknownTopicOrPartitionError):
            await producer.partitions_for("absent")
        with pytest.raises(aiokafka.errors.InvalidTopicError):
            await producer.send("no name for a topic", b"v")


async def test_a_start_without_brokers_ends_in_time_and_may_be_repeated() -> None:
    lonely = compat.AIOKafkaProducer(bootstrap_servers="127.0.0.1:1", request_timeout_ms=300)
    for _ in range(2):  # a loop around start() is how programs wait for their brokers
        with pytest.raises(aiokafka.errors.KafkaConnectionError):
            await lonely.start()


async def test_cancelling_a_future_takes_no_record_back(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    async with producer_of(compat, cluster, linger_ms=20) as producer:
        cancelled, kept = [await producer.send(topic, b"v") for _ in range(2)]
        cancelled.cancel()
        assert (await kept).offset == 1
    assert len(await stored(cluster, topic)) == 2


async def test_a_batch_that_fails_says_why(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1, configs={"max.message.bytes": "2000"})
    async with producer_of(compat, cluster) as producer:
        batch = producer.create_batch()
        batch.append(key=None, value=b"v" * 5_000, timestamp=None)
        future = await producer.send_batch(batch, topic, partition=0)
        with pytest.raises(compat.errors.MessageSizeTooLargeError):
            await future
        with pytest.raises(TypeError, match="not list"):
            await producer.send_batch([], topic, partition=0)


async def test_a_batch_with_a_bad_record_is_not_written_in_part(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1, configs={"cleanup.policy": "compact"})
    async with producer_of(compat, cluster, linger_ms=20) as producer:
        batch = producer.create_batch()
        for key in (b"a", None, b"c"):
            batch.append(key=key, value=b"v", timestamp=None)
        future = await producer.send_batch(batch, topic, partition=0)
        with pytest.raises(compat.errors.UnknownError, match="without key"):
            await future
        # Outside of a batch of the program's own, only the bad record fails.
        sent = [await producer.send(topic, b"v", key=key) for key in (b"a", None, b"c")]
        await producer.flush()
        assert [each.exception() is None for each in sent] == [True, False, True]
    assert [key for _, _, key, *_ in await stored(cluster, topic)] == [b"a", b"c"]


async def test_a_batch_waits_for_memory_and_goes_where_it_is_sent(
    cluster: ClusterUnderTest,
) -> None:
    topic = await cluster.create_topic(2)
    async with producer_of(compat, cluster, max_batch_size=2_000_000) as producer:
        answers = []
        for _ in range(40):
            batch = producer.create_batch()
            batch.append(key=None, value=b"v" * 900_000, timestamp=START)
            answers.append(await producer.send_batch(batch, topic, partition=None))
        outcomes = [await answer for answer in answers]
    assert sum(1 for _ in outcomes) == 40
    assert len({(each.partition, each.offset) for each in outcomes}) == 40


async def test_aiokafkas_partitioner_and_consumer_stay_in_use(cluster: ClusterUnderTest) -> None:
    topic, group = await cluster.create_topic(3), unique_topic()
    async with producer_of(
        compat, cluster, partitioner=partitioner.DefaultPartitioner()
    ) as producer:
        for number in range(20):
            await producer.send_and_wait(topic, b"%d" % number)
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with (
        consumer,
        producer_of(compat, cluster, transactional_id=unique_topic()) as producer,
    ):
        consumer.assign([aiokafka.TopicPartition(topic, number) for number in range(3)])
        record = await asyncio.wait_for(consumer.getone(), 30)
        place = aiokafka.TopicPartition(record.topic, record.partition)
        async with producer.transaction():
            await producer.send_offsets_to_transaction({place: record.offset + 1}, consumer)
        async with asyncio.timeout(20):
            # The group hears of it once the transaction's marker is written, soon after the commit.
            while await consumer.committed(place) is None:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.05)
        assert await consumer.committed(place) == record.offset + 1
    assert place == structs.TopicPartition(record.topic, record.partition)


async def test_each_record_of_a_batch_that_goes_out_in_halves_has_its_outcome(
    cluster: ClusterUnderTest,
) -> None:
    topic = await cluster.create_topic(1, configs={"max.message.bytes": "3000"})
    async with producer_of(compat, cluster, linger_ms=50, enable_idempotence=True) as producer:
        futures = [await producer.send(topic, bytes(1_000)) for _ in range(10)]
        futures.append(await producer.send(topic, bytes(5_000)))
        *answers, too_large = await asyncio.gather(*futures, return_exceptions=True)
    assert [answer.offset for answer in answers] == list(range(10))
    assert isinstance(too_large, aiokafka.errors.MessageSizeTooLargeError)
