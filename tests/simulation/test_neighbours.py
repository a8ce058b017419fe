"""Calls next to each other around the end of a transaction: what the checks notice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.core.transactions.operations import Operation, OperationKind
from aioproducer.errors import IllegalStateError
from aioproducer.runtime.bulk.result import SendManyInterruptedError
from aioproducer.testing.world.loop import VirtualLoop
from aioproducer.types import Record
from simulation.ledger import Ledger
from simulation.transactions.book import TransactionBook, TransactionEntry
from simulation.transactions.neighbours import begin_after_a_cut_call, begin_amid_a_bulk_call

_SEEDS = range(8)


def _run(work: Awaitable[None]) -> None:
    loop = VirtualLoop(random.Random(0))
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


class _Calls:
    """A producer whose cut call leaves a state; `refuses` is whether its next begin is refused."""

    def __init__(self, unseen: OperationKind | None, *, prepared: bool, refuses: bool) -> None:
        self.called: list[str] = []
        self.left_by: object = None
        self._refuses = refuses
        operation = None if unseen is None else Operation(unseen)
        manager = SimpleNamespace(
            has_unreported_commit=unseen is OperationKind.COMMIT,
            is_prepared=prepared,
            _operations=SimpleNamespace(unreceived=operation),
        )
        self.engine = SimpleNamespace(transactions=SimpleNamespace(manager=manager))

    def transaction(self) -> Any:
        return self

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, kind: object, *_: object) -> None:
        self.called.append("leave")
        self.left_by = kind

    async def begin_transaction(self) -> None:
        if self._refuses:
            raise IllegalStateError("the outcome of another call has not been seen yet")
        self.called.append("begin")

    async def prepare_transaction(self) -> None:
        await asyncio.sleep(1)

    async def send_offsets_to_transaction(self, offsets: object, group: object) -> None:
        pass

    async def commit_transaction(self) -> None:
        self.called += ["commit"] * ("leave" in self.called)

    async def abort_transaction(self) -> None:
        self.called += ["abort"] * ("leave" in self.called)


def _actor(producer: Any) -> Any:
    async def call(what: str, method: Callable[[], Awaitable[None]]) -> None:
        await method()

    caller = SimpleNamespace(call=call)
    return SimpleNamespace(producer=producer, entry=SimpleNamespace(name="a"), _caller=caller)


@pytest.mark.parametrize(
    ("unseen", "prepared", "repeated"),
    [
        (OperationKind.COMMIT, False, ["commit"]),
        (OperationKind.ABORT, False, ["abort"]),
        (None, True, ["abort"]),
        (OperationKind.PREPARE, False, []),
        (None, False, []),
    ],
)
def test_a_call_without_an_outcome_is_made_again_after_the_block(
    unseen: OperationKind | None, prepared: bool, repeated: list[str]
) -> None:
    for seed in _SEEDS:
        ledger, calls = Ledger(), _Calls(unseen, prepared=prepared, refuses=False)
        _run(begin_after_a_cut_call(_actor(calls), "t", random.Random(seed), ledger))
        assert calls.called == ["leave", *repeated, "begin", "abort"]
        is_unseen = unseen is OperationKind.COMMIT and not calls.left_by
        assert len(ledger.false_reports) == is_unseen


def test_a_block_that_lets_no_other_begin_after_a_cut_call_is_found_out() -> None:
    ledger, calls = Ledger(), _Calls(OperationKind.PREPARE, prepared=False, refuses=True)
    with pytest.raises(IllegalStateError):
        _run(begin_after_a_cut_call(_actor(calls), "t", random.Random(1), ledger))
    assert len(ledger.false_reports) == 1


@pytest.mark.parametrize(("goes_on", "found"), [(True, 1), (False, 0)])
def test_a_bulk_call_that_goes_on_in_the_next_transaction_is_found_out(
    goes_on: bool, found: int
) -> None:
    ledger, book, rows = Ledger(), TransactionBook(), list[Record]()

    async def calm_transaction(
        fill: Callable[[TransactionEntry], Awaitable[None]],
    ) -> TransactionEntry:
        await fill(book.begin("a", 0.0))
        return book.transactions[-1]

    async def send(entry: object) -> None:
        pass

    async def send_many(topic: str, items: AsyncIterator[Record]) -> None:
        async for item in items:
            assert len(book.transactions) == 2
            if not goes_on:
                raise SendManyInterruptedError("the transaction of the call has ended meanwhile")
            rows.append(item)

    actor: Any = SimpleNamespace(
        producer=SimpleNamespace(send_many=send_many),
        contents=SimpleNamespace(send=send),
        calm_transaction=calm_transaction,
    )
    entries: Any = [SimpleNamespace(topic="t"), SimpleNamespace(topic="t")]
    _run(begin_amid_a_bulk_call(actor, entries, ledger))
    assert (len(rows), len(ledger.false_reports)) == (found, found)
