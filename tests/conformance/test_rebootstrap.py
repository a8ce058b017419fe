"""A cluster that comes back at other addresses, with the same bootstrap name, on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.dialed import DialedProducer
from support.hostile import HostileServer, Peer, obedient

from aioproducer import Producer
from aioproducer.net.dial.dialer import Address, TcpDialer
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.metadata import MetadataResponse

NODES = (1, 2, 3)
QUICK = {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 100, "retry_backoff_ms": 10}


class MovingName(TcpDialer):
    """`kafka.test` is wherever broker 1 of the cluster listens when it is asked for."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        super().__init__()
        self.cluster = cluster

    async def resolve(self, host: str, port: int, *, canonical: bool) -> list[Address]:
        if host == "kafka.test":
            first = self.cluster.state.brokers[1]
            host, port = first.host, first.port
        return await super().resolve(host, port, canonical=canonical)


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=3, topics={"t": 1}) as cluster:
        yield cluster


async def test_a_cluster_that_comes_back_at_other_ports_costs_no_record(
    cluster: EmbeddedCluster,
) -> None:
    async def send_all() -> list[int | None]:
        deliveries = []
        for number in range(100):
            deliveries.append(await producer.send("t", b"%d" % number))
            await asyncio.sleep(0.01)
        return [metadata.offset for metadata in await asyncio.gather(*deliveries)]

    async with DialedProducer(
        MovingName(cluster), bootstrap_servers="kafka.test:9092", **QUICK
    ) as producer:
        await producer.warm_up(["t"])
        sending = asyncio.create_task(send_all())
        await asyncio.sleep(0.2)
        for node_id in NODES:
            await cluster.stop_broker(node_id)
        await asyncio.sleep(0.5)
        assert not sending.done()
        for node_id in NODES:
            await cluster.start_broker(node_id, port=0)
        assert await asyncio.wait_for(sending, 20) == list(range(100))
    read = await read_topic(cluster.bootstrap_servers, "t", timeout_s=20)
    assert [record.value for record in read[0]] == [b"%d" % number for number in range(100)]


async def test_a_start_passes_over_a_broker_that_lists_no_brokers(cluster: EmbeddedCluster) -> None:
    asked = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.handshake()
        peer.respond(await peer.expect(ApiKey.METADATA), MetadataResponse())
        asked.set()
        await obedient(peer)

    for node_id in NODES:
        await cluster.stop_broker(node_id)
    async with HostileServer(behave) as server:
        servers = f"{server.host}:{server.port},{cluster.bootstrap_servers}"
        producer = Producer(bootstrap_servers=servers, max_block_ms=10_000, **QUICK)
        start = asyncio.create_task(producer.start())
        await asked.wait()
        for node_id in NODES:
            await cluster.start_broker(node_id)
        await start
        await producer.send_and_wait("t", b"v")
        await producer.close()
