"""The private members of a producer that OpenTelemetry, ddtrace, kstreams and faust use."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from random import Random
from typing import Any
from uuid import UUID

import aiokafka
import aiokafka.errors
import pytest
from aiokafka.protocol.admin import ApiVersionRequest, CreateTopicsRequest, SaslHandShakeRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.produce import ProduceRequest

from aioproducer._util.backoff import ExponentialBackoff
from aioproducer.compat.aiokafka import AIOKafkaProducer, TopicPartition
from aioproducer.compat.aiokafka._client import ClusterView
from aioproducer.core.metadata.metadata import Metadata
from aioproducer.testing.broker.settings import ClusterSettings
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    settings = ClusterSettings(auto_create_topics=False)
    async with EmbeddedCluster(2, topics={"t": 1, "u": 3}, settings=settings) as cluster:
        yield cluster


@pytest.fixture
async def producer(cluster: EmbeddedCluster) -> AsyncIterator[AIOKafkaProducer]:
    servers = cluster.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers, request_timeout_ms=5000) as producer:
        yield producer


def new_topic(name: str, partitions: int = 4) -> Any:
    """The arguments with which faust sends."""
    return CreateTopicsRequest([(name, partitions, 1, [], [])], 5000, False)


def partition_for(producer: AIOKafkaProducer, topic: str, key: bytes | None) -> int:
    """The calls of faust's `key_partition`."""
    return producer._partition(
        topic, partition=None, key=None, value=None, serialized_key=key, serialized_value=None
    )


# -- before start ------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", ["one:1,two:2", ["one:1", "two:2"]])
async def test_the_options_are_as_they_were_given(servers: Any) -> None:
    options: dict[str, Any] = {
        "bootstrap_servers": servers,
        "client_id": "me",
        "request_timeout_ms": 1234,
        "max_request_size": 50_000,
        "key_serializer": str.encode,
        "value_serializer": repr,
        "partitioner": min,
        "ssl_context": ssl.create_default_context(),  # of no use without TLS, and kept
    }
    producer, theirs = AIOKafkaProducer(**options), aiokafka.AIOKafkaProducer(**options)
    theirs._closed = producer._closed = True
    private = ("_partitioner", "_request_timeout_ms", "_max_request_size")
    for name in ("_key_serializer", "_value_serializer", *private):
        assert getattr(producer, name) == getattr(theirs, name)
    private = ("_bootstrap_servers", "_client_id", "_request_timeout_ms")
    for name in (*private, "_security_protocol", "_ssl_context"):
        assert getattr(producer.client, name) == getattr(theirs.client, name)


async def test_servers_that_can_be_iterated_once_are_kept_as_a_list() -> None:
    producer = AIOKafkaProducer(bootstrap_servers=iter(["one:1", "two:2"]))
    producer._closed = True
    assert producer.client._bootstrap_servers == ["one:1", "two:2"]
    assert producer._own_config.bootstrap_servers == ("one:1", "two:2")


async def test_before_start_nothing_is_known() -> None:
    producer = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
    producer._closed = True
    view = producer.client.cluster
    assert (view.brokers(), view.topics(), view.controller) == (set(), set(), None)
    assert view.partitions_for_topic("t") is None
    assert view.available_partitions_for_topic("t") is None
    assert view.leader_for_partition(TopicPartition("t", 0)) is None
    assert producer.client.get_random_node() is None
    with pytest.raises(aiokafka.errors.IllegalStateError):
        await producer.client._wait_on_metadata("t")
    with pytest.raises(aiokafka.errors.IllegalStateError):
        await producer.client.send(1, MetadataRequest([]))
    await producer.client.close()


# -- the cluster -------------------------------------------------------------------------------


async def test_the_view_says_what_aiokafka_says(cluster: EmbeddedCluster) -> None:
    servers = cluster.bootstrap_servers
    async with (
        AIOKafkaProducer(bootstrap_servers=servers) as ours,
        aiokafka.AIOKafkaProducer(bootstrap_servers=servers) as theirs,
    ):
        seen = []
        for producer in (ours, theirs):
            view: Any = producer._metadata
            assert view is producer.client.cluster
            before = view.topics(), view.partitions_for_topic("u")
            waited = await producer.client._wait_on_metadata("u")
            places = [TopicPartition("u", 0), TopicPartition("u", 9), TopicPartition("no", 0)]
            seen.append(
                (
                    before,
                    waited,
                    view.topics(),
                    view.partitions_for_topic("u"),
                    view.available_partitions_for_topic("u"),
                    view.available_partitions_for_topic("no"),
                    [view.leader_for_partition(each) for each in places],
                    view.partitions_for_broker(1),
                    view.partitions_for_broker(99),
                    view.brokers(),
                    view.broker_metadata(2),
                    view.broker_metadata(99),
                    view.controller,
                )
            )
        assert seen[0] == seen[1]
        assert ours.client.get_random_node() in {1, 2}
        assert {type(each) for each in ours._metadata.brokers()} == {
            aiokafka.structs.BrokerMetadata
        }


