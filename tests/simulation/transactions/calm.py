"""Transactions that a healthy cluster gets when all seats have recovered.

Owns: what the busy part of a run makes too rarely. Not here: when a run makes them.

    positions alone     no record begins the transaction; all that belongs to a position is kept
    a reader outside    another process asks for a position that the open transaction may change
    a refused renewal   the epoch after a prepared V1 transaction, for which the next begin waits
    out of turn         calls that the state of the producer does not allow
    a dropped id        a V1 coordinator has dropped the producer id: the next epoch is used
    an end elsewhere    another process ends what is prepared: refused, done, repeated, opposed
    a late abort        another process aborts what was committed after it had found it open (V2)
    a refused row       a bulk call returns it as failed, so that only the commit can raise
    a bulk call         goes on while its transaction is committed, and has a row left
    a downgrade         of transaction.version, which the producer learns with new connections
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from aioproducer.core.transactions.requests import FIRST_INIT_WITH_IDENTITY
from aioproducer.errors import AuthorizationError, IllegalStateError, KafkaError, KafkaTimeoutError
from aioproducer.testing.broker.transactions.groups import GroupOffset
from aioproducer.testing.faults import FaultScript
from aioproducer.types import (
    OffsetAndMetadata,
    PreparedTransaction,
    Record,
    TopicPartition,
    TransactionDescription,
)
from aioproducer.wire.api_keys import ApiKey
from simulation.faults.coordinators import FinalCoordinatorError
from simulation.faults.processes import reset_connections
from simulation.releases import all_serve
from simulation.transactions.book import Outcome
from simulation.transactions.outsider import SimAdmin

if TYPE_CHECKING:
    import random

    from aioproducer.config import ProducerConfig
    from aioproducer.net.dial.dialer import Dialer
    from aioproducer.testing.world.cluster import SimCluster
    from aioproducer.testing.world.faults import World
    from simulation.ledger import Entry, Ledger
    from simulation.transactions.actor import Actor
    from simulation.transactions.book import TransactionBook, TransactionEntry

_MARKED_S = 1.0
"""Markers are written by then."""
_NOT_AUTHORIZED, _UNKNOWN_PRODUCER = 53, 59
_HASTE_S = 0.0001
"""No answer comes that soon."""
_HEARD_OF_A_COMMIT = [
    "InvalidTxnStateError",
    "True",
    "None",
    "None",
    "PreparedTransactionEndedError",
    "False",
    "False",
    "PreparedTransactionUnknownError",
]
"""What the calls of `commit_from_outside` return or raise."""
_READ_IN_LATENCIES = 16
"""A new client has found the group's coordinator, and asked it, by then."""


async def commit_positions_alone(
    actor: Actor, topic: str, cluster: SimCluster, ledger: Ledger
) -> None:
    """Commit a position, and nothing else; the group has it as it was given."""
    group, where = f"of {actor.entry.name}", TopicPartition(topic, 0)
    position = OffsetAndMetadata(7, "metadata", 0)

    async def fill(tx: TransactionEntry) -> None:
        await actor.producer.send_offsets_to_transaction({where: position}, group)

    tx = await actor.calm_transaction(fill)
    await asyncio.sleep(_MARKED_S)
    groups = cluster.groups.groups
    found = groups[group].offsets.get(where) if group in groups else None
    wanted = GroupOffset(position.offset, 0, "metadata")
    if found != wanted:
        ledger.false_reports.append(f"{tx.label} has committed {wanted}, its group has {found}")


async def read_a_position_amid_a_commit(
    actor: Actor, topic: str, admin: SimAdmin, latency_s: float, ledger: Ledger
) -> None:
    """Read a position, of the first record, that a transaction moves: only its end decides."""
    group, where = f"read beside {actor.entry.name}", TopicPartition(topic, 0)
    position, readings = OffsetAndMetadata(0, "metadata", 0), list[asyncio.Future[object]]()

    async def read() -> Mapping[TopicPartition, OffsetAndMetadata]:
        return await admin.committed_offsets(group, [where, TopicPartition(topic, 1)])

    async def fill(tx: TransactionEntry) -> None:
        await actor.producer.send_offsets_to_transaction({where: position}, group)
        readings.append(asyncio.ensure_future(read()))
        await asyncio.wait(readings, timeout=_READ_IN_LATENCIES * latency_s + _HASTE_S)

    async with admin:
        try:
            tx = await actor.calm_transaction(fill)
        finally:
            found: list[object] = await asyncio.gather(*readings, return_exceptions=True)
        if found and isinstance(found[0], KafkaTimeoutError):
            found = [await read()]
    wanted = [{where: position} if tx.outcome is Outcome.COMMITTED else {}]
    if found != wanted:
        text = f"{tx.label} is {tx.outcome.value}, committed_offsets() returns {found}"
        ledger.false_reports.append(text)


