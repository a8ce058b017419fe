"""The unmodified producer on virtual time, at brokers from before RecordBatch v2."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatch
from aiokafka.record.memory_records import MemoryRecords
from net.virtual import MemoryDialer, virtual_time
from support.dialed import DialedProducer
from support.hostile import Peer, Ranges

from aioproducer import ProducerConfig
from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.errors import UnsupportedVersionError
from aioproducer.net.legacy_brokers import ranges_of_old_broker
from aioproducer.net.versions import BrokerVersions
from aioproducer.records.reader import read_batches
from aioproducer.runtime.legacy_brokers import refuse_what_they_lack
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.wire.messages.list_offsets import ListOffsetsResponse
from aioproducer.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

KAFKA_0_10: Ranges = {ApiKey.PRODUCE: (0, 2), ApiKey.METADATA: (0, 2), ApiKey.API_VERSIONS: (0, 0)}
KAFKA_4: Ranges = {ApiKey.PRODUCE: (3, 9), ApiKey.METADATA: (0, 4), ApiKey.API_VERSIONS: (0, 1)}
KAFKA_0_11: Ranges = {ApiKey.PRODUCE: (0, 3), ApiKey.METADATA: (0, 4), ApiKey.API_VERSIONS: (0, 1)}


class Broker:
    """A broker of one partition that keeps what it is sent, and closes on `refusals` of it.

    Without `ranges` it is one from before ApiVersions, and closes the connection on it.
    """

    def __init__(self, ranges: Ranges | None, *, topics: bool = True) -> None:
        self.ranges = ranges
        self.has_topics = topics
        self.refusals = 0
        self.has_refused = asyncio.Event()
        self.versions: list[int] = []
        self.sets: list[bytes] = []
        self.identities_asked: list[InitProducerIdRequest] = []

    async def __call__(self, peer: Peer) -> None:
        if self.ranges is not None:
            await peer.handshake(self.ranges)
        while True:
            header = await peer.request()
            ranges: Mapping[int, tuple[int, int]] = (
                self.ranges or ranges_of_old_broker("0.8.2") or {}
            )
            if header.api_key not in ranges:
                return
            assert header.api_version <= ranges[header.api_key][1]
            if header.api_key == ApiKey.LIST_OFFSETS:
                peer.respond(header, ListOffsetsResponse())
            elif header.api_key == ApiKey.METADATA:
                request = MetadataRequest.decode(header.body, header.api_version)
                peer.respond(header, self._metadata(request))
            elif header.api_key == ApiKey.INIT_PRODUCER_ID:
                asked = InitProducerIdRequest.decode(header.body, header.api_version)
                self.identities_asked.append(asked)
                peer.respond(header, InitProducerIdResponse(producer_id=7, producer_epoch=0))
            elif self.refusals:
                self.refusals -= 1
                self.has_refused.set()
                return
            else:
                peer.respond(header, self._take(header.body, header.api_version))

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        if not self.has_topics and not request.topics:
            return MetadataResponse()
        partition = MetadataResponsePartition(partition_index=0, leader_id=1)
        names = [topic.name for topic in request.topics or ()]
        topics = [MetadataResponseTopic(name=name, partitions=[partition]) for name in names]
        return MetadataResponse(brokers=[MetadataResponseBroker(1, "broker", 9092)], topics=topics)

    def _take(self, body: memoryview, version: int) -> ProduceResponse:
        self.versions.append(version)
        (topic,) = ProduceRequest.decode(body, version).topic_data
        (partition,) = topic.partition_data
        self.sets.append(bytes(partition.records or b""))
        answer = PartitionProduceResponse(index=0, base_offset=10 * len(self.sets))
        response = TopicProduceResponse(name=topic.name, partition_responses=[answer])
        return ProduceResponse(responses=[response])

    def values(self, magic: int) -> list[bytes]:
        """The messages that came in message sets of one format."""
        found = []
        for data in self.sets:
            records = MemoryRecords(data)
            while (batch := records.next_batch()) is not None:
                assert isinstance(batch, LegacyRecordBatch)
                assert batch.validate_crc()
                found += [record.value for record in batch]
                assert data[16] == magic
        return found


def producer_at(broker: Broker, **options: Any) -> tuple[MemoryDialer, DialedProducer]:
    dialer = MemoryDialer({"broker": broker})
    return dialer, DialedProducer(dialer, bootstrap_servers="broker:9092", **options)


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize(
    ("ranges", "magic", "version"), [(None, 0, 0), (KAFKA_0_10, 1, 2)], ids=["0.8", "0.10"]
)
def test_old_brokers_get_message_sets_they_understand(ranges, magic, version, codec) -> None:
    @virtual_time
    async def run() -> None:
        broker = Broker(ranges)
        dialer, producer = producer_at(broker, compression_type=codec, linger_ms=5)
        values = [b"value " * 9 + b"%d" % number for number in range(50)]
        async with producer:
            deliveries = [await producer.send("t", value) for value in values]
            offsets = [(await delivery).offset for delivery in deliveries]
        assert broker.values(magic) == values
        assert set(broker.versions) == {version}
        assert offsets == list(range(10, 60))
        await dialer.shut_down()

    run()


@pytest.mark.parametrize(("ranges", "magic"), [(None, 0), (KAFKA_0_10, 1)], ids=["0.8", "0.10"])
def test_old_brokers_get_message_sets_of_single_records_too(ranges, magic) -> None:
    @virtual_time
    async def run() -> None:
        broker = Broker(ranges)
        dialer, producer = producer_at(broker, linger_ms=0)
        values = [b"%d" % number for number in range(4)]
        async with producer:
            for value in values:
                await producer.send_and_wait("t", value)
                await asyncio.sleep(0.01)
        assert broker.values(magic) == values
        await dialer.shut_down()

    run()


@pytest.mark.parametrize(
    ("ranges", "takes"),
    [(None, False), (KAFKA_0_10, False), (KAFKA_0_11, True)],
    ids=["0.8", "0.10", "0.11"],
)
def test_a_producer_has_whether_the_brokers_take_headers(ranges, takes) -> None:
    @virtual_time
    async def run() -> None:
        dialer, producer = producer_at(Broker(ranges))
        async with producer:
            assert producer._engine is not None
            assert producer._engine.appender.takes_headers is takes
        await dialer.shut_down()

    run()


@virtual_time
async def test_a_cluster_of_0_8_without_topics_names_no_brokers_and_is_started_against() -> None:
    broker = Broker(None, topics=False)
    dialer, producer = producer_at(broker)
    async with producer:
        assert (await producer.send_and_wait("t", b"x")).offset == 10
    await dialer.shut_down()


@virtual_time
async def test_idempotence_by_default_is_left_out_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker(KAFKA_0_10)
    dialer, producer = producer_at(broker)
    with caplog.at_level(logging.WARNING, "aioproducer"):
        async with producer:
            for _ in range(3):
                await producer.send_and_wait("t", b"x")
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == [
        "the brokers give no producer ids"
    ]
    await dialer.shut_down()


@pytest.mark.parametrize("ranges", [None, KAFKA_0_10], ids=["0.8", "0.10"])
@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"enable_idempotence": True}, "idempotence"),
        ({"transactional_id": "t"}, "transactions"),
        ({"compression_type": "zstd"}, "zstd"),
    ],
)
def test_what_was_asked_for_and_they_lack_is_refused_at_the_start(ranges, options, what) -> None:
    @virtual_time
    async def run() -> None:
        dialer, producer = producer_at(Broker(ranges), **options)
        with pytest.raises(UnsupportedVersionError, match=what):
            await producer.start()
        await dialer.shut_down()

    run()


@pytest.mark.parametrize(
    ("options", "oldest"),
    [
        ({}, 0),
        ({"compression_type": "gzip"}, 0),
        ({"enable_idempotence": False}, 0),
        ({"enable_idempotence": True}, 3),
        ({"transactional_id": "t"}, 3),
        ({"compression_type": "zstd"}, 7),
    ],
)
def test_each_option_has_an_oldest_version_of_produce_that_supports_it(
    options: dict[str, Any], oldest: int
) -> None:
    config = ProducerConfig(bootstrap_servers="broker:9092", **options)
    for version in range(oldest):
        with pytest.raises(UnsupportedVersionError):
            refuse_what_they_lack(config, version)
    for version in (oldest, oldest + 1, 13, None):
        refuse_what_they_lack(config, version)


@virtual_time
async def test_headers_are_refused_by_the_call_and_cost_no_neighbour() -> None:
    broker = Broker(KAFKA_0_10)
    dialer, producer = producer_at(broker, linger_ms=5)
    async with producer:
        deliveries = []
        for value in (b"a", b"b"):
            deliveries.append(await producer.send("t", value))
            with pytest.raises(UnsupportedVersionError, match="headers"):
                await producer.send("t", b"with", headers=[("name", b"x")])
            with pytest.raises(UnsupportedVersionError, match="headers"):
                producer.send_nowait("t", b"with", headers=[("name", b"x")])
        await asyncio.gather(*deliveries)
    assert broker.values(1) == [b"a", b"b"]
    await dialer.shut_down()


@virtual_time
async def test_a_batch_made_for_an_old_broker_is_made_anew_for_an_upgraded_one() -> None:
    broker = Broker(KAFKA_0_10)
    broker.refusals = 1
    dialer, producer = producer_at(broker)
    async with producer:
        delivery = await producer.send("t", b"x")
        await broker.has_refused.wait()
        broker.ranges = KAFKA_0_11
        assert (await delivery).offset == 10
    assert broker.versions == [3]
    assert [r.value for batch in read_batches(broker.sets[0]) for r in batch.records()] == [b"x"]
    await dialer.shut_down()


@virtual_time
async def test_a_broker_upgraded_during_the_compression_gets_what_it_takes() -> None:
    broker = Broker(KAFKA_0_10)
    dialer, producer = producer_at(
        broker, compression_type="gzip", compression_threads_threshold_bytes=0
    )
    async with producer:
        engine = producer._engine
        assert engine is not None
        encoder, client = engine._encoder, engine.client
        magics: list[int] = []

        async def encode_and_upgrade(batches: list[ProducerBatch], magic: int) -> None:
            magics.append(magic)
            encoder._threshold = 1 << 30  # virtual time waits for no thread
            encoder.encode_inline(batches, magic)
            broker.ranges = KAFKA_4
            client._brokers[1].versions = BrokerVersions(KAFKA_4)

        encoder.encode = encode_and_upgrade
        assert (await producer.send_and_wait("t", b"x")).offset == 10
    assert magics == [1]
    assert broker.versions == [9]
    await dialer.shut_down()


def test_brokers_of_0_11_get_sequence_numbers() -> None:
    @virtual_time
    async def run() -> None:
        broker = Broker({**KAFKA_0_11, ApiKey.INIT_PRODUCER_ID: (0, 0)})
        dialer, producer = producer_at(broker, enable_idempotence=True)
        async with producer:
            for number in range(3):
                await producer.send_and_wait("t", b"%d" % number)
        assert set(broker.versions) == {3}
        batches = [batch for data in broker.sets for batch in read_batches(data)]
        assert [(batch.producer_id, batch.base_sequence) for batch in batches] == [
            (7, 0),
            (7, 1),
            (7, 2),
        ]
        (asked,) = broker.identities_asked
        assert (asked.transactional_id, asked.transaction_timeout_ms) == (None, 2**31 - 1)
        await dialer.shut_down()

    run()
