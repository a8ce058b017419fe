"""Faults of coordinators and of the requests made to them.

Owns: errors and accidents of the transactional requests, coordinators that move, load, are slow or
die amid a request. Not here: how producers or coordinators work.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeVar

from aioproducer.errors import OperationNotAttemptedError
from aioproducer.testing.broker.faults import ConnectionFault, ErrorAnswer
from aioproducer.testing.broker.topics import Partition
from aioproducer.testing.broker.transactions.shards import CoordinatorKind
from aioproducer.testing.framing import RequestHeader
from aioproducer.testing.world.faults import Fault, Probe, Shape, World
from aioproducer.testing.world.server import Moment
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.transactions import (
    AddPartitionsToTxnResponse,
    TxnOffsetCommitResponse,
)
from simulation.faults.answers import Ambush
from simulation.faults.brokers import Crash, move_leader
from simulation.faults.processes import AtSeat

T = TypeVar("T")

RETRIED: Mapping[ApiKey, tuple[int, ...]] = {
    ApiKey.FIND_COORDINATOR: (14, 15),
    ApiKey.INIT_PRODUCER_ID: (14, 15, 16, 51),
    ApiKey.ADD_PARTITIONS_TO_TXN: (3, 14, 15, 16, 51),
    ApiKey.ADD_OFFSETS_TO_TXN: (14, 15, 16, 51),
    ApiKey.TXN_OFFSET_COMMIT: (3, 7, 14, 15, 16),
    ApiKey.END_TXN: (14, 15, 16, 51),
    ApiKey.PRODUCE: (51, 14, 15, 16),
}
"""Codes after which the same request is made again."""

_FINAL: Mapping[ApiKey, tuple[int, ...]] = {
    ApiKey.FIND_COORDINATOR: (30, 53, -1),
    ApiKey.INIT_PRODUCER_ID: (31, 53, 90, 120, -1),
    ApiKey.ADD_PARTITIONS_TO_TXN: (29, 47, 48, 53, 59, 90, 120, -1),
    ApiKey.ADD_OFFSETS_TO_TXN: (30, 47, 59, 90, 120, -1),
    ApiKey.TXN_OFFSET_COMMIT: (22, 25, 30, 82, 90, 120, -1),
    ApiKey.END_TXN: (47, 48, 59, 90, 120, -1),
    ApiKey.PRODUCE: (45, 47, 48, 59, 90, 120),
}
"""Codes after which the transaction, or the producer, is at its end."""

_AFTER_WORK: Mapping[ApiKey, tuple[int, ...]] = {
    ApiKey.INIT_PRODUCER_ID: (7, 14, 15, 16, -1),
    ApiKey.ADD_PARTITIONS_TO_TXN: (7, 14, 15, 16, -1),
    ApiKey.ADD_OFFSETS_TO_TXN: (7, 14, 15, 16, -1),
    ApiKey.TXN_OFFSET_COMMIT: (7, 14, 15, 16, -1),
    ApiKey.END_TXN: (7, 14, 15, 15, 16, -1, -1),
}
"""Codes that do not say whether a request was carried out."""


def _api(rng: random.Random, table: Iterable[ApiKey]) -> ApiKey:
    apis: list[ApiKey] = sorted(table)
    # The outcome of EndTxn matters most.
    return rng.choice(apis + [ApiKey.END_TXN] * (3 if ApiKey.END_TXN in apis else 0))


@dataclass(frozen=True, slots=True)
class _AtRequest(Fault):
    api: ApiKey
    times: int

    def _arm(self, world: World, action: ErrorAnswer | ConnectionFault) -> Probe:
        ambush = Ambush(action, self.api, times=self.times)
        ambush.world = world
        ambush.lasts_s = getattr(action, "delay_ms", 0) / 1000
        world.cluster.faults.add(ambush)
        return lambda: ambush.struck

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Any of the requests, at any broker."""
        return cls(at, _api(rng, _AFTER_WORK), rng.choice((1, 1, 2)))


@dataclass(frozen=True, slots=True)
class _CoordinatorCode(_AtRequest):
    code: int
    table: ClassVar[Mapping[ApiKey, tuple[int, ...]]] = RETRIED
    applied: ClassVar[bool] = False

    def strike(self, world: World) -> Probe:
        """Answered to the next requests."""
        for broker in world.brokers.values():
            broker.scripted_codes.add(self.code)
        return self._arm(world, ErrorAnswer(self.code, apply=self.applied))

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """A code that the request may be answered."""
        api = _api(rng, cls.table)
        return cls(at, api, rng.choice((1, 1, 3)), rng.choice(cls.table[api]))


@dataclass(frozen=True, slots=True)
class CoordinatorError(_CoordinatorCode):
    """A request is refused for now."""

    kind = "coordinator error"