async def test_a_topic_that_does_not_exist_is_waited_for_until_the_timeout(
    cluster: EmbeddedCluster,
) -> None:
    servers = cluster.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers, request_timeout_ms=200) as producer:
        with pytest.raises(aiokafka.errors.UnknownTopicOrPartitionError):
            await producer.client._wait_on_metadata("no")


async def test_an_added_topic_becomes_known(producer: AIOKafkaProducer) -> None:
    assert await producer.client.add_topic("u") is True
    assert producer._metadata.partitions_for_topic("u") == {0, 1, 2}
    assert await producer.client.add_topic("u") is True
    assert producer._metadata.topics() == {"u"}


async def test_a_forced_update_fetches_every_topic_while_none_is_in_use(
    producer: AIOKafkaProducer,
) -> None:
    assert await producer.client.force_metadata_update() is True
    assert producer._metadata.topics() == {"t", "u"}
    await producer.client.send(1, new_topic("new"))
    assert await producer.client.force_metadata_update() is True
    assert producer._metadata.partitions_for_topic("new") == {0, 1, 2, 3}


async def test_a_forced_update_fetches_only_the_topics_in_use(producer: AIOKafkaProducer) -> None:
    await producer.send_and_wait("u", b"v")
    assert await producer.client.force_metadata_update() is True
    assert producer._metadata.topics() == {"u"}


async def test_a_forced_update_that_is_not_awaited_takes_place(producer: AIOKafkaProducer) -> None:
    done = asyncio.Event()
    producer.client.force_metadata_update().add_done_callback(lambda _: done.set())
    await asyncio.wait_for(done.wait(), 5)
    assert producer._metadata.topics() == {"t", "u"}


async def test_what_waits_for_an_update_ends_when_the_producer_stops(
    cluster: EmbeddedCluster, producer: AIOKafkaProducer
) -> None:
    for node in (1, 2):
        cluster.freeze_broker(node)
    every = producer.client.force_metadata_update()
    some = producer.client.add_topic("t")
    await asyncio.sleep(0)
    await producer.stop()
    async with asyncio.timeout(2):
        assert (await every, await some) == (False, False)


def test_a_topic_that_was_dropped_for_being_idle_is_still_known() -> None:
    metadata = Metadata(
        max_age_s=300,
        max_idle_s=10,
        backoff=ExponentialBackoff(0.1, 1.0, jitter=0),
        allow_auto_create=False,
        rng=Random(1),
    )
    view = ClusterView()
    view._metadata = metadata
    for now in (0.0, 20.0):
        if not now:
            metadata.add_topic("u", now)
        metadata.request_update()
        asked = metadata.start_request(now).topics
        metadata.on_response(described(*asked), now)
        assert view.topics() == {"u"}
        assert view.partitions_for_topic("u") == {0, 1}
    assert metadata.topic("u") is None


def described(*topics: str) -> MetadataResponse:
    """One broker, two partitions for each topic."""
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="one", port=1)],
        topics=[
            MetadataResponseTopic(
                name=name,
                topic_id=UUID(int=7),
                partitions=[
                    MetadataResponsePartition(partition_index=i, leader_id=1) for i in range(2)
                ],
            )
            for name in topics
        ],
        cluster_id="c",
    )


async def test_a_topic_that_was_deleted_is_unknown(
    cluster: EmbeddedCluster, producer: AIOKafkaProducer
) -> None:
    await producer.client._wait_on_metadata("u")
    assert producer._metadata.topics() == {"u"}
    async with cluster_admin(cluster) as admin:
        await admin.delete_topics(["u"])
    async with asyncio.timeout(5):
        while producer._metadata.partitions_for_topic("u") is not None:
            await producer.client.force_metadata_update()
    assert producer._metadata.topics() == set()


def cluster_admin(cluster: EmbeddedCluster) -> Any:
    """aiokafka's admin client."""
    from aiokafka.admin import AIOKafkaAdminClient

    class Admin(AIOKafkaAdminClient):  # type: ignore[misc]
        async def __aenter__(self) -> Any:
            await self.start()
            return self

        async def __aexit__(self, *_: object) -> None:
            await self.close()

    return Admin(bootstrap_servers=cluster.bootstrap_servers)


# -- partitions --------------------------------------------------------------------------------


