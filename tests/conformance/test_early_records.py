"""Records that `start(wait=False)` lets `send()` accept before anything is known of their topic."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from aioproducer import Persistence, Producer, RecordMetadata
from aioproducer.errors import (
    AuthenticationError,
    BufferExhaustedError,
    BufferFullError,
    DeliveryTimeoutError,
    InvalidPartitionError,
    InvalidTopicError,
    KafkaError,
    ProducerClosedError,
    RecordsFailedError,
    RecordsPurgedError,
    RecordTooLargeError,
    SerializationError,
    TopicAuthorizationFailedError,
)
from aioproducer.runtime.delivery import Delivery
from aioproducer.testing import EmbeddedCluster
from aioproducer.testing.security.gate import ListenerSecurity
from aioproducer.testing.virtual import VirtualKafka, run_virtual

NODES = (1, 2, 3)
TOPICS = {"t": 3, "one": 1}


def unplug(kafka: VirtualKafka) -> None:
    for node in NODES:
        kafka.unplug_broker(node)


def plug(kafka: VirtualKafka) -> None:
    for node in NODES:
        kafka.start_broker(node)


async def started(kafka: VirtualKafka, **options: Any) -> Producer:
    """A producer whose cluster is not there yet."""
    unplug(kafka)
    producer = kafka.producer(**options)
    await producer.start(wait=False)
    return producer


def values(kafka: VirtualKafka, topic: str = "t") -> list[list[bytes | None]]:
    return [[r.value for r in kafka.records(topic, p)] for p in range(TOPICS[topic])]


def test_records_are_accepted_at_once_and_delivered_in_order() -> None:
    async def test(kafka: VirtualKafka) -> None:
        producer = await started(kafka)
        began = kafka.now
        deliveries = [await producer.send("one", b"%d" % i) for i in range(100)]
        deliveries.append(producer.send_nowait("one", b"100"))
        assert kafka.now == began
        assert deliveries[0].partition == -1
        assert not deliveries[0].done()
        assert producer.health().batches_pending
        assert "topic" in (producer.health().waiting_for or "")
        assert producer.statistics().state == "connecting"
        assert producer.statistics().records_queued == 101
        assert producer.all_metrics()
        await asyncio.sleep(30)
        plug(kafka)
        found = [await delivery for delivery in deliveries]
        deliveries.append(await producer.send("one", b"101"))
        found.append(await deliveries[-1])
        assert [(m.topic, m.partition, m.offset) for m in found] == [
            ("one", 0, i) for i in range(102)
        ]
        assert [delivery.partition for delivery in deliveries] == [0] * 102
        await producer.close()
        assert values(kafka, "one") == [[b"%d" % i for i in range(102)]]
        health = producer.health()
        assert health.buffer_available == health.buffer_total

    run_virtual(test, topics=TOPICS)


@pytest.mark.parametrize("seed", range(5))
def test_each_key_keeps_its_order_while_the_cluster_appears(seed: int) -> None:
    """Sends go on before, during and after: what is later never overtakes what was early."""

    async def test(kafka: VirtualKafka) -> None:
        chance = random.Random(seed)
        producer = await started(kafka, batch_size=chance.choice([200, 1000, 16384]), linger_ms=0)
        sent: dict[bytes, list[bytes]] = defaultdict(list)
        deliveries: list[tuple[Delivery, bytes]] = []

        async def send(number: int) -> None:
            key, value = b"k%d" % chance.randrange(7), b"%d" % number
            partition = int(key[1:]) % 3 if chance.random() < 0.3 else None
            # The same partition for a key, whether it is given or hashed.
            sent[key].append(value)
            deliveries.append((await producer.send("t", value, key), value))
            if partition is not None:
                given = b"given-%d" % partition
                sent[given].append(value)
                deliveries.append(
                    (await producer.send("t", value, headers=None, partition=partition), value)
                )

        for number in range(300):
            await send(number)
            if chance.random() < 0.2:
                await asyncio.sleep(chance.random())
            if number == 190:
                for request in ("produce", "produce", "metadata", "init_producer_id"):
                    fault = kafka.faults.next(request, after=chance.randrange(4))
                    fault.drops_the_connection(after_the_work=chance.random() < 0.5)
            if number == 200:
                asyncio.get_running_loop().call_later(chance.random() * 5, plug, kafka)
        for delivery, value in deliveries:
            where = await delivery
            record = kafka.records("t", where.partition)[where.offset or 0]
            assert record.value == value
        await producer.close()
        found: dict[bytes, list[bytes]] = defaultdict(list)
        for partition in range(3):
            for record in kafka.records("t", partition):
                key = record.key or b"given-%d" % partition
                found[key].append(record.value or b"")
        assert found == sent

    run_virtual(test, topics=TOPICS, seed=seed + 1)


def test_a_batch_of_early_records_that_is_refused_for_its_size_is_split() -> None:
    async def test(kafka: VirtualKafka) -> None:
        producer = await started(kafka, linger_ms=0)
        deliveries = [await producer.send("one", b"%d" % i) for i in range(8)]
        kafka.faults.next("produce", times=2).answers("MESSAGE_TOO_LARGE")
        plug(kafka)
        found = [await delivery for delivery in deliveries]
        assert [(m.partition, m.offset) for m in found] == [(0, i) for i in range(8)]
        await producer.close()
        assert values(kafka, "one") == [[b"%d" % i for i in range(8)]]
        assert producer.health().buffer_available == producer.health().buffer_total

    run_virtual(test, topics=TOPICS)


def test_records_with_and_without_a_partition_keep_their_order() -> None:
    async def test(kafka: VirtualKafka) -> None:
        producer = await started(kafka)
        for number in range(30):
            partition = 0 if number % 3 else None
            await producer.send("one", b"%d" % number, partition=partition)
        plug(kafka)
        await producer.close()
        assert values(kafka, "one") == [[b"%d" % i for i in range(30)]]

    run_virtual(test, topics=TOPICS)


def test_headers_and_timestamps_arrive_and_keys_are_hashed_as_otherwise() -> None:
    async def test(kafka: VirtualKafka) -> list[RecordMetadata]:
        producer = await started(kafka)
        early = await producer.send(
            "t", b"v", b"key", headers=[("h", b"x"), ("n", None)], timestamp_ms=1234
        )
        plug(kafka)
        found = [await early, await producer.send_and_wait("t", b"v", b"key")]
        record = kafka.records("t", found[0].partition)[0]
        assert tuple(record.headers) == (("h", b"x"), ("n", None))
        assert (record.timestamp_ms, found[0].timestamp_ms) == (1234, 1234)
        assert (found[0].serialized_key_size, found[0].serialized_value_size) == (3, 1)
        await producer.close()
        return found

    first, second = run_virtual(test, topics=TOPICS)
    assert first.partition == second.partition


def test_a_full_buffer_holds_senders_up_for_max_block_ms() -> None:
    async def test(kafka: VirtualKafka) -> None:
        options = {"buffer_memory": 4096, "batch_size": 1024, "max_block_ms": 2000}
        producer = await started(kafka, **options)
        deliveries = []
        began = kafka.now
        with pytest.raises(BufferExhaustedError):
            for _ in range(100):
                deliveries.append(await producer.send("t", b"x" * 300))  # noqa: PERF401
        assert kafka.now - began == pytest.approx(2)
        assert 4 < len(deliveries) < 20
        with pytest.raises(BufferFullError):
            producer.send_nowait("t", b"x" * 300)
        waiting = asyncio.create_task(producer.send("t", b"late" * 80))
        cancelled = asyncio.create_task(producer.send("t", b"never" * 80))
        await asyncio.sleep(1)
        cancelled.cancel()
        plug(kafka)
        deliveries.append(await waiting)
        await asyncio.gather(*deliveries)
        assert cancelled.cancelled()
        await producer.close()
        assert len([v for each in values(kafka) for v in each]) == len(deliveries)
        assert producer.health().buffer_available == 4096

    run_virtual(test, topics=TOPICS)


def test_buffer_max_records_counts_early_records() -> None:
    async def test(kafka: VirtualKafka) -> None:
        producer = await started(kafka, buffer_max_records=10, max_block_ms=1000)
        deliveries = [await producer.send("t", b"x") for _ in range(10)]
        with pytest.raises(BufferExhaustedError, match="buffer_max_records"):
            await producer.send("t", b"x")
        plug(kafka)
        await asyncio.gather(*deliveries)
        await asyncio.gather(*[await producer.send("t", b"x") for _ in range(30)])
        await producer.close()

    run_virtual(test, topics=TOPICS)


def test_an_early_record_has_delivery_timeout_ms() -> None:
    async def test(kafka: VirtualKafka) -> None:
        producer = await started(kafka)
        began = kafka.now
        first = await producer.send("t", b"1")
        await asyncio.sleep(60)
        second = await producer.send("t", b"2")
        for delivery, expected in ((first, 120), (second, 180)):
            with pytest.raises(DeliveryTimeoutError, match="topic to become known") as caught:
                await delivery
            assert kafka.now - began == pytest.approx(expected, abs=1)
            error = caught.value
            assert error.persistence is Persistence.NOT_PERSISTED
            assert (error.topic, error.partition) == ("t", None)
        plug(kafka)
        assert (await producer.send_and_wait("t", b"3")).offset == 0
        await producer.close()

    run_virtual(test, topics=TOPICS)


def test_flush_and_close_wait_for_early_records() -> None:
    async def test(kafka: VirtualKafka) -> None:
        producer = await started(kafka)
        deliveries = [await producer.send("t", b"%d" % i) for i in range(5)]
        assert await producer.flush(1) == 5
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(1)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(1)
        assert not flushing.done() | closing.done()
        plug(kafka)
        await closing
        assert await flushing == 0
        assert all(delivery.exception() is None for delivery in deliveries)

    run_virtual(test, topics=TOPICS)


@pytest.mark.parametrize("end", ["close", "purge"])
def test_giving_up_early_records(end: str) -> None:
    async def test(kafka: VirtualKafka) -> None:
        producer = await started(kafka)
        deliveries = [await producer.send("t", b"%d" % i) for i in range(5)]
        error: type[KafkaError] = ProducerClosedError
        if end == "close":
            await producer.close(3)
        else:
            assert producer.purge() == 5
            error = RecordsPurgedError
        for delivery in deliveries:
            with pytest.raises(error) as caught:
                await delivery
            assert caught.value.persistence is Persistence.NOT_PERSISTED
        plug(kafka)
        if end == "purge":
            assert (await producer.send_and_wait("one", b"1")).offset == 0
        await producer.close()
        assert values(kafka) == [[], [], []]
        assert producer.health().buffer_available == producer.health().buffer_total

    run_virtual(test, topics=TOPICS)


def test_closing_ends_a_send_that_waits_for_memory() -> None:
    async def test(kafka: VirtualKafka) -> None:
        producer = await started(kafka, buffer_memory=4096, batch_size=4096)
        accepted = await producer.send("t", b"x" * 3000)
        waiting = [asyncio.create_task(producer.send("t", b"x" * 3000)) for _ in range(3)]
        await asyncio.sleep(1)
        closing = asyncio.create_task(producer.close(2))
        began = kafka.now
        for each in waiting:
            with pytest.raises(ProducerClosedError):
                await each
        assert kafka.now == began
        await closing
        with pytest.raises(ProducerClosedError):
            await accepted
        assert producer.health().buffer_available == 4096

    run_virtual(test, topics=TOPICS)


def test_lost_records_that_are_not_awaited_are_reported_with_their_topic() -> None:
    reported: list[tuple[Any, int, str]] = []

    def on_delivery_error(where: Any, count: int, error: KafkaError) -> None:
        reported.append((where, count, type(error).__name__))

    async def test(kafka: VirtualKafka) -> None:
        producer = await started(kafka, on_delivery_error=on_delivery_error)
        for number in range(10):
            await producer.send("t", b"%d" % number)
        await asyncio.sleep(130)
        with pytest.raises(RecordsFailedError) as caught:
            await producer.flush(raise_failures=True)
        error = caught.value
        assert (error.count, error.topic, error.partition) == (10, "t", None)
        await producer.close()

    run_virtual(test, topics=TOPICS)
    assert reported == [(("t", -1), 10, "DeliveryTimeoutError")]


def test_a_topic_that_is_created_late_gets_its_records_in_order() -> None:
    async def test(kafka: VirtualKafka) -> None:
        options = {"allow_auto_create_topics": False, "metadata_max_idle_ms": 5000}
        producer = await started(kafka, **options)
        await producer.send("t", b"0")
        plug(kafka)
        assert (await producer.send_and_wait("one", b"1")).offset == 0
        await producer.send("t", b"1")
        await asyncio.sleep(30)
        delivery = await producer.send("t", b"2")
        assert delivery.partition == -1
        kafka.create_topic("t", 1)
        assert (await delivery).offset == 2
        await producer.close()
        assert [r.value for r in kafka.records("t")] == [b"0", b"1", b"2"]

    run_virtual(test, topics={"one": 1})


@pytest.mark.parametrize("kind", ["partition", "partitioner", "chosen"])
def test_only_records_that_have_no_partition_fail(kind: str) -> None:
    def partitioner(topic: str, key: bytes | None, value: Any, partitions: Any, *_: Any) -> int:
        if key == b"bad":
            if kind == "partitioner":
                raise LookupError("no such customer")
            return 99
        return 0

    async def test(kafka: VirtualKafka) -> None:
        options: dict[str, Any] = {} if kind == "partition" else {"partitioner": partitioner}
        producer = await started(kafka, **options)
        before = await producer.send("t", b"1", b"good")
        bad = await producer.send("t", b"2", b"bad", partition=7 if kind == "partition" else None)
        after = await producer.send("t", b"3", b"good")
        plug(kafka)
        assert {(await before).offset, (await after).offset} == {0, 1}
        with pytest.raises(InvalidPartitionError) as caught:
            await bad
        assert caught.value.persistence is Persistence.NOT_PERSISTED
        await producer.close()
        assert producer.health().buffer_available == producer.health().buffer_total

    run_virtual(test, topics=TOPICS)


def test_what_is_wrong_with_a_record_is_raised_by_the_call() -> None:
    async def test(kafka: VirtualKafka) -> None:
        producer = await started(kafka, max_request_size=10_000)
        with pytest.raises(RecordTooLargeError):
            await producer.send("t", b"x" * 20_000)
        with pytest.raises(SerializationError):
            await producer.send("t", "text")
        with pytest.raises(SerializationError):
            await producer.send("t", b"x", headers=[("h", 5)])  # type: ignore[list-item]
        with pytest.raises(InvalidTopicError):
            await producer.send("no topic", b"x")
        with pytest.raises(InvalidPartitionError):
            await producer.send("t", b"x", partition=-1)
        assert producer.health().batches_pending == 0
        assert producer.health().buffer_available == producer.health().buffer_total
        await producer.close()

    run_virtual(test, topics=TOPICS)


def test_a_forbidden_topic_fails_its_records_only() -> None:
    async def test(kafka: VirtualKafka) -> None:
        producer = await started(kafka)
        forbidden, other = await producer.send("t", b"1"), await producer.send("one", b"1")
        kafka.faults.every("metadata", topic="t").answers("TOPIC_AUTHORIZATION_FAILED")
        plug(kafka)
        assert (await other).offset == 0
        with pytest.raises(TopicAuthorizationFailedError):
            await forbidden
        await producer.close()

    run_virtual(test, topics=TOPICS)


async def test_refused_credentials_fail_early_records() -> None:
    security = ListenerSecurity(mechanisms=("PLAIN",), users={"u": "other"})
    async with EmbeddedCluster(1, topics={"t": 1}, security=security) as cluster:
        producer = Producer(
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="u",
            sasl_password="right",
        )
        await producer.start(wait=False)
        deliveries = [await producer.send("t", b"x") for _ in range(3)]
        for delivery in deliveries:
            with pytest.raises(AuthenticationError) as caught:
                await asyncio.wait_for(delivery, 5)
            assert caught.value.persistence is Persistence.NOT_PERSISTED
        await producer.close()


def test_interceptors_callbacks_and_send_many_work_before() -> None:
    class Watch:
        def __init__(self) -> None:
            self.acknowledged: list[tuple[int, BaseException | None]] = []

        def on_acknowledgement(
            self, metadata: RecordMetadata, error: BaseException | None, headers: Any
        ) -> None:
            self.acknowledged.append((metadata.partition, error))

    async def test(kafka: VirtualKafka) -> None:
        watch, done = Watch(), []
        producer = await started(kafka, interceptor_classes=[watch], max_block_ms=20_000)
        delivery = await producer.send("one", b"1")
        callback: Callable[[Delivery], object] = done.append
        delivery.add_done_callback(callback)
        many = asyncio.create_task(producer.send_many("one", [b"2", b"3"]))
        await asyncio.sleep(5)
        plug(kafka)
        result = await many
        assert (result.delivered, result.failed) == (2, [])
        assert (await delivery).offset == 0
        await producer.flush()
        await producer.close()
        assert done == [delivery]
        assert watch.acknowledged == [(0, None)] * 3

    run_virtual(test, topics=TOPICS)


def test_many_records_before_take_little_more_than_their_memory() -> None:
    async def test(kafka: VirtualKafka) -> None:
        producer = await started(kafka)
        deliveries = [
            await producer.send("t", b"v%d" % i, b"k%d" % (i % 100)) for i in range(20_000)
        ]
        plug(kafka)
        await asyncio.gather(*deliveries)
        requests = producer.metrics()["request_total"]
        assert requests < 400
        await producer.close()
        assert sum(map(len, values(kafka))) == 20_000

    run_virtual(test, topics=TOPICS)
