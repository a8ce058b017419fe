"""The embedded cluster, used by other clients and by hostile peers."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic
from support.confluent import read_all_confluent
from support.foreign import ReaderMissingError
from support.kcat import read_all_kcat

from aioproducer.records.batch import parse_header
from aioproducer.testing import ClusterSettings, EmbeddedCluster, TopicSpec, read_topic, serve
from aioproducer.testing.framing import RequestHeader
from aioproducer.types import TimestampType
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.framing import decode_response, encode_request
from aioproducer.wire.messages.api_versions import ApiVersionsRequest
from aioproducer.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aioproducer.wire.messages.metadata import MetadataRequest
from aioproducer.wire.schema import Message as WireMessage

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    settings = ClusterSettings(verify_records=True)
    async with EmbeddedCluster(3, topics={"t": TopicSpec(3, 3)}, settings=settings) as cluster:
        yield cluster


def rows(count: int, seed: int = 1) -> list[tuple[bytes | None, bytes | None]]:
    rng = random.Random(seed)
    return [
        (
            rng.choice([None, b"", rng.randbytes(8)]),
            rng.choice([None, b"", rng.randbytes(100), b"abc" * 300]),
        )
        for _ in range(count)
    ]


async def produce(
    servers: str, topic: str, records: list[Any], options: Mapping[str, Any] | None = None
) -> list[tuple[KafkaError | None, Message]]:
    """Send records with confluent-kafka and await its reports."""

    def send() -> list[tuple[KafkaError | None, Message]]:
        producer = Producer(
            {"bootstrap.servers": servers, "log_level": 2, "linger.ms": 5} | (options or {})
        )
        reports: list[tuple[KafkaError | None, Message]] = []
        for key, value in records:
            producer.produce(
                topic,
                value,
                key,
                headers=[("h", b"1"), ("h", None)],
                on_delivery=lambda error, message: reports.append((error, message)),
            )
        assert producer.flush(30) == 0
        return reports

    return await asyncio.to_thread(send)


class Peer:
    """A connection that sends what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, request: WireMessage, version: int, correlation_id: int) -> None:
        self.writer.write(encode_request(request, version, correlation_id, "tests"))

    async def receive(self, request_type: type[WireMessage], version: int) -> tuple[int, Any]:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return decode_response(request_type, version, await self.reader.readexactly(size))

    async def is_closed_by_broker(self) -> bool:
        async with asyncio.timeout(5):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True


@asynccontextmanager
async def peer_of(cluster: EmbeddedCluster, node_id: int = 1) -> AsyncIterator[Peer]:
    node = cluster.state.brokers[node_id]
    peer = Peer(*await asyncio.open_connection(node.host, node.port))
    try:
        yield peer
    finally:
        peer.writer.close()
        with suppress(OSError):
            await peer.writer.wait_closed()


async def long_poll_of(cluster: EmbeddedCluster) -> None:
    """Return once a fetch waits for t-0."""
    async with asyncio.timeout(5):
        while not cluster.long_polls("t", 0):  # noqa: ASYNC110 - a wait's start is no event
            await asyncio.sleep(0)


@pytest.mark.parametrize("codec", CODECS)
async def test_confluent_kafka_and_our_reader_read_what_confluent_kafka_wrote(
    cluster: EmbeddedCluster, codec: str
) -> None:
    sent = rows(600)
    options = {"compression.type": codec, "enable.idempotence": True}
    reports = await produce(cluster.bootstrap_servers, "t", sent, options)
    assert [error for error, _ in reports if error] == []
    stored = [
        parse_header(batch.data)
        for partition in cluster.state.topics["t"].partitions
        for batch in partition.log.batches
    ]
    assert codec.upper() in {header.codec.name for header in stored}

    foreign = await read_all_confluent(cluster.bootstrap_servers, "t", timeout_s=30)
    ours = await read_topic(cluster.bootstrap_servers, "t", timeout_s=30)
    assert sorted((each.key or b"", each.value or b"") for each in foreign) == sorted(
        (key or b"", value or b"") for key, value in sent
    )
    assert {(each.partition, each.offset, each.key, each.value) for each in foreign} == {
        (partition, each.offset, each.key, each.value)
        for partition, records in ours.items()
        for each in records
    }
    assert {each.headers for each in foreign} == {(("h", b"1"), ("h", None))}


async def test_kcat_reads_what_confluent_kafka_wrote(cluster: EmbeddedCluster) -> None:
    sent = rows(300)
    await produce(cluster.bootstrap_servers, "t", sent, {"compression.type": "lz4"})
    try:
        found = await read_all_kcat(cluster.bootstrap_servers, "t", timeout_s=30)
    except ReaderMissingError as missing:
        pytest.skip(str(missing))
    assert sorted((each.key or b"", each.value or b"") for each in found) == sorted(
        (key or b"", value or b"") for key, value in sent
    )


