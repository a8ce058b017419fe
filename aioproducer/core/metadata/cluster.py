"""Cluster: the current metadata, and the rules for merging a response into it.

Invariants
- There is one `Cluster`, changed in place: the cost of an update is that of the changes. All topics
  are read only when brokers were added or removed.
- A `TopicMetadata` is immutable: a changed topic is another object.
- `TopicMetadata.partitions[i].partition == i`, even if a response skips partition ids.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import UUID

from aioproducer._util.arguments import is_of_type
from aioproducer._util.hosts import is_host
from aioproducer._util.printable import printable
from aioproducer.errors import InvalidTopicError, ProtocolError
from aioproducer.types import (
    NO_EPOCH,
    NO_LEADER,
    Node,
    PartitionInfo,
    PartitionMetadata,
    TopicMetadata,
)

if TYPE_CHECKING:
    from aioproducer.wire.messages.common import NodeEndpoint
    from aioproducer.wire.messages.metadata import MetadataResponseBroker, MetadataResponsePartition

ZERO_ID = UUID(int=0)
"""The topic id for brokers without topic ids (Metadata before v10)."""

_MOST_HOLES = 1024
"""Partition ids that a response may skip: limits the memory that a hostile id can allocate."""

_MOST_PARTITIONS = 100_000
"""Limit per topic against memory exhaustion: partitions are kept while their topic is in use."""

MAX_BROKERS = 10_000
"""Limit per cluster against memory exhaustion."""

_SHOWN = 100
_LONGEST_TOPIC_NAME = 249
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def usable_nodes(described: Iterable[MetadataResponseBroker | NodeEndpoint]) -> dict[int, Node]:
    """Return the brokers that can be dialled; negative ids are reserved for bootstrap servers.

    Host names are ASCII on the wire. The IDNA encoding of other text takes quadratic time.
    """
    return {
        b.node_id: Node(b.node_id, b.host, b.port, b.rack)
        for b in described
        if b.node_id >= 0 and is_usable(b.host, b.port)
    }


def unusable_places(
    described: Iterable[MetadataResponseBroker], nodes: Container[int]
) -> dict[int, str]:
    """Return, for errors, what brokers advertise that cannot be dialled."""
    return {
        b.node_id: place_for_errors(b.host, b.port) for b in described if b.node_id not in nodes
    }


def place_for_errors(host: str, port: int) -> str:
    """Return a host and a port from a broker as text for errors, whatever they are."""
    return f"{printable(host, _SHOWN)!r}, port {port}"


def is_usable(host: str, port: int) -> bool:
    """Return whether a host and a port from a broker can be dialled."""
    return host.isascii() and is_host(host) and 0 < port < 65536


def too_many_brokers(described: int) -> ProtocolError:
    """Return the error for an answer with more than `MAX_BROKERS` brokers."""
    return ProtocolError(f"a broker answered with {described} brokers, more than {MAX_BROKERS}")


class Cluster:
    """The current metadata of the cluster.

    `nodes` is replaced by another object when any broker changes; `topics` is a live view.
    `controller_id` is -1 when unknown.
    """

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id: int = -1
        self.nodes: Mapping[int, Node] = MappingProxyType({})
        self._table: dict[str, TopicMetadata] = {}
        self.topics: Mapping[str, TopicMetadata] = MappingProxyType(self._table)
        self._changed: dict[str, None] = {}

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the leader's node id; None for an unknown partition, leader or node."""
        known = self.partition(topic, partition)
        return None if known is None or known.leader not in self.nodes else known.leader

    def partition(self, topic: str, partition: int) -> PartitionMetadata | None:
        """Return one partition, or None if it is unknown."""
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return None
        return known.partitions[partition]

    def partition_infos(self, topic: str) -> list[PartitionInfo]:
        """Return the topic's partitions in the public form; empty for an unknown topic."""
        known = self.topics.get(topic)
        if known is None:
            return []
        return [
            PartitionInfo(
                topic=known.name,
                partition=p.partition,
                leader=p.leader if p.leader in self.nodes else None,
                leader_epoch=p.leader_epoch if p.leader_epoch >= 0 else None,
                replicas=p.replicas,
                in_sync_replicas=p.isr,
                offline_replicas=p.offline,
            )
            for p in known.partitions
        ]

    def update(
        self,
        topics: Mapping[str, TopicMetadata | None],
        *,
        nodes: Mapping[int, Node],
        cluster_id: str | None,
        controller_id: int,
    ) -> bool:
        """Set `topics`, remove those that are None; return whether topics or nodes changed."""
        table, changed, is_news = self._table, self._changed, nodes != self.nodes
        for name, topic in topics.items():
            if topic is table.get(name):
                continue
            is_news = True
            changed[name] = None  # before the change: an interrupt between them loses nothing
            if topic is None:
                del table[name]
            else:
                table[name] = topic
        came_or_went = nodes.keys() ^ self.nodes.keys()
        if came_or_went:
            for name, topic in table.items():
                if topic.led_by_any(came_or_went):
                    changed[name] = None
                    table[name] = topic.replacing({}, nodes)
        if nodes != self.nodes:
            self.nodes = MappingProxyType(dict(nodes))
        self.cluster_id, self.controller_id = cluster_id, controller_id
        return is_news

    def pop_changed_topics(self) -> list[str]:
        """Return the topics that were added, replaced or removed since the last call.

        Leaders can have changed only in these.
        """
        changed, self._changed = list(self._changed), {}
        return changed


