"""Opening of connections, and brokers that close idle ones (`connections.max.idle.ms`)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from support.security.certificates import Authority
from support.sockets import in_close_wait, ports_of
from support.waiting import until

from aioproducer import Producer
from aioproducer.testing.broker import ClusterSettings
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.security import ListenerSecurity

NODES = (1, 2, 3)
SHORT_TIMEOUTS = ClusterSettings(connections_max_idle_ms=100)


def connections(cluster: EmbeddedCluster) -> int:
    return sum(map(cluster.connection_count, NODES))


async def test_connections_open_to_one_server_first_and_to_leaders_when_they_are_needed() -> None:
    async with (
        EmbeddedCluster(3, topics={"t": 3}) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer,
    ):
        assert connections(cluster) == 1
        for info in await producer.partitions_for("t"):
            await producer.send_and_wait("t", b"v", partition=info.partition)
            assert info.leader is not None
            assert cluster.connection_count(info.leader) >= 1
        # One per broker, and that to the bootstrap server.
        assert connections(cluster) <= len(NODES) + 1


def is_quiet(producer: Producer) -> bool:
    """Nothing is under way, and nothing is about to be."""
    engine = producer._engine
    assert engine is not None
    busy = any(link.is_dialing or link.in_flight for link in engine.client._links())
    now = engine.loop.time()
    return not busy and engine.metadata.next_update_at(now) > now + 60


async def close_idle(cluster: EmbeddedCluster) -> None:
    """The behaviour of brokers when the idle time is over."""
    servers = cluster._servers.values()
    idle = {writer for server in servers for writer in server._writers}
    assert idle
    for writer in idle:
        writer.close()
    await until(lambda: not any(idle & server._writers for server in servers))


@pytest.mark.parametrize("acks", ["all", 0])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
async def test_brokers_that_close_first_leave_no_socket_no_warning_and_cost_no_retry(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, acks: Any, tls: bool
) -> None:
    options: dict[str, Any] = {"acks": acks, "enable_idempotence": acks == "all", "linger_ms": 0}
    security = None
    if tls:
        authority = Authority()
        identity = authority.issue("broker", "127.0.0.1")
        security = ListenerSecurity(ssl_context=authority.server_context(identity, tmp_path))
        options["security_protocol"] = "SSL"
        options["ssl_truststore_certificates"] = authority.pem
    async with (
        EmbeddedCluster(3, topics={"t": 3}, security=security) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer,
    ):
        ports = ports_of(cluster.bootstrap_servers)
        with caplog.at_level(logging.INFO):
            for _ in range(3):
                for partition in range(3):
                    await producer.send_and_wait("t", b"v", partition=partition)
                await until(lambda: is_quiet(producer))
                await close_idle(cluster)
                await until(lambda: in_close_wait(ports) == [])
        assert producer.metrics()["record_retry_total"] == 0
        assert producer.metrics()["record_error_total"] == 0
    ours = [record for record in caplog.records if "testing" not in record.name]
    assert ours == []


async def test_an_idle_producer_stays_ready_until_it_finds_the_brokers_gone() -> None:
    async with (
        EmbeddedCluster(3, topics={"t": 1}, settings=SHORT_TIMEOUTS) as cluster,
        Producer(
            bootstrap_servers=cluster.bootstrap_servers,
            reconnect_backoff_ms=5,
            reconnect_backoff_max_ms=20,
        ) as producer,
    ):
        await producer.send_and_wait("t", b"v")
        for _ in range(3):
            await until(lambda: not connections(cluster))
            assert producer.health().ready
            await until(lambda: bool(connections(cluster)))
            assert producer.health().ready
        for node_id in NODES:
            await cluster.stop_broker(node_id)
        await until(lambda: not producer.health().ready)
        for node_id in NODES:
            await cluster.start_broker(node_id)
        await until(lambda: producer.health().ready)
