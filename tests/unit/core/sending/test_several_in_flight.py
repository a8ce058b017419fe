"""Idempotent batches of one partition, several in flight: answers in any order, retries, expiry."""

from __future__ import annotations

import pytest

from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.core.sending.actions import Dispatch
from aioproducer.core.sending.idempotence import ProducerIdentity, Sequencer
from aioproducer.core.sending.reasons import Obstacle
from aioproducer.errors import (
    DeliveryTimeoutError,
    NodeDisconnectedError,
    RecordTooLargeError,
)
from aioproducer.types import Persistence

from ..support import Core

NOT_LEADER, MESSAGE_TOO_LARGE, NOT_ENOUGH_REPLICAS, OUT_OF_ORDER, DUPLICATE = 6, 10, 19, 45, 46
NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20


def stamp(batch: ProducerBatch) -> tuple[int, int]:
    """Epoch and sequence."""
    return batch.producer_epoch, batch.base_sequence


def warm_core(leaders: tuple[int, ...] = (1,), **options: float) -> Core:
    """Partition 0 has one acknowledged record under epoch 0; the next sequence is 1."""
    core = Core(leaders, sequencer=Sequencer(5), **options)  # type: ignore[arg-type]
    core.sender.on_identity(ProducerIdentity(9, 0))
    core.append()
    (dispatch,) = core.poll()
    core.acknowledge(dispatch)
    return core


def sent(core: Core) -> Dispatch:
    """One more record of partition 0, in a separate request."""
    core.append()
    (dispatch,) = core.poll()
    return dispatch


def resent(core: Core) -> Dispatch:
    """The one request that is due after the longest backoff."""
    core.now += 2
    (dispatch,) = core.poll()
    return dispatch


def succeeded(dispatch: Dispatch) -> bool:
    return all(b.done and b.record_error(0) is None for b in dispatch.batches)


def test_batches_in_flight_get_consecutive_sequences_and_succeed_in_order() -> None:
    core = warm_core()
    first, second, third = sent(core), sent(core), sent(core)
    assert [stamp(d.batches[0]) for d in (first, second, third)] == [(0, 1), (0, 2), (0, 3)]
    for dispatch in (first, second, third):
        core.acknowledge(dispatch)
        assert succeeded(dispatch)


def test_a_partition_that_waits_for_its_first_answer_does_not_hold_up_others() -> None:
    core = Core((1, 1), sequencer=Sequencer(5))
    core.sender.on_identity(ProducerIdentity(9, 0))
    core.append(0)
    (first,) = core.poll()
    waiting, other = core.append(0), core.append(1)
    (second,) = core.poll()
    assert second.batches == [other]
    core.acknowledge(first)
    (third,) = core.poll()
    assert third.batches == [waiting]


def test_out_of_order_that_arrives_before_the_predecessors_refusal_keeps_the_order() -> None:
    core = warm_core()
    first, second = sent(core), sent(core)
    core.answer(second, OUT_OF_ORDER)
    core.answer(first, NOT_ENOUGH_REPLICAS)
    for expected in (first, second):
        again = resent(core)
        assert again.batches == expected.batches
        core.acknowledge(again)
    assert [stamp(d.batches[0]) for d in (first, second)] == [(0, 1), (0, 2)]
    assert core.data_losses == []


def test_batch_whose_successor_was_acknowledged_succeeds_as_a_duplicate() -> None:
    core = warm_core()
    first, second = sent(core), sent(core)
    core.acknowledge(second)
    core.sender.on_failure(1, first.batches, NodeDisconnectedError("gone"), core.now)
    again = resent(core)
    assert again.batches == first.batches
    core.answer(again, DUPLICATE)
    assert succeeded(first)
    assert succeeded(second)
    assert stamp(sent(core).batches[0]) == (0, 3)


