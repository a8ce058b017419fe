"""Preparing a transaction, and its outcome as read from a coordinator's answer."""

from __future__ import annotations

import json
import pickle
from itertools import product

import pytest

from aioproducer.core.transactions.prepared import PreparedOutcome, prepared_outcome
from aioproducer.core.transactions.rules import Rpc
from aioproducer.core.transactions.states import TransactionState
from aioproducer.errors import (
    CommitOutcomeUnknownError,
    DeliveryTimeoutError,
    FatalTransactionError,
    IllegalStateError,
    ProducerClosedError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnsupportedVersionError,
)
from aioproducer.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    Persistence,
    PreparedTransaction,
    TransactionDescription,
)
from aioproducer.wire.messages.init_producer_id import InitProducerIdRequest

from .transaction_stage import BEFORE_2_5, T0, Stage

S = TransactionState
LEVELS = pytest.mark.parametrize("level", [1, 2])
STATES = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]
EPOCH = 5


def prepared(stage: Stage) -> PreparedTransaction:
    """A transaction with a record and an offset."""
    stage.core.append(0)
    stage.manager.send_offsets({T0: OffsetAndMetadata(1)}, ConsumerGroupMetadata("g"))
    stage.done(stage.manager.prepare())
    return stage.manager.prepared()


def test_nothing_is_prepared_where_the_next_transaction_would_have_the_same_epoch() -> None:
    stage = Stage(level=1, versions=BEFORE_2_5).begun()
    stage.core.append(0)
    with pytest.raises(UnsupportedVersionError, match=r"before Kafka 2\.5"):
        stage.manager.prepare()
    assert stage.manager.state is S.IN_TRANSACTION
    stage.done(stage.manager.commit())


@LEVELS
def test_what_is_prepared_is_written_and_stays_open(level: int) -> None:
    stage = Stage(level).begun()
    result = prepared(stage)
    assert result == PreparedTransaction("tx", 7, 0, level)
    assert Rpc.END not in stage.sent
    assert Rpc.COMMIT_OFFSETS in stage.sent
    assert stage.core.accumulator.is_idle
    assert stage.manager.state is S.PREPARED
    assert stage.next_request() is None
    with pytest.raises(IllegalStateError, match="commit or abort"):
        stage.manager.check_send()


@LEVELS
@pytest.mark.parametrize("commit", [True, False])
def test_what_comes_after_a_prepared_one_has_another_epoch(level: int, commit: bool) -> None:
    stage = Stage(level).begun()
    prepared(stage)
    stage.done(stage.manager.commit() if commit else stage.manager.abort())
    stage.begin()
    assert stage.manager.identity == (7, 1)


@LEVELS
@pytest.mark.parametrize("code", [59, 120])
@pytest.mark.parametrize("call", ["commit", "abort"])
def test_a_refused_end_of_a_prepared_one_proves_nothing(level: int, code: int, call: str) -> None:
    # A process with the handle may have ended it, and may do so yet: it is not called aborted.
    stage = Stage(level).begun()
    prepared(stage)
    operation = getattr(stage.manager, call)()
    stage.respond(stage.request(Rpc.END), code)
    assert stage.manager.state is S.FATAL_ERROR
    error = operation.error
    if call == "commit":
        assert isinstance(error, CommitOutcomeUnknownError)
        error = error.__cause__
    assert isinstance(error, FatalTransactionError)


@LEVELS
def test_a_prepared_one_that_was_aborted_elsewhere_can_be_aborted(level: int) -> None:
    stage = Stage(level).begun()
    prepared(stage)
    operation = stage.manager.commit()
    stage.respond(stage.request(Rpc.END), 48)
    assert isinstance(operation.error, TransactionAbortableError)
    stage.done(stage.manager.abort())


def test_a_preparation_that_was_not_handed_out_leaves_no_doubt() -> None:
    stage = Stage().begun()
    stage.core.append(0)
    stage.manager.prepare()
    stage.deliver()
    stage.next_request()
    operation = stage.manager.abort()
    stage.respond(stage.request(Rpc.END), 59)
    assert operation.done
    assert operation.error is None


