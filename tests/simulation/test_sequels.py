"""Whole runs in which two calls, one after the other, show a planted fault."""

from __future__ import annotations

import pytest

from aioproducer.core.batching.accumulator import RecordAccumulator
from aioproducer.core.batching.buffer_pool import BufferPool
from aioproducer.runtime.send.memory import BufferMemory
from simulation.simulation import run_seed


def _broken_by(seed: int) -> set[str]:
    return {violation.oracle for violation in run_seed(seed).violations}


def test_free_memory_that_is_refused_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    try_allocate = BufferPool.try_allocate

    def allocate_less(self: BufferPool, size: int) -> bytearray | None:
        return None if self.available == size else try_allocate(self, size)

    monkeypatch.setattr(BufferPool, "try_allocate", allocate_less)
    assert "what_calls_return_is_true" in _broken_by(3)


def test_a_record_that_overtakes_one_that_backs_off_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def has_new(self: RecordAccumulator) -> bool:
        return any(not (batch.pins or batch.attempts) for batch in self.incomplete())

    monkeypatch.setattr(RecordAccumulator, "has_queued", property(has_new))
    assert "pending_work_goes_on" in _broken_by(30)


def test_a_whole_batch_without_a_place_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait_for_no_place(self: BufferMemory, appended: int) -> None:
        return

    monkeypatch.setattr(BufferMemory, "wait_for_place", wait_for_no_place)
    assert "pending_work_goes_on" in _broken_by(27)