async def test_a_keys_partition_is_the_one_its_records_go_to(producer: AIOKafkaProducer) -> None:
    await producer.client._wait_on_metadata("u")
    for key in (b"a", b"b", b"c"):
        answer = await producer.send_and_wait("u", b"v", key=key)
        assert answer is not None
        assert partition_for(producer, "u", key) == answer.partition
    assert partition_for(producer, "u", None) in {0, 1, 2}
    assert producer._partition("u", 2, None, None, b"k", None) == 2
    with pytest.raises(AssertionError, match="Unrecognized partition"):
        producer._partition("u", 3, None, None, b"k", None)
    with pytest.raises(AssertionError):
        producer._partition("u", -1, None, None, b"k", None)


async def test_a_partitioner_of_the_program_is_asked(cluster: EmbeddedCluster) -> None:
    asked: list[Any] = []

    def last(*arguments: Any) -> int:
        asked.append(arguments)
        return int(arguments[1][-1])

    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, partitioner=last
    ) as producer:
        await producer.client._wait_on_metadata("u")
        assert partition_for(producer, "u", b"k") == 2
    assert asked == [(b"k", [0, 1, 2], [0, 1, 2])]


async def test_the_partition_of_an_unknown_topic_is_an_error(producer: AIOKafkaProducer) -> None:
    with pytest.raises(aiokafka.errors.UnknownTopicOrPartitionError, match="not fetched yet"):
        partition_for(producer, "u", b"k")


# -- requests of aiokafka ----------------------------------------------------------------------


async def test_aiokafkas_requests_are_answered_by_its_responses(
    producer: AIOKafkaProducer,
) -> None:
    (node, other) = sorted(each.nodeId for each in producer._metadata.brokers())
    described = await producer.client.send(
        node, MetadataRequest(topics=["u"], allow_auto_topic_creation=False)
    )
    assert described.cluster_id
    assert type(described).__module__ == "aiokafka.protocol.metadata"
    created = await producer.client.send(other, new_topic("new"))
    assert [each[:2] for each in created.topic_errors] == [("new", 0)]
    again = await producer.client.send(other, new_topic("new"))
    assert [each[:2] for each in again.topic_errors] == [("new", 36)]
    versions = await producer.client.send(node, ApiVersionRequest())
    assert versions.error_code == 0
    assert await producer.partitions_for("new") == {0, 1, 2, 3}


async def test_many_requests_at_once_get_their_own_answers(producer: AIOKafkaProducer) -> None:
    topics = ["t", "u"] * 10
    answers = await asyncio.gather(
        *(producer.client.send(1 + i % 2, MetadataRequest([name])) for i, name in enumerate(topics))
    )
    assert [answer.topics[0][1] for answer in answers] == topics


async def test_a_broker_that_is_unknown_is_not_ready(producer: AIOKafkaProducer) -> None:
    with pytest.raises(aiokafka.errors.NodeNotReadyError):
        await producer.client.send(99, MetadataRequest([]))


async def test_a_broker_that_does_not_answer_is_a_timeout(cluster: EmbeddedCluster) -> None:
    servers = cluster.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers, request_timeout_ms=300) as producer:
        await producer.client.send(1, MetadataRequest([]))
        cluster.freeze_broker(1)
        with pytest.raises(aiokafka.errors.RequestTimedOutError):
            await producer.client.send(1, MetadataRequest([]))
        cluster.thaw_broker(1)


@pytest.mark.parametrize(
    "request_",
    [SaslHandShakeRequest("PLAIN"), ProduceRequest(None, 1, 1000, [])],
)
async def test_requests_that_would_write_or_authenticate_are_refused(
    producer: AIOKafkaProducer, request_: Any
) -> None:
    with pytest.raises(aiokafka.errors.IllegalArgumentError, match="cannot be sent here"):
        await producer.client.send(1, request_)


async def test_what_is_no_request_is_a_type_error(producer: AIOKafkaProducer) -> None:
    with pytest.raises(TypeError, match="not str"):
        await producer.client.send(1, "CreateTopics")


async def test_requests_of_the_program_delay_no_record(
    cluster: EmbeddedCluster, producer: AIOKafkaProducer
) -> None:
    await producer.send_and_wait("u", b"v")
    await producer.client.send(1, MetadataRequest([]))
    requests = producer.client._requests
    connection = producer._own_connection
    assert requests is not None
    assert connection is not None
    assert requests._client is not connection._usable().client


async def test_after_stop_the_view_stays_and_requests_are_refused(
    cluster: EmbeddedCluster,
) -> None:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.client.send(1, MetadataRequest([]))
        await producer.client.close()
        await producer.client.send(1, MetadataRequest([]))
        await producer.client._wait_on_metadata("u")
    assert producer._metadata.partitions_for_topic("u") == {0, 1, 2}
    assert producer.client.api_version >= (0, 11)
    for call in (
        lambda: producer.client.send(1, MetadataRequest([])),
        lambda: producer.client._wait_on_metadata("t"),
        producer.client.force_metadata_update,
        lambda: producer.client.add_topic("t"),
    ):
        with pytest.raises(aiokafka.errors.ProducerClosed):
            await call()


