"""The contents of one incarnation's transactions: records, and the positions they come from.

Owns: how users fill transactions, well and badly. Not here: how transactions begin and end.

    made up         bursts in the styles of `workload`, one after the other or at once
    transformed     a record for every one that was read, and how far that was
    straggling      sends that go on while the transaction ends
    oversleeping    waiting amid a transaction for longer than the coordinator does
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from aioproducer.errors import (
    CommitOutcomeUnknownError,
    FatalTransactionError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosedError,
    ProducerFailedError,
    ProducerFencedError,
)
from aioproducer.testing.world.producer import SimProducer
from aioproducer.types import ConsumerGroupMetadata
from simulation.ledger import Entry, Source
from simulation.scenario import CHAOS_S
from simulation.transactions.book import TransactionEntry
from simulation.transactions.caller import Caller
from simulation.transactions.context import RunContext
from simulation.transactions.plan import OUTPUT_TOPIC, Seat
from simulation.workload import Workload

if TYPE_CHECKING:
    from simulation.transactions.consumer import SimConsumer

ENDS = (
    CommitOutcomeUnknownError,
    FatalTransactionError,
    ProducerClosedError,
    ProducerFailedError,
    ProducerFencedError,
)
"""After these only `close()` is left."""

_TASKS_PER_ACTOR = 10_000
_SHARE_OF_TWO_GROUPS = 0.3
"""Of the transactions that commit positions; one group is a copy of the other."""
_SHARE_OF_ABSENT, _ABSENT_PARTITION = 0.5, 10**6
"""Of the sends that go on, some name a partition that there is not: they end much later."""


class Contents:
    """The records and positions of one incarnation.

    Attributes:
        consumer: What it reads by, if it reads.
    """

    def __init__(
        self,
        context: RunContext,
        seat: Seat,
        producer: SimProducer,
        caller: Caller,
        rng: random.Random,
    ) -> None:
        self.consumer: SimConsumer | None = None
        self._context = context
        self._seat = seat
        self._producer = producer
        self._caller = caller
        self._rng = rng
        self._first_task = len(context.book.actors) * _TASKS_PER_ACTOR
        self._tasks = 0
        self._stragglers: list[asyncio.Future[None]] = []
        self._work = Workload(
            producer,
            context.input_shape,
            context.ledger,
            context.trace,
            context.wall_ms,
            purges=context.purges,
        )

    def begin(self, tx: TransactionEntry) -> None:
        """Count records that are sent from now on as part of this transaction."""
        self._work.transaction = tx.number

    async def stop(self) -> None:
        """Ends the sends that are still going on."""
        for straggler in self._stragglers:
            straggler.cancel()
        await asyncio.gather(*self._stragglers, return_exceptions=True)

    async def fill(self, tx: TransactionEntry, sources: Sequence[Source] | None) -> None:
        """Sends what there is to send, made up or made of what was read, and maybe waits."""
        rng = self._rng
        if sources is None:
            await self._make_up()
        else:
            await self.transform(tx, sources)
        if rng.random() < 0.05 and self._context.timeout_s <= CHAOS_S / 10:
            tx.overslept = True
            await asyncio.sleep(self._context.timeout_s * rng.uniform(1.0, 1.6))
        elif rng.random() < 0.3:
            await asyncio.sleep(rng.choice((0.0, 0.01, 0.2, 1.0)))

    async def _make_up(self) -> None:
        rng = self._rng
        usual = self._context.burst_sizes(self._seat)
        sizes = [rng.choice(usual) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        self._context.spend(self._seat, sum(sizes))
        if sizes and rng.random() < 0.12:
            self.straggle(self._own_chance(), sizes.pop())
        if rng.random() < 0.4:
            await asyncio.gather(*[self._burst(size) for size in sizes])
        else:
            for size in sizes:
                await self._burst(size)

    def straggle(self, rng: random.Random, size: int) -> None:
        """Begin to send so many records without waiting for them, and maybe one that waits long."""
        task = self._next_task()
        sends: list[Awaitable[None]] = [self._work.at_once(task, rng, size)]
        chance = self._context.chance_of(f"absent partition of task {task}")
        if chance.random() < _SHARE_OF_ABSENT:
            name, topic = b"<%d/absent>" % task, min(self._context.input_shape.topics)
            now = self._context.loop.time()
            entry = Entry(name, -1, topic, _ABSENT_PARTITION, None, name, (), None, now)
            sends.append(self._quietly(self.send(entry)))
        self._stragglers += [asyncio.ensure_future(each) for each in sends]

    async def _burst(self, size: int) -> None:
        await self._quietly(self._work.burst(self._next_task(), self._own_chance(), 0, size))

    def _next_task(self) -> int:
        """One after the other or at once: only records of one burst have an order."""
        self._tasks += 1
        return self._first_task + self._tasks

    def _own_chance(self) -> random.Random:
        return random.Random(self._rng.random())

    async def _quietly(self, work: Awaitable[None]) -> None:
        """Send; errors do not keep the user from ending the transaction."""
        try:
            await work
        except KafkaError as error:
            self._context.trace(f"a burst ends with {type(error).__name__}")

    async def transform(self, tx: TransactionEntry, sources: Sequence[Source]) -> None:
        """Makes a record of every one that was read, and commits how far that was."""
        first = self._rng.random() < 0.2
        if first:
            await self._send_offsets(tx)
        if self._rng.random() < 0.5:
            await asyncio.gather(*[self._send_transformed(source) for source in sources])
        else:
            for source in sources:
                await self._send_transformed(source)
        if not first:
            await self._send_offsets(tx)

    async def _send_transformed(self, source: Source) -> None:
        task = self._next_task()
        name = b"<%d/of %s>" % (task, source.name.strip(b"<>"))
        entry = Entry(
            name, task, OUTPUT_TOPIC, None, source.name, name, (), None, self._context.loop.time()
        )
        entry.source = source
        await self._quietly(self._send_and_watch(entry))

    async def send(self, entry: Entry) -> None:
        """Sends one record in the open transaction."""
        await self._work.send(entry)

    async def watch(self, entry: Entry) -> None:
        """Waits for the outcome of a record."""
        await self._work.watch(entry)

    async def _send_and_watch(self, entry: Entry) -> None:
        if await self._work.send(entry) and self._rng.random() < 0.2:
            await self._work.watch(entry)

    async def _send_offsets(self, tx: TransactionEntry) -> None:
        consumer = self.consumer
        if consumer is None:
            return
        tx.group, tx.offsets = self._seat.group, consumer.positions
        if self._context.chance_of(f"groups of {tx.label}").random() < _SHARE_OF_TWO_GROUPS:
            tx.copy_group = f"{tx.group}-copy"

        async def send() -> None:
            groups: list[ConsumerGroupMetadata | str] = [consumer.metadata]
            groups += [tx.copy_group] if tx.copy_group else []
            await asyncio.gather(*[self._add_offsets(tx, group) for group in groups])

        try:
            if self._rng.random() < 0.1 and await self._caller.cut_short(send()):
                return
            await self._caller.bounded("send_offsets", send())
        except ENDS:
            raise
        except KafkaError as error:
            self._context.trace(f"{tx.label}: send_offsets raises {type(error).__name__}")
        else:
            self._check_positions(tx)

    async def _add_offsets(self, tx: TransactionEntry, group: ConsumerGroupMetadata | str) -> None:
        """Commit the positions; a call that has no outcome must have something left to add."""
        try:
            await self._producer.send_offsets_to_transaction(tx.offsets, group)
        except KafkaTimeoutError:  # checked before another turn, in which a record may expire
            transactions = self._producer.engine.transactions
            if transactions is not None and not transactions.manager.contents._offsets:
                text = f"{tx.label}: send_offsets has no outcome, and adds nothing any more"
                self._context.ledger.false_reports.append(text)
            raise

    def _check_positions(self, tx: TransactionEntry) -> None:
        """The group has all positions that a call has committed, or none if a timeout came."""
        transactions = self._producer.engine.transactions
        identity = None if transactions is None else transactions.manager.identity
        group = self._context.cluster.groups.groups.get(self._seat.group)
        if identity is None or group is None:
            return
        pending = group.pending(identity.producer_id)
        missing = tx.offsets.keys() - pending
        if pending and missing:
            self._context.ledger.false_reports.append(f"{tx.label}: no position of {missing}")
