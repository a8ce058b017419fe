"""The checks of the calls that most runs do not make."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.errors import BufferExhaustedError
from aioproducer.types import RecordMetadata, TimestampType, TopicPartition
from simulation.evidence import Log
from simulation.ledger import CallState, Entry, Ledger
from simulation.oracles import (
    contents_are_kept,
    offsets_of_bulk_calls_are_true,
    waits_for_memory_are_bounded,
    whole_batches_are_whole,
)
from simulation.workload import Workload

_LOG = Log(TopicPartition("t", 0), 0)


def _entry(name: bytes) -> Entry:
    return Entry(name, 0, "t", 0, None, name, (), None, 0.0, CallState.ACCEPTED, 0.0)


def _evidence(*entries: Entry, **parts: object) -> Any:
    return SimpleNamespace(ledger=SimpleNamespace(entries=entries), **parts)


@pytest.mark.parametrize(
    ("offsets", "found"),
    [
        (([], []), 0),
        (([4], [5]), 0),
        (([4, 8], [5, 9]), 0),
        (([4], []), 1),
        (([], [5]), 1),
        (([4], [6]), 1),
        (([5], [4]), 1),
    ],
)
def test_a_whole_batch_that_is_torn_is_found_out(
    offsets: tuple[list[int], list[int]], found: int
) -> None:
    first, second = _entry(b"1"), _entry(b"2")
    first.whole = second.whole = (first, second)
    copies = {
        entry.name: [SimpleNamespace(log=_LOG, record=SimpleNamespace(offset=at)) for at in places]
        for entry, places in zip((first, second), offsets, strict=True)
    }
    evidence = _evidence(first, second, copies=copies)
    assert len(list(whole_batches_are_whole(evidence))) == found


def test_a_whole_batch_with_several_outcomes_is_found_out() -> None:
    first, second = _entry(b"1"), _entry(b"2")
    first.whole = second.whole = (first, second)
    first.delivered_in_bulk = True
    assert len(list(whole_batches_are_whole(_evidence(first, second, copies={})))) == 1


@pytest.mark.parametrize(
    ("allowed_ms", "elapsed_ms", "found"),
    [(None, 3000, 0), (500, 500, 0), (500, 3000, 1), (500, 20, 1), (0, 0, 1), (-1, 3000, 1)],
)
def test_a_call_that_waits_for_memory_too_long_or_too_short_is_found_out(
    allowed_ms: int | None, elapsed_ms: int, found: int
) -> None:
    entry = _entry(b"1")
    entry.error = BufferExhaustedError("no memory", elapsed_ms=elapsed_ms)
    config = SimpleNamespace(enqueue_timeout_ms=allowed_ms)
    assert len(list(waits_for_memory_are_bounded(_evidence(entry, config=config)))) == found


@pytest.mark.parametrize(
    ("reported", "found"), [((4, 6), 0), ((4, 7), 1), ((5, 6), 1), ((4, 4), 0)]
)
def test_offsets_of_a_bulk_call_that_are_not_true_are_found_out(
    reported: tuple[int, int], found: int
) -> None:
    draft = [_entry(b"1"), _entry(b"2")]
    copies = {
        entry.name: [SimpleNamespace(where=_LOG.where, record=SimpleNamespace(offset=offset))]
        for entry, offset in zip(draft, (6, 4), strict=True)
    }
    ledger = SimpleNamespace(offsets=[(draft, {_LOG.where: reported})])
    evidence: Any = SimpleNamespace(ledger=ledger, copies=copies, may_lose=False)
    assert len(list(offsets_of_bulk_calls_are_true(evidence))) == found


@pytest.mark.parametrize(
    ("reported", "found"), [((-1, 3), 0), ((-1, 0), 1), ((0, 3), 1), ((3, -1), 1)]
)
def test_sizes_of_a_record_that_are_not_true_are_found_out(
    reported: tuple[int, int], found: int
) -> None:
    entry = _entry(b"<1>")
    entry.metadata = RecordMetadata("t", 0, 4, 0, TimestampType.CREATE_TIME, *reported)
    record = SimpleNamespace(offset=4, key=None, value=b"<1>", headers=(), timestamp_ms=0)
    evidence = _evidence(entry, copies={}, log_of=lambda entry: _LOG, logs={_LOG: {4: record}})
    assert len(list(contents_are_kept(evidence))) == found


async def test_a_callback_before_the_outcome_is_found_out() -> None:
    pending: Any = SimpleNamespace(done=lambda: False)
    pending.add_done_callback = lambda callback: callback(pending)
    entry = _entry(b"1")
    entry.delivery = pending
    ledger = Ledger()
    nothing: Any = None
    work = Workload(nothing, nothing, ledger, nothing, nothing, purges=False)
    work._count_notices(entry)
    assert len(ledger.false_reports) == 1
