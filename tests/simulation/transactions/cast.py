"""The incarnations of a run: the current one of each seat, the dead ones, their successors.

Owns: starting, killing and replacing processes. Not here: how transactions are done.

    vacant --> at work --killed, fenced, at its end--> vacant, a while later
                   |
                   +--superseded--> goes on beside its successor until it gets an error
"""

from __future__ import annotations

import asyncio

from simulation.scenario import CHAOS_S
from simulation.transactions.actor import Actor
from simulation.transactions.book import ActorEntry
from simulation.transactions.context import Run, RunContext
from simulation.transactions.line import Line
from simulation.transactions.plan import Plan, Seat
from simulation.transactions.protocol_checks import ClientProtocolChecks


class Cast(RunContext):
    """All incarnations of a transactional run.

    Attributes:
        actors: All of them, in the order of their appearance.
    """

    def __init__(self, run: Run, plan: Plan) -> None:
        super().__init__(run, plan)
        self.actors: list[Actor] = []
        self._present: dict[str, Actor] = {}

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start one incarnation on each seat."""
        for seat in self.seats.values():
            self._tasks.append(asyncio.ensure_future(self._occupy(seat)))

    async def finished(self) -> None:
        """Return when every incarnation has stopped working."""
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
        """Return the incarnation that holds the seat, if there ever was one."""
        return self._present.get(seat.name)

    def appear(self, seat: Seat) -> Actor:
        """A new incarnation takes the seat."""
        number = sum(actor.seat is seat for actor in self.actors) + 1
        name = f"{seat.name}.{number}"
        transactional_id = f"{seat.name}-{number}" if seat.by_generation else seat.name
        entry = ActorEntry(name, transactional_id, number, self.loop.time())
        run = self._run
        backoff_s = run.scenario.options["retry_backoff_ms"] / 1000
        complain = self.book.complaints.append
        checks = ClientProtocolChecks(name, self.cluster, complain, backoff_s)
        line = Line(run.world.network, checks.watch)
        producer = run.make_producer(
            purpose=f"producer {name}", dialer=line, transactional_id=transactional_id
        )
        self.book.actors.append(entry)
        actor = Actor(self, seat, entry, producer, line, run.chance.of(f"actor {name}"))
        actor.on_begin = checks.on_begin
        actor.has_refused_commit = lambda: checks.has_refused_commit
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

    def steal_transactional_id(self, seat: str) -> int:
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
