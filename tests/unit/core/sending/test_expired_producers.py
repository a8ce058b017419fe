"""Brokers whose state of the producer expired: order is kept, or a batch fails and says so."""

from __future__ import annotations

import pytest

from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.core.sending.actions import Dispatch
from aioproducer.core.sending.idempotence import REMEMBERED_S, ProducerIdentity, Sequencer
from aioproducer.core.transactions.rules import Rpc
from aioproducer.errors import (
    NodeDisconnectedError,
    NotEnoughReplicasError,
    OutOfOrderSequenceNumberError,
    TransactionAbortableError,
)
from aioproducer.types import Persistence

from ..support import Core
from ..transactions.transaction_stage import Stage

REQUEST_TIMED_OUT, MESSAGE_TOO_LARGE, NOT_ENOUGH_REPLICAS = 7, 10, 19
OUT_OF_ORDER, DUPLICATE, UNKNOWN_PRODUCER_ID, INVALID_RECORD = 45, 46, 59, 87
A_DAY_S = 86_400.0


def warm_core() -> Core:
    """Partition 0 has one acknowledged record under epoch 0; the next sequence is 1."""
    core = Core((1,), sequencer=Sequencer(5), delivery_timeout=10.0)
    core.sender.on_identity(ProducerIdentity(9, 0))
    core.append()
    (dispatch,) = core.poll()
    core.acknowledge(dispatch)
    return core


def sent(core: Core, value: bytes = b"v") -> Dispatch:
    """One more record of partition 0, in a separate request."""
    core.append(value=value)
    (dispatch,) = core.poll()
    return dispatch


def resent(core: Core) -> Dispatch:
    """The one request that is due after the longest backoff."""
    core.now += 2
    (dispatch,) = core.poll()
    return dispatch


def error_of(batch: ProducerBatch) -> tuple[type, Persistence | None]:
    error = batch.record_error(0)
    assert error is not None
    return type(error), error.persistence


@pytest.mark.parametrize("idle_s", [REMEMBERED_S * 1.01, A_DAY_S])
def test_after_an_idle_time_one_batch_is_in_flight_until_it_is_acknowledged(idle_s: float) -> None:
    core = warm_core()
    core.now += idle_s
    first = sent(core)
    second = core.append()
    assert core.poll() == []
    core.answer(first, NOT_ENOUGH_REPLICAS)
    assert core.poll() == []
    again = resent(core)
    assert again.batches == first.batches
    assert core.poll() == []
    core.acknowledge(again)
    (later,) = core.poll()
    assert later.batches == [second]
    assert (second.producer_epoch, second.base_sequence) == (0, 2)
    sent(core)


def test_several_batches_are_in_flight_while_acknowledgements_come() -> None:
    core = warm_core()
    for _ in range(5):
        core.now += REMEMBERED_S
        first, second = sent(core), sent(core)
        core.acknowledge(first)
        core.acknowledge(second)


def test_after_a_change_of_leader_one_batch_is_in_flight_until_it_is_acknowledged() -> None:
    core = warm_core()
    core.learn((2,), epoch=2)
    first = sent(core)
    core.append()
    assert core.poll() == []
    core.acknowledge(first)
    assert len(core.poll()) == 1


@pytest.mark.parametrize("is_answered_first", [True, False])
def test_batch_overtaken_by_an_acknowledged_one_fails_as_not_persisted(
    is_answered_first: bool,
) -> None:
    core = warm_core()
    first, second, third = sent(core), sent(core), sent(core)
    if is_answered_first:
        core.answer(first, NOT_ENOUGH_REPLICAS)
    core.acknowledge(second)  # by a broker whose state of the producer expired
    if not is_answered_first:
        core.answer(first, NOT_ENOUGH_REPLICAS)
    assert error_of(first.batches[0]) == (NotEnoughReplicasError, Persistence.NOT_PERSISTED)
    assert "out of order" in str(first.batches[0].record_error(0))
    core.acknowledge(third)
    fourth = sent(core)
    assert (fourth.batches[0].producer_epoch, fourth.batches[0].base_sequence) == (0, 4)
    core.acknowledge(fourth)
    assert core.pool.available == core.pool.total
    assert core.data_losses == []


def test_overtaken_batch_that_may_be_written_is_sent_again_and_never_numbered_anew() -> None:
    core = warm_core()
    first, second = sent(core), sent(core)
    core.answer(first, REQUEST_TIMED_OUT)
    core.acknowledge(second)
    again = resent(core)
    assert again.batches == first.batches
    core.answer(again, OUT_OF_ORDER)
    expected = (OutOfOrderSequenceNumberError, Persistence.POSSIBLY_PERSISTED)
    assert error_of(first.batches[0]) == expected
    third = sent(core)
    assert (third.batches[0].producer_epoch, third.batches[0].base_sequence) == (0, 3)
    assert core.data_losses == []


