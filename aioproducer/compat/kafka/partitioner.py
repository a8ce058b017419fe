"""kafka-python's partitioners: `DefaultPartitioner`, and a base class for others.

The default ones are markers for this producer's own, which sends equal keys to the
partitions that kafka-python and Java choose, and records without a key to one partition per batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from aioproducer.compat._forwarding import forwarded
from aioproducer.compat._shared_classes import counterpart
from aioproducer.compat.kafka._structs import BrokerMetadata
from aioproducer.core.metadata.cluster import Cluster

__all__ = ["DefaultPartitioner", "Partitioner", "StickyPartitioner"]
__path__: list[str] = []  # a package there: its modules come from kafka-python


class ClusterView(Protocol):
    """The part of kafka-python's `ClusterMetadata` that partitioners may use."""

    def topics(self) -> set[str]:
        """Return the names of the topics in use."""

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the ids of all partitions."""

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the ids of the partitions with a leader."""

    def leader_for_partition(self, partition: Any) -> int | None:
        """Return the id of a partition's leader."""


class Partitioner(ABC):
    """Chooses a partition for each record that is sent without one."""

    @abstractmethod
    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: ClusterView,
    ) -> int:
        """Return the id of one of the topic's partitions."""


class DefaultPartitioner(Partitioner):
    """This producer's own partitioner; see the module."""

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: ClusterView,
    ) -> int:
        """Return the partition that kafka-python's would choose; for subclasses to call."""
        from random import choice

        from aioproducer.records import murmur2

        partitions = sorted(cluster.partitions_for_topic(topic) or ())
        if serialized_key is not None:
            return partitions[(murmur2(serialized_key) & 0x7FFF_FFFF) % len(partitions)]
        return choice(sorted(cluster.available_partitions_for_topic(topic) or ()) or partitions)


class StickyPartitioner(DefaultPartitioner):
    """This producer's own partitioner; see the module."""


Choice = Callable[[str, Any, bytes | None, Any, bytes | None, ClusterView], int]


def choice_of(partitioner: Any) -> Choice | None:
    """Return how to call a partitioner; None for markers of the producer's own.

    Besides `Partitioner` these are kafka-python's classes, objects with the older
    `partition(topic, serialized_key, cluster)`, and callables of the key's bytes, all partitions
    and those with a leader, as kafka-python 2 has them.

    Raises:
        TypeError: It is none of these.
    """
    names = ("DefaultPartitioner", "StickyPartitioner")
    own = {DefaultPartitioner, StickyPartitioner}
    if type(partitioner) in own | {counterpart("kafka.partitioner", name) for name in names}:
        return None
    method = getattr(partitioner, "partition", None)
    theirs = counterpart("kafka.partitioner", "Partitioner")
    if isinstance(partitioner, Partitioner) or (theirs and isinstance(partitioner, theirs)):
        choice: Choice = partitioner.partition
        return choice
    if method is not None:
        return lambda topic, key, key_bytes, value, value_bytes, cluster: method(
            topic, key_bytes, cluster
        )
    if not callable(partitioner):
        raise TypeError(f"a partitioner is callable or has partition(), unlike {partitioner!r}")
    return lambda topic, key, key_bytes, value, value_bytes, cluster: partitioner(
        key_bytes,
        sorted(cluster.partitions_for_topic(topic) or ()),
        sorted(cluster.available_partitions_for_topic(topic) or ()),
    )


class View:
    """The cluster as it is known now; for partitioners, and programs that read `_metadata`."""

    def __init__(self, cluster: Cluster, refresh: Callable[[], object] = bool) -> None:
        self._cluster = cluster
        self._topics = cluster.topics
        self._refresh = refresh

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster; None while it is unknown, and of old brokers."""
        return self._cluster.cluster_id

    @property
    def controller(self) -> BrokerMetadata | None:
        """The controller, which Elastic APM writes into its spans; None while it is unknown."""
        node = self._cluster.nodes.get(self._cluster.controller_id)
        return None if node is None else BrokerMetadata(*node)

    def brokers(self) -> list[BrokerMetadata]:
        """Return all brokers."""
        return [BrokerMetadata(*node) for node in self._cluster.nodes.values()]

    def request_update(self) -> None:
        """Have newer metadata fetched soon."""
        self._refresh()

    def update_metadata(self, metadata: object) -> None:
        """Do nothing; OpenTelemetry's instrumentation replaces this method."""

    def topics(self) -> set[str]:
        """Return the names of the topics in use."""
        return set(self._topics)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the ids of all partitions; None for a topic that is not in use."""
        known = self._topics.get(topic)
        return None if known is None else set(range(len(known.partitions)))

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the ids of the partitions with a leader; None for a topic that is not in use."""
        known = self._topics.get(topic)
        return None if known is None else set(known.available)

    def leader_for_partition(self, partition: Any) -> int | None:
        """Return the id of a partition's leader; None where nothing is known."""
        known = self._topics.get(partition.topic)
        number: int = partition.partition
        if known is None or not 0 <= number < len(known.partitions):
            return None
        return known.partitions[number].leader


def __getattr__(name: str) -> Any:
    return forwarded(name, __name__, "kafka.partitioner", "kafka-python")
