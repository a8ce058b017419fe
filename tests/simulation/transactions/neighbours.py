"""Calls of a healthy cluster's users that come next to each other around the end of a transaction.

Owns: which calls, and what must be possible after them. Not here: when a run makes them.

    a cut call       a call in a block is cancelled after some turns, and the block is left
    a bulk call      goes on in the transaction after the one in which it was made
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from aioproducer.core.transactions.operations import OperationKind
from aioproducer.errors import IllegalStateError, KafkaTimeoutError
from aioproducer.runtime.bulk.result import SendManyInterruptedError
from aioproducer.types import Record, TopicPartition

if TYPE_CHECKING:
    import random

    from simulation.ledger import Entry, Ledger
    from simulation.transactions.actor import Actor
    from simulation.transactions.book import TransactionEntry

_MOST_TURNS, _PAUSES_S = 5, (0.0, 0.001, 1.0)
_SHARE_OF_POSITIONS = 0.5


class _LeftError(Exception):
    """An exception that a user's own code raises in a block."""


async def begin_after_a_cut_call(
    actor: Actor, topic: str, rng: random.Random, ledger: Ledger
) -> None:
    """Cancel a call in a block, leave the block soon after; another transaction may begin.

    The block has no records, and a position in some cases.
    """
    producer, transactions = actor.producer, actor.producer.engine.transactions
    if transactions is None:
        return
    first = rng.choice(
        (producer.prepare_transaction, producer.commit_transaction, producer.abort_transaction)
    )
    block = producer.transaction()

    async def begin() -> None:
        await block.__aenter__()

    await actor._caller.call("begin", begin)
    if rng.random() < _SHARE_OF_POSITIONS:
        with suppress(KafkaTimeoutError):
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, "cut calls")
    calling = asyncio.ensure_future(first())
    for _ in range(rng.randrange(_MOST_TURNS)):
        await asyncio.sleep(0)
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    await asyncio.sleep(rng.choice(_PAUSES_S))
    left_by, is_done = rng.choice((None, _LeftError())), False
    with suppress(IllegalStateError, KafkaTimeoutError):
        await block.__aexit__(None if left_by is None else _LeftError, left_by, None)
        is_done = left_by is None
    unseen = transactions.manager._operations.unreceived
    if transactions.manager.has_unreported_commit:
        if is_done:
            text = f"{actor.entry.name} has left its block, and the outcome of its commit is unseen"
            ledger.false_reports.append(text)
        await actor._caller.call("commit", producer.commit_transaction)
    elif transactions.manager.is_prepared or (unseen and unseen.kind is OperationKind.ABORT):
        await actor._caller.call("abort", producer.abort_transaction)
    try:
        await actor._caller.call("begin", producer.begin_transaction)
    except IllegalStateError as error:
        text = f"{actor.entry.name} has left its block after a cut {first.__name__}(), and {error}"
        ledger.false_reports.append(text)
        raise
    await actor._caller.call("abort", producer.abort_transaction)


async def begin_amid_a_bulk_call(actor: Actor, entries: Sequence[Entry], ledger: Ledger) -> None:
    """Commit a record, then another one: a bulk call from before cannot go on after the first."""
    first, second = entries
    has_begun, calls = asyncio.Event(), list[asyncio.Future[object]]()

    async def rows() -> AsyncGenerator[Record]:
        await has_begun.wait()
        yield Record(b"too late", partition=0)

    items = rows()

    async def fill_first(tx: TransactionEntry) -> None:
        await actor.contents.send(first)
        calls.append(asyncio.ensure_future(actor.producer.send_many(first.topic, items)))
        await asyncio.sleep(0)

    async def fill_second(tx: TransactionEntry) -> None:
        await actor.contents.send(second)
        has_begun.set()
        (ended,) = await asyncio.gather(*calls, return_exceptions=True)
        if not isinstance(ended, SendManyInterruptedError):
            text = f"a bulk call goes on in {tx.label}, which began after it: {ended!r}"
            ledger.false_reports.append(text)

    try:
        await actor.calm_transaction(fill_first)
        await actor.calm_transaction(fill_second)
    finally:
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await items.aclose()
