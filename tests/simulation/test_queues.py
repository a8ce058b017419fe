"""Rules for what waits in a queue: each finds the state that breaks it, and no other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.core.transactions.rules import Rpc
from aioproducer.core.transactions.states import TransactionState
from simulation.queues import (
    ends_with_batches_out,
    keeps_ended_waits,
    serialized_records_wait,
)


@pytest.mark.parametrize(
    ("has_turn", "is_done", "error", "is_bounded", "found"),
    [
        (False, False, None, True, 0),
        (True, False, None, True, 1),
        (True, True, None, True, 0),
        (False, False, "closed", True, 1),
        (False, False, "closed", False, 0),
    ],
)
def test_a_serialized_record_that_waits_for_nothing_is_found_out(
    has_turn: bool, is_done: bool, error: str | None, is_bounded: bool, found: int
) -> None:
    turn = SimpleNamespace(done=lambda: is_done) if has_turn else None
    timeout = SimpleNamespace(expired=lambda: False) if is_bounded else None
    queue = SimpleNamespace(waiting=[SimpleNamespace(turn=turn, timeout=timeout)])
    serializing = SimpleNamespace(_topics={"t": queue}, _error=error)
    engine: Any = SimpleNamespace(appender=SimpleNamespace(serializing=serializing))
    assert len(list(serialized_records_wait(engine, 1.0))) == found


@pytest.mark.parametrize(("is_done", "found"), [(True, 1), (False, 0)])
def test_a_call_that_is_kept_after_its_end_is_found_out(is_done: bool, found: int) -> None:
    waiter = SimpleNamespace(future=SimpleNamespace(done=lambda: is_done))
    waits = SimpleNamespace(_waiting={"t": [waiter]})
    engine: Any = SimpleNamespace(metadata_task=SimpleNamespace(waits=waits))
    assert len(list(keeps_ended_waits(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("rpc", "is_prepared", "pinned", "found"),
    [
        (Rpc.END, False, 1, 1),
        (Rpc.END, False, 0, 0),
        (Rpc.ADD_PARTITIONS, False, 1, 0),
        (None, False, 1, 0),
        (None, True, 1, 1),
    ],
)
def test_a_transaction_that_ends_while_a_batch_is_out_is_found_out(
    rpc: Rpc | None, is_prepared: bool, pinned: int, found: int
) -> None:
    request = None if rpc is None else SimpleNamespace(rpc=rpc)
    transactions = SimpleNamespace(
        _coordinator_session=SimpleNamespace(_in_flight=request),
        manager=SimpleNamespace(is_prepared=is_prepared, state=TransactionState.ABORTING),
    )
    accumulator = SimpleNamespace(pinned=[object()] * pinned)
    engine: Any = SimpleNamespace(transactions=transactions, accumulator=accumulator)
    assert len(list(ends_with_batches_out(engine, 1.0))) == found
