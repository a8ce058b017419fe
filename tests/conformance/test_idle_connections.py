"""Brokers that close idle connections first, as Kafka does after `connections.max.idle.ms`."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from support.sockets import in_close_wait, ports_of
from support.waiting import until

from aioproducer import Producer
from aioproducer.testing.broker import ClusterSettings
from aioproducer.testing.embedded import EmbeddedCluster

NODES = (1, 2, 3)
IMPATIENT = ClusterSettings(connections_max_idle_ms=100)


def connections(cluster: EmbeddedCluster) -> int:
    return sum(map(cluster.connection_count, NODES))


@pytest.mark.parametrize(
    "options",
    [{}, {"acks": 0, "enable_idempotence": False}],
    ids=["acks=all", "acks=0"],
)
async def test_brokers_that_close_first_leave_no_socket_no_warning_and_cost_no_retry(
    caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    async with (
        EmbeddedCluster(3, topics={"t": 3}, settings=IMPATIENT) as cluster,
        # Connections that end before the longest backoff are not replaced unasked.
        Producer(
            bootstrap_servers=cluster.bootstrap_servers,
            linger_ms=0,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=60_000,
            **options,
        ) as producer,
    ):
        ports = ports_of(cluster.bootstrap_servers)
        with caplog.at_level(logging.INFO):
            for _ in range(3):
                for partition in range(3):
                    await producer.send_and_wait("t", b"v", partition=partition)
                await until(lambda: not connections(cluster))
                assert in_close_wait(ports) == []
        assert producer.metrics()["record_retry_total"] == 0
    ours = [record for record in caplog.records if "testing" not in record.name]
    assert ours == []


async def test_an_idle_producer_stays_ready_until_it_finds_the_brokers_gone() -> None:
    async with (
        EmbeddedCluster(3, topics={"t": 1}, settings=IMPATIENT) as cluster,
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
