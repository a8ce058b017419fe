"""Faults of brokers, of the controller, and of clocks.

Owns: deaths with and without a word, freezes, moves of leaders, lag of replicas and of metadata.
Not here: connections, requests.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from aioproducer.testing.broker import TopicSpec
from aioproducer.testing.broker.transactions.states import V2
from aioproducer.testing.world.faults import (
    Fault,
    LastingFault,
    Probe,
    Shape,
    World,
    duration,
    node,
    revive,
    thaw,
)
from aioproducer.testing.world.server import Moment
from aioproducer.testing.world.weather import Condition, Direction, Effect
from aioproducer.wire.api_keys import ApiKey
from simulation.releases import RELEASES, has_v2


@dataclass(frozen=True, slots=True)
class Crash(LastingFault):
    """A broker dies and comes back."""

    kind = "crash"

    def strike(self, world: World) -> Probe:
        """Dies now."""
        died = self._die(world, silent=False)
        return lambda: died

    def _die(self, world: World, *, silent: bool) -> int:
        broker, cluster = world.brokers[self.node_id], world.cluster
        if not cluster.is_live(self.node_id):
            return 0
        cluster.trace(f"b{self.node_id} dies")
        cluster.crash(self.node_id)
        broker.die(silent=silent)
        world.disturb(self.seconds)
        world.later(self.seconds, lambda: revive(world, self.node_id))
        return 1


@dataclass(frozen=True, slots=True)
class PowerLoss(Crash):
    """A broker's machine goes off: no reset, no refusal, silence."""

    kind = "power loss"

    def strike(self, world: World) -> Probe:
        """Goes off now."""
        died = self._die(world, silent=True)
        return lambda: died


@dataclass(frozen=True, slots=True)
class ReleaseChange(Crash):
    """A broker is upgraded or downgraded: it dies, and comes back in another release."""

    kind = "release change"
    release: str = "4.1"

    def strike(self, world: World) -> Probe:
        """Dies now, unless it could not start again: it has to support the finalized features."""
        cluster, versions = world.cluster, RELEASES[self.release]
        if cluster.transaction_version >= V2 and not has_v2(versions):
            return lambda: 0
        changed = {**cluster.settings.api_versions_by_broker, self.node_id: versions}
        cluster.settings = replace(cluster.settings, api_versions_by_broker=changed)
        cluster.trace(f"b{self.node_id} is upgraded or downgraded to {self.release}")
        return Crash.strike(self, world) if self.seconds else lambda: 1


@dataclass(frozen=True, slots=True)
class _CrashAtProduce(Crash):
    moment: ClassVar[Moment]

    def strike(self, world: World) -> Probe:
        """Dies at the next Produce request."""
        died = 0

        def die() -> None:
            nonlocal died
            died += self._die(world, silent=False)

        world.brokers[self.node_id].ambushes[ApiKey.PRODUCE, self.moment] = die
        return lambda: died


@dataclass(frozen=True, slots=True)
class CrashBeforeAppend(_CrashAtProduce):
    """A broker dies with a Produce request received and nothing written."""

    kind = "crash before append"
    moment = Moment.BEFORE


@dataclass(frozen=True, slots=True)
class CrashAfterAppend(_CrashAtProduce):
    """A broker dies with a Produce request written and nothing answered."""

    kind = "crash after append"
    moment = Moment.AFTER


@dataclass(frozen=True, slots=True)
class Freeze(LastingFault):
    """A broker's process stops, as by SIGSTOP, and goes on later."""

    kind = "freeze"

    def strike(self, world: World) -> Probe:
        """Stops now."""
        broker = world.brokers[self.node_id]
        if not world.cluster.is_working(self.node_id):
            return lambda: 0
        broker.freeze()
        world.cluster.pause(self.node_id)
        world.later(self.seconds, lambda: thaw(world, self.node_id))
        return lambda: 1


@dataclass(frozen=True, slots=True)
class LeaderMove(Fault):
    """A partition gets another leader, orderly."""

    kind = "leader move"
    topic: str
    partition: int

    def strike(self, world: World) -> Probe:
        """Moves to the next in-sync replica."""
        moved = move_leader(world, self.topic, self.partition)
        return lambda: moved

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Any partition."""
        return cls(at, *some_partition(rng, shape))


@dataclass(frozen=True, slots=True)
class UncleanElection(Fault):
    """A replica leads that lacks the end of the log; the log grows again from there."""

    kind = "unclean election"
    topic: str
    partition: int
    batches: int

    def strike(self, world: World) -> Probe:
        """The last batches are lost, acknowledged ones too."""
        lost = world.cluster.lose_end(self.topic, self.partition, self.batches)
        return lambda: lost

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Any partition, mostly the last batch."""
        return cls(at, *some_partition(rng, shape), rng.choice((1, 1, 1, 2, 5)))


