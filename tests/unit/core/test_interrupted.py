"""Exceptions that may come at any line, such as KeyboardInterrupt: what they leave can be ended."""

from __future__ import annotations

import pytest

from aioproducer.core.batching.batch import BatchOutcome, ProducerBatch
from aioproducer.errors import ProducerClosedError, RecordTooLargeError
from aioproducer.types import Persistence

from .support import Core


class Interrupt(Exception):  # noqa: N818 - what a signal handler raises
    """Raised in the middle of something."""


class OneInterrupt:
    """A listener that raises when it is called first."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, key: object) -> None:
        self.calls += 1
        if self.calls == 1:
            raise Interrupt


def close(core: Core) -> None:
    core.sender.abort(ProducerClosedError("closed"))


def test_listeners_are_called_by_the_next_completion_if_an_exception_came_between() -> None:
    core = Core()
    batch = core.append()
    reported: list[object] = []
    batch.add_listener("first", OneInterrupt())
    batch.add_listener("second", reported.append)
    with pytest.raises(Interrupt):
        core.accumulator.complete(batch, BatchOutcome(7))
    assert core.accumulator.has_incomplete
    close(core)
    assert reported == ["second"]
    assert batch.outcome == BatchOutcome(7)
    assert not core.accumulator.has_incomplete
    assert core.pool.available == core.pool.total


def test_acknowledged_batch_whose_listener_raises_stays_acknowledged_and_calls_the_others() -> None:
    core = Core((1,))
    batch = core.append()
    (dispatch,) = core.poll()
    reported: list[object] = []
    batch.add_listener("first", OneInterrupt())
    batch.add_listener("second", reported.append)
    with pytest.raises(Interrupt):
        core.acknowledge(dispatch)
    close(core)
    core.accumulator.unpin(batch)
    assert reported == ["second"]
    assert batch.outcome is not None
    assert batch.outcome.error is None
    assert core.pool.available == core.pool.total


def test_batch_that_was_withdrawn_and_not_completed_is_ended_by_its_delivery_timeout() -> None:
    core = Core(delivery_timeout=10)
    batch = core.append()
    core.accumulator.withdraw([batch])  # and then an exception
    assert not batch.done
    core.now += 10
    core.poll()
    assert batch.done
    assert core.pool.available == core.pool.total


def test_batch_that_was_withdrawn_and_not_completed_is_ended_by_close() -> None:
    core = Core()
    batch = core.append()
    core.accumulator.withdraw([batch])  # and then an exception
    close(core)
    assert batch.done
    assert core.pool.available == core.pool.total


@pytest.mark.parametrize("parts_before", [0, 1])
def test_split_that_an_exception_ends_leaves_no_record_that_seems_to_be_acknowledged(
    monkeypatch: pytest.MonkeyPatch, parts_before: int
) -> None:
    core = Core((1,))
    batch = core.append()
    assert core.append() is batch
    (dispatch,) = core.poll()
    pin, pinned = core.accumulator.pin, []

    def interrupt(whole: ProducerBatch) -> None:
        if len(pinned) == parts_before:
            raise Interrupt
        pinned.append(whole)
        pin(whole)

    monkeypatch.setattr(core.accumulator, "pin", interrupt)
    with pytest.raises(Interrupt):
        core.answer(dispatch, RecordTooLargeError.code)
    close(core)
    assert batch.done
    assert [type(batch.record_error(index)) for index in range(2)] == [ProducerClosedError] * 2


def test_batch_given_to_a_transport_is_possibly_persisted_before_it_counts_as_sent() -> None:
    core = Core((1,))
    batch = core.append()
    core.accumulator.readiness.collect(core.now)
    (dispatch,) = core.sender.poll(core.now, core.nodes)
    core.sender.on_dispatching(dispatch.batches)  # and then an exception
    close(core)
    assert batch.persistence() is Persistence.POSSIBLY_PERSISTED


def test_batch_on_its_way_to_a_transport_counts_as_possibly_written_when_all_is_ended() -> None:
    core = Core((1, 2))
    sent, queued = core.append(0), core.append(1)
    core.accumulator.pin(core.drain(1)[0])  # and then an exception
    core.sender.end_all(ProducerClosedError("closed"), [])
    assert sent.persistence() is Persistence.POSSIBLY_PERSISTED
    assert queued.persistence() is Persistence.NOT_PERSISTED
    assert sent.done
    assert queued.done
    assert not core.accumulator.has_incomplete
    assert core.pool.available == core.pool.total


def test_outcome_that_was_known_stays_and_its_memory_is_given_up_when_all_is_ended() -> None:
    core = Core((1,))
    batch = core.append()
    core.accumulator.pin(core.drain(1)[0])
    core.accumulator.complete(batch, BatchOutcome(7))  # and then an exception
    core.sender.end_all(ProducerClosedError("closed"), [batch])
    assert batch.outcome == BatchOutcome(7)
    assert batch.buffer is None
    core.accumulator.unpin(batch)  # the connection ends later
    assert core.pool.available == core.pool.total
