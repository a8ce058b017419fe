"""FastStream's broker on this package's producer, against the embedded cluster."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from functools import partial
from inspect import signature
from types import FrameType
from typing import Any
from uuid import RFC_4122, UUID

import pytest

pytest.importorskip("faststream.kafka", reason="FastStream is not installed")

import aiokafka
from aiokafka.structs import RecordMetadata
from faststream import BaseMiddleware
from faststream.exceptions import FeatureNotSupportedException, IncorrectState
from faststream.kafka import KafkaBroker as TheirBroker
from faststream.kafka import KafkaPublishMessage, TestKafkaBroker
from faststream.kafka.exceptions import BatchBufferOverflowException

from aioproducer import Producer, ProducerConfig
from aioproducer import errors as ours
from aioproducer.contrib.faststream import KafkaBroker, publish_natively
from aioproducer.errors import ConfigError
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(topics={"t": 2, "replies": 1}) as started:
        yield started


def broker(cluster: EmbeddedCluster, **options: Any) -> KafkaBroker:
    return KafkaBroker(cluster.bootstrap_servers.split(","), logger=None, **options)


async def records_of(cluster: EmbeddedCluster, topic: str = "t") -> list[Any]:
    partitions = await read_topic(cluster.bootstrap_servers, topic)
    return [record for partition in sorted(partitions) for record in partitions[partition]]


async def test_publish_sends_what_faststream_says(cluster: EmbeddedCluster) -> None:
    async with broker(cluster) as started:
        metadata = await started.publish(
            {"a": 1},
            "t",
            key=b"k",
            partition=1,
            timestamp_ms=1000,
            headers={"own": "h"},
            correlation_id="c",
            reply_to="replies",
        )
    assert isinstance(metadata, RecordMetadata)
    assert metadata[:4] == ("t", 1, aiokafka.TopicPartition("t", 1), 0)
    assert (metadata.timestamp, metadata.timestamp_type) == (1000, 0)
    (record,) = await records_of(cluster)
    assert (record.key, record.value, record.timestamp_ms) == (b"k", b'{"a":1}', 1000)
    assert dict(record.headers) == {
        "content-type": b"application/json",
        "correlation_id": b"c",
        "reply_to": b"replies",
        "own": b"h",
    }


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("x", {}),
        (b"x", {"key": b"k", "timestamp_ms": 1000, "reply_to": "replies"}),
        ({"a": 1}, {"headers": {"own": "h", "empty": ""}}),
        ("x", {"headers": {"correlation_id": "mine", "content-type": "text/html"}}),
        ("x", {"headers": {}, "correlation_id": ""}),
        (None, {}),
        (None, {"key": b"k"}),
        (KafkaPublishMessage("x", key=b"k"), {}),
    ],
)
async def test_publish_sends_what_a_command_of_faststream_sends(
    cluster: EmbeddedCluster, message: Any, options: dict[str, Any]
) -> None:
    class Passing(BaseMiddleware):
        """With it, `publish` makes a command."""

    options = {"correlation_id": "c", "timestamp_ms": 5, **options}
    async with broker(cluster) as direct, broker(cluster, middlewares=[Passing]) as generic:
        await generic.publish(message, "t", partition=0, **options)
        await direct.publish(message, "t", partition=1, **options)
    theirs, ours = await records_of(cluster)
    if not options["correlation_id"]:  # each has an id that was generated
        assert len(dict(ours.headers)["correlation_id"]) == 36
        theirs, ours = (dict(record.headers).keys() for record in (theirs, ours))
    assert ours == theirs


@pytest.mark.parametrize(
    ("made", "given"),
    [
        ({}, {}),
        ({"key": b"k", "partition": 1, "reply_to": "replies", "headers": {"own": "h"}}, {}),
        (
            {"key": b"k", "partition": 1, "reply_to": "replies", "headers": {"own": "h", "b": "c"}},
            {"key": b"l", "partition": 0, "reply_to": "others", "headers": {"own": "i"}},
        ),
        ({}, {"topic": "replies", "key": b"k"}),
    ],
)
async def test_a_publisher_sends_what_a_command_of_faststream_sends(
    cluster: EmbeddedCluster, made: dict[str, Any], given: dict[str, Any]
) -> None:
    class Passing(BaseMiddleware):
        """With it, `publish` makes a command."""

    made = {"partition": 0, **made}
    async with broker(cluster) as direct, broker(cluster, middlewares=[Passing]) as generic:
        for each in (generic, direct):
            publisher = each.publisher("t", **made)
            await publisher.publish("x", correlation_id="c", timestamp_ms=5, **given)
    theirs, ours = await records_of(cluster, given.get("topic", "t"))
    assert ours._replace(offset=0) == theirs._replace(offset=0)
    assert b"c" in dict(ours.headers).values()


async def test_a_publisher_that_flushes_flushes(cluster: EmbeddedCluster) -> None:
    async with broker(cluster, linger_ms=60_000) as started:
        flushing = started.publisher("t", autoflush=True)
        future = await asyncio.wait_for(flushing.publish("x", no_confirm=True), 30)
        assert (await future).offset == 0


async def test_publish_without_middlewares_makes_no_command(cluster: EmbeddedCluster) -> None:
    async with broker(cluster) as started:
        publisher = started.publisher("t")
        calls = Calls()
        with calls:
            await started.publish("x", "t", no_confirm=True)
            await publisher.publish("x", no_confirm=True)
        assert "KafkaPublishCommand.__init__" not in calls.names
        for publish in (partial(started.publish, topic="t"), publisher.publish):
            calls = Calls()
            started.add_middleware(BaseMiddleware)
            with calls:
                await publish("x", no_confirm=True)
            assert "KafkaPublishCommand.__init__" in calls.names


async def test_messages_without_a_correlation_id_get_a_random_uuid(
    cluster: EmbeddedCluster,
) -> None:
    async with broker(cluster) as started:
        for _ in range(20):
            await started.publish("x", "t", no_confirm=True)
    texts = {
        dict(record.headers)["correlation_id"].decode() for record in await records_of(cluster)
    }
    ids = [UUID(text) for text in texts]
    assert len(ids) == 20
    assert {(each.version, each.variant) for each in ids} == {(4, RFC_4122)}
    assert {str(each) for each in ids} == texts


@pytest.mark.skipif(
    "id_generator" not in signature(TheirBroker).parameters, reason="FastStream before 0.7.5"
)
async def test_the_brokers_generator_makes_correlation_ids(cluster: EmbeddedCluster) -> None:
    async with broker(cluster, id_generator=lambda: "mine") as started:
        await started.publish("x", "t")
    (record,) = await records_of(cluster)
    assert dict(record.headers)["correlation_id"] == b"mine"


class Calls:
    """The names of the Python functions that are called while the block runs."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __enter__(self) -> None:
        sys.setprofile(self._add)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _add(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self.names.add(frame.f_code.co_qualname)


async def test_publish_with_no_confirm_returns_a_future_at_once(cluster: EmbeddedCluster) -> None:
    async with broker(cluster, linger_ms=50) as started:
        futures = [await started.publish("x", "t", partition=0, no_confirm=True) for _ in range(3)]
        assert all(isinstance(future, asyncio.Future) for future in futures)
        assert not any(future.done() for future in futures)
        done = await asyncio.gather(*futures)
    assert [metadata.offset for metadata in done] == [0, 1, 2]


async def test_a_keyed_none_is_a_tombstone_and_a_keyless_one_is_empty(
    cluster: EmbeddedCluster,
) -> None:
    async with broker(cluster) as started:
        await started.publish(None, "t", key=b"k", partition=0)
        await started.publish(None, "t", partition=0)
    assert [record.value for record in await records_of(cluster)] == [None, b""]


async def test_a_batch_is_one_batch_with_its_keys(cluster: EmbeddedCluster) -> None:
    async with broker(cluster) as started:
        metadata = await started.publish_batch(
            KafkaPublishMessage("a", key=b"1"), "b", topic="t", partition=1, headers={"own": "h"}
        )
        future = await started.publish_batch("c", topic="t", partition=1, no_confirm=True)
        assert isinstance(future, asyncio.Future)
        assert (await future).offset == 2
    assert isinstance(metadata, RecordMetadata)
    assert (metadata.partition, metadata.offset) == (1, 0)
    records = await records_of(cluster)
    assert [(record.key, record.value) for record in records] == [
        (b"1", b"a"),
        (None, b"b"),
        (None, b"c"),
    ]
    assert all(("own", b"h") in record.headers for record in records[:2])


async def test_a_batch_that_is_too_large_is_refused(cluster: EmbeddedCluster) -> None:
    async with broker(cluster, max_batch_size=16) as started:
        with pytest.raises(BatchBufferOverflowException) as refused:
            await started.publish_batch("1", "Hello", topic="t")
    assert refused.value.message_position == 1
    assert not await records_of(cluster)


async def test_subscribers_publishers_and_replies_work(cluster: EmbeddedCluster) -> None:
    made = broker(cluster)
    seen: asyncio.Queue[Any] = asyncio.Queue()

    @made.subscriber("t", auto_offset_reset="earliest")
    @made.publisher("replies")
    async def double(number: int) -> int:
        return 2 * number

    @made.subscriber("replies", auto_offset_reset="earliest")
    async def note(number: int) -> None:
        await seen.put(number)

    async with made:
        await made.start()
        await made.publish(21, "t")
        await made.publish(2, "t", reply_to="replies")
        got = [await asyncio.wait_for(seen.get(), 10) for _ in range(3)]
    assert sorted(got) == [4, 4, 42]


async def test_middlewares_see_what_is_published(cluster: EmbeddedCluster) -> None:
    seen: list[Any] = []

    class Watching(BaseMiddleware):
        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            seen.append(cmd.body)
            return await call_next(cmd)

    async with broker(cluster, middlewares=[Watching]) as started:
        await started.publish("x", "t")
    assert seen == ["x"]


async def test_options_are_those_of_faststream_unless_a_producer_is_given(
    cluster: EmbeddedCluster,
) -> None:
    plain = broker(cluster, client_id="shop", linger_ms=7, max_batch_size=1000)
    async with plain:
        config = running(plain).config
        assert (config.client_id, config.linger_ms, config.batch_size) == ("shop", 7, 1000)
        assert (config.acks, config.effective_idempotence) == (1, False)
    servers = cluster.bootstrap_servers
    given = broker(cluster, producer=ProducerConfig(bootstrap_servers=servers, client_id="own"))
    async with given:
        config = running(given).config
        assert (config.client_id, config.effective_idempotence) == ("own", True)
        await given.publish("x", "t")
    mapped = broker(cluster, producer={"bootstrap.servers": servers, "client.id": "mapped"})
    async with mapped:
        assert running(mapped).config.client_id == "mapped"
    with pytest.raises(ConfigError):
        broker(cluster, producer={"bootstrap.servers": servers, "acks": "some"})


def running(started: TheirBroker) -> Producer:
    native: Any = started.config.producer
    own: Producer = native._producer.own
    return own


async def test_a_producer_of_the_program_is_used_and_left_open(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=5000) as producer:
        async with broker(cluster, producer=producer) as started:
            future = await started.publish("x", "t", no_confirm=True)
        assert (await future).offset == 0  # the broker has flushed
        assert producer.health().ready


async def test_a_broker_stops_after_the_producer_of_the_program_was_closed(
    cluster: EmbeddedCluster,
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        made = broker(cluster, producer=producer)
        await made.start()
        await made.publish("x", "t")
    await made.stop()
    with pytest.raises(IncorrectState):
        await made.publish("x", "t")


async def test_a_broker_that_another_class_makes_can_be_given(cluster: EmbeddedCluster) -> None:
    theirs = TheirBroker(cluster.bootstrap_servers.split(","), logger=None)
    assert publish_natively(theirs) is theirs
    async with theirs:
        assert (await theirs.publish("x", "t")).offset == 0


async def test_a_broker_starts_again_after_it_was_stopped(cluster: EmbeddedCluster) -> None:
    made = broker(cluster)
    for offset in range(2):
        async with made:
            assert (await made.publish("x", "t", partition=0)).offset == offset
        with pytest.raises(IncorrectState):
            await made.publish("x", "t")
    gc.collect()  # an unclosed producer would warn


async def test_serializers_of_the_broker_are_used(cluster: EmbeddedCluster) -> None:
    options: dict[str, Any] = {
        "key_serializer": lambda key: key and key.encode(),
        "value_serializer": bytes.upper,
    }
    async with broker(cluster, **options) as started:
        await started.publish("x", "t", key="k", partition=0)
        await started.publish_batch("y", topic="t", partition=0)
    first, second = await records_of(cluster)
    assert (first.key, first.value, second.value) == (b"k", b"X", b"Y")


async def test_errors_are_aiokafkas_with_ours_as_the_cause(cluster: EmbeddedCluster) -> None:
    async with broker(cluster, max_request_size=1000) as started:
        for no_confirm in (True, False):
            with pytest.raises(aiokafka.errors.MessageSizeTooLargeError) as refused:
                await started.publish(b"x" * 2000, "t", no_confirm=no_confirm)
            assert isinstance(refused.value.__cause__, ours.RecordTooLargeError)


async def test_programs_may_reach_for_the_producer_past_the_broker(
    cluster: EmbeddedCluster,
) -> None:
    async with broker(cluster) as started:
        reached: Any = started.config.producer
        future = await reached._producer.producer.send("t", key=b"", partition=0)
        assert (await future).offset == 0
    assert [record.value for record in await records_of(cluster)] == [None]


async def test_acks_0_gives_no_metadata(cluster: EmbeddedCluster) -> None:
    async with broker(cluster, acks=0) as started:
        assert await started.publish("x", "t") is None


async def test_requests_are_refused_as_by_faststream(cluster: EmbeddedCluster) -> None:
    async with broker(cluster) as started:
        with pytest.raises(FeatureNotSupportedException):
            await started.request("x", "t")


async def test_faststreams_test_broker_works() -> None:
    made = KafkaBroker(logger=None)
    seen = []

    @made.subscriber("t")
    async def note(text: str) -> None:
        seen.append(text)

    async with TestKafkaBroker(made) as tested:
        await tested.publish("x", "t")
    assert seen == ["x"]
