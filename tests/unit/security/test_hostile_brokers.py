"""Answers of a broker that are well-formed and hostile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import pytest

from aioproducer import Producer
from aioproducer.errors import NotLeaderOrFollowerError
from aioproducer.records.reader import read_batches
from aioproducer.testing.framing import REQUEST_TYPES, RequestHeader
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.init_producer_id import InitProducerIdResponse
from aioproducer.wire.messages.metadata import (
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
from aioproducer.wire.schema import Message
from tests.support.hostile import HostileServer, Peer, versions_response

Answer = Callable[[], Message]


class Broker:
    """A broker with the topic `t`; `answers` are made in place of the usual ones."""

    def __init__(self, answers: Mapping[ApiKey, Answer]) -> None:
        self.port = 0
        self.asked: list[ApiKey] = []
        self.produced: list[ProduceRequest] = []
        self._answers = answers
        self._news = asyncio.Event()

    async def has_answered(self, key: ApiKey, times: int) -> None:
        """Returns when it was asked so often."""
        async with asyncio.timeout(30):
            while self.asked.count(key) < times:
                self._news.clear()
                await self._news.wait()

    async def __call__(self, peer: Peer) -> None:
        while True:
            header = await peer.request()
            key = ApiKey(header.api_key)
            self.asked.append(key)
            self._news.set()
            given = self._answers.get(key)
            peer.respond(header, self._usual(key, header) if given is None else given())

    def metadata(self, cluster_id: str = "c") -> MetadataResponse:
        partition = MetadataResponsePartition(0, 0, 0, 1, [0], [0], [])
        return MetadataResponse(
            brokers=[MetadataResponseBroker(0, "127.0.0.1", self.port, None)],
            cluster_id=cluster_id,
            controller_id=0,
            topics=[MetadataResponseTopic(0, "t", UUID(int=7), False, [partition])],
        )

    def _usual(self, key: ApiKey, header: RequestHeader) -> Message:
        if key is ApiKey.API_VERSIONS:
            return versions_response()
        if key is ApiKey.METADATA:
            return self.metadata()
        if key is ApiKey.INIT_PRODUCER_ID:
            return InitProducerIdResponse(producer_id=5, producer_epoch=0)
        if key is not ApiKey.PRODUCE:
            return REQUEST_TYPES[key].RESPONSE()
        request = ProduceRequest.decode(header.body, header.api_version)
        self.produced.append(request)
        (topic,) = request.topic_data
        acknowledged = [PartitionProduceResponse(0, 0, len(self.produced), -1, 0)]
        topics = [TopicProduceResponse(topic.name, topic.topic_id, acknowledged)]
        return ProduceResponse(responses=topics)


def producer_of(broker: Broker, **options: Any) -> Producer:
    return Producer(
        bootstrap_servers=f"127.0.0.1:{broker.port}",
        linger_ms=0,
        retry_backoff_ms=5,
        retry_backoff_max_ms=10,
        max_block_ms=5000,
        **options,
    )


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, -1), (-7, 0), (3, -1)])
async def test_a_producer_id_that_is_none_is_not_used(producer_id: int, epoch: int) -> None:
    none = InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
    given = iter([none, none, InitProducerIdResponse(producer_id=5, producer_epoch=2)])
    broker = Broker({ApiKey.INIT_PRODUCER_ID: lambda: next(given)})
    async with HostileServer(broker) as server:
        broker.port = server.port
        async with producer_of(broker) as producer:
            await producer.send_and_wait("t", b"v")
    (request,) = broker.produced
    (batch,) = read_batches(bytes(request.topic_data[0].partition_data[0].records or b""))
    assert (batch.producer_id, batch.producer_epoch) == (5, 2)


async def test_a_cluster_id_that_changes_with_each_answer_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids = iter(range(10_000))
    moved = PartitionProduceResponse(0, NotLeaderOrFollowerError.code, -1, -1, -1)
    refused = ProduceResponse(responses=[TopicProduceResponse("t", UUID(int=7), [moved])])
    broker = Broker(
        {
            ApiKey.METADATA: lambda: broker.metadata(f"{next(ids)}" + "x" * 30_000),
            ApiKey.PRODUCE: lambda: refused,
        }
    )
    with caplog.at_level(logging.WARNING, "aioproducer"):
        async with HostileServer(broker) as server:
            broker.port = server.port
            producer = producer_of(broker)
            try:
                await producer.start()
                delivery = await producer.send("t", b"v")
                await broker.has_answered(ApiKey.METADATA, 30)
            finally:
                await producer.close(0)
    assert delivery.done()
    reported = [record for record in caplog.records if "another cluster" in record.getMessage()]
    assert 0 < len(reported) < 10
    assert max(len(record.getMessage()) for record in reported) < 5000