def move_leader(world: World, topic: str, partition: int) -> int:
    """Move a leadership; return 0 if there is no broker to move it to."""
    found = world.cluster.partition(topic, partition)
    if found is None or sum(world.cluster.is_live(each) for each in found.isr) < 2:
        return 0
    world.cluster.move_leader(topic, partition)
    return 1


def some_partition(rng: random.Random, shape: Shape) -> tuple[str, int]:
    """Return a partition of one of the topics."""
    topic = rng.choice(sorted(shape.topics))
    return topic, rng.randrange(shape.topics[topic])


def amid_requests(
    world: World, topic: str, partition: int, skipped: int, action: Callable[[], None]
) -> None:
    """Do something before a leader carries out a Produce request, but for the next few."""
    leader = world.cluster.leader_of(topic, partition)
    if leader not in world.brokers:
        return
    left = skipped
    ambushes, moment = world.brokers[leader].ambushes, (ApiKey.PRODUCE, Moment.BEFORE)

    def come() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            action()
        else:
            ambushes[moment] = come

    ambushes[moment] = come


@dataclass(frozen=True, slots=True)
class DeposedLeader(LastingFault):
    """Others get a leader's partitions while it has a request, and it cannot answer for a while."""

    kind = "deposed leader"
    moment: Moment

    def strike(self, world: World) -> Probe:
        """At the next Produce request it leads nothing any more, and nothing comes from it."""
        moved = 0

        def depose() -> None:
            nonlocal moved
            until = world.now() + self.seconds
            world.disturb(self.seconds)
            world.network.weather.add(
                Condition(Effect.HELD, self.node_id, until, direction=Direction.TO_CLIENT)
            )
            for topic in world.cluster.topics.values():
                for partition in topic.partitions:
                    if partition.leader == self.node_id:
                        moved += move_leader(world, topic.name, partition.index)

        world.brokers[self.node_id].ambushes[ApiKey.PRODUCE, self.moment] = depose
        return lambda: moved

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """The request is written or not."""
        moment = rng.choice(list(Moment))
        return cls(at, node(rng, shape), round(rng.uniform(0.5, 4.0), 3), moment)


@dataclass(frozen=True, slots=True)
class StaleMetadata(LastingFault):
    """A broker's metadata stays as it is while a leadership moves on."""

    kind = "stale metadata"
    topic: str
    partition: int

    def strike(self, world: World) -> Probe:
        """The broker reports wrong metadata from now on."""
        cluster = world.cluster
        before = cluster.stale_answers[self.node_id]
        cluster.stop_learning(self.node_id)
        move_leader(world, self.topic, self.partition)
        world.later(self.seconds, lambda: cluster.learn(self.node_id))
        return lambda: cluster.stale_answers[self.node_id] - before

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Any broker, any partition."""
        topic, partition = some_partition(rng, shape)
        return cls(at, node(rng, shape), duration(rng), topic, partition)


@dataclass(frozen=True, slots=True)
class ReplicaLag(LastingFault):
    """A broker fetches late as a follower: commits wait for it, or it leaves the ISR."""

    kind = "replica lag"
    lag: float

    @property
    def lasts_s(self) -> float:
        """Until the last late fetch is done."""
        return self.seconds + self.lag

    def strike(self, world: World) -> Probe:
        """Lags from now on."""
        cluster = world.cluster
        cluster.extra_lag[self.node_id] = self.lag
        before = cluster.late_fetches[self.node_id]
        world.later(self.seconds, lambda: cluster.extra_lag.pop(self.node_id, None))
        return lambda: cluster.late_fetches[self.node_id] - before

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """By less or more than it takes to leave the ISR."""
        lag = round(rng.choice((0.3, 1.5, 5.0)) * rng.uniform(0.7, 1.3), 3)
        return cls(at, node(rng, shape), duration(rng), lag)


@dataclass(frozen=True, slots=True)
class ControllerAway(LastingFault):
    """No elections for a while, and a broker dies meanwhile."""

    kind = "controller away"

    def strike(self, world: World) -> Probe:
        """No elections take place."""
        cluster = world.cluster
        cluster.controller_away_until = world.now() + self.seconds
        return Crash(self.at, self.node_id, self.seconds).strike(world)


@dataclass(frozen=True, slots=True)
class PartitionGrowth(Fault):
    """A topic gets one more partition."""

    kind = "partition growth"
    topic: str

    def strike(self, world: World) -> Probe:
        """Grows now."""
        topic = world.cluster.topics.get(self.topic)
        if topic is None:
            return lambda: 0
        world.cluster.create_partitions(self.topic, len(topic.partitions) + 1)
        return lambda: 1

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Any topic."""
        return cls(at, rng.choice(sorted(shape.topics)))


