"""One transactional run from the first process to the last.

Owns: the order of events. Not here: what faults do, what the guarantees are.

    all work while faults strike -> heal -> probe: each seat commits once more, and readers
    read to the end -> close
                                  or: -> close amid the faults -> heal
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from aioproducer.core.transactions.requests import (
    FIRST_INIT_WITH_IDENTITY,
    FIRST_WITH_MANY_KEYS,
)
from aioproducer.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from aioproducer.testing.broker.transactions.shards import CoordinatorKind
from aioproducer.testing.broker.transactions.states import TransactionState
from aioproducer.wire.api_keys import ApiKey
from simulation.faults.brokers import Crash, move_leader
from simulation.faults.processes import reset_connections
from simulation.ledger import Entry
from simulation.releases import all_have_v2, all_serve
from simulation.transactions.book import Outcome, TransactionEntry
from simulation.transactions.caller import GaveUpError
from simulation.transactions.calm import (
    LateAdmin,
    begin_after_a_downgrade,
    begin_while_refused,
    call_out_of_turn,
    commit_amid_a_bulk_call,
    commit_before_abort,
    commit_from_outside,
    commit_positions_alone,
    commit_with_a_refused_row,
    go_on_after_an_unknown_producer,
    read_a_position_amid_a_commit,
)
from simulation.transactions.ended_tasks import (
    begin_after_a_late_start,
    close_when_prepared,
    end_a_task,
)
from simulation.transactions.neighbours import begin_after_a_cut_call, begin_amid_a_bulk_call
from simulation.transactions.outsider import SimAdmin
from simulation.transactions.plan import Seat

if TYPE_CHECKING:
    from simulation.transactions.actor import Actor
    from simulation.transactions.cast import Cast
    from simulation.transactions.context import Run

_SETTLING_S = 10.0
_TRIES = 5
_LONGEST_READING_S = 60.0
_MOST_READ = 60
_SHARE_OF_FAILED, _SHARE_COMMITTED = 0.5, 0.5
_SHARE_OF_BLOCKS, _SHARE_UNSEEN, _SHARE_PREPARED = 0.5, 0.3, 0.5
"""Of the transactions that are open when everything is closed."""
_SHARE_DOWNGRADED = 0.5
_CUT_CALLS = 3
_LONG_TIMEOUT_S = 10.0
_UNUSED_ID, _A_DAY_MS = "unused", 86_400_000
_SHARE_OF_OLD_LISTS, _OLD_LISTS = 0.5, (0, 1)
_DOWN_S, _FENCED_S = 30.0, 8.0
"""How long a broker is down, and when metadata leave it out and coordinators have moved."""


class TransactionalPlay:
    """Plays a run with its cast."""

    def __init__(self, run: Run, cast: Cast) -> None:
        self._run = run
        self._cast = cast
        self._loop = run.loop
        self._ledger = run.ledger

    async def run(self) -> None:
        """Run until every producer is closed, one way or the other."""
        self._cast.start()
        closes_at = self._run.scenario.closes_at
        if closes_at is None:
            await self._end_in_peace()
        else:
            await self._end_in_haste(closes_at)

    async def _end_in_peace(self) -> None:
        heals_at = self._run.scenario.heals_at
        await asyncio.sleep(max(0.0, heals_at - self._loop.time()))
        self._run.world.heal()
        await self._cast.finished()
        await asyncio.sleep(_SETTLING_S)
        seats = sorted(self._cast.seats.values(), key=lambda seat: seat.reads is not None)
        for seat in seats:
            await self._probe(seat)
        left_open = [seat for seat in seats if await self._leave_open(seat)]
        some = [seat for seat in left_open if self._commits_last(seat)]
        for seat in left_open:
            await self._prepare_last(seat, some)
        await self._check_admin()
        commits = [asyncio.ensure_future(self.commit_amid_close(seat)) for seat in some]
        await asyncio.sleep(0)  # a commit begins before the close, if any does
        await self.close(None)
        await asyncio.gather(*commits)
        for actor in map(self._cast.present, left_open):
            await (asyncio.sleep(0) if actor is None else actor.leave_block())
        for seat in left_open:
            self._check_end(seat)
        await self._check_admin_without_a_broker()

    async def _end_in_haste(self, at: float) -> None:
        await asyncio.sleep(max(0.0, at - self._loop.time()))
        self._run.trace("all close")
        await self.close(self._run.scenario.close_timeout_s)
        await self._cast.finished()
        self._run.world.heal()

    async def close(self, timeout: float | None) -> None:
        """Closes every producer that may still be open."""
        self._cast.closing = True
        await asyncio.gather(*[actor.dispose(timeout) for actor in self._cast.actors])

    # -- closing in a transaction -----------------------------------------------------------------

    async def _leave_open(self, seat: Seat) -> bool:
        """Return whether the seat has a transaction that only a close ends, failed or not."""
        actor = self._cast.present(seat)
        if actor is None or not actor.is_fit:
            return False
        topic, now = min(self._cast.input_shape.topics), self._loop.time()
        sizes = [0]
        if self._run.chance.of(f"close of {actor.entry.name}").random() < _SHARE_OF_FAILED:
            sizes.append(actor.producer.config.max_request_size)
        names = [b"<left open %d/%s>" % (size, actor.entry.name.encode()) for size in sizes]
        entries = [
            Entry(name, -2, topic, 0, None, name + bytes(size), (), None, now)
            for name, size in zip(names, sizes, strict=True)
        ]
        chance = self._run.chance.of(f"last block of {seat.name}")
        try:
            if chance.random() < _SHARE_OF_BLOCKS:
                name = b"<given up/%s>" % actor.entry.name.encode()
                await actor.give_up_block(Entry(name, -2, topic, 0, None, name, (), None, now))
                if chance.random() < _SHARE_UNSEEN:
                    await actor.begin_unseen(entries[0])
                    return True
            await actor.leave_open(entries, in_block=chance.random() < _SHARE_OF_BLOCKS)
        except KafkaError as error:
            text = f"{actor.entry.name} has no transaction to leave open: {error!r}"
            self._run.trace(text)
            if isinstance(error, IllegalStateError):
                self._ledger.false_reports.append(text)
            return False
        return True

    async def _prepare_last(self, seat: Seat, committing: Sequence[Seat]) -> None:
        """Prepare some of what is not committed; no caller gets a handle to end it with."""
        actor, chance = (
            self._cast.present(seat),
            self._run.chance.of(f"last prepare of {seat.name}"),
        )
        if actor is not None and seat not in committing and chance.random() < _SHARE_PREPARED:
            await actor.prepare_unseen()

    def _commits_last(self, seat: Seat) -> bool:
        return self._run.chance.of(f"last commit of {seat.name}").random() < _SHARE_COMMITTED

    async def commit_amid_close(self, seat: Seat) -> None:
        """A commit that is under way when its producer is closed has an outcome.

        Not if the coordinator has fenced the producer, as by the timeout of what was left open.
        """
        actor = self._cast.present(seat)
        if actor is None:
            return
        until = self._loop.time() + actor.producer.config.max_block_ms / 1000
        try:
            await actor.commit_last()
        except GaveUpError:
            pass
        except KafkaError as error:
            if self._loop.time() < until and not actor.is_shut_out:
                text = f"{actor.entry.name} was closed while it committed, and {error!r}"
                self._ledger.false_reports.append(text)

    def _check_end(self, seat: Seat) -> None:
        """The coordinator has ended what the closed producer had begun, or is about to.

        A V2 transaction cannot be ended by a broker with lowered versions. One has begun if that
        was the only broker without a connection then.
        """
        if "api_versions_by_broker" in self._run.scenario.brokers:
            return
        actor = self._cast.present(seat)
        name = "" if actor is None else actor.entry.transactional_id
        transaction = self._cast.cluster.transactions.transactions.get(name)
        if transaction is not None and transaction.state is TransactionState.ONGOING:
            self._ledger.false_reports.append(f"close() has left a transaction of {name} open")

    async def _check_admin(self) -> None:
        """Another process finds all open transactions, and aborts only those of dead processes."""
        if self._cast.timeout_s < _LONG_TIMEOUT_S:
            return  # they may end meanwhile
        if not all_serve(self._cast.cluster, ApiKey.FIND_COORDINATOR, FIRST_WITH_MANY_KEYS):
            return  # a broker before 3.0 describes no transactions
        rng = self._run.chance.of("admin")
        before, began_at = self._ongoing(), self._loop.time()
        async with SimAdmin(self._cast.config_without_id(), self._cast.network, rng) as admin:
            await self._check_unlisted_coordinators(admin)
            found = {each.transactional_id for each in await admin.open_transactions()}
            if not before & self._ongoing() <= found <= before | self._ongoing():
                text = f"{sorted(before)} are open, open_transactions() returns {sorted(found)}"
                self._ledger.false_reports.append(text)
            await self._check_choice_of_open_transactions(admin, found & self._ongoing())
            present = [self._cast.present(seat) for seat in self._cast.seats.values()]
            keep = [actor.entry.transactional_id for actor in present if actor is not None]
            await self._abort_orphans(admin, keep, sorted(found))
        left, ended = self._ongoing().difference(keep), found.intersection(keep) - self._ongoing()
        if self._loop.time() - began_at > _LONG_TIMEOUT_S / 2:
            ended = set()  # perhaps by their timeout
        if left or ended:
            text = f"abort_orphans() has left {sorted(left)} open, and ended {sorted(ended)}"
            self._ledger.false_reports.append(text)

    async def _abort_orphans(
        self, admin: SimAdmin, keep: Sequence[str], found: Sequence[str]
    ) -> None:
        """Abort what is open but for `keep`, at coordinators that have just moved."""
        for name in found:
            shard = self._cast.cluster.shards.shard(CoordinatorKind.TRANSACTION, name)
            move_leader(self._run.world, shard.topic, shard.index)
        try:
            for seat in self._cast.seats.values():
                await admin.abort_orphans(seat.name, keep=keep)
        except KafkaTimeoutError as error:
            self._ledger.unrecovered.append(f"coordinators have moved: {error}")

    async def _check_choice_of_open_transactions(self, admin: SimAdmin, open_: set[str]) -> None:
        """Only those are found that the arguments describe; brokers before 4.1 know no pattern."""
        cluster = self._cast.cluster
        if self._run.chance.of("old admin").random() < _SHARE_OF_OLD_LISTS:
            versions = {**cluster.settings.api_versions, ApiKey.LIST_TRANSACTIONS: _OLD_LISTS}
            cluster.settings = replace(cluster.settings, api_versions=versions)
            reset_connections(self._run.world, sorted(cluster.brokers))
        for name in self._cast.seats:
            found = {each.transactional_id for each in await admin.open_transactions(name)}
            wanted = {each for each in open_ if each.startswith(name)}
            if not wanted & self._ongoing() <= found <= wanted:
                text = f"{sorted(wanted)} are open, open_transactions({name!r}) returns {found}"
                self._ledger.false_reports.append(text)
        older = await admin.open_transactions(older_than_ms=_A_DAY_MS)
        if older:
            self._ledger.false_reports.append(f"{older} are said to be a day old")

    async def _check_unlisted_coordinators(self, admin: SimAdmin) -> None:
        """A coordinator that the last list of brokers lacks is looked up again."""
        cluster = self._cast.cluster
        try:
            for node_id in sorted(cluster.brokers):
                await admin.describe(_UNUSED_ID)
                cluster.unlisted.add(node_id)
                await admin.open_transactions()
                cluster.unlisted.discard(node_id)
                await admin.describe(_UNUSED_ID)
        except KafkaTimeoutError as error:
            self._ledger.unrecovered.append(f"a coordinator was left out of metadata: {error}")

    async def _check_admin_without_a_broker(self) -> None:
        """A client that has asked every broker asks those that are left when one has gone."""
        if not all_serve(self._cast.cluster, ApiKey.FIND_COORDINATOR, FIRST_WITH_MANY_KEYS):
            return
        rng, world = self._run.chance.of("admin without a broker"), self._run.world
        async with SimAdmin(self._cast.config_without_id(), self._cast.network, rng) as admin:
            try:
                await admin.open_transactions()
                Crash(0.0, rng.choice(sorted(world.brokers)), _DOWN_S).strike(world)
                await asyncio.sleep(_FENCED_S)
                await admin.open_transactions()
            except KafkaTimeoutError as error:
                self._ledger.unrecovered.append(f"a broker has gone: {error}")
        await asyncio.sleep(_DOWN_S)

    def _ongoing(self) -> set[str]:
        transactions = self._cast.cluster.transactions.transactions
        return {
            name for name, each in transactions.items() if each.state is TransactionState.ONGOING
        }

    # -- probing ----------------------------------------------------------------------------------

    async def _probe(self, seat: Seat) -> None:
        """A healthy cluster commits, and a reader gets to the end of what it reads."""
        trouble = "no process was there"
        for tried in range(_TRIES):
            actor = await self._fit_actor(seat)
            try:
                if actor.consumer is None:
                    await self._write_everywhere(actor, at_once=not tried)
                    await self._make_rare_ones(actor)
                    return
                # A transaction that carries too much ends by its timeout, and its producer with it.
                if await self._read_to_the_end(actor, _MOST_READ >> tried):
                    return
                trouble = "it does not get to the end"
            except KafkaError as error:
                trouble = repr(error)
                actor.end(error)
                await actor.dispose(0)
            await asyncio.sleep(1.0)
        self._ledger.unrecovered.append(f"no recovery of {seat.name}: {trouble}")

    async def _fit_actor(self, seat: Seat) -> Actor:
        actor = self._cast.present(seat)
        if actor is None or not actor.is_fit:
            actor = self._cast.appear(seat)
            await actor.start()
        return actor

    async def _write_everywhere(self, actor: Actor, *, at_once: bool) -> None:
        async def fill(tx: TransactionEntry) -> None:
            names = {
                b"<probe %d/%s-%d>" % (tx.number, topic.encode(), i): (topic, i)
                for topic, count in sorted(self._cast.input_shape.topics.items())
                for i in range(count)
            }
            now = self._loop.time()
            entries = [
                Entry(name, -2, *where, None, name, (), None, now) for name, where in names.items()
            ]
            if at_once:
                await asyncio.gather(*[actor.contents.send(entry) for entry in entries])
                return
            for entry in entries:  # where memory holds one record, the last of many waits too long
                await actor.contents.send(entry)

        tx = await actor.calm_transaction(fill)
        if tx.outcome is not Outcome.COMMITTED:
            raise KafkaError(f"{tx.label} is {tx.outcome.value}")

    async def _make_rare_ones(self, actor: Actor) -> None:
        """See `simulation.transactions.calm`."""
        topic, cluster = min(self._cast.input_shape.topics), self._cast.cluster
        await commit_positions_alone(actor, topic, cluster, self._ledger)
        await begin_while_refused(actor, self._run.world, self._ledger)
        name = b"<forgotten/%s>" % actor.entry.name.encode()
        entry = Entry(name, -2, topic, 0, None, name, (), None, self._loop.time())
        await go_on_after_an_unknown_producer(actor, entry, self._run.world)
        name = b"<out of turn/%s>" % actor.entry.name.encode()
        entry = Entry(name, -2, topic, 0, None, name, (), None, self._loop.time())
        await call_out_of_turn(actor, entry, self._ledger)
        name = b"<late abort/%s>" % actor.entry.name.encode()
        entry = Entry(name, -2, topic, 0, None, name, (), None, self._loop.time())
        config, rng = self._cast.config_without_id(), self._run.chance.of("late admin")
        commits = {actor.entry.transactional_id: actor.commit_last}
        admin = LateAdmin(config, self._cast.network, rng, commits)
        if all_have_v2(cluster):  # else the process that aborts uses V1
            await commit_before_abort(actor, entry, admin, self._cast.book, self._ledger)
        latency_s = self._run.scenario.base_latency_s
        await read_a_position_amid_a_commit(actor, topic, admin, latency_s, self._ledger)
        await self._commit_from_outside(actor, topic, admin)
        await commit_with_a_refused_row(actor, topic, self._ledger)
        name = b"<amid a call/%s>" % actor.entry.name.encode()
        entry = Entry(name, -2, topic, 0, None, name, (), None, self._loop.time())
        await commit_amid_a_bulk_call(actor, entry, self._ledger)
        if self._run.chance.of(f"downgrade by {actor.entry.name}").random() < _SHARE_DOWNGRADED:
            names = [b"<downgraded %d/%s>" % (i, actor.entry.name.encode()) for i in range(2)]
            now = self._loop.time()
            entries = [Entry(name, -2, topic, 0, None, name, (), None, now) for name in names]
            await begin_after_a_downgrade(actor, entries, self._run.world, self._ledger)
        await self._make_neighbours(actor)

    async def _commit_from_outside(self, actor: Actor, topic: str, admin: SimAdmin) -> None:
        """Not where the transaction may end by its timeout meanwhile, or none can be prepared."""
        needed = {
            ApiKey.INIT_PRODUCER_ID: FIRST_INIT_WITH_IDENTITY,
            ApiKey.FIND_COORDINATOR: FIRST_WITH_MANY_KEYS,
        }
        cluster, now = self._cast.cluster, self._loop.time()
        if self._cast.timeout_s < _LONG_TIMEOUT_S:
            return
        if all(all_serve(cluster, api, version) for api, version in needed.items()):
            names = [b"<outside %d/%s>" % (i, actor.entry.name.encode()) for i in range(2)]
            entries = [Entry(name, -2, topic, 0, None, name, (), None, now) for name in names]
            await commit_from_outside(actor, entries, admin, self._run.world, self._ledger)

    async def _make_neighbours(self, actor: Actor) -> None:
        """See `simulation.transactions.neighbours`."""
        rng = self._run.chance.of(f"cut calls of {actor.entry.name}")
        topic, now = min(self._cast.input_shape.topics), self._loop.time()
        for _ in range(_CUT_CALLS):
            await begin_after_a_cut_call(actor, topic, rng, self._ledger)
        names = [b"<neighbour %d/%s>" % (i, actor.entry.name.encode()) for i in range(2)]
        entries = [Entry(name, -2, topic, 0, None, name, (), None, now) for name in names]
        await begin_amid_a_bulk_call(actor, entries, self._ledger)
        if ApiKey.INIT_PRODUCER_ID in self._cast.cluster.settings.api_versions:
            return  # brokers before 2.5: `abort_orphans` cannot end what the next one leaves open
        name = f"{actor.entry.name}-ended"
        producer = self._run.make_producer(purpose=name, transactional_id=name)
        await end_a_task(producer, topic, self._run.chance.of(name), self._ledger)
        name = f"{actor.entry.name}-late"
        producer = self._run.make_producer(purpose=name, transactional_id=name)
        await begin_after_a_late_start(producer, self._run.world, self._ledger)
        if self._cast.timeout_s < _LONG_TIMEOUT_S:
            return  # what is prepared may end meanwhile
        if self._cast.cluster.settings.api_versions_by_broker:
            return  # a coordinator that is lowered may not take the offsets
        name = f"{actor.entry.name}-closed"
        producer = self._run.make_producer(purpose=name, transactional_id=name)
        config, rng = self._cast.config_without_id(), self._run.chance.of(name)
        admin = SimAdmin(config, self._cast.network, rng)
        await close_when_prepared(producer, topic, admin, self._ledger)

    async def _read_to_the_end(self, actor: Actor, most: int) -> bool:
        """Return whether it gets there; open transactions of dead processes delay it."""
        consumer = actor.consumer
        until = self._loop.time() + _LONGEST_READING_S
        while consumer is not None and self._loop.time() < until:
            sources = consumer.poll(most)
            if not sources:
                if sources is not None and not consumer.has_unread_records():
                    return True
                await asyncio.sleep(0.5)
                continue

            tx = await actor.calm_transaction(partial(actor.contents.transform, sources=sources))
            if tx.outcome is not Outcome.COMMITTED:
                self._cast.rejoin(consumer, superseded=actor.superseded)
                most = max(1, most // 2)  # memory may not do for so many at a time
        return False