@dataclass(frozen=True, slots=True)
class FinalCoordinatorError(_CoordinatorCode):
    """A request is refused for good."""

    kind = "final coordinator error"
    table: ClassVar[Mapping[ApiKey, tuple[int, ...]]] = _FINAL


@dataclass(frozen=True, slots=True)
class ErrorAfterWork(_CoordinatorCode):
    """A request is carried out, and an error is answered."""

    kind = "coordinator error after work"
    table: ClassVar[Mapping[ApiKey, tuple[int, ...]]] = _AFTER_WORK
    applied: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class LostByCoordinator(_AtRequest):
    """A coordinator closes the connection or never responds; the request is carried out or not."""

    kind = "lost by coordinator"
    applied: bool
    closes: bool

    def strike(self, world: World) -> Probe:
        """No answer."""
        action = ConnectionFault(apply=self.applied, answer=False, close=self.closes)
        return self._arm(world, action)

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Done or not, with or without a word."""
        api = _api(rng, _AFTER_WORK)
        return cls(at, api, rng.choice((1, 1, 2)), rng.random() < 0.7, rng.random() < 0.6)


@dataclass(frozen=True, slots=True)
class LostAddition(LostByCoordinator):
    """A V1 transaction begins at its coordinator, and its producer gets no response."""

    kind = "lost addition"

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Mostly carried out, mostly of partitions."""
        of_offsets = rng.random() < 0.3
        api = ApiKey.ADD_OFFSETS_TO_TXN if of_offsets else ApiKey.ADD_PARTITIONS_TO_TXN
        return cls(at, api, rng.choice((1, 1, 2)), rng.random() < 0.8, rng.random() < 0.8)


@dataclass(frozen=True, slots=True)
class LateCoordinatorAnswer(_AtRequest):
    """A request is carried out and answered late."""

    kind = "late coordinator answer"
    milliseconds: int

    def strike(self, world: World) -> Probe:
        """Answered later."""
        return self._arm(world, ConnectionFault(delay_ms=self.milliseconds))

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Shorter and longer than the request timeout."""
        return cls(at, _api(rng, _AFTER_WORK), 1, rng.choice((100, 1000, 5000)))


@dataclass(frozen=True, slots=True)
class LeftOutByCoordinator(Fault):
    """A response leaves out all partitions, or one, and has the others in reverse order."""

    kind = "left out by coordinator"
    api: ApiKey
    all_of_them: bool

    def strike(self, world: World) -> Probe:
        """The next such response of any broker."""
        struck = 0

        def leave_out(response: AddPartitionsToTxnResponse | TxnOffsetCommitResponse) -> bool:
            nonlocal struck
            struck += 1
            for broker in world.brokers.values():
                broker.distort.pop(self.api, None)
                # What is left may be partitions that were not attempted.
                broker.scripted_codes.add(OperationNotAttemptedError.code)
            world.disturb(0)
            if isinstance(response, TxnOffsetCommitResponse):
                self._leave_out(response.topics, lambda topic: topic.partitions)
            else:
                topics = response.results_by_topic_v3_and_below
                self._leave_out(topics, lambda topic: topic.results_by_partition)
            return True

        for broker in world.brokers.values():
            broker.distort[self.api] = leave_out
        return lambda: struck

    def _leave_out(self, topics: list[T], partitions: Callable[[T], list[Any]]) -> None:
        for topic in topics:
            partitions(topic).reverse()
        topics.reverse()
        if self.all_of_them:
            topics.clear()
        elif topics:
            partitions(topics[0]).pop()

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Mostly of partitions that are added."""
        adding = rng.random() < 0.7
        api = ApiKey.ADD_PARTITIONS_TO_TXN if adding else ApiKey.TXN_OFFSET_COMMIT
        return cls(at, api, rng.random() < 0.5)


