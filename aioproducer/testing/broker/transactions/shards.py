"""Coordinators: the partitions of the two internal topics, and their leaders.

An internal topic is created when it is first needed. Its partitions hold leadership only; their
state is part of the cluster, as everything replicated is, and outlives every broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from aioproducer import errors
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.testing.broker.settings import ClusterSettings
from aioproducer.testing.broker.topics import NO_LEADER, Partition

TRANSACTION_TOPIC, OFFSETS_TOPIC = "__transaction_state", "__consumer_offsets"


class CoordinatorKind(IntEnum):
    """The kind of a key (Java: FindCoordinatorRequest.CoordinatorType)."""

    GROUP = 0
    TRANSACTION = 1

    @property
    def topic(self) -> str:
        """The internal topic whose partitions' leaders are the coordinators."""
        return OFFSETS_TOPIC if self is CoordinatorKind.GROUP else TRANSACTION_TOPIC


@dataclass(slots=True)
class _Loading:
    """Since when, and for which leadership, a coordinator has had its state."""

    leader_epoch: int
    ready_ms: int


class InternalTopics(Protocol):
    """The parts of a cluster that coordinators are found by."""

    settings: ClusterSettings

    def internal_partitions(self, topic: str, count: int) -> list[Partition]:
        """Return the partitions of an internal topic, which is created when first asked for."""

    def is_reachable(self, node_id: int) -> bool:
        """Return whether other brokers get a response from that one."""


class CoordinatorShards:
    """The coordinators of one cluster."""

    def __init__(self, cluster: InternalTopics) -> None:
        self._cluster = cluster
        self._loadings: dict[tuple[str, int], _Loading] = {}

    def shard(self, kind: CoordinatorKind, key: str) -> Partition:
        """Return the partition a key belongs to (Java: TransactionStateManager.partitionFor)."""
        settings = self._cluster.settings
        count = (
            settings.offsets_partitions
            if kind is CoordinatorKind.GROUP
            else settings.transaction_partitions
        )
        partitions = self._cluster.internal_partitions(kind.topic, count)
        return partitions[_java_hash(key) % count]

    def coordinate(
        self, kind: CoordinatorKind, key: str, node_id: int | None, now_ms: int
    ) -> Partition:
        """Return the key's partition; refuse unless `node_id`, if given, coordinates it."""
        shard = self.shard(kind, key)
        if shard.leader == NO_LEADER or not self._cluster.is_reachable(shard.leader):
            raise RefusedError(errors.CoordinatorNotAvailableError)
        if node_id not in {None, shard.leader}:
            raise RefusedError(errors.NotCoordinatorError)
        if now_ms < self._ready_ms(shard, now_ms):
            raise RefusedError(errors.CoordinatorLoadInProgressError)
        return shard

    def _ready_ms(self, shard: Partition, now_ms: int) -> int:
        loading = self._loadings.get((shard.topic, shard.index))
        if loading is None or loading.leader_epoch != shard.leader_epoch:
            # The first leader of a new partition has nothing to load.
            wait_ms = self._cluster.settings.coordinator_load_ms if shard.leader_epoch else 0
            loading = _Loading(shard.leader_epoch, now_ms + wait_ms)
            self._loadings[shard.topic, shard.index] = loading
        return loading.ready_ms


def _java_hash(text: str) -> int:
    """`Utils.abs(text.hashCode())`."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8) + low) & 0xFFFF_FFFF
    signed = value - (1 << 32) if value >> 31 else value
    return 0 if signed == -(1 << 31) else abs(signed)
