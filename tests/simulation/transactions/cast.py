"""The incarnations of a run: who is at work on which seat, who dies, who comes after.

Owns: starting, killing and replacing processes, the share of the work that each gets. Must not
know: how transactions are done.

    vacant --> at work --killed, fenced, at its end--> vacant, a while later
                   |
                   +--usurped--> superseded: goes on beside its successor until it is told
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aioproducer.config import ProducerConfig
from aioproducer.testing.world.faults import Shape
from simulation.scenario import CHAOS_S
from simulation.transactions.actor import Actor, ExpelledError
from simulation.transactions.book import ActorEntry, TransactionBook
from simulation.transactions.consumer import SimConsumer
from simulation.transactions.line import Line
from simulation.transactions.manners import Manners
from simulation.transactions.plan import OUTPUT_TOPIC, Plan, Seat

if TYPE_CHECKING:
    from aioproducer.testing.world.cluster import SimCluster
    from aioproducer.testing.world.network import SimNetwork
    from aioproducer.testing.world.trace import Trace
    from simulation.ledger import Ledger
    from simulation.simulation import Simulation

_LONGEST_PAUSE_S = 3.0
_USUAL, _LARGE = (1, 2, 5, 12), (12, 25)
_LAG = 12
_SHARE_IN_HASTE = 0.2
_SHARE_BESIDE_A_READER = 0.7
"""What is read is written once more."""


class Cast:
    """Everybody in a transactional run.

    Attributes:
        book: What is noted of them.
        actors: All of them, in the order of their appearance.
        closing: Whether nobody is to begin anything any more.
        in_haste: Whether first transactions end at once.
    """

    def __init__(self, simulation: Simulation, plan: Plan) -> None:
        world, scenario = simulation.world, simulation.scenario
        self.book: TransactionBook = TransactionBook()
        self.actors: list[Actor] = []
        self.closing: bool = False
        self.loop: asyncio.AbstractEventLoop = simulation.loop
        self.ledger: Ledger = simulation.ledger
        self.trace: Trace = simulation.trace
        self.cluster: SimCluster = world.cluster
        self.wall_ms: Callable[[], int] = world.wall_ms
        self.purges: bool = scenario.purges
        self.timeout_s: float = scenario.options["transaction_timeout_ms"] / 1000
        self.network: SimNetwork = world.network
        self.share_prepared: float = plan.share_prepared
        self.in_haste: bool = simulation.chance.of("haste").random() < _SHARE_IN_HASTE
        shape = scenario.shape
        inputs = {name: count for name, count in shape.topics.items() if name != OUTPUT_TOPIC}
        self.input_shape: Shape = shape._replace(topics=inputs)
        self.seats: dict[str, Seat] = {seat.name: seat for seat in plan.seats}
        self._simulation = simulation
        self._rng: random.Random = simulation.chance.of("cast")
        self._present: dict[str, Actor] = {}
        self._tasks: list[asyncio.Future[None]] = []
        makers = [seat for seat in plan.seats if seat.reads is None]
        share = 1.0 if len(makers) == len(plan.seats) else _SHARE_BESIDE_A_READER
        self._budget = max(1, int(scenario.records * share) // len(makers))
        self._spent = dict.fromkeys(self.seats, 0)

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Everybody begins."""
        for seat in self.seats.values():
            self._tasks.append(asyncio.ensure_future(self._occupy(seat)))

    async def finished(self) -> None:
        """Returns when everybody has stopped working."""
        done = 0
        while done < len(self._tasks):  # a usurpation adds one
            await self._tasks[done]
            done += 1

    async def _occupy(self, seat: Seat) -> None:
        """Lets one incarnation work after the other until one finishes, or is superseded."""
        while not self.closing:
            actor = self.appear(seat)
            work = asyncio.ensure_future(actor.run())
            actor.work = work
            await asyncio.wait([work])
            if not work.cancelled():
                work.result()
            if not actor.is_fit:
                await actor.dispose(self._rng.choice((None, 0.0, 0.5)) if not actor.gone else 0)
            if actor.is_fit or actor.superseded or self.loop.time() >= CHAOS_S:
                return
            await asyncio.sleep(self._rng.choice((0.0, 0.1, 1.0)))

    def present(self, seat: Seat) -> Actor | None:
        """Who holds the seat, if anybody ever did."""
        return self._present.get(seat.name)

    def appear(self, seat: Seat) -> Actor:
        """A new incarnation takes the seat."""
        number = sum(actor.seat is seat for actor in self.actors) + 1
        name = f"{seat.name}.{number}"
        transactional_id = f"{seat.name}-{number}" if seat.by_generation else seat.name
        entry = ActorEntry(name, transactional_id, number, self.loop.time())
        simulation = self._simulation
        manners = Manners(name, self.cluster, self.book.complaints.append)
        line = Line(simulation.world.network, manners.watch)
        producer = simulation.make_producer(
            purpose=f"producer {name}", dialer=line, transactional_id=transactional_id
        )
        self.book.actors.append(entry)
        actor = Actor(self, seat, entry, producer, line, simulation.chance.of(f"actor {name}"))
        self.actors.append(actor)
        self._present[seat.name] = actor
        return actor

    # -- what faults do ---------------------------------------------------------------------------

    def kill(self, seat: str) -> int:
        """See `faults.base.Cast`."""
        actor = self._present.get(seat)
        if actor is None or actor.gone or self.closing:
            return 0
        self.trace(f"{actor.entry.name} is killed")
        actor.kill()
        return 1

    def usurp(self, seat: str) -> int:
        """See `faults.base.Cast`."""
        actor = self._present.get(seat)
        if actor is None or not actor.is_fit or self.closing:
            return 0
        actor.superseded = True
        self._tasks.append(asyncio.ensure_future(self._occupy(self.seats[seat])))
        return 1

    def rebalance(self, seat: str) -> int:
        """See `faults.base.Cast`."""
        group = self.cluster.groups.groups.get(self.seats[seat].group)
        if group is None or not group.members:
            return 0
        self.cluster.groups.set_members(self.seats[seat].group, group.generation + 1, group.members)
        return 1

    # -- what others than seats do ----------------------------------------------------------------

    def attend(self, task: asyncio.Future[None]) -> None:
        """The run does not end before this has."""
        self._tasks.append(task)

    def chance_of(self, purpose: str) -> random.Random:
        """A source of chance of its own."""
        return self._simulation.chance.of(purpose)

    def config_without_id(self) -> ProducerConfig:
        """The scenario's options for somebody who writes nothing."""
        return ProducerConfig(**self._simulation.scenario.options)

    # -- what actors ask --------------------------------------------------------------------------

    def make_consumer(self, actor: Actor) -> SimConsumer | None:
        """What an incarnation reads by."""
        seat = actor.seat
        if seat.reads is None:
            return None
        member = actor.entry.name if seat.by_generation else None
        return SimConsumer(self.cluster, seat.reads, seat.group, member)

    def rejoin(self, actor: Actor) -> None:
        """After a failed transaction a consumer reads again what it had read."""
        consumer = actor.consumer
        if consumer is None:
            return
        consumer.rejoin()
        consumer.rewind()
        if actor.superseded and self._rng.random() < 0.3:
            raise ExpelledError("the group has given the partitions to somebody else")

    def burst_sizes(self, seat: Seat) -> Sequence[int]:
        """How many records to send at a time; more where the work has fallen behind."""
        due = self.loop.time() / CHAOS_S * self._budget
        return _LARGE if self._spent[seat.name] < due - _LAG else _USUAL

    def spend(self, seat: Seat, size: int) -> None:
        """Counts records that are about to be sent."""
        self._spent[seat.name] += size

    def pause(self, seat: Seat) -> float:
        """How long to wait before the next transaction, so that the work lasts until the end."""
        if seat.reads is not None:
            return self._rng.choice((0.0, 0.1, 0.5))
        due = self._spent[seat.name] / self._budget * CHAOS_S
        return min(_LONGEST_PAUSE_S, max(0.01, due - self.loop.time()))