@dataclass(frozen=True, slots=True)
class HeldRequest(Fault):
    """A broker holds a request for long and carries it out then, whatever was done since."""

    kind = "held request"
    api: ApiKey
    seconds: float

    def strike(self, world: World) -> Probe:
        """The next one at any broker."""
        held = 0

        def arm() -> None:
            for broker in world.brokers.values():
                broker.held_back[self.api] = hold

        def hold(header: RequestHeader, resume: Callable[[], None]) -> None:
            nonlocal held
            if not self.seizes(world, header):
                arm()
                resume()
                return
            held += 1
            for broker in world.brokers.values():
                broker.held_back.pop(self.api, None)
            world.disturb(self.seconds)
            world.cluster.trace(f"a request {self.api.name} is held")
            self.keep(world, header, resume)

        arm()
        return lambda: held

    def seizes(self, world: World, header: RequestHeader) -> bool:
        """Return whether it holds this request, and not one after it."""
        return True

    def keep(self, world: World, header: RequestHeader, resume: Callable[[], None]) -> None:
        """For as long as is said; a healed world still carries it out."""
        world.cluster.loop.call_later(self.seconds, resume)

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Mostly longer than its sender waits for an answer."""
        seconds = round(rng.choice((0.3, 1.5, 4.0, 8.0)) * rng.uniform(0.7, 1.3), 3)
        return cls(at, _api(rng, [*_AFTER_WORK, ApiKey.PRODUCE]), seconds)


@dataclass(frozen=True, slots=True)
class _CoordinatorDies(Crash):
    api: ApiKey
    moment: ClassVar[Moment]

    def strike(self, world: World) -> Probe:
        """Whichever broker gets the next such request dies at it."""
        died = 0

        def arm(node_id: int) -> None:
            def die() -> None:
                nonlocal died
                for broker in world.brokers.values():
                    broker.ambushes.pop((self.api, self.moment), None)
                died += replace(self, node_id=node_id)._die(world, silent=False)

            world.brokers[node_id].ambushes[self.api, self.moment] = die

        for node_id in world.brokers:
            arm(node_id)
        return lambda: died

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """At any of the requests."""
        seconds = round(rng.choice((0.5, 2.0, 6.0)) * rng.uniform(0.7, 1.3), 3)
        return cls(at, 0, seconds, _api(rng, _AFTER_WORK))


@dataclass(frozen=True, slots=True)
class CoordinatorDiesBefore(_CoordinatorDies):
    """A coordinator dies with a request received and nothing done."""

    kind = "coordinator dies before"
    moment = Moment.BEFORE


@dataclass(frozen=True, slots=True)
class CoordinatorDiesAfter(_CoordinatorDies):
    """A coordinator dies with a request carried out and nothing answered."""

    kind = "coordinator dies after"
    moment = Moment.AFTER


@dataclass(frozen=True, slots=True)
class CoordinatorMove(AtSeat):
    """A coordinator's work is given to another broker, which may have to load first."""

    kind = "coordinator move"
    of_group: bool
    load_ms: int

    def strike(self, world: World) -> Probe:
        """Move now; the new coordinator loads for as long as given."""
        _set(world, coordinator_load_ms=self.load_ms)
        world.disturb(self.load_ms / 1000)
        shard = self._shard(world)
        moved = move_leader(world, shard.topic, shard.index)
        return lambda: moved

    def _shard(self, world: World) -> Partition:
        shards = world.cluster.shards
        if self.of_group:
            return shards.shard(CoordinatorKind.GROUP, f"group-{self.seat}")
        return shards.shard(CoordinatorKind.TRANSACTION, self.seat)

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Of transactions or of groups, loading for up to some seconds."""
        seat = rng.choice(sorted(shape.seats))
        return cls(at, seat, rng.random() < 0.3, rng.choice((0, 50, 800, 4000)))


@dataclass(frozen=True, slots=True)
class CoordinatorMovesAt(Fault):
    """The coordinators' work is given to other brokers at one of the requests to them."""

    kind = "coordinator moves at"
    api: ApiKey
    moment: Moment
    load_ms: int

    def strike(self, world: World) -> Probe:
        """At the next such request, before or after it is carried out."""
        moved = 0
        of_group = self.api is ApiKey.TXN_OFFSET_COMMIT
        topic = (CoordinatorKind.GROUP if of_group else CoordinatorKind.TRANSACTION).topic

        def move() -> None:
            nonlocal moved
            for broker in world.brokers.values():
                broker.ambushes.pop((self.api, self.moment), None)
            _set(world, coordinator_load_ms=self.load_ms)
            world.disturb(self.load_ms / 1000)
            shards = world.cluster.settings.transaction_partitions  # as many for groups
            for shard in world.cluster.internal_partitions(topic, shards):
                moved += move_leader(world, topic, shard.index)

        for broker in world.brokers.values():
            broker.ambushes[self.api, self.moment] = move
        return lambda: moved

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """At any of the requests, loading for a moment."""
        return cls(
            at, _api(rng, _AFTER_WORK), rng.choice(list(Moment)), rng.choice((0, 0, 50, 800))
        )


@dataclass(frozen=True, slots=True)
class SlowMarkers(Fault):
    """Markers are written slowly: the next request after an end gets CONCURRENT_TRANSACTIONS."""

    kind = "slow markers"
    seconds: float
    step_ms: int

    @property
    def lasts_s(self) -> float:
        """Until the last slow step is done."""
        return self.seconds + 6 * self.step_ms / 1000

    def strike(self, world: World) -> Probe:
        """From now on, for a while."""
        before = world.cluster.settings.marker_delay_ms
        written_before = world.cluster.markers_written
        _set(world, marker_delay_ms=self.step_ms)
        world.later(self.seconds, lambda: _set(world, marker_delay_ms=before))
        return lambda: world.cluster.markers_written - written_before

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """From a tenth of a second to more per step."""
        return cls(at, round(rng.uniform(1.0, 8.0), 3), rng.choice((100, 400, 1500)))


def _set(world: World, **settings: Any) -> None:
    world.cluster.settings = replace(world.cluster.settings, **settings)
