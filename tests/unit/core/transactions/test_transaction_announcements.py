"""V1 transactions announce partitions and groups (KIP-98): when, and what a refusal leads to."""

from __future__ import annotations

import pytest

from aioproducer.core.transactions.requests import TransactionalRequest
from aioproducer.core.transactions.rules import Rpc
from aioproducer.core.transactions.states import TransactionState
from aioproducer.errors import (
    FatalTransactionError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnsupportedVersionError,
)
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata
from aioproducer.wire.messages.init_producer_id import InitProducerIdRequest

from .transaction_stage import BEFORE_2_5, T0, T1, V1, Stage

S = TransactionState
ADD, ADD_OFFSETS, END, FIND, INIT = (
    Rpc.ADD_PARTITIONS,
    Rpc.ADD_OFFSETS,
    Rpc.END,
    Rpc.FIND_COORDINATOR,
    Rpc.INIT_PRODUCER_ID,
)
GROUP = ConsumerGroupMetadata("group")
OFFSETS = {T0: OffsetAndMetadata(1)}


@pytest.fixture
def stage() -> Stage:
    """A V1 producer in a transaction."""
    return Stage(level=1).begun()


def produced(stage: Stage, partition: int = 0) -> None:
    """One record that the broker has."""
    stage.core.append(partition)
    stage.respond(stage.request(ADD))
    assert stage.deliver()


def usable_again(stage: Stage) -> None:
    """The next transaction commits."""
    stage.begin()
    produced(stage)
    stage.done(stage.manager.commit())


def partly_refused(stage: Stage, request: TransactionalRequest, code: int) -> None:
    """The first partition is taken in, the second one refused."""
    response = stage._response(request, 0)
    results = response.results_by_topic_v3_and_below[0]  # type: ignore[attr-defined]
    results.results_by_partition[1].partition_error_code = code
    stage.coordinator_session.on_response(request, response, stage.core.now)
    stage.core.accumulator.replan_all()


def test_partitions_that_are_still_to_be_announced_are_so_before_the_commit(stage: Stage) -> None:
    batches = [stage.core.append(0), stage.core.append(1)]
    operation = stage.manager.commit()
    assert stage.core.poll() == []
    request = stage.request(ADD)
    assert request.partitions == (T0, T1)
    stage.respond(request)
    assert stage.next_request() is None
    assert stage.deliver() == batches
    stage.respond(stage.request(END))
    assert operation.done
    assert operation.error is None


def test_abort_announces_nothing_and_ends_nothing_that_no_broker_has(stage: Stage) -> None:
    batch = stage.core.append()
    stage.sent.clear()
    operation = stage.manager.abort()
    assert stage.deliver() == []
    stage.done(operation)
    assert stage.sent == []
    assert isinstance(batch.record_error(0), TransactionAbortedError)
    usable_again(stage)


def test_refused_topic_fails_the_transaction_and_the_next_one_works(stage: Stage) -> None:
    batch = stage.core.append()
    stage.respond(stage.request(ADD), 29)
    assert stage.deliver() == []
    assert isinstance(batch.record_error(0), TransactionAbortedError)
    with pytest.raises(TransactionAbortableError) as caught:
        stage.manager.commit()
    assert isinstance(caught.value.__cause__, TopicAuthorizationFailedError)
    stage.done(stage.manager.abort())
    assert END not in stage.sent
    usable_again(stage)


def test_refused_topic_fails_a_commit_that_has_begun_and_the_abort_ends_the_other_one(
    stage: Stage,
) -> None:
    stage.core.append(0)
    stage.core.append(1)
    request = stage.request(ADD)
    operation = stage.manager.commit()
    partly_refused(stage, request, 29)
    assert isinstance(operation.error, TransactionAbortableError)
    stage.core.poll()
    abort = stage.manager.abort()
    stage.deliver()
    stage.respond(stage.request(END))
    stage.done(abort)
    usable_again(stage)


@pytest.mark.parametrize("code", [3, 7, 14])
def test_announcement_that_is_refused_for_now_is_repeated_for_the_rest(
    stage: Stage, code: int
) -> None:
    stage.core.append(0)
    stage.core.append(1)
    partly_refused(stage, stage.request(ADD), code)
    assert [b.topic_partition for b in stage.deliver()] == [T0]
    assert stage.next_request() is None
    stage.wait()
    again = stage.request(ADD)
    assert again.partitions == (T1,)
    stage.respond(again)
    assert [b.topic_partition for b in stage.deliver()] == [T1]


