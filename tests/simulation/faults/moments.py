"""Faults that wait for one rare moment: what has to come together is brought together.

Owns: the moments. Not here: how producers or coordinators work.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

from aioproducer.testing.broker.faults import ConnectionFault, ErrorAnswer
from aioproducer.testing.broker.transactions.states import TransactionState
from aioproducer.testing.framing import RequestHeader
from aioproducer.testing.world.faults import Fault, Probe, Shape, World
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.init_producer_id import InitProducerIdRequest
from aioproducer.wire.messages.transactions import EndTxnRequest, TxnOffsetCommitRequest
from simulation.faults.answers import Ambush
from simulation.faults.coordinators import RETRIED, HeldRequest

_RECHECK_S = 0.02
_REPLICATED_AFTER_S = 0.15
"""The slowest followers have fetched by then."""


@dataclass(frozen=True, slots=True)
class _HeldUntil(HeldRequest):
    late_s: float

    def resume_when(
        self, it_is_time: Callable[[], bool], world: World, resume: Callable[[], None]
    ) -> None:
        """A moment after it is time, or after as long as is said."""
        loop, until = world.cluster.loop, world.now() + self.seconds

        def look() -> None:
            if it_is_time():
                loop.call_later(self.late_s, resume)
            elif world.now() >= until:
                resume()
            else:
                loop.call_later(_RECHECK_S, look)

        look()


@dataclass(frozen=True, slots=True)
class HeldEnd(_HeldUntil):
    """The end of a transaction is carried out when the next one is open (KAFKA-17754)."""

    kind = "held end"
    request: ClassVar[type[EndTxnRequest | TxnOffsetCommitRequest]] = EndTxnRequest

    def keep(self, world: World, header: RequestHeader, resume: Callable[[], None]) -> None:
        """Until a moment after the next transaction has begun."""
        name = self.request.decode(header.body, header.api_version).transactional_id
        transaction = world.cluster.transactions.transactions.get(name)
        has_ended = False

        def next_one_is_open() -> bool:
            nonlocal has_ended
            is_open = transaction is not None and transaction.state is TransactionState.ONGOING
            has_ended |= not is_open
            return has_ended and is_open

        self.resume_when(next_one_is_open, world, resume)

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """A late end waits for some seconds at most."""
        seconds = round(rng.uniform(4.0, 15.0), 3)
        return cls(at, ApiKey.END_TXN, seconds, rng.choice((0.01, 0.05, 0.3)))


@dataclass(frozen=True, slots=True)
class HeldPositions(HeldEnd):
    """Positions of a transaction reach their group when the next one is open."""

    kind = "held positions"
    request = TxnOffsetCommitRequest

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """As for an end."""
        seconds = round(rng.uniform(4.0, 15.0), 3)
        return cls(at, ApiKey.TXN_OFFSET_COMMIT, seconds, rng.choice((0.01, 0.05, 0.3)))


@dataclass(frozen=True, slots=True)
class OvertakenRenewal(_HeldUntil):
    """A producer asks for its next epoch, and another process that does its job is faster.

    The coordinator finds out which came first only by the epoch in the request (KIP-360).
    """

    kind = "overtaken renewal"

    def seizes(self, world: World, header: RequestHeader) -> bool:
        """Not the first request of a process: that one overtakes."""
        return world.cast.steal_transactional_id(_transactional_id(header)) > 0

    def keep(self, world: World, header: RequestHeader, resume: Callable[[], None]) -> None:
        """Until a moment after the other one has its epoch."""
        transaction = world.cluster.transactions.transactions[_transactional_id(header)]
        before = transaction.identity
        self.resume_when(
            lambda: transaction.identity != before and not transaction.is_ending, world, resume
        )

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """The other one has some seconds at most."""
        seconds = round(rng.uniform(1.0, 4.0), 3)
        return cls(at, ApiKey.INIT_PRODUCER_ID, seconds, rng.choice((0.0, 0.01, 0.05, 0.3)))


@dataclass(frozen=True, slots=True)
class PositionsRefused(HeldRequest):
    """From the moment in which positions are committed no group takes any for a while, or some."""

    kind = "positions refused"
    code: int
    partition: int | None

    def keep(self, world: World, header: RequestHeader, resume: Callable[[], None]) -> None:
        """Refused for now, however often they come."""
        for broker in world.brokers.values():
            broker.scripted_codes.add(self.code)
        action = ErrorAnswer(self.code)
        ambush = Ambush(action, self.api, partition=self.partition, times=None)
        refusal = world.cluster.faults.add(ambush)
        world.later(self.seconds, lambda: world.cluster.faults.remove(refusal))
        resume()

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Shorter and longer than users wait."""
        api = ApiKey.TXN_OFFSET_COMMIT
        seconds, code = round(rng.uniform(1.0, 5.0), 3), rng.choice(RETRIED[api])
        return cls(at, api, seconds, code, rng.choice((None, 0)))


@dataclass(frozen=True, slots=True)
class RecreationBeforeAnswer(Fault):
    """A topic is created anew after a batch is written, and the acknowledgement comes later.

    The next requests on the connection are carried out only then.
    """

    kind = "recreation before answer"
    topic: str
    milliseconds: int

    def strike(self, world: World) -> Probe:
        """At the next request to the leader of its first partition."""
        cluster = world.cluster
        before = len(cluster.deleted)

        def recreate() -> None:
            if self.topic in cluster.topics:
                cluster.recreate_topic(self.topic)

        action = ConnectionFault(delay_ms=self.milliseconds)
        ambush = Ambush(action, *self._request(world), times=1)
        ambush.world = world
        ambush.lasts_s = self.milliseconds / 1000
        ambush.then = lambda: world.later(_REPLICATED_AFTER_S, recreate)
        cluster.faults.add(ambush)
        return lambda: len(cluster.deleted) - before

    def _request(self, world: World) -> tuple[ApiKey, int | None]:
        """Return which request it waits for, and at which broker."""
        return ApiKey.PRODUCE, world.cluster.leader_of(self.topic, 0)

    @classmethod
    def draw(cls, rng: random.Random, at: float, shape: Shape) -> Self:
        """Long enough for metadata to be requested meanwhile."""
        return cls(at, rng.choice(sorted(shape.topics)), rng.choice((600, 1000, 1500)))


@dataclass(frozen=True, slots=True)
class RecreationBeforeEnd(RecreationBeforeAnswer):
    """A topic is created anew after a transaction has ended, and the response comes later."""

    kind = "recreation before end"

    def _request(self, world: World) -> tuple[ApiKey, int | None]:
        """The next end, at any broker."""
        return ApiKey.END_TXN, None


def _transactional_id(header: RequestHeader) -> str:
    request = InitProducerIdRequest.decode(header.body, header.api_version)
    return request.transactional_id or ""
