"""The checks of the calls that most runs do not make."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.errors import BufferExhaustedError
from aioproducer.types import TopicPartition
from simulation.evidence import Log
from simulation.ledger import CallState, Entry
from simulation.oracles import waits_for_memory_are_bounded, whole_batches_are_whole

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