@pytest.mark.parametrize("code", [0, 29])
def test_abort_ends_a_transaction_whose_partitions_a_response_left_out(
    stage: Stage, code: int
) -> None:
    stage.core.append(0)
    stage.core.append(1)
    request = stage.request(ADD)
    response = stage._response(request, code)
    results = response.results_by_topic_v3_and_below[0]  # type: ignore[attr-defined]
    del results.results_by_partition[0 if code == 0 else 1 :]
    stage.coordinator_session.on_response(request, response, stage.core.now)
    operation = stage.manager.abort()
    stage.deliver()
    stage.wait()
    stage.respond(stage.request(END))
    stage.done(operation)
    usable_again(stage)


def test_abort_after_a_fatal_answer_to_add_offsets_raises_it(stage: Stage) -> None:
    produced(stage)
    operation = stage.manager.send_offsets(OFFSETS, GROUP)
    stage.respond(stage.request(ADD_OFFSETS), -1)
    assert isinstance(operation.error, FatalTransactionError)
    with pytest.raises(FatalTransactionError):
        stage.manager.abort()
    with pytest.raises(FatalTransactionError):
        stage.manager.commit()


@pytest.mark.parametrize("code", [30, 120])
def test_refused_group_alone_needs_no_request_to_abort(stage: Stage, code: int) -> None:
    operation = stage.manager.send_offsets(OFFSETS, GROUP)
    stage.respond(stage.request(ADD_OFFSETS), code)
    assert isinstance(operation.error, TransactionAbortableError)
    stage.done(stage.manager.abort())
    assert END not in stage.sent
    usable_again(stage)


def test_coordinator_that_was_lost_is_found_again_for_the_abort(stage: Stage) -> None:
    produced(stage)
    stage.manager.send_offsets(OFFSETS, GROUP)
    stage.lose(stage.request(ADD_OFFSETS))
    stage.manager.on_send_refused(stage.manager.number, TopicAuthorizationFailedError())
    assert stage.manager.state is S.ABORTABLE_ERROR
    operation = stage.manager.abort()
    stage.wait()
    stage.respond(stage.request(FIND))
    stage.respond(stage.request(END))
    assert operation.done


@pytest.mark.parametrize("rpc", [ADD, ADD_OFFSETS])
def test_unknown_producer_id_is_aborted_and_the_epoch_renewed(stage: Stage, rpc: Rpc) -> None:
    produced(stage)
    if rpc is ADD:
        stage.core.append(1)
    else:
        stage.manager.send_offsets(OFFSETS, GROUP)
    stage.respond(stage.request(rpc), 59)
    assert stage.manager.state is S.ABORTABLE_ERROR
    stage.core.poll()
    stage.done(stage.manager.abort())
    assert stage.sent[-1] is END
    request = stage.request(INIT)
    message = stage.message(request)
    assert isinstance(message, InitProducerIdRequest)
    assert (message.producer_id, message.producer_epoch) == (7, 0)
    stage.respond(request)
    usable_again(stage)
    assert stage.manager.identity == (7, 1)


def test_unknown_producer_id_is_fatal_where_no_epoch_can_be_renewed() -> None:
    stage = Stage(level=1, versions=BEFORE_2_5).begun()
    stage.core.append()
    stage.respond(stage.request(ADD), 59)
    assert stage.manager.state is S.FATAL_ERROR


def test_member_of_a_group_needs_brokers_that_compare_it(stage: Stage) -> None:
    # TxnOffsetCommit below v3 has no member (KIP-447): it must not be left out silently.
    member = ConsumerGroupMetadata("group", 3, "member")
    stage.manager.send_offsets(OFFSETS, member)
    stage.respond(stage.request(ADD_OFFSETS))
    stage.versions = {**V1, Rpc.COMMIT_OFFSETS: 2}
    find = stage.next_request()
    assert find is not None
    stage.answer(find)
    request = stage.next_request()
    assert request is not None
    assert request.min_version == 3
    stage.coordinator_session.on_unsupported(request, UnsupportedVersionError("too old"))
    assert isinstance(stage.manager.error, FatalTransactionError)


def test_group_without_a_member_is_understood_by_old_brokers(stage: Stage) -> None:
    stage.versions = {**V1, Rpc.COMMIT_OFFSETS: 2}
    operation = stage.manager.send_offsets(OFFSETS, GROUP)
    stage.done(operation)
    stage.done(stage.manager.commit())
    assert stage.sent[-2:] == [Rpc.COMMIT_OFFSETS, END]


def test_each_partition_is_announced_before_its_first_record_and_once(stage: Stage) -> None:
    produced(stage, 0)
    produced(stage, 1)
    stage.core.append(0)
    stage.core.append(1)
    assert len(stage.deliver()) == 2
    assert stage.sent.count(ADD) == 2
