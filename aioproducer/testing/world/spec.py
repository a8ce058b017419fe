"""The parts of a world: brokers, topics, speeds of network and cluster, sources of chance.

Invariant: the seed is split into one source of chance per purpose, so that what one draws more or
less changes nothing for the others.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aioproducer.testing.broker import ClusterSettings, TopicSpec
from aioproducer.testing.security import ListenerSecurity
from aioproducer.testing.world.cluster import ReplicationTiming


class Chance:
    """Independent sources of chance, one per purpose, of one seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def of(self, purpose: str) -> random.Random:
        """Return the random source for a purpose; the same at every call."""
        # Text is hashed by SHA-512 here, the same in every process.
        return random.Random(f"{self._seed}:{purpose}")


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """The initial state of a world.

    Attributes:
        nodes: The brokers' ids.
        topics: What is created at once.
        options: Options of every producer.
        timing: The cluster's speed.
        window: Bytes a connection has under way at most.
        base_latency_s: How long bytes take one way.
        unclean_elections: Whether committed records may be lost.
    """

    nodes: tuple[int, ...]
    topics: Mapping[str, TopicSpec]
    options: Mapping[str, Any]
    timing: ReplicationTiming
    window: int
    base_latency_s: float
    unclean_elections: bool

    @property
    def security(self) -> ListenerSecurity:
        """The requirements that brokers have of clients."""
        return ListenerSecurity()

    def rack_of(self, node_id: int) -> str | None:
        """Return the rack of a broker."""
        return None

    def settings(self, settings: ClusterSettings) -> ClusterSettings:
        """Return how the cluster behaves, based on its normal behaviour."""
        return settings
