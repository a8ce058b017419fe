"""One incarnation: a process with a producer, and a user that does one transaction at a time.

Owns: how users drive transactions, well and badly, and what they note of it. Not here: faults,
the cluster's state, what is right.

    in a block       `async with`, left in order, by an exception, or by a cancellation
    by calls         begin, ..., commit or abort; each call may be cancelled and made again
    in haste         the first transaction ends while its sends ask where their topics are
    prepared         another process decides; the process waits, decides as well, maybe otherwise,
                     leaves, or goes on under another transactional id, as the tasks of the Spark
                     sink do; a successor may fence it while it waits
    giving up        a call that has no outcome for long: the process closes and another one starts
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import TYPE_CHECKING

from aioproducer.core.transactions.states import TransactionState
from aioproducer.errors import (
    AuthorizationError,
    CommitOutcomeUnknownError,
    IllegalStateError,
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosedError,
    ProducerFencedError,
    TransactionAbortableError,
)
from aioproducer.testing.broker.transactions.states import ProducerIdentity
from aioproducer.testing.broker.transactions.states import TransactionState as BrokerState
from aioproducer.testing.world.producer import SimProducer
from aioproducer.types import Persistence
from simulation.ledger import Entry, Source
from simulation.scenario import CHAOS_S
from simulation.transactions.book import ActorEntry, Outcome, TransactionEntry
from simulation.transactions.caller import Caller, GaveUpError
from simulation.transactions.contents import ENDS, Contents
from simulation.transactions.context import ExpelledError, RunContext
from simulation.transactions.line import Line
from simulation.transactions.outsider import Outsider
from simulation.transactions.plan import Seat

if TYPE_CHECKING:
    from aioproducer.client.transactions import Transaction
    from aioproducer.types import PreparedTransaction
    from simulation.transactions.consumer import SimConsumer

_SHARE_FOUND_OUT = 0.5
"""Of the commits whose outcome is unknown."""
_SHARE_ASSUMED = 0.5
"""Of the prepared transactions whose process would leave."""
_SHARE_CONTRADICTED, _SHARE_SECOND = 0.5, 0.5
"""Of the prepared transactions that their process ends as well as another one; after it."""
_SHARE_SUCCEEDED, _SUCCESSION_S = 0.3, 2.0
"""Of the prepared transactions whose end by another process is awaited."""
_SHARE_PREPARED_AMID, _PREPARED_FOR_S = 0.3, (0.0, 0.001, 0.05)
"""Of the transactions that are aborted by a call."""
_UNENDED = frozenset({TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR})
_SHARE_IN_BACKGROUND = 0.3
_HASTE_S = 0.0001
"""No answer comes that soon."""
_IN_BLOCK_S = 1.0


class HandedOverError(KafkaError):
    """The process has prepared its transaction and leaves the rest to others."""


class _ChangeOfMindError(Exception):
    """An exception that a user's own code raises in a block."""