async def begin_while_refused(actor: Actor, world: World, ledger: Ledger) -> None:
    """Begin after a prepared V1 transaction whose next epoch is refused: the call raises that."""
    transactions = actor.producer.engine.transactions
    if transactions is None or transactions.manager.uses_v2:
        return
    if not all_serve(world.cluster, ApiKey.INIT_PRODUCER_ID, FIRST_INIT_WITH_IDENTITY):
        return  # brokers before 2.5

    async def fill(tx: TransactionEntry) -> None:
        await actor.producer.prepare_transaction()
        FinalCoordinatorError(0.0, ApiKey.INIT_PRODUCER_ID, 1, _NOT_AUTHORIZED).strike(world)

    await actor.calm_transaction(fill)
    try:
        await actor.producer.begin_transaction()
    except AuthorizationError:
        await actor.producer.init_transactions()
    except KafkaError as error:
        text = f"{actor.entry.name} is refused an epoch, and begin_transaction() raises {error!r}"
        ledger.false_reports.append(text)
        raise
    else:
        await actor.producer.abort_transaction()


async def go_on_after_an_unknown_producer(actor: Actor, entry: Entry, world: World) -> None:
    """Commit after a V1 coordinator has not known the producer id (KIP-360).

    A producer that ends by that has no transaction any more: the last call raises then.
    """
    transactions = actor.producer.engine.transactions
    if transactions is None or transactions.manager.uses_v2:
        return
    if not all_serve(world.cluster, ApiKey.INIT_PRODUCER_ID, FIRST_INIT_WITH_IDENTITY):
        return  # brokers before 2.5

    async def fill(tx: TransactionEntry) -> None:
        FinalCoordinatorError(0.0, ApiKey.ADD_PARTITIONS_TO_TXN, 1, _UNKNOWN_PRODUCER).strike(world)
        await actor.contents.send(entry)

    async def leave_empty(tx: TransactionEntry) -> None:
        """Commit nothing."""

    await actor.calm_transaction(fill)
    await actor.calm_transaction(leave_empty)


async def call_out_of_turn(actor: Actor, entry: Entry, ledger: Ledger) -> None:
    """Commit a record by a call that is cut off and repeated; each other call is refused till then.

    So are calls that do not belong into a transaction, or belong into one.
    """
    producer, taken = actor.producer, list[str]()

    async def refused(*calls: Callable[[], Awaitable[object]]) -> None:
        for call in calls:
            with suppress(IllegalStateError):
                await call()
                taken.append(call.__name__)

    begin, commit, abort = (
        producer.begin_transaction,
        producer.commit_transaction,
        producer.abort_transaction,
    )
    await refused(commit, abort)
    await actor.leave_open([entry], in_block=False)
    await refused(begin, producer.init_transactions)
    cut = asyncio.ensure_future(commit())
    await asyncio.sleep(0)
    cut.cancel()
    await asyncio.gather(cut, return_exceptions=True)
    await refused(begin, abort)
    await actor.commit_last()
    if taken:
        ledger.false_reports.append(f"{actor.entry.name} has made the calls {taken} out of turn")


async def commit_from_outside(
    actor: Actor, entries: Sequence[Entry], admin: SimAdmin, world: World, ledger: Ledger
) -> None:
    """Commit a prepared record by another process; each of its calls has the outcome of that.

    Once the next transaction of the transactional id is open, the outcome is unknown.
    """
    heard: list[str] = []
    first, second = entries
    prepared: PreparedTransaction | None = None

    async def ask(question: Awaitable[bool | None]) -> None:
        try:
            heard.append(str(await question))
        except KafkaError as error:
            heard.append(type(error).__name__)

    async def fill(tx: TransactionEntry) -> None:
        nonlocal prepared
        await actor.contents.send(first)
        prepared = await actor.producer.prepare_transaction()
        faults = FaultScript(world.cluster.faults)
        fault = faults.next("end_txn").answers("INVALID_TXN_STATE")
        async with admin:
            await ask(admin.finish(prepared, commit=True))
            faults.remove(fault)
            await ask(admin.still_prepared(prepared))
            for commit in (True, True, False):
                await ask(admin.finish(prepared, commit=commit))
            await ask(admin.still_prepared(prepared))

    async def fill_next(tx: TransactionEntry) -> None:
        await actor.contents.send(second)
        await actor.contents.watch(second)  # the coordinator has it now
        if prepared is not None:
            async with admin:
                await ask(admin.still_prepared(prepared))
                await ask(admin.finish(prepared, commit=True))

    tx = await actor.calm_transaction(fill)
    await actor.calm_transaction(fill_next)
    if heard != _HEARD_OF_A_COMMIT:
        text = f"{tx.label} is committed by another process, whose calls return {heard}"
        ledger.false_reports.append(text)