async def test_confluent_kafka_administers_topics(cluster: EmbeddedCluster) -> None:
    def administer() -> str:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
        admin.create_topics([NewTopic("new", 2, 2, config={"cleanup.policy": "compact"})])[
            "new"
        ].result(10)
        admin.create_partitions([NewPartitions("new", 5)])["new"].result(10)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "new")
        options = admin.describe_configs([resource])[resource].result(10)
        admin.delete_topics(["t"])["t"].result(10)
        assert set(admin.list_topics(timeout=10).topics) == {"new"}
        return str(options["cleanup.policy"].value)

    assert await asyncio.to_thread(administer) == "compact"
    assert len(cluster.state.topics["new"].partitions) == 5


async def test_log_append_time_is_what_consumers_see(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("lat", TopicSpec(1, 1, {"message.timestamp.type": "LogAppendTime"}))
    reports = await produce(
        cluster.bootstrap_servers, "lat", rows(50), {"compression.type": "gzip"}
    )
    found = await read_all_confluent(cluster.bootstrap_servers, "lat", timeout_s=30)
    assert {each.timestamp_type for each in found} == {TimestampType.LOG_APPEND_TIME}
    assert [each.timestamp for each in found] == [message.timestamp()[1] for _, message in reports]


async def test_batch_above_the_topics_limit_fails_at_the_client(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("small", TopicSpec(1, 1, {"max.message.bytes": "200"}))
    reports = await produce(cluster.bootstrap_servers, "small", [(None, b"x" * 300)])
    assert [error.name() for error, _ in reports if error] == ["MSG_SIZE_TOO_LARGE"]


async def test_foreign_producer_survives_faults_without_losing_or_repeating_a_record(
    cluster: EmbeddedCluster,
) -> None:
    faults = cluster.state.faults
    scripted = [
        faults.error(ApiKey.PRODUCE, 6, partition=0),
        faults.error(ApiKey.PRODUCE, 20, partition=1, apply=True),
        faults.drop(ApiKey.PRODUCE, apply=True, skip=2),
        faults.delay(30, ApiKey.PRODUCE),
    ]
    sent = [(b"k%d" % index, b"v%d" % index) for index in range(900)]
    options = {"enable.idempotence": True, "batch.num.messages": 50, "retry.backoff.ms": 10}
    reports = await produce(cluster.bootstrap_servers, "t", sent, options)
    assert [error for error, _ in reports if error] == []
    found = await read_topic(cluster.bootstrap_servers, "t")
    values = [each.value for records in found.values() for each in records]
    assert sorted(values, key=str) == sorted((value for _, value in sent), key=str)
    assert [fault.struck for fault in scripted] == [1, 1, 1, 1]


async def test_stopped_broker_refuses_connections_and_comes_back_on_its_port(
    cluster: EmbeddedCluster,
) -> None:
    port = cluster.state.brokers[1].port
    async with peer_of(cluster) as peer:
        await cluster.stop_broker(1)
        assert await peer.is_closed_by_broker()
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        async with peer_of(cluster):
            pass
    assert {each.leader for each in cluster.state.topics["t"].partitions} == {2, 3}
    reports = await produce(cluster.bootstrap_servers, "t", rows(30))
    assert [error for error, _ in reports if error] == []
    await cluster.start_broker(1)
    assert cluster.state.brokers[1].port == port
    assert cluster.move_leader("t", 0, 1) == 1
    reports = await produce(cluster.bootstrap_servers, "t", rows(30))
    assert [error for error, _ in reports if error] == []


async def test_broker_may_come_back_on_another_port(cluster: EmbeddedCluster) -> None:
    old = cluster.state.brokers[1].port
    await cluster.stop_broker(1)
    await cluster.start_broker(1, port=0)
    assert cluster.state.brokers[1].port != old
    async with peer_of(cluster) as peer:
        peer.send(MetadataRequest(topics=[]), 9, 1)
        _, response = await peer.receive(MetadataRequest, 9)
    assert response.brokers[0].port == cluster.state.brokers[1].port


async def test_frozen_broker_answers_after_the_thaw(cluster: EmbeddedCluster) -> None:
    async with peer_of(cluster) as peer:
        cluster.freeze_broker(1)
        peer.send(MetadataRequest(topics=[]), 9, 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await peer.reader.readexactly(1)
        cluster.thaw_broker(1)
        assert (await peer.receive(MetadataRequest, 9))[0] == 1


async def test_pipelined_requests_are_answered_in_order(cluster: EmbeddedCluster) -> None:
    cluster.state.faults.delay(20, ApiKey.METADATA, skip=1)
    async with peer_of(cluster) as peer:
        for number in range(20):
            peer.send(MetadataRequest(topics=[]), number % 13, number)
        answers = [await peer.receive(MetadataRequest, number % 13) for number in range(20)]
    assert [correlation_id for correlation_id, _ in answers] == list(range(20))


async def test_long_poll_wakes_on_append(cluster: EmbeddedCluster) -> None:
    wanted = FetchPartition(partition=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=20_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[wanted])]
    )
    async with asyncio.timeout(10), peer_of(cluster) as peer:
        peer.send(request, 11, 1)
        answer = asyncio.create_task(peer.receive(FetchRequest, 11))
        await long_poll_of(cluster)
        await produce(cluster.bootstrap_servers, "t", [(b"k%d" % n, b"v") for n in range(30)])
        _, response = await answer
    assert response.responses[0].partitions[0].high_watermark > 0


async def test_throttled_client_is_not_read_from(cluster: EmbeddedCluster) -> None:
    cluster.state.faults.throttle(200, ApiKey.METADATA)
    loop = asyncio.get_running_loop()
    async with peer_of(cluster) as peer:
        began = loop.time()
        peer.send(MetadataRequest(topics=[]), 9, 1)
        peer.send(MetadataRequest(topics=[]), 9, 2)
        _, first = await peer.receive(MetadataRequest, 9)
        assert first.throttle_time_ms == 200
        await peer.receive(MetadataRequest, 9)
        assert loop.time() - began >= 0.19


HOSTILE_FRAMES = {
    "a negative size": struct.pack(">i", -1),
    "a size of two gigabytes": struct.pack(">i", 2**31 - 1),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("160301007a0100007603"),
    "an empty frame": struct.pack(">i", 0),
    "an unknown API": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "half a Metadata request": struct.pack(">ihhihi", 14, 3, 1, 1, -1, 5),
    "an array of two billion topics": struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
    "a client id that is too long": struct.pack(">ihhih", 10, 3, 1, 1, 30_000),
    "produce in a retired version": struct.pack(">ihhih", 10, 0, 2, 1, -1),
}


@pytest.mark.parametrize("what", HOSTILE_FRAMES)
async def test_hostile_frame_costs_its_connection_and_nothing_else(
    cluster: EmbeddedCluster, what: str
) -> None:
    async with peer_of(cluster) as good, peer_of(cluster) as bad:
        bad.writer.write(HOSTILE_FRAMES[what])
        assert await bad.is_closed_by_broker()
        good.send(MetadataRequest(topics=[]), 9, 1)
        assert (await good.receive(MetadataRequest, 9))[0] == 1


async def test_random_bytes_never_crash_a_broker(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(5)
    for _ in range(60):
        body = struct.pack(
            ">hhih", rng.choice([0, 1, 2, 3, 18, 19, 20, 37]), rng.randrange(14), 1, -1
        ) + rng.randbytes(rng.randrange(80))
        async with peer_of(cluster) as peer:
            peer.writer.write(struct.pack(">i", len(body)) + body)
            peer.writer.write_eof()
            await peer.is_closed_by_broker()
    assert "failed at a request" not in caplog.text
    async with peer_of(cluster) as good:
        good.send(ApiVersionsRequest(), 0, 1)
        assert (await good.receive(ApiVersionsRequest, 0))[1].error_code == 0


async def test_request_above_the_size_limit_closes_the_connection() -> None:
    settings = ClusterSettings(max_request_bytes=1000)
    async with EmbeddedCluster(1, settings=settings) as cluster, peer_of(cluster) as peer:
        peer.writer.write(struct.pack(">i", 1001))
        assert await peer.is_closed_by_broker()


async def test_failure_inside_a_broker_costs_one_connection_and_is_logged(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(node_id: int, header: RequestHeader, now_ms: int, **_: Any) -> None:
        raise RuntimeError("a bug")

    async with peer_of(cluster) as peer:
        with monkeypatch.context() as patch:
            patch.setattr(cluster.state, "respond", fail)
            peer.send(MetadataRequest(topics=[]), 9, 1)
            assert await peer.is_closed_by_broker()
    assert "a bug" in caplog.text
    async with peer_of(cluster) as peer:
        peer.send(MetadataRequest(topics=[]), 9, 1)
        assert (await peer.receive(MetadataRequest, 9))[0] == 1


async def test_stopping_leaves_no_connection_even_one_in_a_long_poll(
    cluster: EmbeddedCluster,
) -> None:
    wanted = FetchPartition(partition=0, partition_max_bytes=1)
    request = FetchRequest(
        max_wait_ms=20_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[wanted])]
    )
    async with peer_of(cluster) as peer:
        peer.send(request, 11, 1)
        await long_poll_of(cluster)
        assert cluster.connection_count(1) == 1
        await cluster.stop()
        assert cluster.connection_count(1) == 0
        assert await peer.is_closed_by_broker()
    await cluster.stop()


async def test_taken_port_is_an_error_and_leaves_nothing_open() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        cluster = EmbeddedCluster(2, ports=[0, taken.getsockname()[1]])
        with pytest.raises(OSError, match="in use"):
            await cluster.start()


async def test_serve_runs_until_cancelled_and_says_when_it_is_ready() -> None:
    ready: asyncio.Future[EmbeddedCluster] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(2, base_port=0, topics={"orders": 4}, on_ready=ready.set_result)
    )
    cluster = await ready
    assert len(cluster.bootstrap_servers.split(",")) == 2
    assert {index: [] for index in range(4)} == await read_topic(
        cluster.bootstrap_servers, "orders"
    )
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
