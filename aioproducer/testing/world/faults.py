"""Faults: values with a virtual time that do something to a `World`.

A schedule is a list of these. Leaving some out never changes what the others are, so a failing
schedule can be shrunk and replayed.

Invariants:
- A fault is a value: everything about it was drawn before the run.
- `strike` returns a probe for whether the fault was felt; a fault that found nothing to hit does
  not count as having happened.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, NamedTuple, Protocol, Self

from aioproducer.testing.world.cluster import SimCluster
from aioproducer.testing.world.network import SimNetwork
from aioproducer.testing.world.server import SimBroker

Probe = Callable[[], int]
"""How often a fault was felt."""


class Shape(NamedTuple):
    """The possible targets of a fault.

    Attributes:
        nodes: Brokers.
        topics: Topics, with the number of their partitions.
        seats: Transactional producers, each with the group that keeps its positions.
    """

    nodes: Sequence[int]
    topics: Mapping[str, int]
    seats: Mapping[str, str] = MappingProxyType({})


class Cast(Protocol):
    """Transactional producers, as faults treat them."""

    def kill(self, seat: str) -> int:
        """Crash the process; return 0 if there was none."""

    def steal_transactional_id(self, seat: str) -> int:
        """Fence the process by another one that does its job; return 0 if none did it before."""

    def rebalance(self, seat: str) -> int:
        """Rebalance the seat's consumer group; return 0 if there is no such group."""


class World(Protocol):
    """The interface through which faults change a world."""

    network: SimNetwork
    cluster: SimCluster

    @property
    def brokers(self) -> Mapping[int, SimBroker]:
        """Every broker by its id."""

    def now(self) -> float:
        """Virtual seconds."""

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something in some virtual seconds, unless everything was healed by then."""

    def disturb(self, seconds: float) -> None:
        """Note that failures are to be expected for so long from now."""

    def jump_clock(self, seconds: float) -> None:
        """Move the producer's wall clock."""

    @property
    def cast(self) -> Cast:
        """The transactional producers."""


@dataclass(frozen=True, slots=True)
class Fault(ABC):
    """Something that goes wrong at a virtual time."""

    kind: ClassVar[str]
    at: float

    @property
    def lasts_s(self) -> float:
        """For how long it disturbs, from the moment it strikes."""
        return 0.0

    @abstractmethod
    def strike(self, world: World) -> Probe:
        """Let it happen."""

    @classmethod
    @abstractmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Return one of this kind."""


@dataclass(frozen=True, slots=True)
class LastingFault(Fault):
    """Something that goes wrong at one broker and is over some seconds later."""

    node_id: int
    seconds: float

    @property
    def lasts_s(self) -> float:
        """As long as it says."""
        return self.seconds

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Draw one at any broker, for a while."""
        return cls(at, node(rng, shape), duration(rng))


def duration(rng: random.Random) -> float:
    """Return a duration: mostly short, sometimes longer than every timeout."""
    return round(rng.choice((0.2, 1.0, 3.0, 8.0)) * rng.uniform(0.5, 2.0), 3)


def node(rng: random.Random, shape: Shape) -> int:
    """Return one broker."""
    return rng.choice(list(shape.nodes))


def revive(world: World, node_id: int) -> None:
    """Restart a crashed broker."""
    if not world.cluster.is_live(node_id):
        world.cluster.trace(f"b{node_id} is back")
        world.brokers[node_id].is_off = False
        world.cluster.restart(node_id)


def thaw(world: World, node_id: int) -> None:
    """Resume a frozen broker."""
    broker = world.brokers[node_id]
    if broker.is_frozen:
        world.cluster.resume(node_id)
        broker.thaw()
