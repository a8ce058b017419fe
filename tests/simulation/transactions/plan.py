"""The parameters of a transactional run besides its scenario: seats, and the protocol.

Owns: the drawing of it. Not here: how any of it is carried out.

A seat is a job that one process at a time should do; incarnations follow each other on it, and
sometimes the one before has not gone yet.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from aioproducer.testing.broker import ClusterSettings

READ_TOPIC, OUTPUT_TOPIC = "t1", "out"

_SHARE = 0.38
"""So many of the runs are transactional."""


@dataclass(frozen=True, slots=True)
class Seat:
    """A job.

    Attributes:
        name: Its transactional id, or what those of its incarnations begin with.
        reads: The topic it transforms; None for a job that makes records up.
        by_generation: Whether each incarnation has a separate transactional id, so that only
            the group's generation exposes a zombie (KIP-447).
    """

    name: str
    reads: str | None = None
    by_generation: bool = False

    @property
    def group(self) -> str:
        """The consumer group that keeps its positions."""
        return f"group-{self.name}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The transactional part of a scenario.

    Attributes:
        seats: The jobs.
        version: The cluster's transaction version at first.
        timeout_ms: After how long the coordinator aborts a transaction.
        marker_delay_ms: How long each step takes that follows the decision on an end.
        load_ms: How long a coordinator needs to take over.
        shards: Among how many partitions the coordinators of each kind share their work.
        share_prepared: The share of transactions that are prepared, for another process to decide.
    """

    seats: tuple[Seat, ...]
    version: int
    timeout_ms: int
    marker_delay_ms: int
    load_ms: int
    shards: int
    share_prepared: float

    def settings(self, settings: ClusterSettings) -> ClusterSettings:
        """The cluster's settings for it."""
        return replace(
            settings,
            transaction_version=self.version,
            transaction_partitions=self.shards,
            offsets_partitions=self.shards,
            coordinator_load_ms=self.load_ms,
            marker_delay_ms=self.marker_delay_ms,
        )


def draw_plan(rng: random.Random) -> Plan | None:
    """A plan, or None for a run without transactions."""
    if rng.random() >= _SHARE:
        return None
    seats = [Seat(name) for name in ("a", "b")[: rng.choice((1, 1, 2))]]
    if rng.random() < 0.7:
        seats.append(Seat("c", reads=READ_TOPIC, by_generation=rng.random() < 0.6))
    return Plan(
        tuple(seats),
        version=rng.choice((1, 1, 2)),
        timeout_ms=rng.choice((1500, 4000, 20_000, 20_000)),
        marker_delay_ms=rng.choice((0, 1, 10, 40)),
        load_ms=rng.choice((0, 20, 300)),
        shards=rng.choice((1, 3)),
        share_prepared=rng.choice((0.0, 0.0, 0.0, 0.0, 0.4)),
    )
