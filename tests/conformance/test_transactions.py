"""Transactions: whole or not at all, on the embedded cluster and on real Kafka alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import aiokafka
import confluent_kafka
import pytest
import pytest_asyncio
from support.clusters import (
    ClusterUnderTest,
    embedded_cluster,
    real_cluster,
    transactional,
    unique_topic,
    visible,
)

from aioproducer import ConsumerGroupMetadata, OffsetAndMetadata, Producer, TopicPartition
from aioproducer.client.transactions import group_metadata_of
from aioproducer.errors import (
    FatalTransactionError,
    IllegalStateError,
    InvalidProducerEpochError,
    ProducerClosedError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from aioproducer.testing.reader import end_offsets


@pytest_asyncio.fixture(params=["embedded", "v1", pytest.param("kafka", marks=pytest.mark.kafka)])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[ClusterUnderTest]:
    """As everywhere, and embedded brokers that only offer the older protocol."""
    if request.param == "kafka":
        yield real_cluster(request.getfixturevalue("kafka_cluster"))
    else:
        async with embedded_cluster() as embedded:
            if request.param == "v1":
                embedded.handle.set_transaction_version(1)
            yield embedded


async def test_committed_transactions_are_seen_and_aborted_ones_are_not(
    cluster: ClusterUnderTest,
) -> None:
    topic = await cluster.create_topic(3)
    async with transactional(cluster) as producer:
        for number in range(6):
            await producer.begin_transaction()
            deliveries = [await producer.send(topic, b"%d-%d" % (number, i)) for i in range(20)]
            if number % 2:
                await producer.flush()
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
            assert all(delivery.exception() is None for delivery in deliveries)
    assert await visible(cluster, topic) == sorted(
        b"%d-%d" % (number, i) for number in (0, 2, 4) for i in range(20)
    )


async def test_leaving_the_block_by_an_exception_aborts_and_the_next_one_commits(
    cluster: ClusterUnderTest,
) -> None:
    topic = await cluster.create_topic(1)
    async with transactional(cluster) as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait(topic, b"no")
                raise ZeroDivisionError
        async with producer.transaction():
            await producer.send(topic, b"yes")
    assert await visible(cluster, topic) == [b"yes"]


async def test_a_transaction_without_records_commits_and_aborts(cluster: ClusterUnderTest) -> None:
    async with transactional(cluster) as producer:
        async with producer.transaction():
            pass
        await producer.begin_transaction()
        await producer.abort_transaction()


async def test_records_need_a_transaction(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    async with transactional(cluster) as producer:
        with pytest.raises(IllegalStateError, match="begin a transaction"):
            await producer.send(topic, b"x")
        async with producer.transaction():
            with pytest.raises(IllegalStateError):
                await producer.begin_transaction()
            await producer.send(topic, b"x")
        with pytest.raises(IllegalStateError):
            await producer.commit_transaction()
        with pytest.raises(IllegalStateError):
            producer.send_nowait(topic, b"y")
    assert await visible(cluster, topic) == [b"x"]


async def test_without_a_transactional_id_there_are_no_transactions(
    cluster: ClusterUnderTest,
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with pytest.raises(IllegalStateError, match="transactional_id"):
            await producer.begin_transaction()


async def test_initialization_can_be_left_to_the_caller(cluster: ClusterUnderTest) -> None:
    producer = Producer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=unique_topic()
    )
    await producer.start(init_transactions=False)
    try:
        with pytest.raises(IllegalStateError, match="init_transactions"):
            await producer.begin_transaction()
        await producer.init_transactions()
        async with producer.transaction():
            pass
    finally:
        await producer.close()


async def refused_for_its_size(producer: Producer, topic: str) -> None:
    with pytest.raises(RecordTooLargeError):
        await producer.send(topic, b"x" * 50_000)


async def refused_for_its_size_by_the_broker(producer: Producer, topic: str) -> None:
    await producer.send(topic, b"x" * 15_000)


@pytest.mark.parametrize("lose", [refused_for_its_size, refused_for_its_size_by_the_broker])
async def test_no_commit_after_a_loss_that_was_not_awaited(
    cluster: ClusterUnderTest, lose: Callable[[Producer, str], asyncio.Future[None]]
) -> None:
    topic = await cluster.create_topic(1, configs={"max.message.bytes": "10000"})
    async with transactional(cluster, max_request_size=20_000) as producer:
        with pytest.raises(TransactionAbortableError, match="abort the transaction") as caught:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"before")
                await lose(producer, topic)
        assert isinstance(caught.value.__cause__, RecordTooLargeError)
        async with producer.transaction():
            await producer.send(topic, b"after")
    assert await visible(cluster, topic) == [b"after"]


async def test_after_a_loss_only_an_abort_helps(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    async with transactional(cluster, max_request_size=20_000) as producer:
        await producer.begin_transaction()
        await refused_for_its_size(producer, topic)
        for call in (
            lambda: producer.send(topic, b"x"),
            producer.commit_transaction,
            lambda: producer.send_offsets_to_transaction({}, "group"),
            producer.begin_transaction,
        ):
            with pytest.raises(TransactionAbortableError):
                await call()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"x")
    assert await visible(cluster, topic) == [b"x"]


async def test_a_batch_too_large_for_the_topic_is_split_within_its_transaction(
    cluster: ClusterUnderTest,
) -> None:
    topic = await cluster.create_topic(1, configs={"max.message.bytes": "5000"})
    values = [b"%03d" % i * 300 for i in range(40)]
    async with transactional(cluster, linger_ms=50) as producer:
        for _ in range(2):
            async with producer.transaction():
                for value in values:
                    await producer.send(topic, value)
    assert await visible(cluster, topic) == sorted(2 * values)


async def test_many_records_need_more_memory_than_there_is(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(3)
    async with transactional(cluster, buffer_memory=50_000, batch_size=5_000) as producer:
        async with producer.transaction():
            result = await producer.send_many(topic, [b"%04d" % i * 25 for i in range(3_000)])
        assert (result.delivered, result.failed) == (3_000, [])
    assert len(await visible(cluster, topic)) == 3_000


async def test_an_abort_fails_what_was_not_sent(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    async with transactional(cluster, linger_ms=60_000) as producer:
        await producer.begin_transaction()
        delivery = await producer.send(topic, b"x")
        await producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            await delivery
    assert await visible(cluster, topic) == []


async def test_a_commit_does_not_linger(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    async with transactional(cluster, linger_ms=60_000) as producer, asyncio.timeout(20):
        async with producer.transaction():
            delivery = await producer.send(topic, b"x")
        assert delivery.done()


async def test_a_newer_producer_fences_the_older_one(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    name = unique_topic()
    async with transactional(cluster, transactional_id=name) as old:
        await old.begin_transaction()
        await old.send_and_wait(topic, b"zombie")
        async with transactional(cluster, transactional_id=name) as new:
            async with new.transaction():
                await new.send(topic, b"new")
            with pytest.raises(ProducerFencedError, match="close this producer"):
                await old.commit_transaction()
            with pytest.raises(ProducerFencedError):
                await old.begin_transaction()
            async with new.transaction():
                await new.send(topic, b"newer")
    assert await visible(cluster, topic) == [b"new", b"newer"]


async def test_a_fenced_producer_cannot_send_either(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    name = unique_topic()
    async with transactional(cluster, transactional_id=name) as old:
        await old.begin_transaction()
        await old.send_and_wait(topic, b"zombie")
        async with transactional(cluster, transactional_id=name):
            pass
        delivery = await old.send(topic, b"zombie")
        await old.flush()
        assert delivery.exception() is not None
        with pytest.raises(TransactionAbortableError):
            await old.commit_transaction()
        with pytest.raises(ProducerFencedError):
            await old.abort_transaction()
    assert await visible(cluster, topic) == []


async def test_the_block_of_a_fenced_producer_raises_that_for_the_refusal_of_a_record(
    cluster: ClusterUnderTest,
) -> None:
    topic = await cluster.create_topic(1)
    name = unique_topic()
    async with transactional(cluster, transactional_id=name) as old:
        with pytest.raises(ProducerFencedError) as caught:
            async with old.transaction():
                await old.send_and_wait(topic, b"zombie")
                async with transactional(cluster, transactional_id=name):
                    pass
                await old.send_and_wait(topic, b"zombie")
        assert isinstance(caught.value.__cause__, InvalidProducerEpochError)
    assert await visible(cluster, topic) == []


async def test_cancelling_the_block_aborts(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    inside = asyncio.Event()
    async with transactional(cluster) as producer:

        async def work() -> None:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"no")
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with producer.transaction():
            await producer.send(topic, b"yes")
    assert await visible(cluster, topic) == [b"yes"]


async def test_ending_it_inside_the_block_is_left_alone(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    async with transactional(cluster) as producer:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"no")
            await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"yes")
            await producer.commit_transaction()
    assert await visible(cluster, topic) == [b"yes"]


async def test_closing_aborts_an_open_transaction(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    name = unique_topic()
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=name)
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"no")
    await producer.close()
    with pytest.raises(ProducerClosedError):
        await producer.commit_transaction()
    # Nothing is left open: the last stable offset is the end of the log.
    assert await visible(cluster, topic) == []


def committed(cluster: ClusterUnderTest, group: str, topic: str, partition: int) -> int:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group}
    )
    try:
        (found,) = consumer.committed(
            [confluent_kafka.TopicPartition(topic, partition)], timeout=20
        )
        return found.offset
    finally:
        consumer.close()


@pytest.mark.parametrize("commit", [True, False])
async def test_offsets_are_committed_or_aborted_with_the_records(
    cluster: ClusterUnderTest, commit: bool
) -> None:
    topic = await cluster.create_topic(2)
    group = unique_topic()
    async with transactional(cluster) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"x")
        await producer.send_offsets_to_transaction(
            {
                TopicPartition(topic, 0): 5,
                aiokafka.TopicPartition(topic, 1): OffsetAndMetadata(7, "where I am"),
            },
            group,
        )
        await (producer.commit_transaction if commit else producer.abort_transaction)()
    found = [await asyncio.to_thread(committed, cluster, group, topic, p) for p in (0, 1)]
    assert found == ([5, 7] if commit else [confluent_kafka.OFFSET_INVALID] * 2)


async def test_offsets_alone_make_a_transaction(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    group = unique_topic()
    async with transactional(cluster) as producer:
        for position in (3, 4):
            async with producer.transaction() as tx:
                await tx.send_offsets({TopicPartition(topic, 0): position}, group)
    assert await asyncio.to_thread(committed, cluster, group, topic, 0) == 4


async def test_a_member_unknown_to_the_group_cannot_commit_offsets(
    cluster: ClusterUnderTest,
) -> None:
    topic = await cluster.create_topic(1)
    expelled = ConsumerGroupMetadata(unique_topic(), 5, "nobody")
    async with transactional(cluster) as producer:
        with pytest.raises(TransactionAbortableError):
            async with producer.transaction() as tx:
                await producer.send_and_wait(topic, b"no")
                await tx.send_offsets({TopicPartition(topic, 0): 3}, expelled)
        async with producer.transaction():
            await producer.send(topic, b"yes")
    assert await visible(cluster, topic) == [b"yes"]


@pytest.mark.kafka
async def test_a_member_of_aiokafka_commits_its_position(kafka: ClusterUnderTest) -> None:
    source, target = await kafka.create_topic(1), await kafka.create_topic(1)
    group = unique_topic()
    async with transactional(kafka) as producer:
        async with producer.transaction():
            for number in range(3):
                await producer.send(source, b"%d" % number)
        consumer = aiokafka.AIOKafkaConsumer(
            source,
            bootstrap_servers=kafka.bootstrap_servers,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await consumer.start()
        try:
            for _ in range(3):
                async with asyncio.timeout(30):
                    message = await consumer.getone()
                async with producer.transaction() as tx:
                    await producer.send(target, message.value)
                    place = aiokafka.TopicPartition(message.topic, message.partition)
                    await tx.send_offsets({place: message.offset + 1}, consumer)
            assert group_metadata_of(consumer).generation_id > 0
            async with asyncio.timeout(30):
                # The commit is decided; its marker reaches the group's log a little later.
                while await consumer.committed(place) != 3:  # noqa: ASYNC110 - there is no event
                    await asyncio.sleep(0.05)
        finally:
            await consumer.stop()
        # A member that left the group must not commit for it any more.
        with pytest.raises(TransactionAbortableError):
            async with producer.transaction() as tx:
                await tx.send_offsets({place: 1}, ConsumerGroupMetadata(group, 1, "somebody"))
    assert await visible(kafka, target) == [b"0", b"1", b"2"]


@pytest.mark.kafka
async def test_a_member_of_confluent_kafka_commits_its_position(kafka: ClusterUnderTest) -> None:
    source, target = await kafka.create_topic(1), await kafka.create_topic(1)
    group = unique_topic()
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([source])
        async with transactional(kafka) as producer:
            async with producer.transaction():
                await producer.send(source, b"x")
            message = await asyncio.to_thread(consumer.poll, 30)
            assert message is not None
            async with producer.transaction() as tx:
                await producer.send(target, message.value())
                positions = await asyncio.to_thread(
                    consumer.position, [confluent_kafka.TopicPartition(source, 0)]
                )
                group_metadata = consumer.consumer_group_metadata()
                await tx.send_offsets(positions, group_metadata)
            assert group_metadata_of(group_metadata).generation_id > 0
            assert group_metadata_of(group_metadata).member_id == consumer.memberid()
    finally:
        await asyncio.to_thread(consumer.close)
    assert await asyncio.to_thread(committed, kafka, group, source, 0) == 1


async def reached(cluster: ClusterUnderTest, topic: str, end: int) -> None:
    """Returns when the log of a topic's only partition ends there."""
    while True:
        if await end_offsets(cluster.bootstrap_servers, topic) == {0: end}:
            return
        await asyncio.sleep(0.1)


async def test_a_transaction_that_takes_too_long_is_lost_but_says_so(
    cluster: ClusterUnderTest,
) -> None:
    topic = await cluster.create_topic(1)
    name = unique_topic()
    async with transactional(
        cluster, transactional_id=name, transaction_timeout_ms=1000
    ) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"late")
        # The transaction is over when its marker follows the record.
        async with asyncio.timeout(60):
            await reached(cluster, topic, 2)
        with pytest.raises((TransactionAbortableError, FatalTransactionError, ProducerFencedError)):
            await producer.commit_transaction()
    assert await visible(cluster, topic) == []