@pytest.mark.parametrize(("produce", "has_headers"), [((3, 9), True), ((0, 2), False)])
async def test_the_api_version_shows_whether_brokers_store_headers(
    produce: tuple[int, int], has_headers: bool
) -> None:
    settings = ClusterSettings(api_versions={ApiKey.PRODUCE: produce})
    async with (
        EmbeddedCluster(1, settings=settings) as cluster,
        AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        assert (producer.client.api_version >= (0, 11)) is has_headers


# -- instrumentation ---------------------------------------------------------------------------


async def test_a_send_that_was_replaced_in_the_class_sees_send_and_wait(
    producer: AIOKafkaProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    class Bound:
        """A proxy of a bound method, with the method's own attributes, as `wrapt` makes it."""

        def __init__(self, method: Any) -> None:
            self.method = method

        def __getattr__(self, name: str) -> Any:
            return getattr(self.method, name)

        async def __call__(self, *args: Any, **kwargs: Any) -> Any:
            seen.append((self.method.__self__.client._client_id, args[0]))
            return await self.method(*args, **kwargs)

    class Wrapper:
        def __init__(self, function: Any) -> None:
            self.function = function

        def __get__(self, instance: Any, owner: Any) -> Any:
            return self if instance is None else Bound(self.function.__get__(instance, owner))

    monkeypatch.setattr(AIOKafkaProducer, "send", Wrapper(AIOKafkaProducer.send))
    await producer.send_and_wait("u", b"v", key=b"k")
    assert seen == [(producer.client._client_id, "u")]


async def test_marks_of_other_programs_stay_on_the_client(producer: AIOKafkaProducer) -> None:
    marked: Any = producer.client
    marked._dd_cluster_id = "c"
    assert getattr(producer.client, "_dd_cluster_id", None) == "c"


async def test_health_checks_of_programs_find_the_sender_and_the_brokers(
    cluster: EmbeddedCluster,
) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    assert producer._sender.sender_task is None
    assert producer._txn_manager is None
    await producer.start()
    task = producer._sender.sender_task
    assert task is not None
    assert not task.done()
    assert getattr(producer._sender, "_sender_task", None) is task
    await producer.client.bootstrap()
    assert await producer.client.cluster.request_update() is producer.client.cluster
    found = await producer.client.fetch_all_metadata()
    assert {"t", "u"} <= found.topics()
    assert len(found.brokers()) == 2
    await producer.stop()
    assert task.done()


async def test_a_broker_is_ready_while_it_answers(cluster: EmbeddedCluster) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=300
    ) as producer:
        node_id = producer.client.get_random_node()
        assert node_id is not None
        assert await producer.client.ready(node_id, group=1)
        assert not await producer.client.ready(99)
        cluster.freeze_broker(node_id)
        assert not await producer.client.ready(node_id)


async def test_no_broker_is_ready_before_the_start_and_after_the_end(
    cluster: EmbeddedCluster,
) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    client = producer.client
    assert not await client.ready(client.get_random_node())
    await producer.start()
    assert await client.ready(client.get_random_node())
    assert not await client.ready(None)
    await producer.stop()
    assert not await client.ready(client.get_random_node())


async def test_a_broker_that_has_stopped_is_not_ready(
    cluster: EmbeddedCluster, producer: AIOKafkaProducer
) -> None:
    assert await producer.client.ready(2)
    await cluster.stop_broker(2)
    assert not await producer.client.ready(2)


async def test_bootstrap_of_a_cluster_that_is_gone_raises(cluster: EmbeddedCluster) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=300)
    with pytest.raises(aiokafka.errors.IllegalStateError):
        await producer.client.bootstrap()
    await producer.start()
    await cluster.stop()
    with pytest.raises(aiokafka.errors.KafkaConnectionError, match="300 ms"):
        await producer.client.bootstrap()
    with pytest.raises(aiokafka.errors.KafkaError):
        await producer.client.fetch_all_metadata()
    with pytest.raises(aiokafka.errors.KafkaError):
        await producer.client.cluster.request_update()
    await producer.stop()


async def test_programs_ask_the_transaction_manager_for_its_state(
    cluster: EmbeddedCluster,
) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="one")
    manager = producer._txn_manager
    assert manager is not None
    assert manager.transactional_id == "one"
    assert (manager.is_in_transaction(), manager.is_fatal_error()) == (False, False)
    await producer.start()
    async with producer.transaction():
        assert manager.is_in_transaction()
    assert (manager.is_in_transaction(), manager.is_fatal_error()) == (False, False)
    await producer.stop()
