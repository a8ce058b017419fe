"""One face for every cluster that tests write to: embedded or real."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aioproducer import Producer
from aioproducer.testing.kafka import KafkaBackend
from support.confluent import create_topic_confluent, read_all_confluent

_numbers = itertools.count(1)


@dataclass(frozen=True)
class ClusterUnderTest:
    """A cluster to write to.

    `handle` is the cluster itself: an `EmbeddedCluster` or a `KafkaBackend`.
    """

    backend: str
    bootstrap_servers: str
    handle: Any
    brokers: int = field(default=3)

    @property
    def is_real(self) -> bool:
        """Whether these are real Kafka brokers."""
        return self.backend != "embedded"

    async def create_topic(
        self,
        partitions: int = 3,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic with a unique name; return the name when every partition has a leader.

        By default the topic has as many replicas as there are brokers, three at most, and keeps
        records of any age: brokers delete old ones every five minutes.
        """
        topic = unique_topic()
        await create_topic_confluent(
            self.bootstrap_servers,
            topic,
            partitions=partitions,
            replication_factor=replication_factor or min(3, self.brokers),
            configs={"retention.ms": "-1"} | dict(configs or {}),
        )
        return topic


def unique_topic() -> str:
    """A name that no other test uses, in this run or another on the same cluster."""
    return f"test-{os.getpid()}-{os.urandom(3).hex()}-{next(_numbers)}"


def real_cluster(kafka: KafkaBackend) -> ClusterUnderTest:
    """The face of real brokers."""
    return ClusterUnderTest(kafka.backend, kafka.bootstrap_servers, kafka, len(kafka.node_ids))


@asynccontextmanager
async def embedded_cluster(brokers: int = 3) -> AsyncIterator[ClusterUnderTest]:
    """Run embedded brokers for the length of the block, on the running loop."""
    from aioproducer.testing.embedded import EmbeddedCluster

    async with EmbeddedCluster(brokers=brokers) as cluster:
        yield ClusterUnderTest("embedded", cluster.bootstrap_servers, cluster, brokers)


@asynccontextmanager
async def transactional(cluster: ClusterUnderTest, **options: object) -> AsyncIterator[Producer]:
    """Run a transactional producer; its id is a new one unless `options` have one."""
    given = {"transactional_id": unique_topic(), "bootstrap_servers": cluster.bootstrap_servers}
    async with Producer(**(given | options)) as producer:
        yield producer


async def visible(cluster: ClusterUnderTest, topic: str) -> list[bytes | None]:
    """Return the values that a foreign read_committed consumer reads, sorted."""
    records = await read_all_confluent(cluster.bootstrap_servers, topic)
    return sorted(record.value or b"" for record in records)