def test_it_is_prepared_only_when_everything_is_acknowledged() -> None:
    stage = Stage().begun()
    stage.core.append(0)
    operation = stage.manager.prepare()
    assert stage.manager.awaits_batches
    assert stage.next_request() is None
    assert not operation.done
    assert not stage.manager.is_prepared
    stage.done(operation)
    assert stage.manager.is_prepared


def test_nothing_written_makes_an_empty_one() -> None:
    stage = Stage().begun()
    stage.done(stage.manager.prepare())
    assert stage.manager.prepared().empty
    assert stage.sent[-1] is Rpc.INIT_PRODUCER_ID


@LEVELS
def test_a_record_that_fails_meanwhile_fails_it(level: int) -> None:
    stage = Stage(level).begun()
    batch = stage.core.append(0)
    operation = stage.manager.prepare()
    stage.manager.on_batch_failed(batch, DeliveryTimeoutError("late"))
    assert isinstance(operation.error, TransactionAbortableError)
    with pytest.raises(TransactionAbortableError):
        stage.manager.prepared()


def test_a_preparation_exists_once_it_was_handed_out() -> None:
    stage = Stage().begun()
    stage.core.append(0)
    operation = stage.manager.prepare()
    stage.deliver()
    assert stage.next_request() is None
    assert operation.done
    with pytest.raises(IllegalStateError):
        stage.manager.prepared()
    with pytest.raises(IllegalStateError, match="repeat prepare_transaction"):
        stage.manager.commit()
    assert stage.manager.prepare() is operation
    stage.manager.on_seen(operation)
    assert stage.manager.prepared().epoch == 0


@pytest.mark.parametrize("done", [True, False])
def test_an_abort_overtakes_a_preparation_that_was_not_handed_out(done: bool) -> None:
    stage = Stage().begun()
    stage.core.append(0)
    operation = stage.manager.prepare()
    if done:
        stage.deliver()
        stage.next_request()
    stage.done(stage.manager.abort())
    assert operation.done
    assert isinstance(operation.error, TransactionAbortedError) is not done
    assert stage.manager.state is S.READY


@LEVELS
def test_under_another_id_it_begins_anew_and_leaves_the_prepared_one(level: int) -> None:
    stage = Stage(level).begun()
    left = prepared(stage)
    stage.manager.assume("other")
    assert stage.manager.state is S.UNINITIALIZED
    stage.done(stage.manager.init())
    stage.begin()
    assert Rpc.END not in stage.sent
    assert stage.sent.count(Rpc.INIT_PRODUCER_ID) == 2, "one for each id"
    stage.core.append(0)
    stage.done(stage.manager.prepare())
    found = stage.manager.prepared()
    assert (left.transactional_id, found.transactional_id) == ("tx", "other")
    assert not found.empty


def test_a_late_request_for_one_id_does_not_fence_another() -> None:
    stage = Stage()
    starting = stage.manager.init()
    stage.lose(stage.request(Rpc.INIT_PRODUCER_ID))
    stage.wait()
    stage.done(starting)
    stage.begin()
    prepared(stage)
    stage.manager.assume("other")
    stage.manager.init()
    stage.respond(stage.request(Rpc.INIT_PRODUCER_ID), 90)
    assert isinstance(stage.manager.error, ProducerFencedError)
    assert "a late request of this producer" not in str(stage.manager.error)


def test_another_id_is_for_a_prepared_transaction_that_was_handed_out() -> None:
    stage = Stage().begun()
    stage.core.append(0)
    with pytest.raises(IllegalStateError, match="assume"):
        stage.manager.assume("other")
    stage.manager.prepare()
    stage.deliver()
    stage.next_request()
    with pytest.raises(IllegalStateError):
        stage.manager.assume("other")


def test_closing_aborts_what_is_being_prepared_and_leaves_what_is() -> None:
    stage = Stage().begun()
    prepared(stage)
    assert stage.manager.end_for_close() is None
    assert stage.manager.state is S.PREPARED
    stage = Stage().begun()
    stage.core.append(0)
    preparing = stage.manager.prepare()
    ending = stage.manager.end_for_close()
    assert ending is not None
    assert isinstance(preparing.error, ProducerClosedError)
    stage.done(ending)


