"""Faults of the processes that use transactions, and of what all of them share.

Owns: killed and superseded processes, rebalances, upgrades, used-up epochs. Not here: how
producers or coordinators work.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from aioproducer.testing.broker.transactions.states import V2, ProducerIdentity, Transaction
from aioproducer.testing.world.faults import Fault, Probe, Shape, World
from simulation.releases import has_v2


@dataclass(frozen=True, slots=True)
class AtSeat(Fault):
    """A fault of one job, in whichever process does it."""

    seat: str

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Any seat."""
        return cls(at, rng.choice(sorted(shape.seats)))


def reset_connections(world: World, node_ids: Iterable[int]) -> None:
    """Reset the connections to these brokers."""
    for node_id in node_ids:
        for session in list(world.brokers[node_id].sessions):
            session.kill()
            session.connection.reset()


@dataclass(frozen=True, slots=True)
class TransactionUpgrade(Fault):
    """The cluster's transaction version grows; all brokers but one restart their connections."""

    kind = "transaction upgrade"

    def strike(self, world: World) -> Probe:
        """Grows now; producers learn it with their next connections."""
        cluster, settings = world.cluster, world.cluster.settings
        is_supported = all(has_v2(settings.api_versions_of(each)) for each in cluster.brokers)
        if cluster.transaction_version >= V2 or not is_supported:
            return lambda: 0
        cluster.set_transaction_version(V2)
        reset_connections(world, sorted(world.brokers)[1:])
        return lambda: 1

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """The whole cluster."""
        return cls(at)


@dataclass(frozen=True, slots=True)
class EpochsUsedUp(AtSeat):
    """A transactional id has been in use for so long that its epochs are about to run out."""

    kind = "epochs used up"
    epoch: int

    def strike(self, world: World) -> Probe:
        """Use the epochs up before any process has asked for the id."""
        transactions = world.cluster.transactions.transactions
        if self.seat in transactions:
            return lambda: 0
        producer_id = world.cluster.new_producer_id()
        used = Transaction(self.seat, producer_id, 10_000, epoch=self.epoch)
        transactions[self.seat] = used
        begun = ProducerIdentity(producer_id, self.epoch)
        return lambda: used.identity != begun and used.producer_id != producer_id

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """A few transactions before the last one."""
        return cls(0.0, rng.choice(sorted(shape.seats)), 32766 - rng.choice((0, 1, 3, 8)))


@dataclass(frozen=True, slots=True)
class Kill(AtSeat):
    """A process dies, and another one follows."""

    kind = "killed process"

    def strike(self, world: World) -> Probe:
        """Now, whatever it does."""
        killed = world.cast.kill(self.seat)
        return lambda: killed


@dataclass(frozen=True, slots=True)
class Usurpation(AtSeat):
    """Another process does the same job, while the first one has not noticed."""

    kind = "usurpation"

    def strike(self, world: World) -> Probe:
        """Beside it from now on."""
        usurped = world.cast.steal_transactional_id(self.seat)
        return lambda: usurped


@dataclass(frozen=True, slots=True)
class Rebalance(AtSeat):
    """A consumer group has a new generation."""

    kind = "rebalance"

    def strike(self, world: World) -> Probe:
        """With the same members."""
        done = world.cast.rebalance(self.seat)
        return lambda: done
