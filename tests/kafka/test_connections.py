"""Connections to real brokers: through proxies, over IPv6, and closed by the broker when idle.

Tests that start another broker run with AIOPRODUCER_TEST_NETWORK=1, which `make cluster` sets.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clusters import ClusterUnderTest
from support.confluent import read_all_confluent
from support.proxies import Proxy
from support.sockets import in_close_wait, ports_of
from support.waiting import until

from aioproducer import Producer
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.node import BrokerProcess

IDLE_MS = 1000
ROUNDS = 5

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]
own_broker = pytest.mark.skipif(
    not os.environ.get("AIOPRODUCER_TEST_NETWORK"),
    reason="starts another broker: AIOPRODUCER_TEST_NETWORK=1 (make cluster) runs it",
)


@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "http"])
async def test_records_reach_real_brokers_through_a_proxy(
    kafka: ClusterUnderTest, scheme: str
) -> None:
    topic = await kafka.create_topic(partitions=3)
    wanted = {(number % 3, b"%d" % number) for number in range(300)}
    async with (
        Proxy("http" if scheme == "http" else "socks5", ("me", "p w")) as proxy,
        Producer(
            bootstrap_servers=kafka.bootstrap_servers,
            proxy_url=f"{scheme}://me:p%20w@{proxy.place}",
        ) as producer,
    ):
        for partition, value in sorted(wanted):
            await producer.send(topic, value, partition=partition)
        await producer.flush()
        assert {port for _, port in proxy.asked} <= ports_of(kafka.bootstrap_servers)
        assert proxy.accepted == len(proxy.asked) > 0
    read = await read_all_confluent(kafka.bootstrap_servers, topic, "read_uncommitted")
    assert sorted((record.partition, record.value) for record in read) == sorted(wanted)


class IdleClosingBroker(KafkaCluster):
    """One broker that closes what idles for a second, with a listener on IPv6 as well."""

    def __init__(self) -> None:
        super().__init__(
            brokers=1,
            config={"connections.max.idle.ms": str(IDLE_MS)},
            listeners={"SIX": "PLAINTEXT"},
        )

    @property
    def over_ipv6(self) -> str:
        return self.listener("SIX").replace("127.0.0.1", "[::1]")

    def _new_nodes(self, classpath: list[Path], directory: Path) -> dict[int, BrokerProcess]:
        nodes = super()._new_nodes(classpath, directory)
        for node in nodes.values():
            for name in ("listeners", "advertised.listeners"):
                node._settings = dict(node._settings) | {
                    name: node._settings[name].replace("SIX://127.0.0.1", "SIX://[::1]")
                }
        return nodes


@pytest.fixture(scope="module")
def idle_closing() -> Iterator[IdleClosingBroker]:
    with IdleClosingBroker() as broker:
        yield broker


@own_broker
@pytest.mark.parametrize("acks", ["all", 0])
@pytest.mark.parametrize("ipv6", [False, True], ids=["IPv4", "IPv6"])
async def test_a_broker_that_closes_first_leaves_no_socket_no_warning_and_costs_no_retry(
    idle_closing: IdleClosingBroker, caplog: pytest.LogCaptureFixture, ipv6: bool, acks: Any
) -> None:
    servers = idle_closing.over_ipv6 if ipv6 else idle_closing.bootstrap_servers
    async with Producer(
        bootstrap_servers=servers, acks=acks, enable_idempotence=acks == "all", linger_ms=0
    ) as producer:
        engine = producer._engine
        assert engine is not None
        await producer.warm_up([f"idle-{ipv6}-{acks}"])
        with caplog.at_level(logging.INFO, "aioproducer"):
            for _ in range(ROUNDS):
                await producer.send_and_wait(f"idle-{ipv6}-{acks}", b"v")
                gone = [link._connection for link in engine.client._links() if link.versions]
                assert gone
                await until(lambda closed=gone: not any(one.is_open for one in closed))
                await until(lambda: in_close_wait(ports_of(servers)) == [])
                # A broker that closed the connection is asked once more whether it is still there.
                await until(lambda: any(link.versions for link in engine.client._links()))
                await asyncio.sleep(0.1)
                assert producer.health().ready
        assert producer.metrics()["record_retry_total"] == 0
        assert producer.metrics()["record_error_total"] == 0
    assert caplog.records == []