class LateAdmin(SimAdmin):
    """One that finds open transactions, and is overtaken by their commits.

    `commits` makes the commit of a transactional id.
    """

    def __init__(
        self,
        config: ProducerConfig,
        dialer: Dialer,
        rng: random.Random,
        commits: Mapping[str, Callable[[], Awaitable[None]]],
    ) -> None:
        super().__init__(config, dialer, rng)
        self._commits = commits

    async def _aborted(self, found: TransactionDescription) -> bool:
        if found.transactional_id in self._commits:
            await self._commits[found.transactional_id]()
        return await super()._aborted(found)


async def commit_before_abort(
    actor: Actor, entry: Entry, admin: LateAdmin, book: TransactionBook, ledger: Ledger
) -> None:
    """Commit a record; a process that aborts it after that has aborted nothing (V2)."""
    await actor.leave_open([entry], in_block=False)
    tx, transactions = book.transactions[-1], actor.producer.engine.transactions
    if transactions is None or not transactions.manager.uses_v2:
        await actor.commit_last()
        return
    name = actor.entry.transactional_id
    async with admin:
        aborted = {each.transactional_id for each in await admin.abort_orphans(name)}
    if name in aborted and tx.outcome is Outcome.COMMITTED:
        ledger.false_reports.append(f"{tx.label} is committed, and abort_orphans() has aborted it")


async def commit_with_a_refused_row(actor: Actor, topic: str, ledger: Ledger) -> None:
    """Commit after a bulk call that left out a row: that is refused as well."""

    async def fill(tx: TransactionEntry) -> None:
        await actor.producer.send_many(topic, [Record(b"refused", partition=-1)])

    tx = await actor.calm_transaction(fill)
    if tx.outcome is Outcome.COMMITTED:
        ledger.false_reports.append(f"{tx.label} is committed without a row that was refused")


async def commit_amid_a_bulk_call(actor: Actor, entry: Entry, ledger: Ledger) -> None:
    """Commit a record while a bulk call has a row left: refused, unless the row is too late."""
    transactions, calls = actor.producer.engine.transactions, list[asyncio.Future[object]]()
    if transactions is None:
        return
    manager, is_late = transactions.manager, False

    async def rows() -> AsyncIterator[Record]:
        nonlocal is_late
        await asyncio.sleep(_HASTE_S)
        is_late = manager.contents.may_have_ended or manager.over == manager.number
        yield Record(b"refused", partition=-1)

    async def fill(tx: TransactionEntry) -> None:
        await actor.contents.send(entry)
        calls.append(asyncio.ensure_future(actor.producer.send_many(entry.topic, rows())))
        await asyncio.sleep(0)

    tx = await actor.calm_transaction(fill)
    await asyncio.gather(*calls, return_exceptions=True)
    if tx.outcome is Outcome.COMMITTED and not is_late:
        ledger.false_reports.append(f"{tx.label} is committed amid a bulk call with a row left")


async def begin_after_a_downgrade(
    actor: Actor, entries: Sequence[Entry], world: World, ledger: Ledger
) -> None:
    """Commit records after the cluster has given up V2: the second in a transaction of V1."""
    transactions = actor.producer.engine.transactions
    if transactions is None or not transactions.manager.uses_v2:
        return
    world.cluster.set_transaction_version(0)
    reset_connections(world, sorted(world.brokers))
    left = iter(entries)

    async def fill(tx: TransactionEntry) -> None:
        await actor.contents.send(next(left))

    for _ in entries:
        await actor.calm_transaction(fill)
    if transactions.manager.uses_v2:
        ledger.false_reports.append(f"{actor.entry.name} uses V2 after a downgrade")
