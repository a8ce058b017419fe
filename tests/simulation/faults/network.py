"""Faults of the network around one broker.

Owns: black holes, latency, refused and slow connections, names that do not resolve, resets and
half-closes. Not here: what travels. Faults that only new connections feel also cut established
connections; otherwise they would have no effect.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from dataclasses import dataclass
from typing import Self

from aioproducer.testing.world.faults import (
    Fault,
    LastingFault,
    Probe,
    Shape,
    World,
    duration,
    node,
)
from aioproducer.testing.world.weather import Condition, Direction, Effect


@dataclass(frozen=True, slots=True)
class _Weather(LastingFault):
    def strike(self, world: World) -> Probe:
        """Puts the condition into force."""
        condition = world.network.weather.add(self.condition(world.now() + self.seconds))
        return lambda: condition.hits

    @abstractmethod
    def condition(self, until: float) -> Condition:
        """The disturbance."""


@dataclass(frozen=True, slots=True)
class BlackHole(_Weather):
    """No byte passes, in one direction or both; TCP delivers them when it ends."""

    kind = "black hole"
    direction: Direction | None = None

    def condition(self, until: float) -> Condition:
        """Held bytes."""
        return Condition(Effect.HELD, self.node_id, until, direction=self.direction)

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """In one direction or both."""
        direction = rng.choice((None, Direction.TO_BROKER, Direction.TO_CLIENT))
        return cls(at, node(rng, shape), duration(rng), direction)


@dataclass(frozen=True, slots=True)
class SlowLink(_Weather):
    """Every byte takes longer."""

    kind = "latency"
    extra: float = 0.5

    def condition(self, until: float) -> Condition:
        """Slow bytes."""
        return Condition(Effect.SLOW, self.node_id, until, seconds=self.extra)

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """By a fraction of the request timeout, or more than it."""
        extra = round(rng.choice((0.1, 0.5, 2.0)) * rng.uniform(0.5, 1.5), 3)
        return cls(at, node(rng, shape), duration(rng), extra)


@dataclass(frozen=True, slots=True)
class NarrowLink(_Weather):
    """Little passes to a broker: requests leave the producer slowly, piece by piece."""

    kind = "narrow link"
    bytes_per_s: float = 1000.0

    def condition(self, until: float) -> Condition:
        """A small window."""
        return Condition(Effect.NARROW, self.node_id, until, bytes_per_s=self.bytes_per_s)

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """So that a batch takes from a tenth of a second to some seconds."""
        return cls(at, node(rng, shape), duration(rng), rng.choice((500.0, 2000.0, 10000.0)))


@dataclass(frozen=True, slots=True)
class Refuse(_Weather):
    """The port refuses connections; established connections are cut."""

    kind = "refuse"

    def condition(self, until: float) -> Condition:
        """A closed port."""
        return Condition(Effect.REFUSING, self.node_id, until)

    def strike(self, world: World) -> Probe:
        """Without a cut the fault would have no effect."""
        probe = _Weather.strike(self, world)
        _reset(world, self.node_id)
        return probe


@dataclass(frozen=True, slots=True)
class SlowAccept(_Weather):
    """Connections are accepted late; established connections are cut."""

    kind = "slow accept"
    delay: float = 1.0

    def condition(self, until: float) -> Condition:
        """A full backlog."""
        return Condition(Effect.SLOW_ACCEPT, self.node_id, until, seconds=self.delay)

    def strike(self, world: World) -> Probe:
        """Without a cut the fault would have no effect."""
        probe = _Weather.strike(self, world)
        _reset(world, self.node_id)
        return probe

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """By a second or so."""
        return cls(at, node(rng, shape), duration(rng), round(rng.uniform(0.2, 3.0), 3))


@dataclass(frozen=True, slots=True)
class NoName(_Weather):
    """The broker's name does not resolve; established connections are cut."""

    kind = "dns failure"

    def condition(self, until: float) -> Condition:
        """A broken resolver."""
        return Condition(Effect.NO_NAME, self.node_id, until)

    def strike(self, world: World) -> Probe:
        """Without a cut the fault would have no effect."""
        probe = _Weather.strike(self, world)
        _reset(world, self.node_id)
        return probe


@dataclass(frozen=True, slots=True)
class Reset(Fault):
    """The connections to a broker are reset."""

    kind = "reset"
    node_id: int

    def strike(self, world: World) -> Probe:
        """Cut established connections."""
        cut = _reset(world, self.node_id)
        return lambda: cut

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """One broker's."""
        return cls(at, node(rng, shape))


@dataclass(frozen=True, slots=True)
class HalfClose(Fault):
    """A broker closes its sending half: it still reads, and carries out, what comes."""

    kind = "half-close"
    node_id: int

    def strike(self, world: World) -> Probe:
        """Half-close established connections."""
        sessions = list(world.brokers[self.node_id].sessions)
        for session in sessions:
            session.connection.finish()
        return lambda: len(sessions)

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """One broker's connections."""
        return cls(at, node(rng, shape))


def _reset(world: World, node_id: int) -> int:
    sessions = list(world.brokers[node_id].sessions)
    for session in sessions:
        session.kill()
        session.connection.reset()
    return len(sessions)
