"""The place of the faults: three brokers that tests may break, and a proxy before each.

Owns: the cluster, its proxies, and what may be done to them from asyncio code. Not here:
scenarios, clients.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import cast

from aioproducer.errors.base import raise_for_code
from aioproducer.testing import admin
from aioproducer.testing.kafka import DEFAULT_VERSION, KafkaBackend, KafkaCluster
from aioproducer.testing.kafka.node import BrokerProcess
from aioproducer.testing.kafka.ports import free_ports
from aioproducer.testing.wire_client import WireClient
from aioproducer.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from support.confluent import create_topic_confluent
from support.faults.proxy import FaultyProxy

PARTITIONS = 6
REPLICAS = 3
TOPIC_CONFIG = {
    "min.insync.replicas": "2",
    "retention.ms": "3600000",
    "retention.bytes": str(64 << 20),
    "segment.bytes": str(16 << 20),
}
_BROKER_CONFIG = {
    # A deleted topic must stay deleted until the scenario creates it again.
    "auto.create.topics.enable": "false",
}
_FIND_TIMEOUT_S = 30.0
_TRANSACTION = 1


class ProxiedCluster(KafkaCluster):
    """Brokers with a second listener each, which they advertise at the port of a proxy.

    The brokers talk to each other, and admins and readers to them, on the first one.
    """

    proxy_ports: dict[int, int]
    proxied_ports: dict[int, int]

    def _new_nodes(self, classpath: list[Path], directory: Path) -> dict[int, BrokerProcess]:
        nodes = super()._new_nodes(classpath, directory)
        taken = {
            port for n in nodes.values() for port in (n.address.port, n.address.controller_port)
        }
        free = [port for port in free_ports(4 * len(nodes)) if port not in taken]
        self.proxy_ports = {id_: free.pop() for id_ in nodes}
        self.proxied_ports = {id_: free.pop() for id_ in nodes}
        for id_, node in nodes.items():
            settings = dict(node._settings)
            host = node.address.host
            settings["listeners"] += f",PROXIED://{host}:{self.proxied_ports[id_]}"
            settings["advertised.listeners"] += f",PROXIED://{host}:{self.proxy_ports[id_]}"
            settings["listener.security.protocol.map"] += ",PROXIED:PLAINTEXT"
            node._settings = settings
        return nodes


class FaultGround:
    """A cluster to break, and what was done to it."""

    def __init__(self, cluster: KafkaBackend, proxies: dict[int, FaultyProxy]) -> None:
        self.cluster = cluster
        self.proxies = proxies
        self.events: list[tuple[float, str]] = []
        """Seconds of the monotonic clock, and what was done."""

    @property
    def bootstrap_servers(self) -> str:
        """Of the brokers themselves."""
        return self.cluster.bootstrap_servers

    @property
    def proxied_bootstrap_servers(self) -> str:
        """Of the proxies."""
        return ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies.values())

    async def kill(self, node_id: int) -> None:
        """SIGKILL."""
        self.note(f"kill -9 of broker {node_id}")
        await asyncio.to_thread(self.cluster.kill, node_id)

    async def stop(self, node_id: int) -> None:
        """Orderly end."""
        self.note(f"stop broker {node_id}")
        await asyncio.to_thread(self.cluster.stop, node_id)

    async def start(self, node_id: int) -> None:
        """Start it again, without waiting for it."""
        self.note(f"start broker {node_id}")
        await asyncio.to_thread(self.cluster.start, node_id)

    async def pause(self, node_id: int) -> None:
        """SIGSTOP."""
        self.note(f"SIGSTOP of broker {node_id}")
        await asyncio.to_thread(self.cluster.pause, node_id)

    async def resume(self, node_id: int) -> None:
        """SIGCONT."""
        self.note(f"SIGCONT of broker {node_id}")
        await asyncio.to_thread(self.cluster.resume, node_id)

    async def wait_ready(self) -> None:
        """All brokers that run know each other."""
        await asyncio.to_thread(self.cluster.wait_ready)

    async def create_topic(self, topic: str, min_insync: int = 2) -> None:
        """Create one, with a leader for each partition."""
        await create_topic_confluent(
            self.bootstrap_servers,
            topic,
            partitions=PARTITIONS,
            replication_factor=REPLICAS,
            configs=TOPIC_CONFIG | {"min.insync.replicas": str(min_insync)},
        )

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic; return when every broker has removed it."""
        await admin.delete_topic(self.bootstrap_servers, topic)

    async def leaders(self, topic: str) -> dict[int, int]:
        """The leader of each partition, as the brokers see it now."""
        topics = await admin.list_topics(self.bootstrap_servers)
        (found,) = (described for described in topics if described.name == topic)
        return {p.partition_index: p.leader_id for p in found.partitions}

    async def coordinator(self, transactional_id: str) -> int:
        """The broker that coordinates these transactions."""
        request = FindCoordinatorRequest(key=transactional_id, key_type=_TRANSACTION)
        async with WireClient(self.bootstrap_servers, timeout_s=_FIND_TIMEOUT_S) as client:

            async def ask() -> int:
                answer = cast(FindCoordinatorResponse, await client.ask(None, request, 1, 3))
                raise_for_code(answer.error_code, answer.error_message)
                return answer.node_id

            return await client.retry(ask)

    async def wait_in_sync(self, topic: str, timeout_s: float = 60.0) -> None:
        """Every partition of the topic has all its replicas in sync.

        Raises:
            TimeoutError: That did not happen.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            topics = await admin.list_topics(self.bootstrap_servers)
            parts = [p for t in topics if t.name == topic for p in t.partitions]
            if parts and all(len(p.isr_nodes) == REPLICAS for p in parts):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} has partitions out of sync after {timeout_s:.0f} s")
            await asyncio.sleep(0.2)

    def note(self, event: str) -> None:
        """Write down what is done."""
        self.events.append((time.monotonic(), event))


@asynccontextmanager
async def fault_ground(
    version: str = DEFAULT_VERSION,
    *,
    config: Mapping[str, str] = MappingProxyType({}),
    features: Mapping[str, int] = MappingProxyType({}),
) -> AsyncIterator[FaultGround]:
    """Three JVM brokers with a proxy before each, for as long as the block lasts.

    Args:
        version: Of Kafka.
        config: More broker settings.
        features: Levels of features that differ from the release's own.
    """
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            ProxiedCluster(
                version, brokers=3, config={**_BROKER_CONFIG, **config}, features=features
            )
        )
        proxies = {
            id_: FaultyProxy(port, cluster.proxied_ports[id_])
            for id_, port in cluster.proxy_ports.items()
        }
        for proxy in proxies.values():
            stack.push_async_callback(proxy.close)
            await proxy.start()
        yield FaultGround(cluster, proxies)