@dataclass(frozen=True, slots=True)
class UnseenGrowth(LastingFault):
    """A topic gets one more partition, which a broker's metadata do not have for a while."""

    kind = "unseen growth"
    topic: str

    def strike(self, world: World) -> Probe:
        """Grows now, except for the broker."""
        cluster = world.cluster
        cluster.stop_learning(self.node_id)
        world.later(self.seconds, lambda: cluster.learn(self.node_id))
        return PartitionGrowth(self.at, self.topic).strike(world)

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Any broker, any topic."""
        return cls(at, node(rng, shape), duration(rng), rng.choice(sorted(shape.topics)))


@dataclass(frozen=True, slots=True)
class TopicCreation(Fault):
    """Topics are created, on as many of three brokers as are up."""

    kind = "topic creation"
    topics: tuple[str, ...]

    def strike(self, world: World) -> Probe:
        """They are there now."""
        replicas = min(3, len(world.cluster.live_brokers))
        wanted = [name for name in self.topics if replicas and name not in world.cluster.topics]
        for name in wanted:
            world.cluster.create_topic(name, TopicSpec(1, replicas))
        return lambda: len(wanted)

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """One that no task uses."""
        return cls(at, (f"unused-{at}",))


@dataclass(frozen=True, slots=True)
class TopicDeletion(Fault):
    """Topics are deleted, with their records."""

    kind = "topic deletion"
    topics: tuple[str, ...]

    def strike(self, world: World) -> Probe:
        """They are gone now."""
        gone = [name for name in self.topics if name in world.cluster.topics]
        for name in gone:
            world.cluster.delete_topic(name)
        return lambda: len(gone)

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Any one."""
        return cls(at, (rng.choice(sorted(shape.topics)),))


@dataclass(frozen=True, slots=True)
class TopicRecreation(Fault):
    """A topic is deleted, and another one of its name is there: no records, no producers' state."""

    kind = "topic recreation"
    topic: str
    skipped: int
    same_leaders: bool = False
    """A client that names topics by their names may see no difference."""

    def strike(self, world: World) -> Probe:
        """It is empty at a request to the leader of its first partition."""
        cluster = world.cluster
        before = len(cluster.deleted)

        def recreate() -> None:
            if self.topic in cluster.topics:
                cluster.recreate_topic(self.topic, same_leaders=self.same_leaders)

        amid_requests(world, self.topic, 0, self.skipped, recreate)
        return lambda: len(cluster.deleted) - before

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Any topic, mostly amid several requests."""
        return cls(at, rng.choice(sorted(shape.topics)), rng.randrange(5))


@dataclass(frozen=True, slots=True)
class ReplacedCluster(Fault):
    """Another cluster answers at the addresses: no records, no ids, other topics of these names."""

    kind = "replaced cluster"
    lingering: tuple[int, ...]
    """Brokers in front of which a proxy keeps the connections that wait for nothing."""

    def strike(self, world: World) -> Probe:
        """The others' connections are cut."""
        for node_id, broker in world.brokers.items():
            for session in list(broker.sessions):
                if node_id not in self.lingering or session.awaits_replicas:
                    session.kill()
                    session.connection.reset()
        world.cluster.replace()
        return lambda: 1

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Each broker may have a proxy."""
        return cls(at, tuple(node_id for node_id in shape.nodes if rng.random() < 0.7))


@dataclass(frozen=True, slots=True)
class UnlistedBroker(LastingFault):
    """A broker is not among those in metadata, and leads what it leads."""

    kind = "unlisted broker"

    def strike(self, world: World) -> Probe:
        """It works, but its address is missing."""
        cluster = world.cluster
        before = cluster.unlisted_answers[self.node_id]
        cluster.unlisted.add(self.node_id)
        world.later(self.seconds, lambda: cluster.unlisted.discard(self.node_id))
        return lambda: cluster.unlisted_answers[self.node_id] - before


@dataclass(frozen=True, slots=True)
class RefusedLogins(LastingFault):
    """A broker refuses every login for a while, as while its passwords are changed."""

    kind = "refused logins"

    def strike(self, world: World) -> Probe:
        """It has no users."""
        security = world.brokers[self.node_id].security
        before, users = security.refusals, security.users
        security.users = {}
        if users:
            world.later(self.seconds, lambda: setattr(security, "users", users))
        return lambda: security.refusals - before


@dataclass(frozen=True, slots=True)
class UnawareBrokers(LastingFault):
    """No broker has metadata, as after the start of a cluster."""

    kind = "unaware brokers"

    def strike(self, world: World) -> Probe:
        """Their answers list no broker."""
        cluster = world.cluster
        before = cluster.unaware_answers
        cluster.unaware.update(world.brokers)
        world.later(self.seconds, cluster.unaware.clear)
        return lambda: cluster.unaware_answers - before


@dataclass(frozen=True, slots=True)
class ClockJump(Fault):
    """The producer's wall clock jumps; brokers' clocks do not."""

    kind = "clock jump"
    distance_s: float

    def strike(self, world: World) -> Probe:
        """Jumps now."""
        world.jump_clock(self.distance_s)
        return lambda: 1

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Back or forth, sometimes further than brokers allow."""
        return cls(at, rng.choice((-7200.0, -60.0, -0.5, 0.5, 60.0, 7200.0)))
