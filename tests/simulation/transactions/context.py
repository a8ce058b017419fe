"""State that the incarnations of a run share: books, clock, cluster, and the work left.

Owns: the share of the work that each gets, what consumers read by. Not here: the incarnations.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from aioproducer.config import ProducerConfig
from aioproducer.errors import KafkaError
from aioproducer.testing.world.faults import Shape
from simulation.scenario import CHAOS_S, Scenario
from simulation.transactions.book import TransactionBook
from simulation.transactions.consumer import SimConsumer
from simulation.transactions.plan import OUTPUT_TOPIC, Plan, Seat

if TYPE_CHECKING:
    from aioproducer.testing.world.cluster import SimCluster
    from aioproducer.testing.world.network import SimNetwork
    from aioproducer.testing.world.producer import SimProducer
    from aioproducer.testing.world.spec import Chance
    from aioproducer.testing.world.trace import Trace
    from aioproducer.testing.world.world import SimWorld
    from simulation.ledger import Ledger

_LONGEST_PAUSE_S = 3.0
_USUAL, _LARGE = (1, 2, 5, 12), (12, 25)
_LAG = 12
_SHARE_IN_HASTE = 0.2
_SHARE_BESIDE_A_READER = 0.7
"""What is read is written once more."""


class ExpelledError(KafkaError):
    """The consumer group goes on without this process."""


class Run(Protocol):
    """The parts of a `Simulation` that its transactions use."""

    @property
    def chance(self) -> Chance:
        """The source of all chance."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the run."""

    @property
    def scenario(self) -> Scenario:
        """The parameters of the run."""

    @property
    def world(self) -> SimWorld:
        """Cluster and network."""

    @property
    def trace(self) -> Trace:
        """The run's events."""

    @property
    def ledger(self) -> Ledger:
        """The outcomes that users got."""

    def make_producer(self, **arguments: Any) -> SimProducer:
        """One more producer under test."""


class RunContext:
    """The state that all incarnations of a transactional run share.

    Attributes:
        book: What is noted of them.
        closing: Whether no transaction is to begin any more.
        in_haste: Whether first transactions end at once.
    """

    def __init__(self, run: Run, plan: Plan) -> None:
        world, scenario = run.world, run.scenario
        self.book: TransactionBook = TransactionBook()
        self.closing: bool = False
        self.loop: asyncio.AbstractEventLoop = run.loop
        self.ledger: Ledger = run.ledger
        self.trace: Trace = run.trace
        self.cluster: SimCluster = world.cluster
        self.wall_ms: Callable[[], int] = world.wall_ms
        self.purges: bool = scenario.purges
        self.timeout_s: float = scenario.options["transaction_timeout_ms"] / 1000
        self.network: SimNetwork = world.network
        self.share_prepared: float = plan.share_prepared
        self.in_haste: bool = run.chance.of("haste").random() < _SHARE_IN_HASTE
        shape = scenario.shape
        inputs = {name: count for name, count in shape.topics.items() if name != OUTPUT_TOPIC}
        self.input_shape: Shape = shape._replace(topics=inputs)
        self.seats: dict[str, Seat] = {seat.name: seat for seat in plan.seats}
        self._run = run
        self._rng: random.Random = run.chance.of("cast")
        self._tasks: list[asyncio.Future[None]] = []
        makers = [seat for seat in plan.seats if seat.reads is None]
        share = 1.0 if len(makers) == len(plan.seats) else _SHARE_BESIDE_A_READER
        self._budget = max(1, int(scenario.records * share) // len(makers))
        self._spent = dict.fromkeys(self.seats, 0)

    def attend(self, task: asyncio.Future[None]) -> None:
        """The run does not end before this has."""
        self._tasks.append(task)

    def steal_transactional_id(self, seat: str) -> int:
        """See `faults.base.Cast`."""
        raise NotImplementedError

    def chance_of(self, purpose: str) -> random.Random:
        """Return a separate source of chance for a purpose."""
        return self._run.chance.of(purpose)

    def config_without_id(self) -> ProducerConfig:
        """The scenario's options, for a client that writes nothing."""
        return ProducerConfig(**self._run.scenario.options)

    # -- consumers --------------------------------------------------------------------------------

    def make_consumer(self, seat: Seat, name: str) -> SimConsumer | None:
        """Return the consumer with which an incarnation of that name reads."""
        if seat.reads is None:
            return None
        return SimConsumer(
            self.cluster, seat.reads, seat.group, name if seat.by_generation else None
        )

    def rejoin(self, consumer: SimConsumer | None, *, superseded: bool) -> None:
        """After a failed transaction a consumer reads again what it had read."""
        if consumer is None:
            return
        consumer.rejoin()
        consumer.rewind()
        if superseded and self._rng.random() < 0.3:
            raise ExpelledError("the group has given the partitions to another member")

    # -- the share of the work --------------------------------------------------------------------

    def burst_sizes(self, seat: Seat) -> Sequence[int]:
        """Return how many records to send at a time; more where the work has fallen behind."""
        due = self.loop.time() / CHAOS_S * self._budget
        return _LARGE if self._spent[seat.name] < due - _LAG else _USUAL

    def spend(self, seat: Seat, size: int) -> None:
        """Counts records that are about to be sent."""
        self._spent[seat.name] += size

    def pause(self, seat: Seat) -> float:
        """Return the pause before the next transaction, so that the work lasts until the end."""
        if seat.reads is not None:
            return self._rng.choice((0.0, 0.1, 0.5))
        due = self._spent[seat.name] / self._budget * CHAOS_S
        return min(_LONGEST_PAUSE_S, max(0.01, due - self.loop.time()))