def test_overtaken_batch_that_was_written_is_found_by_sending_it_again() -> None:
    core = warm_core()
    first, second = sent(core), sent(core)
    core.answer(first, REQUEST_TIMED_OUT)
    core.acknowledge(second)
    again = resent(core)
    core.answer(again, DUPLICATE)
    assert first.batches[0].record_error(0) is None


def test_overtaken_batch_whose_connection_broke_is_not_numbered_anew() -> None:
    core = warm_core()
    first, second = sent(core), sent(core)
    core.acknowledge(second)
    core.sender.on_failure(1, first.batches, NodeDisconnectedError("gone"), core.now)
    core.answer(resent(core), OUT_OF_ORDER)
    assert error_of(first.batches[0])[1] is Persistence.POSSIBLY_PERSISTED


def test_parts_of_a_split_batch_that_was_overtaken_fail_as_not_persisted() -> None:
    core = warm_core()
    whole = core.append()
    assert core.append() is whole
    (first,) = core.poll()
    second = sent(core)
    core.answer(first, MESSAGE_TOO_LARGE)
    core.acknowledge(second)
    assert whole.done
    for index in range(2):
        error = whole.record_error(index)
        assert error is not None
        assert error.persistence is Persistence.NOT_PERSISTED
    assert core.pool.available == core.pool.total


def test_failed_batch_that_was_overtaken_leaves_no_gap() -> None:
    core = warm_core()
    first, second, third = sent(core), sent(core), sent(core)
    core.acknowledge(second)
    core.answer(first, INVALID_RECORD)
    fourth = sent(core)
    for dispatch in (third, fourth):
        core.acknowledge(dispatch)
    assert fourth.batches[0].producer_epoch == 0


@pytest.mark.parametrize("code", [MESSAGE_TOO_LARGE, INVALID_RECORD])
def test_refused_batch_that_was_overtaken_is_not_sent_again_in_parts(code: int) -> None:
    core = warm_core()
    batch = core.append()
    assert core.append() is batch
    (first,) = core.poll()
    second = sent(core)
    core.acknowledge(second)
    core.answer(first, code)
    assert batch.done
    assert error_of(batch)[1] is Persistence.NOT_PERSISTED


# -- transactions ----------------------------------------------------------------------------------


def idle_stage(level: int, *, idle_s: float = A_DAY_S) -> Stage:
    """In the second transaction, after an idle time; the first one wrote to partition 0."""
    stage = Stage(level).begun()
    stage.core.append()
    stage.done(stage.manager.commit())
    stage.core.now += idle_s
    stage.begin()
    return stage


def first_of(stage: Stage) -> Dispatch:
    """The request with the first record of partition 0 in this transaction."""
    stage.core.append()
    if stage.level < 2:
        stage.respond(stage.request(Rpc.ADD_PARTITIONS))
    (dispatch,) = stage.core.poll()
    return dispatch


@pytest.mark.parametrize("level", [1, 2])
def test_transaction_after_an_idle_time_has_one_batch_in_flight_until_it_is_acknowledged(
    level: int,
) -> None:
    stage = idle_stage(level)
    first = first_of(stage)
    second = stage.core.append()
    assert stage.core.poll() == []
    stage.core.answer(first, NOT_ENOUGH_REPLICAS)
    stage.wait()
    assert stage.deliver() == first.batches
    assert stage.deliver() == [second]
    assert second.base_sequence == first.batches[0].base_sequence + 1
    stage.done(stage.manager.commit())
    assert stage.core.data_losses == []


@pytest.mark.parametrize("code", [OUT_OF_ORDER, UNKNOWN_PRODUCER_ID])
def test_transaction_of_an_expired_producer_is_aborted_and_the_next_one_has_a_new_epoch(
    code: int,
) -> None:
    stage = idle_stage(1)
    first = first_of(stage)
    assert first.batches[0].base_sequence == 1
    stage.core.answer(first, code)
    with pytest.raises(TransactionAbortableError):
        stage.done(stage.manager.commit())
    stage.done(stage.manager.abort())
    stage.begin()
    batch = first_of(stage).batches[0]
    assert (batch.producer_epoch, batch.base_sequence) == (1, 0)
    assert stage.core.data_losses == []


def test_batch_of_a_transaction_that_was_overtaken_fails_the_transaction() -> None:
    stage = idle_stage(1)
    stage.core.acknowledge(first_of(stage))
    second, third = sent(stage.core), sent(stage.core)
    stage.core.answer(second, NOT_ENOUGH_REPLICAS)
    stage.core.acknowledge(third)  # by a broker whose state of the producer expired
    assert error_of(second.batches[0]) == (NotEnoughReplicasError, Persistence.NOT_PERSISTED)
    with pytest.raises(TransactionAbortableError):
        stage.done(stage.manager.commit())