class Actor:
    """One incarnation of a seat.

    Attributes:
        seat: Its job.
        entry: What the books say of it.
        producer: Its producer; another process's dial cannot reach it.
        superseded: Whether another process does the job by now.
        gone: Whether it was killed.
        work: Its task, while it works by itself.
        contents: What it puts into its transactions.
        on_begin: Called when it has begun a transaction.
        has_refused_commit: Whether its last EndTxn was a commit after which it can abort.
    """

    def __init__(
        self,
        context: RunContext,
        seat: Seat,
        entry: ActorEntry,
        producer: SimProducer,
        line: Line,
        rng: random.Random,
    ) -> None:
        self.seat = seat
        self.entry = entry
        self.producer = producer
        self.superseded: bool = False
        self.gone: bool = False
        self.work: asyncio.Future[None] | None = None
        self.on_begin: Callable[[], None] = lambda: None
        self.has_refused_commit: Callable[[], bool] = lambda: False
        self._last: TransactionEntry | None = None
        self._block_left_open: Transaction | None = None
        self._is_contradicted = False
        self._line = line
        self._context = context
        self._rng = rng
        self._loop = context.loop
        self._ledger = context.ledger
        self._caller = Caller(
            entry.name, producer.config.max_block_ms / 1000, rng, context.ledger, context.trace
        )
        self.contents: Contents = Contents(context, seat, producer, self._caller, rng)

    @property
    def consumer(self) -> SimConsumer | None:
        """The consumer it reads with, if it reads."""
        return self.contents.consumer

    @property
    def is_fit(self) -> bool:
        """Whether its producer can go on."""
        return self.entry.ready_at is not None and self.entry.ended_with is None and not self.gone

    async def run(self) -> None:
        """Works until the time is over or the producer is at its end."""
        try:
            if await self.start():
                if self._context.in_haste and self.consumer is None:
                    await self._in_haste()
                while self._loop.time() < CHAOS_S and not self._context.closing:
                    await self.transaction()
        except asyncio.CancelledError:
            if not self.gone:
                raise
        except (*ENDS, GaveUpError, ExpelledError, HandedOverError) as error:
            self.end(error)
        except KafkaError as error:
            self._ledger.surprises.append(f"{self.entry.name}: {error!r}")
            self.end(error)

    def end(self, error: KafkaError) -> None:
        """The producer can do no more: note why, and whether it was shut out by then."""
        self.entry.ended_with = error
        if isinstance(error.__cause__, InvalidTxnStateError) and self.has_refused_commit():
            text = f"{self.entry.name} ends by {error!r}, and an abort would have been enough"
            self._context.book.complaints.append(text)
        self.entry.was_shut_out = self.is_shut_out
        self._context.trace(f"{self.entry.name} ends with {type(error).__name__}")

    @property
    def is_shut_out(self) -> bool:
        """Whether another incarnation or a timeout has fenced it."""
        transactions = self.producer.engine.transactions
        identity = None if transactions is None else transactions.manager.identity
        if identity is None:
            return self.entry.was_shut_out
        is_fenced = self._context.cluster.transactions.has_shut_out(ProducerIdentity(*identity))
        return is_fenced or self._is_contradicted

    def kill(self) -> None:
        """The process dies: nothing of it reaches the network any more."""
        self.gone = True
        self._line.cut()
        if self.work is not None:
            self.work.cancel()

    async def start(self) -> bool:
        """Starts the producer, which fences older ones; False when that fails."""
        name = self.entry.name
        try:
            if self._context.chance_of(f"start of {name}").random() < _SHARE_IN_BACKGROUND:
                await self._start_in_background()
            else:
                limit = 2 * self.producer.config.max_block_ms / 1000
                await self._caller.bounded("start", self.producer.start(), limit)
        except KafkaError as error:
            self._context.trace(f"{name} does not start: {error!r}")
            self.entry.ended_with = error
            return False
        self.entry.ready_at = self._loop.time()
        self._context.trace(f"{name} is ready")
        self.contents.consumer = self._context.make_consumer(self.seat, self.entry.name)
        return True

    async def _start_in_background(self) -> None:
        """Start without a wait; what is refused for now is asked for again."""
        await self.producer.start(wait=False)
        try:
            await self._caller.bounded("start", self.producer.engine.wait_until_started())
        except AuthorizationError as error:
            await self._initialize(error)
            left = self.producer.engine.obstacle
            if left is not None:
                text = f"{self.entry.name} is initialized, and yet {left!r}"
                self._ledger.false_reports.append(text)

    async def dispose(self, timeout: float | None = 0) -> None:
        """Closes the producer, and ends what was left running."""
        await self.contents.stop()
        config = self.producer.config
        longest = (config.max_block_ms + config.delivery_timeout_ms) / 1000
        limit = longest if timeout is None else timeout
        await self._caller.bounded("close", self.producer.close(timeout), limit + 1.0)

    # -- transactions -----------------------------------------------------------------------------

    async def transaction(self) -> None:
        """One transaction, in some style, and a pause."""
        rng = self._rng
        sources: Sequence[Source] | None = None
        if self.consumer is not None:
            sources = self.consumer.poll(rng.choice((2, 5, 15)))
            if not sources:
                await asyncio.sleep(rng.choice((0.05, 0.2, 0.5)))
                return
        style = rng.choice((self._by_calls, self._by_calls, self._in_block, self._in_cut_block))
        share = self._context.share_prepared
        if share and rng.random() < share:
            style = self._prepared
        tx = await style(sources)
        if tx is not None:
            self._check_end(tx)
        if self.consumer is not None and (tx is None or tx.outcome is not Outcome.COMMITTED):
            self._context.rejoin(self.consumer, superseded=self.superseded)
        await asyncio.sleep(self._context.pause(self.seat))

    def _check_end(self, tx: TransactionEntry) -> None:
        """Complain if the producer could begin the next one, and the coordinator has this one.

        Or if the producer could not, since this one is still to be aborted and no close does it.
        """
        name, transactions = self.entry.transactional_id, self.producer.engine.transactions
        if transactions is None:
            return
        state, identity = transactions.manager.state, transactions.manager.identity
        if state in _UNENDED and not self.producer.engine.closing:
            self._context.book.complaints.append(f"{tx.label} has ended, its producer is {state}")
        found = self._context.cluster.transactions.transactions.get(name)
        if found is None or found.state is not BrokerState.ONGOING:
            return
        if state is TransactionState.READY and (identity or ()) == (*found.identity,):
            self._context.book.complaints.append(f"{tx.label} has ended, and is open at its broker")

    async def leave_open(self, entries: Sequence[Entry], *, in_block: bool) -> None:
        """Begin a transaction with these records, the first of them written, and do not end it."""
        if in_block:
            self._block_left_open = self.producer.transaction()
            await self._block_left_open.__aenter__()
        else:
            await self._caller.call("begin", self.producer.begin_transaction)
        self._last = self._open()
        for entry in entries:
            await self.contents.send(entry)
        await self.contents.watch(entries[0])

    async def prepare_unseen(self) -> None:
        """Prepare the transaction that was left open, by a call that gets no outcome."""
        preparing = asyncio.ensure_future(self.producer.prepare_transaction())
        await asyncio.sleep(0)
        preparing.cancel()
        await asyncio.gather(preparing, return_exceptions=True)

    async def leave_block(self) -> None:
        """Leave the block, which a close has aborted, in order."""
        block, tx = self._block_left_open, self._last
        if block is None or tx is None:
            return
        try:
            await block.__aexit__(None, None, None)
        except KafkaError as error:
            self._context.trace(f"{tx.label} was aborted by a close: {error!r}")
        else:
            text = f"{tx.label} was aborted by a close, and its block ends as after a commit"
            self._ledger.false_reports.append(text)

    async def give_up_block(self, entry: Entry) -> None:
        """Leave a block with this record by a cancellation, and its abort by another one."""

        async def fill() -> None:
            async with self.producer.transaction():
                self._open()
                await self.contents.send(entry)
                await asyncio.sleep(inf)

        block = asyncio.ensure_future(fill())
        for pause_s in (_IN_BLOCK_S, _HASTE_S):
            await asyncio.sleep(pause_s)
            block.cancel()
        await asyncio.gather(block, return_exceptions=True)

    async def begin_unseen(self, entry: Entry) -> None:
        """Begin a transaction by a call that is cancelled if it has to wait; send this record."""
        beginning = asyncio.ensure_future(self.producer.begin_transaction())
        await asyncio.sleep(_HASTE_S)
        beginning.cancel()
        await asyncio.gather(beginning, return_exceptions=True)
        await asyncio.sleep(_IN_BLOCK_S)
        self._open()
        await self.contents.send(entry)
        await self.contents.watch(entry)

    async def commit_last(self) -> None:
        """Commit the transaction that was left open."""
        if self._last is not None and self._block_left_open is None:
            tx, self._last = self._last, None
            await self._commit(tx)

    async def calm_transaction(
        self, fill: Callable[[TransactionEntry], Awaitable[None]]
    ) -> TransactionEntry:
        """One transaction that the user does everything to commit."""
        await self._caller.call("begin", self.producer.begin_transaction)
        tx = self._open()
        await fill(tx)
        await self._commit(tx)
        return tx

    async def _by_calls(self, sources: Sequence[Source] | None) -> TransactionEntry | None:
        if not await self._begin():
            return None
        tx = self._open()
        await self.contents.fill(tx, sources)
        if self._rng.random() < 0.8:
            await self._commit(tx)
        else:
            await self._give_up(tx)
        return tx

    async def _give_up(self, tx: TransactionEntry) -> None:
        """Abort, sometimes while another task prepares, which waits no longer then."""
        rng = self._context.chance_of(f"abort of {tx.label}")
        if rng.random() >= _SHARE_PREPARED_AMID:
            await self._abort(tx)
            return
        preparing = asyncio.ensure_future(self.producer.prepare_transaction())
        try:
            await asyncio.sleep(rng.choice(_PREPARED_FOR_S))
            await self._abort(tx)
            await asyncio.sleep(_HASTE_S)
            if not preparing.done():
                self._ledger.false_reports.append(f"{tx.label} is aborted, a prepare goes on")
        finally:
            preparing.cancel()
            await asyncio.gather(preparing, return_exceptions=True)

    async def _in_haste(self) -> None:
        """One transaction without a record; what its sends learn later is for none of the next."""
        rng = self._context.chance_of(f"haste of {self.entry.name}")
        if await self._begin():
            tx = self._open()
            self.contents.straggle(rng, rng.randint(1, 4))
            await asyncio.sleep(_HASTE_S)
            await (self._commit(tx) if rng.random() < 0.3 else self._abort(tx))

    async def _prepared(self, sources: Sequence[Source] | None) -> TransactionEntry | None:
        if not await self._begin():
            return None
        tx = self._open()
        await self.contents.fill(tx, sources)
        prepared = await self._prepare(tx)
        if prepared is None:
            return tx
        rng = self._rng
        commit, way = rng.random() < 0.7, rng.choice(("leave", "wait", "decide as well"))
        if commit:
            tx.commit_asked_at = self._loop.time()
        outsider = Outsider(
            self._context, tx, prepared, commit=commit, alone=way != "decide as well"
        )
        deciding = asyncio.ensure_future(outsider.decide())
        self._context.attend(deciding)
        if way == "leave":
            # Without generations, only the id keeps a successor from reading what this one reads.
            is_shared = self.consumer is not None and not self.seat.by_generation
            share = 0.0 if is_shared else _SHARE_ASSUMED
            if self._context.chance_of(f"id after {tx.label}").random() >= share:
                raise HandedOverError(f"{tx.label} is prepared")
            await self._go_on_under_another_id()
            return tx
        if way == "wait":
            await asyncio.wait([deciding])
            chance = self._context.chance_of(f"successor after {tx.label}")
            if chance.random() < _SHARE_SUCCEEDED:
                self._context.steal_transactional_id(self.seat.name)
                await asyncio.sleep(_SUCCESSION_S)
        if way == "decide as well":
            chance = self._context.chance_of(f"decision on {tx.label}")
            if chance.random() < _SHARE_CONTRADICTED:
                if chance.random() < _SHARE_SECOND:
                    await asyncio.wait([deciding])
                await self._decide_otherwise(tx, commit=not commit)
                return tx
        await (self._commit(tx) if commit else self._abort(tx))
        return tx

    async def _decide_otherwise(self, tx: TransactionEntry, *, commit: bool) -> None:
        """End it the other way; if the other process was first, the producer may be at its end.

        Then a commit says of the transaction what it says at the end of each producer.
        """
        self._is_contradicted = True
        try:
            await (self._commit(tx) if commit else self._abort(tx))
        except ENDS:
            try:
                await self.producer.commit_transaction()
            except KafkaError as error:
                self._note_end(tx, error)
            raise
        self._is_contradicted = False

    async def _go_on_under_another_id(self) -> None:
        transactions, before = self.producer.engine.transactions, self.entry
        if transactions is None:
            return
        self.entry = self._context.book.renamed(before, self._loop.time())
        name = self.entry.transactional_id
        self._context.trace(f"{before.name} goes on as {name}")
        try:
            await self._caller.bounded("assume", transactions.assume(name))
        except ENDS:
            raise
        except KafkaError as error:
            await self._initialize(error)
        self.entry.ready_at = self._loop.time()

    async def _prepare(self, tx: TransactionEntry) -> PreparedTransaction | None:
        """Return the handle that ends the transaction elsewhere; None if it had to be aborted."""
        found: list[PreparedTransaction] = []

        async def prepare() -> None:
            found.append(await self.producer.prepare_transaction())

        tx.prepare_asked_at = self._loop.time()
        try:
            await self._caller.call("prepare", prepare)
        except TransactionAbortableError as error:
            self._context.trace(f"{tx.label} cannot be prepared: {error!r}")
            await self._abort(tx)
            return None
        self._context.trace(f"{tx.label} is prepared")
        tx.prepared = found[-1]
        return tx.prepared

    async def _in_block(self, sources: Sequence[Source] | None) -> TransactionEntry | None:
        opened: list[TransactionEntry] = []
        block = self._block(sources, opened, changes_mind=self._rng.random() < 0.2)
        await self._leave(block, opened)
        return opened[0] if opened else None

    async def _in_cut_block(self, sources: Sequence[Source] | None) -> TransactionEntry | None:
        opened: list[TransactionEntry] = []
        block = asyncio.ensure_future(self._block(sources, opened, changes_mind=False))
        try:
            await asyncio.wait([block], timeout=self._rng.choice((0.0, 0.002, 0.05, 0.3, 1.0)))
        finally:
            block.cancel()
            await asyncio.wait([block])
        if not block.cancelled():
            await self._leave(block, opened)
        elif opened and opened[0].commit_asked_at is not None:
            try:
                await self._commit(opened[0])
            except ProducerClosedError:
                raise
            except IllegalStateError:
                # The commit had been refused, and the block's abort of it was cut off.
                self._context.trace(f"{opened[0].label} was given up")
        return opened[0] if opened else None

    async def _leave(self, block: Awaitable[None], opened: Sequence[TransactionEntry]) -> None:
        """Awaits a block, and does what a user does after its errors."""
        try:
            await block
        except _ChangeOfMindError:
            pass
        except TransactionAbortableError as error:
            if opened:
                opened[0].refusal = error
                opened[0].report(Outcome.REFUSED)
            else:
                await self._initialize(error)
        except KafkaTimeoutError:
            # Begun or to be committed: both calls are made again.
            if opened and opened[0].commit_asked_at is not None:
                await self._commit(opened[0])
        except ENDS as error:
            if opened:
                self._note_end(opened[0], error)
            raise
        except KafkaError as error:
            if opened:
                raise
            await self._initialize(error)

    async def _block(
        self,
        sources: Sequence[Source] | None,
        opened: list[TransactionEntry],
        *,
        changes_mind: bool,
    ) -> None:
        left_at: float | None = None
        first: BaseException | None = None
        try:
            async with self.producer.transaction():
                tx = self._open()
                opened.append(tx)
                try:
                    await self.contents.fill(tx, sources)
                    if changes_mind:
                        raise _ChangeOfMindError
                except BaseException as error:
                    first = error
                    raise
                finally:
                    left_at = self._loop.time()
                tx.commit_asked_at = left_at
        except KafkaError as error:
            if not isinstance(error, ProducerFencedError) and first not in {None, error}:
                text = f"{opened[0].label} has failed with {first!r}, its block raises {error!r}"
                self._ledger.false_reports.append(text)
            raise
        finally:
            if left_at is not None and not self.gone:  # else no broker hears it any more
                # A commit that is refused is followed by an abort.
                self._caller.check("leaving a block", left_at, 2)
        tx.report(Outcome.COMMITTED)
        self._context.trace(f"{tx.label} is committed by its block")

    def _open(self) -> TransactionEntry:
        tx = self._context.book.begin(self.entry.name, self._loop.time())
        self.contents.begin(tx)
        self.on_begin()
        self._context.trace(f"{tx.label} begins")
        return tx

    # -- calls ------------------------------------------------------------------------------------

    async def _begin(self) -> bool:
        try:
            await self._caller.call("begin", self.producer.begin_transaction)
        except (*ENDS, GaveUpError):
            raise
        except KafkaError as error:
            if isinstance(error, IllegalStateError) and error.__cause__ is None:
                text = f"{self.entry.name} has ended its transaction, and {error!r}"
                self._ledger.false_reports.append(text)
            await self._initialize(error)
            return False
        return True

    async def _initialize(self, error: KafkaError) -> None:
        """The next epoch was refused for now."""
        self._context.trace(f"{self.entry.name} asks again after {error!r}")
        try:
            await self._caller.call("init", self.producer.init_transactions)
        except (*ENDS, GaveUpError):
            raise
        except KafkaError as again:
            raise GaveUpError("no epoch is given") from again

    async def _commit(self, tx: TransactionEntry) -> None:
        if tx.commit_asked_at is None:
            tx.commit_asked_at = self._loop.time()
        try:
            await self._caller.call("commit", self.producer.commit_transaction)
        except TransactionAbortableError as error:
            tx.refusal = error
            # A real coordinator answers INVALID_TXN_STATE of what was aborted only. A scripted one
            # may come before an outsider's commit: then nothing is certain before the abort.
            may_be_wrong = isinstance(error.__cause__, InvalidTxnStateError)
            if tx.prepared is None or not may_be_wrong:
                tx.report(Outcome.REFUSED)
            self._context.trace(f"{tx.label} cannot be committed: {error!r}")
            await self._caller.call("abort", self.producer.abort_transaction)
            tx.report(Outcome.REFUSED)
        except ENDS as error:
            self._note_end(tx, error)
            if not self.gone:
                commit = self.producer.commit_transaction
                await self._caller.check_repeated("commit", commit, error)
            raise
        else:
            tx.report(Outcome.COMMITTED)
            self._context.trace(f"{tx.label} is committed")

    def _note_end(self, tx: TransactionEntry, error: KafkaError) -> None:
        """Record what the producer reports of a commit; an outsider may find out the rest."""
        if error.persistence is Persistence.NOT_PERSISTED:
            self._context.trace(f"{tx.label} is not committed: {error!r}")
            tx.report(Outcome.REFUSED)
        elif isinstance(error, CommitOutcomeUnknownError) and error.transaction is not None:
            self._context.trace(f"{tx.label} may be committed")
            if self._context.chance_of(f"outcome of {tx.label}").random() < _SHARE_FOUND_OUT:
                outsider = Outsider(self._context, tx, error.transaction, commit=True, alone=False)
                self._context.attend(asyncio.ensure_future(outsider.decide()))

    async def _abort(self, tx: TransactionEntry) -> None:
        await self._caller.call("abort", self.producer.abort_transaction)
        tx.report(Outcome.ABORTED)
        self._context.trace(f"{tx.label} is aborted")