def check_topic_name(name: object) -> None:
    """Raise for a topic name that brokers refuse (Kafka: `Topic.validate`)."""
    if not is_of_type(name, str):
        raise InvalidTopicError(
            f"a topic's name is a str, not {type(name).__name__}", advice="give the name as text"
        )
    if name in {".", ".."} or len(name) > _LONGEST_TOPIC_NAME or not _TOPIC_NAME.fullmatch(name):
        raise InvalidTopicError(
            f"{name[:_LONGEST_TOPIC_NAME]!r} is no topic name: 1 to {_LONGEST_TOPIC_NAME} "
            "of the characters a-z, A-Z, 0-9, '.', '_' and '-', and neither '.' nor '..'",
            advice="correct the topic's name",
        )


def missing_topic_error() -> InvalidTopicError:
    """Return the error of a record without a topic in a call that gives none for all records."""
    return InvalidTopicError(
        "the record has no topic, and none is given for all records",
        advice="give each record a topic, or one topic for all of them",
    )


def merge_partitions(
    topic: str,
    described: Sequence[MetadataResponsePartition],
    previous: TopicMetadata | None,
    *,
    reliable_epochs: bool,
) -> tuple[PartitionMetadata, ...]:
    """Return the partitions of a topic after one response.

    A partition with an older leader epoch than the known one is not changed: the response comes
    from a lagging broker (KIP-320). `previous` is None for a new topic or one that was recreated.
    """
    known = previous.partitions if previous is not None else ()
    count = max((entry.partition_index for entry in described), default=-1) + 1
    if count > min(len(described) + len(known) + _MOST_HOLES, _MOST_PARTITIONS):
        raise ProtocolError(f"partition {count - 1} among {len(described)}", topic=topic)
    merged: dict[int, PartitionMetadata] = {}
    if previous is not None and previous.topic_id != ZERO_ID:
        # Partitions are never removed from a topic: a response without some of them is stale too.
        merged.update(enumerate(known))
        count = max(count, len(known))
    for entry in described:
        index = entry.partition_index
        if index < 0:
            raise ProtocolError(f"partition id {index}", topic=topic)
        fresh = _described_partition(entry, reliable_epochs=reliable_epochs)
        stale = index < len(known) and 0 <= fresh.leader_epoch < known[index].leader_epoch
        merged[index] = known[index] if stale else fresh
    return tuple(merged.get(i) or PartitionMetadata(i) for i in range(count))


def _described_partition(
    entry: MetadataResponsePartition, *, reliable_epochs: bool
) -> PartitionMetadata:
    return PartitionMetadata(
        partition=entry.partition_index,
        leader=max(entry.leader_id, NO_LEADER),
        leader_epoch=max(entry.leader_epoch, NO_EPOCH) if reliable_epochs else NO_EPOCH,
        replicas=tuple(entry.replica_nodes),
        isr=tuple(entry.isr_nodes),
        offline=tuple(entry.offline_replicas),
    )