def test_new_batches_wait_for_one_that_is_older_than_an_acknowledged_one() -> None:
    core = warm_core()
    first, second = sent(core), sent(core)
    core.answer(first, NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    core.acknowledge(second)
    core.now += 0.5  # the broker's memory is not in doubt yet
    (again,) = core.poll()
    waiting = core.append()
    assert core.poll() == []
    assert core.sender.wait_of(waiting).obstacle is Obstacle.EARLIER_BATCH
    core.answer(again, DUPLICATE)
    (following,) = core.poll()
    assert following.batches == [waiting]


def test_batch_that_expires_before_it_was_sent_uses_no_sequence() -> None:
    core = warm_core(delivery_timeout=5.0)
    core.nodes.unready[1] = core.now + 100
    unsent = core.append()
    core.now += 5
    core.poll()
    assert isinstance(unsent.record_error(0), DeliveryTimeoutError)
    core.nodes.unready.clear()
    assert stamp(sent(core).batches[0]) == (0, 1)


def first_expired_in_its_backoff(core: Core) -> tuple[Dispatch, Dispatch]:
    """Two batches in flight; the older one was refused and expires before its retry."""
    first = sent(core)
    core.now += 1
    second = sent(core)
    core.now = first.batches[0].created_at + 4.99
    core.answer(first, NOT_LEADER)  # may come after the append
    core.now += 0.01
    assert core.poll() == []
    assert isinstance(first.batches[0].record_error(0), DeliveryTimeoutError)
    return first, second


def test_successor_of_a_batch_that_expired_in_its_backoff_may_be_acknowledged() -> None:
    core = warm_core(delivery_timeout=5.0)
    _, second = first_expired_in_its_backoff(core)
    core.acknowledge(second)
    assert succeeded(second)


def test_successor_of_a_batch_that_expired_in_its_backoff_starts_a_new_epoch() -> None:
    core = warm_core(delivery_timeout=5.0)
    _, second = first_expired_in_its_backoff(core)
    core.answer(second, OUT_OF_ORDER)
    core.now += 0.5
    (again,) = core.poll()
    assert again.batches == second.batches
    assert stamp(second.batches[0]) == (1, 0)
    core.acknowledge(again)
    assert succeeded(second)
    assert core.data_losses == []


def test_after_every_batch_in_flight_expired_the_next_one_starts_a_new_epoch() -> None:
    core = warm_core(delivery_timeout=5.0)
    lost = [sent(core) for _ in range(3)]
    core.now += 5
    core.poll()
    for dispatch in lost:
        error = dispatch.batches[0].record_error(0)
        assert error is not None
        assert error.persistence is Persistence.POSSIBLY_PERSISTED
    assert stamp(sent(core).batches[0]) == (1, 0)


@pytest.mark.parametrize("code", [MESSAGE_TOO_LARGE, NOT_ENOUGH_REPLICAS, OUT_OF_ORDER])
def test_late_refusal_of_an_expired_batch_sends_nothing_again(code: int) -> None:
    core = warm_core(delivery_timeout=5.0)
    core.append()
    core.append()
    (dispatch,) = core.poll()
    (batch,) = dispatch.batches
    assert batch.count == 2
    core.now += 5
    core.poll()
    core.answer(dispatch, code)
    core.now += 2
    assert core.poll() == []
    assert isinstance(batch.record_error(0), DeliveryTimeoutError)
    assert core.stats.batches_split == 0
    assert core.pool.available == core.pool.total


def test_batches_refused_together_are_sent_again_before_younger_ones() -> None:
    core = warm_core((1, 1))
    first, second = core.append(0), core.append(1)
    (dispatch,) = core.poll()
    assert dispatch.batches == [first, second]
    core.answer(dispatch, NOT_ENOUGH_REPLICAS)
    later = core.append(0)
    again = resent(core)
    assert set(again.batches) == {first, second}
    core.acknowledge(again)
    (last,) = core.poll()
    assert last.batches == [later]


def test_too_large_single_record_fails_and_its_successor_is_renumbered() -> None:
    core = warm_core()
    first, second = sent(core), sent(core)
    core.answer(first, MESSAGE_TOO_LARGE)
    assert isinstance(first.batches[0].record_error(0), RecordTooLargeError)
    core.answer(second, OUT_OF_ORDER)
    again = resent(core)
    assert again.batches == second.batches
    assert stamp(second.batches[0]) == (1, 0)


def test_order_survives_leaders_that_move_between_sends() -> None:
    core = warm_core()
    first = sent(core)
    core.learn((2,), epoch=2)
    second = core.append()
    assert core.poll() == []  # the new leader lacks the first one
    core.answer(first, NOT_LEADER)
    order = []
    for _ in range(2):
        again = resent(core)
        assert again.node_id == 2
        order += again.batches
        core.acknowledge(again)
    assert order == [*first.batches, second]
    assert core.data_losses == []


def test_five_requests_lost_at_once_are_sent_again_in_order_and_once() -> None:
    core = warm_core()
    lost = [sent(core) for _ in range(5)]
    for dispatch in lost:
        core.sender.on_failure(1, dispatch.batches, NodeDisconnectedError("gone"), core.now)
    core.now += 2
    order = []
    for _ in lost:
        (again,) = core.poll()
        assert core.poll() == []
        order.append(again.batches[0].base_sequence)
        core.acknowledge(again)
    assert order == [1, 2, 3, 4, 5]
    assert core.poll() == []
    assert all(map(succeeded, lost))
