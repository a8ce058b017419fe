"""A whole producer on virtual time: what its calls, callbacks and partitioners see and do."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import Any

import pytest
from support.stage import Stage, play

from aioproducer import Producer, RecordMetadata
from aioproducer.errors import (
    DeliveryTimeoutError,
    IllegalStateError,
    InvalidPartitionError,
    InvalidTopicError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
    RecordTooLargeError,
    SerializationError,
    TopicAuthorizationFailedError,
    WouldBlockError,
)
from aioproducer.records import murmur2_partition
from aioproducer.runtime.delivery import Delivery
from aioproducer.serializers import StringSerializer
from aioproducer.testing import MockProducer
from aioproducer.testing.broker import TopicSpec
from aioproducer.transaction_admin import TransactionAdmin
from aioproducer.types import HeaderPairs
from aioproducer.wire.api_keys import ApiKey

ROOMY: Mapping[str, Any] = {"buffer_memory": 1 << 20}


class Topic(str, Enum):  # noqa: UP042 - its members are formatted otherwise
    """Names whose `str()` is another text."""

    ORDERS = "t"


# -- callbacks and interceptors ------------------------------------------------------------------


def test_done_callback_of_an_expired_record_may_send_the_next_one() -> None:
    async def act(stage: Stage) -> None:
        again: list[Delivery] = []

        def send_again(delivery: Delivery) -> None:
            assert isinstance(delivery.exception(), DeliveryTimeoutError)
            again.append(stage.producer.send_nowait("t", b"again"))

        async with stage.producer as producer:
            await producer.warm_up(["t"])
            stage.crash()
            (await producer.send("t", b"late")).add_done_callback(send_again)
            await asyncio.sleep(5.5)
            stage.revive()
            assert len(again) == 1
            assert (await again[0]).offset == 0
        assert stage.values("t") == [b"again"]

    play(act, delivery_timeout_ms=5_000, request_timeout_ms=1_000)


def test_interceptor_may_send_when_a_record_is_acknowledged() -> None:
    class Echo:
        producer: Producer | None = None
        left = 3

        def on_acknowledgement(
            self, metadata: RecordMetadata, error: BaseException | None, headers: HeaderPairs
        ) -> None:
            assert error is None
            if self.left and self.producer is not None:
                self.left -= 1
                self.producer.send_nowait("t", b"echo %d" % self.left)

    echo = Echo()

    async def act(stage: Stage) -> None:
        echo.producer = stage.producer
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"first")
            await asyncio.sleep(1)
        assert stage.values("t") == [b"first", b"echo 2", b"echo 1", b"echo 0"]

    play(act, interceptor_classes=[echo], **ROOMY)


def test_interceptor_is_given_no_partition_offset_or_time_of_a_refused_topic() -> None:
    called_with: list[RecordMetadata] = []

    class Listener:
        def on_acknowledgement(
            self, metadata: RecordMetadata, error: BaseException | None, headers: HeaderPairs
        ) -> None:
            assert isinstance(error, InvalidTopicError)
            called_with.append(metadata)

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            with pytest.raises(InvalidTopicError):
                await producer.send("no topic", b"vv", b"k")
        (metadata,) = called_with
        assert (metadata.topic, metadata.partition, metadata.offset) == ("no topic", -1, None)
        assert metadata.timestamp_ms == -1
        # Java leaves the sizes out.
        assert (metadata.serialized_key_size, metadata.serialized_value_size) == (1, 2)

    play(act, interceptor_classes=[Listener()], **ROOMY)


def test_callbacks_run_in_the_order_of_the_records_whatever_one_raises() -> None:
    async def act(stage: Stage) -> None:
        order: list[int] = []

        def note(delivery: Delivery) -> None:
            order.append(delivery.result().offset)  # type: ignore[arg-type]
            if order[-1] == 1:
                raise ZeroDivisionError

        async with stage.producer as producer:
            for number in range(20):
                (await producer.send("t", b"%d" % number)).add_done_callback(note)
        assert order == list(range(20))
        (reported,) = stage.loop.failures
        assert "ZeroDivisionError" in reported
        stage.loop.failures.clear()

    play(act, **ROOMY)


def test_close_may_be_called_by_a_task_that_a_callback_starts() -> None:
    async def act(stage: Stage) -> None:
        producer, closers = stage.producer, []
        await producer.start()
        await producer.warm_up(["t", "u"])

        def close_at_once(_: Delivery) -> None:
            closers.append(asyncio.create_task(producer.close(0)))

        stage.faults.swallow(ApiKey.PRODUCE, skip=1)
        (await producer.send("t", b"first")).add_done_callback(close_at_once)
        await asyncio.sleep(0)
        late = await producer.send("u", b"second")
        with pytest.raises(ProducerClosedError):
            await late
        await asyncio.gather(*closers)
        with pytest.raises(ProducerClosedError):
            await producer.send("t", b"third")

    play(act, linger_ms=0)


# -- partitioners ------------------------------------------------------------------------------


def test_partitioner_is_given_serialized_bytes_and_the_partitions_with_a_leader() -> None:
    seen: list[tuple[Any, ...]] = []

    def choose(topic: str, key: bytes | None, value: bytes | None, meta: Any) -> int:
        seen.append((topic, key, value, len(meta.partitions), tuple(meta.available)))
        return 1

    async def act(stage: Stage) -> None:
        stage.create_topic("many", (1, 2, 1))
        async with stage.producer as producer:
            assert (await producer.send_and_wait("many", "v", "k")).partition == 1
            assert (await producer.send_and_wait("many", "w")).partition == 1
            assert (await producer.send_and_wait("many", "x", partition=2)).partition == 2
        assert seen == [("many", b"k", b"v", 3, (0, 1, 2)), ("many", None, b"w", 3, (0, 1, 2))]

    text = StringSerializer()
    play(act, partitioner=choose, brokers=2, key_serializer=text, value_serializer=text, **ROOMY)


@pytest.mark.parametrize("way", ["send", "send_nowait"])
def test_error_of_a_partitioner_is_raised_by_the_call_and_costs_no_memory(way: str) -> None:
    def choose(*_: object) -> int:
        raise ZeroDivisionError

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.warm_up(["t"])
            for _ in range(2):
                with pytest.raises(ZeroDivisionError):
                    sent = getattr(producer, way)("t", b"no")
                    await sent
                await producer.send_and_wait("t", b"yes", partition=0)
            assert producer.health().buffer_available == producer.health().buffer_total
        assert stage.values("t") == [b"yes", b"yes"]

    play(act, partitioner=choose)


@pytest.mark.parametrize("linger_ms", [0, 5])
def test_keyless_records_are_spread_evenly_by_bytes(linger_ms: int) -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("many", (1, 2, 3))
        async with stage.producer as producer:
            for number in range(1_500):
                await producer.send("many", b"%d" % number * (2 + number % 7))
                if number % 10 == 0:
                    await asyncio.sleep(0.001)
        sizes = [sum(map(len, stage.values("many", partition))) for partition in range(3)]
        assert max(sizes) < 1.25 * min(sizes)

    play(act, linger_ms=linger_ms, brokers=3, **ROOMY)


def test_keyless_records_avoid_a_broker_that_takes_none() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("many", (1, 2, 3))
        async with stage.producer as producer:
            await producer.warm_up(["many"])
            for partition in range(3):
                await producer.send_and_wait("many", b"first", partition=partition)
            stage.faults.swallow(ApiKey.PRODUCE, node_id=2, times=None)
            for _ in range(200):
                await producer.send("many", b"v" * 50)
                await asyncio.sleep(0.01)
            chosen = Counter()
            for _ in range(200):
                delivery = await producer.send("many", b"v" * 50)
                chosen[delivery.partition] += 1
                await asyncio.sleep(0.01)
            assert chosen[1] == 0
            assert chosen[0] > 50
            assert chosen[2] > 50
            await producer.close(0)

    play(
        act,
        brokers=3,
        partitioner_availability_timeout_ms=500,
        **ROOMY,
    )


async def test_mock_producer_hashes_keys_as_the_real_one_does() -> None:
    keys = [b"%d" % number for number in range(50)]
    async with MockProducer(topics={"t": 7}) as producer:
        chosen = [(await producer.send_and_wait("t", b"v", key)).partition for key in keys]
    assert chosen == [murmur2_partition(key, 7) for key in keys]


def test_warm_up_connects_to_every_leader_also_to_broker_0() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("many", (0, 1))
        stage.crash(0)
        async with stage.producer as producer:
            await producer.warm_up(["t"])  # at broker 1, which is asked for everything from now on
            stage.revive(0)
            await asyncio.sleep(10)
            assert producer.health().nodes[0].state == "disconnected"
            await producer.warm_up(["many"])
            await asyncio.sleep(1)
            assert producer.health().nodes[0].state == "ready"

    play(act, brokers=2, first_node=0)


def test_warm_up_asks_for_all_its_topics_at_once() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("v")
        await stage.producer.start()
        requests = stage.faults.delay(0, ApiKey.METADATA, times=None)
        await stage.producer.warm_up(["t", "u", "v"])
        assert requests.struck == 1
        await stage.producer.close()

    play(act)


def test_warm_up_takes_an_iterator_of_topics() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            topics: Any = iter(["t", "u"])
            await producer.warm_up(topics)
            for topic in ("t", "u"):
                await producer.send_nowait(topic, b"v")

    play(act, **ROOMY)


# -- sizes and memory --------------------------------------------------------------------------


def test_flush_waits_for_every_part_of_a_batch_that_is_split() -> None:
    async def act(stage: Stage) -> None:
        stage.faults.error(ApiKey.PRODUCE, 10, times=3)
        async with stage.producer as producer:
            deliveries = [
                await producer.send("t", b"%d" % n, b"k", headers={"h": b"%d" % n}, timestamp_ms=n)
                for n in range(8)
            ]
            assert await producer.flush() == 0
            assert all(delivery.done() for delivery in deliveries)
            assert producer.metrics()["batch_split_total"] == 3
        (batches, records) = (
            stage.batches("t"),
            [record for batch in stage.batches("t") for record in batch.records()],
        )
        assert len(batches) > 2
        assert {batch.codec for batch in batches} == {stage.batches("t")[0].codec}
        assert [(r.value, r.key, r.headers, r.timestamp_ms) for r in records] == [
            (b"%d" % n, b"k", (("h", b"%d" % n),), n) for n in range(8)
        ]
        assert stage.engine.pool.available == stage.engine.pool.total

    play(act, batch_size=1_000, linger_ms=50, compression_type="gzip", **ROOMY)


def test_batch_size_of_zero_makes_a_batch_of_each_record() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            deliveries = [await producer.send("t", b"%020d" % number) for number in range(20)]
            assert [(await delivery).offset for delivery in deliveries] == list(range(20))
        assert [len(list(batch.records())) for batch in stage.batches("t")] == [1] * 20

    play(act, batch_size=0, linger_ms=0, **ROOMY)


def test_batch_may_be_larger_than_all_memory_and_its_records_not() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            with pytest.raises(RecordTooLargeError, match="buffer_memory"):
                await producer.send("t", b"small")

    play(act, batch_size=2_000, buffer_memory=1_000)


def test_largest_record_is_that_of_javas_estimate() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            # The batch's header, at most 21 bytes of a record's, and the lengths of what it has.
            overhead = 61 + 21 + 1 + 2 + 1
            await producer.send_and_wait("t", b"v" * (200 - overhead))
            with pytest.raises(RecordTooLargeError, match="max_request_size"):
                await producer.send("t", b"v" * (200 - overhead + 1))

    play(act, max_request_size=200, **ROOMY)


@pytest.mark.parametrize("acks", [0, 1])
def test_record_that_the_broker_finds_too_large(acks: int) -> None:
    async def act(stage: Stage) -> None:
        narrow = TopicSpec(1, 1, {"max.message.bytes": "100"})
        stage.world.cluster.create_topic("narrow", narrow)
        async with stage.producer as producer:
            if acks:
                with pytest.raises(RecordTooLargeError):
                    await producer.send_and_wait("narrow", b"v" * 500)
            else:
                assert (await producer.send_and_wait("narrow", b"v" * 500)).offset is None
            await asyncio.sleep(1)  # with acks=0 the broker closes the connection
            assert (await producer.send_and_wait("narrow", b"v")).offset == (0 if acks else None)
            await asyncio.sleep(1)
        assert stage.values("narrow") == [b"v"]

    play(act, acks=acks, enable_idempotence=False, **ROOMY)


# -- topics and leaders --------------------------------------------------------------------------


def test_topic_that_was_forbidden_meanwhile_works_once_it_is_allowed_again() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"1")
            refusal = stage.faults.error(ApiKey.PRODUCE, 29, topic="t", times=None)
            with pytest.raises(TopicAuthorizationFailedError):
                await producer.send_and_wait("t", b"2")
            stage.faults.remove(refusal)
            await producer.send_and_wait("t", b"3")
        assert stage.values("t") == [b"1", b"3"]

    play(act)


def test_topic_expired_while_idle_is_fetched_again_when_it_is_used() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"1")
            for _ in range(20):
                await asyncio.sleep(5)
                await producer.send("u", b"x")
            assert stage.engine.metadata.topic("t") is None
            await producer.send_and_wait("t", b"2")
        assert stage.values("t") == [b"1", b"2"]
        sequences = [batch.base_sequence for batch in stage.batches("t")]
        assert sequences == [0, 1]

    play(act, metadata_max_idle_ms=20_000, metadata_max_age_ms=10_000)


def test_topic_that_appears_while_send_waits_is_used() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            waiting = asyncio.create_task(producer.send_and_wait("later", b"v"))
            await asyncio.sleep(5)
            assert not waiting.done()
            stage.create_topic("later")
            assert (await waiting).offset == 0
            with pytest.raises(MetadataTimeoutError):
                await producer.send("never", b"v")

    play(act, allow_auto_create_topics=False, max_block_ms=20_000)


def test_timeouts_name_the_throttle_time_that_they_ran_into() -> None:
    async def act(stage: Stage) -> None:
        stage.faults.throttle(200_000, ApiKey.PRODUCE)
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"1")
            delivery = await producer.send("t", b"2")
            with pytest.raises(MetadataTimeoutError) as unknown:
                await producer.send("new", b"3")
            with pytest.raises(DeliveryTimeoutError) as late:
                await delivery
        throttled = r"throttled by: broker 1 broker-1\.sim:9092 for another {} s"
        assert re.search(throttled.format(140), str(unknown.value))
        assert re.search(throttled.format(80), str(late.value))
        assert "waiting for the leader to take a request" in str(late.value)

    play(act)


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
@pytest.mark.parametrize("in_flight", [1, 5])
def test_new_topic_is_learnt_while_every_place_for_requests_is_taken(
    in_flight: int, strategy: str
) -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("busy", (1,) * 16)
        stage.create_topic("new")
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["busy"])

        async def flood(partition: int) -> None:
            while True:
                await producer.send("busy", b"v" * 120, partition=partition)

        floods = [asyncio.create_task(flood(partition)) for partition in range(16)]
        await asyncio.sleep(0.2)
        opened = len(stage.world.network.connections)
        await producer.partitions_for("new")
        assert len(stage.world.network.connections) == opened
        for task in floods:
            task.cancel()
        await asyncio.wait(floods)
        await producer.close(0)

    play(
        act,
        max_in_flight_requests_per_connection=in_flight,
        metadata_recovery_strategy=strategy,
        max_request_size=2_000,
        max_block_ms=1_000,
        buffer_memory=50_000,
        linger_ms=0,
    )


def test_leader_that_moved_while_nothing_was_sent_is_learnt_at_the_max_age() -> None:
    async def act(stage: Stage) -> None:
        stage.world.cluster.create_topic("moving", assignments={0: [1, 2]})
        async with stage.producer as producer:
            await producer.send_and_wait("moving", b"1")
            stage.world.cluster.move_leader("moving", 0, 2)
            await asyncio.sleep(25)
            assert stage.engine.metadata.cluster.leader("moving", 0) == 2
            await producer.send_and_wait("moving", b"2")
            assert producer.metrics()["record_retry_total"] == 0
        assert stage.values("moving") == [b"1", b"2"]

    play(act, brokers=2, metadata_max_age_ms=10_000)


@pytest.mark.parametrize("kind", [Producer, TransactionAdmin])
def test_without_asyncio_an_error_says_that_it_is_needed(kind: type[Any]) -> None:
    """A program of trio runs coroutines in another loop."""
    opening = kind(bootstrap_servers="127.0.0.1:9092").__aenter__()
    with pytest.raises(IllegalStateError, match="no asyncio event loop runs here") as caught:
        opening.send(None)
    assert "asyncio.run()" in str(caught.value)
    assert "trio" in str(caught.value)


def test_send_nowait_says_whether_the_topic_or_the_partition_is_missing() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.warm_up(["t"])
            for topic in ("t", "missing"):
                with contextlib.suppress(KafkaError):
                    await producer.send(topic, b"v", partition=3)
            with pytest.raises(WouldBlockError, match="the partition is not present in metadata"):
                producer.send_nowait("t", b"v", partition=3)
            with pytest.raises(WouldBlockError, match="the topic is not present in metadata"):
                producer.send_nowait("missing", b"v", partition=3)

    play(act, max_block_ms=1_000, allow_auto_create_topics=False)


def test_no_call_that_waits_for_memory_is_accepted_after_the_close() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t", "u"])
        stage.crash()
        await asyncio.sleep(1)  # nothing is sent from now on
        accepted = [await producer.send("t", bytes(20)), await producer.send("u", bytes(100))]
        waiting = [
            asyncio.create_task(producer.send("u", bytes(100))),
            asyncio.create_task(producer.send("t", bytes(20))),  # its batch has room
        ]
        await asyncio.sleep(1)
        await producer.close(5)
        for outcome in (*waiting, *accepted):
            with pytest.raises(ProducerClosedError):
                await outcome

    play(act, buffer_memory=400, linger_ms=60_000)


def test_a_send_that_lets_other_tasks_run_is_not_accepted_after_a_close_among_them() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        accepted = [await producer.send("t", b"v") for _ in range(1_000)]
        closing = asyncio.create_task(producer.close(5))
        with pytest.raises(ProducerClosedError):
            await producer.send("t", b"late")
        await closing
        assert len(stage.values("t")) == len(accepted)

    play(act, batch_size=16_384, linger_ms=60_000, **ROOMY)


# -- topics that are members of enumerations -----------------------------------------------------


def test_results_and_errors_have_the_text_of_a_topic_that_is_a_member_of_an_enumeration() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            metadata = await producer.send_and_wait(Topic.ORDERS, b"x")
            (partition, *_) = await producer.partitions_for(Topic.ORDERS)
            assert (f"{metadata.topic}", f"{partition.topic}") == ("t", "t")
            with pytest.raises(RecordTooLargeError, match=r"\[topic t\]"):
                await producer.send(Topic.ORDERS, b"x" * 2_000_000)
            with pytest.raises(InvalidPartitionError, match=r"\[topic t\]"):
                producer.send_nowait(Topic.ORDERS, b"x", partition=-1)
            with pytest.raises(SerializationError, match=r"\[topic t"):
                await producer.send(Topic.ORDERS, 5)
            topics = {dict(name.tags).get("topic") for name in producer.all_metrics()} - {None}
            assert [f"{topic}" for topic in topics] == ["t"]

    play(act)


def test_a_record_of_such_a_topic_has_its_text_before_the_cluster_has_answered() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start(wait=False)
        delivery = await stage.producer.send(Topic.ORDERS, b"x")
        assert str(delivery).startswith("<Delivery t ")
        await stage.producer.close()

    play(act)


async def test_a_mock_has_the_text_of_such_a_topic() -> None:
    async with MockProducer() as producer:
        metadata = await producer.send_and_wait(Topic.ORDERS, b"x")
    assert f"{metadata.topic}" == "t"