def test_what_was_being_prepared_is_not_committed_by_a_close() -> None:
    stage = Stage().begun()
    stage.core.append(0)
    stage.manager.prepare()
    stage.manager.end_for_close()
    stage.manager.fail(ProducerClosedError())  # the abort has no outcome in time
    with pytest.raises(ProducerClosedError) as caught:
        stage.manager.commit()
    assert caught.value.persistence is Persistence.NOT_PERSISTED


def test_two_phases_are_asked_for_and_a_refusal_says_what_to_do() -> None:
    stage = Stage(versions={**Stage(2).versions, Rpc.INIT_PRODUCER_ID: 6})
    stage.manager._two_phase = True
    operation = stage.manager.init()
    request = stage.request(Rpc.INIT_PRODUCER_ID)
    message = stage.message(request)
    assert isinstance(message, InitProducerIdRequest)
    assert message.enable2_pc
    assert request.min_version == 6
    stage.coordinator_session.on_unsupported(request, UnsupportedVersionError("no common version"))
    assert isinstance(operation.error, FatalTransactionError)
    assert "KIP-939" in str(operation.error)


# -- its outcome -----------------------------------------------------------------------------------

KNOWN = {
    (1, "Ongoing", 0): PreparedOutcome.OPEN,
    (1, "PrepareCommit", 0): PreparedOutcome.COMMITTED,
    (1, "CompleteCommit", 0): PreparedOutcome.COMMITTED,
    (1, "PrepareAbort", 0): PreparedOutcome.ABORTED,
    (1, "CompleteAbort", 0): PreparedOutcome.ABORTED,
    (2, "Ongoing", 0): PreparedOutcome.OPEN,
    (2, "PrepareCommit", 1): PreparedOutcome.COMMITTED,
    (2, "CompleteCommit", 1): PreparedOutcome.COMMITTED,
    (2, "PrepareAbort", 1): PreparedOutcome.ABORTED,
    (2, "CompleteAbort", 1): PreparedOutcome.ABORTED,
}


@pytest.mark.parametrize(("version", "state", "bumps"), list(product([1, 2], STATES, range(-1, 3))))
def test_every_answer_of_the_coordinator(version: int, state: str, bumps: int) -> None:
    mine = PreparedTransaction("tx", 7, EPOCH, version)
    now = TransactionDescription("tx", state, 7, EPOCH + bumps, 60_000, 0)
    assert prepared_outcome(mine, now) is KNOWN.get(
        (version, state, bumps), PreparedOutcome.UNKNOWN
    )


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("state", [*STATES, "PrepareEpochFence", "Dead"])
def test_another_producer_id_proves_nothing(version: int, state: str) -> None:
    mine = PreparedTransaction("tx", 7, EPOCH, version)
    for epoch in (EPOCH, EPOCH + 1):
        now = TransactionDescription("tx", state, 8, epoch, 60_000, 0)
        assert prepared_outcome(mine, now) is PreparedOutcome.UNKNOWN
    assert prepared_outcome(mine, None) is PreparedOutcome.UNKNOWN


# -- the value -------------------------------------------------------------------------------------


def test_it_travels() -> None:
    mine = PreparedTransaction("tx", 7, 3, 2, empty=True)
    assert pickle.loads(pickle.dumps(mine)) == mine
    assert PreparedTransaction.from_dict(json.loads(json.dumps(mine.as_dict()))) == mine
    assert len({mine, PreparedTransaction.from_dict(mine.as_dict())}) == 1


@pytest.mark.parametrize(
    "fields", [("tx", 7, 3, 0), ("tx", 7, 3, 3), ("", 7, 3, 2), ("tx", -1, 3, 2), ("tx", 7, -1, 2)]
)
def test_a_handle_that_cannot_have_been_prepared_is_refused(
    fields: tuple[str, int, int, int],
) -> None:
    with pytest.raises(ValueError, match=r"version|prepares"):
        PreparedTransaction(*fields)


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(TypeError):
        PreparedTransaction.from_dict({"transactional_id": "tx", "password": "x"})
