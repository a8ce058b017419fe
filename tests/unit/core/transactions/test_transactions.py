"""Transactions: which request is due when, what an answer leads to, what can be called."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from uuid import UUID

import pytest

from aioproducer.core.transactions.operations import Operation
from aioproducer.core.transactions.requests import CoordinatorKind, TransactionalRequest
from aioproducer.core.transactions.rules import Rpc
from aioproducer.core.transactions.states import TransactionState
from aioproducer.errors import (
    CommitOutcomeUnknownError,
    DeliveryTimeoutError,
    FatalTransactionError,
    IllegalStateError,
    InvalidRecordError,
    KafkaError,
    NodeDisconnectedError,
    ProducerClosedError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnsupportedVersionError,
)
from aioproducer.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    Persistence,
    PreparedTransaction,
)
from aioproducer.wire.messages.init_producer_id import InitProducerIdRequest
from aioproducer.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)

from .transaction_stage import BEFORE_2_5, T0, Stage

S = TransactionState
GROUP = ConsumerGroupMetadata("group", 3, "member", "instance")
INIT, ADD, OFFSETS, END = (
    Rpc.INIT_PRODUCER_ID,
    Rpc.ADD_PARTITIONS,
    Rpc.COMMIT_OFFSETS,
    Rpc.END,
)


def produced(stage: Stage, partition: int = 0) -> None:
    """One record that the broker has."""
    stage.core.append(partition)
    if stage.level < 2:
        stage.respond(stage.request(ADD))
    assert stage.deliver()


# -- the ordinary course ---------------------------------------------------------------------------


def test_v2_sends_nothing_between_init_and_end() -> None:
    stage = Stage().begun()
    produced(stage)
    stage.done(stage.manager.commit())
    assert stage.sent == [Rpc.FIND_COORDINATOR, INIT, END]
    assert stage.manager.state is S.READY


def test_v1_announces_partitions_before_it_writes_to_them() -> None:
    stage = Stage(level=1).begun()
    stage.core.append(0)
    stage.core.append(1)
    assert stage.core.poll() == []
    request = stage.request(ADD)
    message = stage.message(request)
    assert isinstance(message, AddPartitionsToTxnRequest)
    assert [topic.partitions for topic in message.v3_and_below_topics] == [[0, 1]]
    assert stage.core.poll() == []
    stage.respond(request)
    assert {batch.topic_partition.partition for batch in stage.deliver()} == {0, 1}
    stage.done(stage.manager.commit())
    assert stage.sent == [Rpc.FIND_COORDINATOR, INIT, ADD, END]


def test_v1_has_a_request_to_send_once_a_partition_is_used_for_the_first_time() -> None:
    stage = Stage(level=1).begun()
    calls: list[bool] = []
    stage.manager.on_work = lambda: calls.append(True)
    stage.manager.on_partition_used(T0)
    assert calls == [True]
    stage.manager.on_partition_used(T0)
    assert calls == [True]


def test_v1_announces_a_partition_once_per_transaction() -> None:
    stage = Stage(level=1).begun()
    produced(stage)
    stage.core.append(0)
    assert stage.next_request() is None
    assert stage.deliver()
    stage.done(stage.manager.commit())
    stage.begin()
    produced(stage)
    assert stage.sent.count(ADD) == 2


def test_the_epoch_of_the_end_is_the_next_transactions_in_v2() -> None:
    stage = Stage().begun()
    produced(stage)
    stage.done(stage.manager.commit())
    stage.begin()
    stage.core.append()
    (batch,) = stage.deliver()
    assert (batch.producer_epoch, batch.base_sequence) == (1, 0)


def test_a_partition_with_a_batch_of_the_producer_takes_several_batches_at_once() -> None:
    stage = Stage().begun()
    stage.core.append()
    (first,) = stage.core.poll()
    stage.core.append()
    assert stage.core.poll() == []
    stage.core.acknowledge(first)
    stage.deliver()
    stage.done(stage.manager.commit())
    stage.begin()
    stage.core.append()
    assert len(stage.core.poll()) == 1
    stage.core.append()
    (second,) = stage.core.poll()
    assert (second.batches[0].producer_epoch, second.batches[0].base_sequence) == (1, 1)


def test_a_partition_of_a_topic_created_anew_starts_with_one_batch() -> None:
    stage = Stage().begun()
    produced(stage)
    stage.done(stage.manager.commit())
    stage.core.sequencer.on_recreated("t")
    stage.begin()
    stage.core.append()
    assert len(stage.core.poll()) == 1
    stage.core.append()
    assert stage.core.poll() == []


def test_v1_renews_the_epoch_for_a_topic_created_anew() -> None:
    stage = Stage(level=1).begun()
    produced(stage)
    stage.done(stage.manager.commit())
    stage.core.sequencer.on_recreated("t")
    stage.begin()
    assert stage.manager.identity == (7, 1)
    produced(stage)


@pytest.mark.parametrize("level", [1, 2])
def test_a_transaction_fails_whose_acknowledged_offset_is_assigned_again(level: int) -> None:
    stage = Stage(level=level).begun()
    produced(stage)
    stage.core.log_end = 0
    stage.core.append()
    assert stage.deliver()
    assert stage.core.data_losses
    with pytest.raises(TransactionAbortableError, match="acknowledged records are lost"):
        stage.manager.commit()


def test_a_partition_under_a_new_producer_id_starts_with_one_batch() -> None:
    stage = Stage().begun()
    produced(stage)
    stage.producer_id, stage.epoch = 8, -1
    stage.done(stage.manager.commit())
    stage.begin()
    stage.core.append()
    assert len(stage.core.poll()) == 1
    stage.core.append()
    assert stage.core.poll() == []


def test_an_overflow_of_epochs_brings_a_new_producer_id_in_v2() -> None:
    stage = Stage().begun()
    produced(stage)
    stage.producer_id, stage.epoch = 8, -1
    stage.done(stage.manager.commit())
    stage.begin()
    stage.core.append()
    (batch,) = stage.deliver()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (8, 0, 0)


def test_epoch_and_sequences_go_on_over_transactions_in_v1() -> None:
    stage = Stage(level=1).begun()
    produced(stage)
    stage.done(stage.manager.commit())
    stage.begin()
    stage.core.append()
    stage.respond(stage.request(ADD))
    (batch,) = stage.deliver()
    assert (batch.producer_epoch, batch.base_sequence) == (0, 1)


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_an_empty_transaction_ends_without_a_request(level: int, commit: bool) -> None:
    stage = Stage(level).begun()
    stage.sent.clear()
    stage.done(stage.manager.commit() if commit else stage.manager.abort())
    assert stage.sent == []
    assert stage.manager.state is S.READY


@pytest.mark.parametrize("level", [1, 2])
def test_the_end_waits_until_no_batch_is_incomplete(level: int) -> None:
    stage = Stage(level).begun()
    produced(stage)
    stage.core.append()
    (dispatch,) = stage.core.poll()
    stage.manager.commit()
    assert stage.next_request() is None
    stage.core.acknowledge(dispatch)
    assert stage.request().rpc is END


def test_the_end_waits_for_batches_that_expired_on_the_wire() -> None:
    stage = Stage(delivery_timeout=5.0).begun()
    stage.core.append()
    (dispatch,) = stage.core.poll()
    stage.wait(6)
    stage.core.poll()
    assert dispatch.batches[0].done
    stage.manager.abort()
    assert stage.next_request() is None
    stage.core.sender.on_failure(1, dispatch.batches, NodeDisconnectedError("x"), stage.core.now)
    assert stage.request().rpc is END


def test_one_request_is_out_at_a_time() -> None:
    stage = Stage(level=1).begun()
    stage.core.append(0)
    request = stage.request(ADD)
    stage.core.append(1)
    assert stage.next_request() is None
    stage.respond(request)
    assert stage.request(ADD).partitions[0].partition == 1


# -- offsets ---------------------------------------------------------------------------------------


def test_offsets_go_to_the_groups_coordinator_with_the_member() -> None:
    stage = Stage().begun()
    operation = stage.manager.send_offsets({T0: OffsetAndMetadata(5, "m", 2)}, GROUP)
    request = stage.request(OFFSETS)
    assert request.coordinator == (CoordinatorKind.GROUP, "group")
    message = stage.message(request)
    assert isinstance(message, TxnOffsetCommitRequest)
    assert message.generation_id_or_member_epoch == 3
    assert (message.member_id, message.group_instance_id) == ("member", "instance")
    (partition,) = message.topics[0].partitions
    assert (partition.committed_offset, partition.committed_leader_epoch) == (5, 2)
    assert partition.committed_metadata == "m"
    stage.respond(request)
    assert operation.done
    assert operation.error is None
    stage.done(stage.manager.commit())
    assert stage.sent[-1] is END


def test_v1_announces_the_group_first_and_once() -> None:
    stage = Stage(level=1).begun()
    for position in (5, 6):
        stage.done(stage.manager.send_offsets({T0: OffsetAndMetadata(position)}, GROUP))
    wanted = [Rpc.ADD_OFFSETS, Rpc.FIND_COORDINATOR, OFFSETS, OFFSETS]
    assert stage.sent[2:] == wanted


@pytest.mark.parametrize(("ids", "by_id"), [({"t": UUID(int=5)}, True), ({}, False)])
def test_offsets_name_topics_by_id_if_all_are_known(ids: dict[str, UUID], by_id: bool) -> None:
    stage = Stage(topic_ids=ids)
    stage.versions = {**stage.versions, OFFSETS: 6}
    stage.begun()
    operation = stage.manager.send_offsets({T0: OffsetAndMetadata(5)}, GROUP)
    request = stage.request(OFFSETS)
    assert stage.version(request) == (6 if by_id else 5)
    stage.respond(request)
    assert operation.done


def test_offsets_that_were_not_taken_are_sent_again_alone() -> None:
    stage = Stage().begun()
    offsets = {T0: OffsetAndMetadata(1), T0._replace(partition=1): OffsetAndMetadata(2)}
    operation = stage.manager.send_offsets(offsets, GROUP)
    request = stage.request(OFFSETS)
    response = stage._response(request, 0)
    response.topics[0].partitions[1].error_code = 3  # type: ignore[attr-defined]
    stage.coordinator_session.on_response(request, response, stage.core.now)
    assert not operation.done
    stage.wait()
    assert stage.request(OFFSETS).partitions == (T0._replace(partition=1),)


def test_a_commit_waits_for_offsets_that_are_on_their_way() -> None:
    stage = Stage().begun()
    stage.manager.send_offsets({T0: OffsetAndMetadata(1)}, GROUP)
    stage.manager.commit()
    stage.respond(stage.request(OFFSETS))
    assert stage.request().rpc is END


def test_offsets_are_sent_and_end_in_the_order_of_their_calls() -> None:
    stage = Stage().begun()
    operations = [
        stage.manager.send_offsets({T0: OffsetAndMetadata(number)}, GROUP) for number in (1, 2)
    ]
    first = stage.request(OFFSETS)
    message = stage.message(first)
    assert isinstance(message, TxnOffsetCommitRequest)
    assert message.topics[0].partitions[0].committed_offset == 1
    stage.respond(first)
    assert [operation.done for operation in operations] == [True, False]
    stage.respond(stage.request(OFFSETS))
    assert [operation.done for operation in operations] == [True, True]


def test_begin_before_init_names_no_error() -> None:
    with pytest.raises(IllegalStateError) as refused:
        Stage().manager.begin(2)
    assert "None" not in str(refused.value)


def test_begin_and_assume_may_be_called_once_an_end_has_been_received() -> None:
    stage = Stage().ready()
    assert stage.manager.is_free
    stage.begin()
    assert not stage.manager.is_free
    operation = stage.manager.abort()
    assert not stage.manager.is_free
    stage.done(operation)
    assert stage.manager.is_free


def test_a_call_during_an_abort_that_is_not_awaited_advises_to_begin_another_one() -> None:
    stage = Stage().begun()
    stage.core.append(0)
    stage.manager.on_seen(stage.manager.abort())
    for call in (stage.manager.abort, stage.manager.commit, stage.manager.check_send):
        with pytest.raises(IllegalStateError, match=r"-> begin another.*begin_transaction\(\)"):
            call()
    stage.begin()


def test_an_abort_drops_offsets_that_were_not_sent() -> None:
    stage = Stage().begun()
    operation = stage.manager.send_offsets({T0: OffsetAndMetadata(1)}, GROUP)
    stage.done(stage.manager.abort())
    assert isinstance(operation.error, TransactionAbortedError)
    assert OFFSETS not in stage.sent


@pytest.mark.parametrize("code", [22, 25, 30, 69, 82, 113, 120])
def test_a_group_that_refuses_makes_the_transaction_abortable(code: int) -> None:
    stage = Stage().begun()
    operation = stage.manager.send_offsets({T0: OffsetAndMetadata(1)}, GROUP)
    stage.respond(stage.request(OFFSETS), code)
    assert isinstance(operation.error, TransactionAbortableError)
    assert stage.manager.state is S.ABORTABLE_ERROR
    stage.done(stage.manager.abort())
    stage.begin()


# -- losses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("code", [10, 29, 45, 47, 48, 59, 87, 120])
def test_a_failed_batch_makes_the_transaction_abortable(level: int, code: int) -> None:
    stage = Stage(level).begun()
    produced(stage)
    batch = stage.core.append()
    (dispatch,) = stage.core.poll()
    stage.core.answer(dispatch, code)
    assert batch.done
    with pytest.raises(TransactionAbortableError) as caught:
        stage.manager.commit()
    assert caught.value is not stage.manager.error
    stage.done(stage.manager.abort())
    stage.begin()
    produced(stage)
    stage.done(stage.manager.commit())


@pytest.mark.parametrize("code", [31, 35, 49, 53, 90])
def test_some_answers_to_a_batch_are_fatal(code: int) -> None:
    stage = Stage().begun()
    stage.core.append()
    (dispatch,) = stage.core.poll()
    stage.core.answer(dispatch, code)
    assert stage.manager.state is S.FATAL_ERROR
    assert stage.core.sender.fatal_error is stage.manager.error
    for call in (stage.manager.commit, stage.manager.abort, stage.manager.check_send):
        with pytest.raises((FatalTransactionError, ProducerFencedError)):
            call()


def test_a_batch_that_expires_drops_the_commit_that_waits_for_it() -> None:
    stage = Stage(leaders=(-1, -1), delivery_timeout=5.0).begun()
    stage.core.append()
    operation = stage.manager.commit()
    stage.wait(5)
    stage.core.poll()
    assert isinstance(operation.error, TransactionAbortableError)
    assert isinstance(operation.error.__cause__, DeliveryTimeoutError)
    # Nothing reached a broker: nothing has to be ended there.
    stage.done(stage.manager.abort())
    assert END not in stage.sent


def test_a_refused_record_fails_its_own_transaction_alone() -> None:
    stage = Stage().begun()
    first = stage.manager.check_send()
    stage.done(stage.manager.commit())
    stage.begin()
    stage.manager.on_send_refused(first, RecordTooLargeError("big"))
    assert stage.manager.check_send() == first + 1
    stage.manager.on_send_refused(first + 1, RecordTooLargeError("big"))
    with pytest.raises(TransactionAbortableError):
        stage.manager.check_send()


@pytest.mark.parametrize("call", ["commit", "prepare"])
def test_a_record_refused_while_the_end_waits_for_others_fails_the_transaction(call: str) -> None:
    stage = Stage().begun()
    stage.core.append()
    number = stage.manager.check_send()
    operation = getattr(stage.manager, call)()
    stage.manager.on_send_refused(number, RecordTooLargeError("big"))
    with pytest.raises(TransactionAbortableError):
        stage.done(operation)


def test_batches_queued_after_a_failed_batch_are_given_up() -> None:
    stage = Stage().begun()
    produced(stage)
    first = stage.core.append()
    (dispatch,) = stage.core.poll()
    queued = stage.core.append()
    stage.core.answer(dispatch, 87)
    assert stage.core.poll() == []
    assert isinstance(first.record_error(0), InvalidRecordError)
    error = queued.record_error(0)
    assert isinstance(error, TransactionAbortedError)
    assert isinstance(error.__cause__, TransactionAbortableError)


def test_a_batch_out_of_order_after_a_retry_is_sent_again() -> None:
    stage = Stage().begun()
    produced(stage)
    stage.core.append()
    (one,) = stage.core.poll()
    second = stage.core.append()
    (two,) = stage.core.poll()
    stage.core.answer(one, 19)
    stage.core.answer(two, 45)
    stage.wait()
    assert stage.deliver() == one.batches
    stage.wait()
    assert stage.deliver() == [second]
    stage.done(stage.manager.commit())


def test_sequences_are_never_reset_within_a_transaction() -> None:
    stage = Stage().begun()
    produced(stage)
    stage.core.append()
    (one,) = stage.core.poll()
    second = stage.core.append()
    (two,) = stage.core.poll()
    stage.core.answer(one, 87)
    stage.core.answer(two, 45)
    stage.wait()
    assert stage.core.poll() == []
    assert second.producer_epoch == 0
    assert second.done


def test_v1_takes_a_new_epoch_after_a_failed_batch() -> None:
    stage = Stage(level=1).begun()
    produced(stage)
    stage.core.append()
    (dispatch,) = stage.core.poll()
    stage.core.answer(dispatch, 87)
    stage.done(stage.manager.abort())
    assert stage.manager.state is S.INITIALIZING
    request = stage.request(INIT)
    message = stage.message(request)
    assert isinstance(message, InitProducerIdRequest)
    assert (message.producer_id, message.producer_epoch) == (7, 0)
    assert request.min_version == 3
    stage.respond(request)
    stage.begin()
    stage.core.append()
    stage.respond(stage.request(ADD))
    (batch,) = stage.deliver()
    assert (batch.producer_epoch, batch.base_sequence) == (1, 0)


def test_v2_needs_no_init_after_a_failed_batch() -> None:
    stage = Stage().begun()
    stage.core.append()
    (dispatch,) = stage.core.poll()
    stage.core.answer(dispatch, 87)
    stage.done(stage.manager.abort())
    stage.begin()
    assert stage.sent.count(INIT) == 1


def test_a_coordinator_that_cannot_give_a_new_epoch_makes_a_failed_batch_fatal() -> None:
    stage = Stage(level=1, versions=BEFORE_2_5).begun()
    produced(stage)
    stage.core.append()
    (dispatch,) = stage.core.poll()
    stage.core.answer(dispatch, 87)
    assert stage.manager.state is S.FATAL_ERROR


def test_such_a_coordinator_gets_retried_batches_before_an_abort() -> None:
    stage = Stage(level=1, versions=BEFORE_2_5).begun()
    produced(stage)
    batch = stage.core.append()
    (dispatch,) = stage.core.poll()
    stage.core.answer(dispatch, 19)
    unsent = stage.core.append(1)
    operation = stage.manager.abort()
    stage.core.poll()
    assert unsent.done
    assert not batch.done
    stage.wait()
    assert stage.deliver() == [batch]
    stage.done(operation)
    stage.begin()


# -- coordinators ----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [15, 16])
@pytest.mark.parametrize("rpc", [INIT, ADD, Rpc.ADD_OFFSETS, OFFSETS, END])
def test_a_coordinator_that_moved_is_looked_up_and_asked_again(rpc: Rpc, code: int) -> None:
    stage, request = at(rpc)
    stage.respond(request, code)
    assert stage.next_request() is None
    stage.wait()
    again = stage.request(Rpc.FIND_COORDINATOR)
    assert again.coordinator == request.coordinator
    stage.respond(again)
    assert stage.request().rpc is rpc


@pytest.mark.parametrize("rpc", [INIT, ADD, Rpc.ADD_OFFSETS, OFFSETS, END])
def test_after_a_disconnect_the_coordinator_is_looked_up(rpc: Rpc) -> None:
    stage, request = at(rpc)
    stage.lose(request)
    stage.wait()
    stage.respond(stage.request(Rpc.FIND_COORDINATOR))
    assert stage.request().rpc is rpc


@pytest.mark.parametrize("code", [14, 51])
@pytest.mark.parametrize("rpc", [INIT, ADD, Rpc.ADD_OFFSETS, OFFSETS, END])
def test_a_passing_error_is_tried_again_with_backoff(rpc: Rpc, code: int) -> None:
    stage, request = at(rpc)
    waits = []
    for _ in range(4):
        stage.respond(request, code)
        waits.append(stage.coordinator_session.due_at(stage.core.now) - stage.core.now)
        assert stage.next_request() is None
        stage.wait()
        request = stage.request(rpc)
    first = 0.02 if code == 51 else 0.1
    assert waits == pytest.approx([first, 2 * first, 4 * first, 8 * first])


def test_a_request_is_wanted_from_the_turn_in_which_it_is_due() -> None:
    stage = Stage()
    assert stage.coordinator_session.wanted is None
    operation = stage.manager.init()
    stage.request(Rpc.FIND_COORDINATOR)
    assert stage.coordinator_session.wanted is INIT
    assert not operation.done


def test_a_backoff_that_is_over_is_no_reason_for_a_turn() -> None:
    stage, request = at(ADD)
    stage.respond(request, 51)
    due = stage.coordinator_session.due_at(stage.core.now)
    assert due > stage.core.now
    stage.manager.fail(KafkaError("the end"))
    assert stage.coordinator_session.due_at(due) == inf


def test_the_backoff_starts_anew_after_a_success() -> None:
    stage = Stage(level=1).begun()
    for partition in (0, 1):
        stage.core.append(partition)
        request = stage.request(ADD)
        stage.respond(request, 51)
        assert stage.coordinator_session.due_at(stage.core.now) - stage.core.now < 0.021
        stage.wait()
        stage.respond(stage.request(ADD))


@pytest.mark.parametrize("rpc", [INIT, ADD, Rpc.ADD_OFFSETS, OFFSETS, END])
@pytest.mark.parametrize("code", [47, 90])
def test_a_fenced_producer_is_at_its_end(rpc: Rpc, code: int) -> None:
    stage, request = at(rpc)
    stage.respond(request, code)
    assert stage.manager.state is S.FATAL_ERROR
    assert isinstance(stage.manager.error, ProducerFencedError)


@pytest.mark.parametrize(
    ("rpc", "code"),
    [(rpc, code) for rpc in (ADD, Rpc.ADD_OFFSETS, OFFSETS) for code in (48, 49, 53)]
    + [
        (Rpc.FIND_COORDINATOR, 53),
        (END, -1),
        (END, 49),
        (END, 53),
        (OFFSETS, 43),
        (INIT, 50),
        (Rpc.ADD_OFFSETS, -1),
    ],
)
def test_an_error_without_recovery_is_fatal(rpc: Rpc, code: int) -> None:
    stage, request = at(rpc)
    stage.respond(request, code)
    assert stage.manager.state is S.FATAL_ERROR
    assert isinstance(stage.manager.error, FatalTransactionError)


@pytest.mark.parametrize("code", [31, 53, 120])
def test_a_refused_initialization_may_be_repeated(code: int) -> None:
    stage, request = at(INIT)
    operation = stage.manager.init()
    stage.respond(request, code)
    assert operation.error is not None
    assert stage.manager.state is S.UNINITIALIZED
    stage.done(stage.manager.init())


def test_after_a_renewal_that_was_refused_begin_says_why() -> None:
    stage = Stage(level=1).begun()
    produced(stage)
    operation = stage.manager.commit()
    gone = NodeDisconnectedError("gone")
    stage.coordinator_session.on_unreachable(stage.request(END), gone, stage.core.now)
    stage.wait()
    stage.done(operation)
    stage.respond(stage.request(INIT), 53)
    with pytest.raises(IllegalStateError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED") as raised:
        stage.manager.begin(1)
    assert raised.value.__cause__ is not None
    stage.done(stage.manager.init())
    stage.begin()


def test_topics_unknown_to_the_group_coordinator_are_looked_up_again() -> None:
    stage, request = at(OFFSETS)
    assert not stage.core.metadata.is_awaited
    stage.respond(request, 3)
    assert stage.core.metadata.is_awaited
    stage.core.learn((1, 1))
    stage.wait()
    stage.respond(stage.request(OFFSETS), 14)
    assert not stage.core.metadata.is_awaited


def test_partitions_that_may_not_be_written_are_named_and_the_transaction_fails() -> None:
    stage = Stage(level=1).begun()
    stage.core.append(0)
    stage.core.append(1)
    request = stage.request(ADD)
    response = stage._response(request, 55)
    results = response.results_by_topic_v3_and_below[0]  # type: ignore[attr-defined]
    results.results_by_partition[1].partition_error_code = 29
    stage.coordinator_session.on_response(request, response, stage.core.now)
    cause = stage.manager.error
    assert isinstance(cause, TransactionAbortableError)
    assert cause.__cause__ is not None
    assert (cause.__cause__.topic, cause.__cause__.partition) == ("t", 1)  # type: ignore[attr-defined]


def test_an_abort_is_not_sent_for_partitions_that_were_refused() -> None:
    stage = Stage(level=1).begun()
    stage.core.append(0)
    stage.respond(stage.request(ADD), 29)
    stage.core.poll()
    stage.done(stage.manager.abort())
    assert END not in stage.sent


def test_partitions_an_answer_leaves_out_are_asked_for_again() -> None:
    stage = Stage(level=1).begun()
    stage.core.append(0)
    request = stage.request(ADD)
    empty = stage._response(request, 0)
    empty.results_by_topic_v3_and_below = []  # type: ignore[attr-defined]
    stage.coordinator_session.on_response(request, empty, stage.core.now)
    assert stage.next_request() is None
    stage.wait()
    assert stage.request(ADD).partitions == (T0,)


@pytest.mark.parametrize("code", [48, 120])
def test_an_abort_that_is_refused_as_abortable_is_fatal(code: int) -> None:
    stage = Stage().begun()
    produced(stage)
    stage.manager.abort()
    stage.respond(stage.request(END), code)
    assert stage.manager.state is S.FATAL_ERROR


@pytest.mark.parametrize("code", [48, 120])
def test_a_commit_that_is_refused_as_abortable_can_be_aborted(code: int) -> None:
    stage = Stage().begun()
    produced(stage)
    operation = stage.manager.commit()
    stage.respond(stage.request(END), code)
    assert isinstance(operation.error, TransactionAbortableError)
    stage.done(stage.manager.abort())
    stage.begin()


def test_a_version_that_no_broker_has_is_fatal() -> None:
    stage, request = at(INIT)
    stage.coordinator_session.on_unsupported(request, UnsupportedVersionError("old"))
    assert isinstance(stage.manager.error, FatalTransactionError)


# -- unknown outcomes ------------------------------------------------------------------------------


@pytest.mark.parametrize("rpc", [ADD, Rpc.ADD_OFFSETS, OFFSETS, END])
def test_v1_renews_the_epoch_after_a_request_without_an_answer(rpc: Rpc) -> None:
    # KAFKA-17754: what is late must not touch the next transaction.
    stage, request = at(rpc)
    stage.lose(request)
    operation = stage.manager.commit()
    stage.done(operation)
    assert stage.manager.state is S.INITIALIZING
    stage.begin()
    assert stage.manager.identity == (7, 1)


def renewing(rpc: Rpc = ADD) -> Stage:
    """A V1 producer that wants its next epoch since an addition got no answer."""
    stage, request = at(rpc)
    stage.lose(request)
    stage.done(stage.manager.commit())
    stage.wait()
    return stage


def asks_for_an_abort(stage: Stage) -> TransactionalRequest:
    request = stage.request(END)
    message = stage.message(request)
    assert isinstance(message, EndTxnRequest)
    assert (message.producer_epoch, message.committed) == (stage.epoch, False)
    return request


@pytest.mark.parametrize("rpc", [ADD, Rpc.ADD_OFFSETS])
@pytest.mark.parametrize("code", [0, 48, 59, 120, -1])
def test_v1_aborts_what_a_late_addition_may_have_begun_before_the_epoch_is_renewed(
    rpc: Rpc, code: int
) -> None:
    # A coordinator fences the producer that asks for its next epoch while a transaction runs.
    stage = renewing(rpc)
    stage.respond(asks_for_an_abort(stage), code)
    stage.respond(stage.request(INIT))
    stage.begin()
    assert stage.manager.identity == (7, 1)


def test_v1_has_the_renewal_to_send_after_the_abort() -> None:
    stage = renewing()
    request = asks_for_an_abort(stage)
    calls: list[bool] = []
    stage.manager.on_work = lambda: calls.append(True)
    stage.respond(request)
    assert calls


def test_v1_fails_the_transaction_after_an_abort_and_a_renewal_for_a_refused_record() -> None:
    stage = renewing()
    stage.respond(asks_for_an_abort(stage))
    stage.respond(stage.request(INIT))
    stage.begin()
    stage.manager.on_send_refused(stage.manager.number, RecordTooLargeError("too large"))
    assert stage.manager.state is S.ABORTABLE_ERROR


@pytest.mark.parametrize("rpc", [OFFSETS, END])
def test_v1_renews_the_epoch_without_an_abort_after_what_begins_no_transaction(rpc: Rpc) -> None:
    renewing(rpc).request(INIT)


def test_v1_aborts_again_before_a_renewal_that_was_refused() -> None:
    stage = renewing()
    stage.respond(asks_for_an_abort(stage), 51)
    stage.wait()
    stage.respond(asks_for_an_abort(stage))
    stage.respond(stage.request(INIT), 51)
    stage.wait()
    stage.respond(asks_for_an_abort(stage), 48)
    stage.respond(stage.request(INIT))
    stage.begin()
    produced(stage)
    stage.done(stage.manager.commit())


def test_v1_aborts_before_every_renewal_that_follows_an_addition_without_an_answer() -> None:
    stage = renewing()
    stage.respond(asks_for_an_abort(stage))
    stage.lose(stage.request(INIT))
    stage.wait()
    stage.respond(stage.request(INIT))
    stage.begin()
    stage.core.append()
    stage.lose(stage.request(ADD))
    stage.wait()
    stage.done(stage.manager.commit())
    stage.wait()
    stage.respond(asks_for_an_abort(stage))
    stage.respond(stage.request(INIT), 51)
    stage.wait()
    asks_for_an_abort(stage)


def test_v1_does_not_abort_again_after_a_renewal_without_an_answer() -> None:
    # The old epoch may be over, and an EndTxn of it would be refused as fenced.
    stage = renewing()
    stage.respond(asks_for_an_abort(stage))
    stage.lose(stage.request(INIT))
    stage.wait()
    stage.request(INIT)


def test_v1_aborts_again_after_an_abort_without_an_answer() -> None:
    stage = renewing()
    stage.lose(asks_for_an_abort(stage))
    stage.wait()
    stage.respond(asks_for_an_abort(stage))
    stage.respond(stage.request(INIT))
    stage.begin()


@pytest.mark.parametrize("rpc", [ADD, Rpc.ADD_OFFSETS])
@pytest.mark.parametrize("code", [47, 90])
def test_a_producer_that_a_late_addition_may_have_fenced_says_so(rpc: Rpc, code: int) -> None:
    stage = renewing(rpc)
    stage.respond(asks_for_an_abort(stage))
    stage.respond(stage.request(INIT), code)
    assert isinstance(stage.manager.error, ProducerFencedError)
    assert f"a late request of this producer has fenced it: {rpc.value}" in str(stage.manager.error)


def test_a_producer_id_that_is_none_is_asked_for_again() -> None:
    stage = Stage()
    stage.producer_id = -1
    operation = stage.manager.init()
    stage.respond(stage.request(Rpc.INIT_PRODUCER_ID))
    assert not operation.done
    stage.producer_id = 7
    stage.done(operation)
    assert stage.manager.identity == (7, stage.epoch)


@pytest.mark.parametrize("level", [1, 2])
def test_a_producer_that_a_late_init_producer_id_may_have_fenced_says_so(level: int) -> None:
    stage = Stage(level)
    operation = stage.manager.init()
    stage.lose(stage.request(INIT))
    stage.wait()
    stage.done(operation)
    stage.begin()
    produced(stage)
    stage.manager.commit()
    stage.respond(stage.request(END), 90)
    assert isinstance(stage.manager.error, ProducerFencedError)
    assert "has fenced it: InitProducerId got no response" in str(stage.manager.error)


@pytest.mark.parametrize("level", [1, 2])
def test_a_producer_all_of_whose_requests_were_answered_was_fenced_by_another_one(
    level: int,
) -> None:
    stage = Stage(level).begun()
    produced(stage)
    stage.manager.commit()
    stage.respond(stage.request(END), 90)
    assert isinstance(stage.manager.error, ProducerFencedError)
    assert "late" not in str(stage.manager.error)


def test_v2_needs_no_renewal_after_an_end_without_an_answer() -> None:
    stage = Stage().begun()
    produced(stage)
    operation = stage.manager.commit()
    stage.lose(stage.request(END))
    stage.done(operation)
    assert stage.manager.state is S.READY


def added(stage: Stage, rpc: Rpc) -> TransactionalRequest:
    """The request that begins a V1 transaction, sent."""
    if rpc is ADD:
        stage.core.append()
    else:
        stage.manager.send_offsets({T0: OffsetAndMetadata(1)}, GROUP)
    return stage.request(rpc)


@pytest.mark.parametrize("code", [0, 48])
@pytest.mark.parametrize("rpc", [ADD, Rpc.ADD_OFFSETS])
def test_v1_ends_a_transaction_that_may_have_begun(rpc: Rpc, code: int) -> None:
    # InitProducerId fences the producer while its own transaction runs (seen at Kafka 4.3.1).
    stage = Stage(level=1).begun()
    stage.lose(added(stage, rpc))
    operation = stage.manager.abort()
    stage.core.poll()
    stage.wait()
    request = stage.request(END)
    message = stage.message(request)
    assert isinstance(message, EndTxnRequest)
    assert not message.committed
    stage.respond(request, code)  # INVALID_TXN_STATE: there was nothing to end
    stage.done(operation)
    assert stage.manager.state is S.INITIALIZING
    stage.begin()
    produced(stage)


@pytest.mark.parametrize(("code", "ends"), [(7, True), (15, True), (-1, True), (51, False)])
def test_v1_ends_what_an_answer_leaves_in_doubt(code: int, ends: bool) -> None:
    stage = Stage(level=1).begun()
    stage.respond(added(stage, ADD), code)
    stage.core.poll()
    stage.done(stage.manager.abort())
    assert (END in stage.sent) is ends
    stage.wait()
    stage.begin()


def test_v1_does_not_accept_that_what_it_added_was_never_begun() -> None:
    stage = Stage(level=1).begun()
    produced(stage)
    stage.manager.abort()
    stage.respond(stage.request(END), 48)
    assert stage.manager.state is S.FATAL_ERROR


def test_a_coordinator_that_cannot_be_looked_up_during_an_abort_is_asked_again_later() -> None:
    stage = Stage().begun()
    produced(stage)
    stage.manager.abort()
    stage.lose(stage.request(END))
    stage.wait()
    stage.respond(stage.request(Rpc.FIND_COORDINATOR), 120)
    assert stage.next_request() is None
    stage.wait()
    stage.request(END)


@pytest.mark.parametrize("code", [30, 120])
def test_a_commit_that_may_have_worked_is_not_called_failed_by_a_failed_lookup(code: int) -> None:
    stage = Stage().begun()
    produced(stage)
    commit = stage.manager.commit()
    stage.lose(stage.request(END))
    stage.wait()
    stage.respond(stage.request(Rpc.FIND_COORDINATOR), code)
    assert stage.manager.state is S.COMMITTING
    assert stage.next_request() is None
    stage.wait()
    stage.done(commit)


@pytest.mark.parametrize("code", [48, 59, 120])
def test_a_commit_that_may_have_worked_is_not_abortable(code: int) -> None:
    stage = Stage().begun()
    produced(stage)
    commit = stage.manager.commit()
    stage.respond(stage.request(END), 15)  # from a coordinator that may be through with it later
    stage.wait()
    stage.respond(stage.request(Rpc.FIND_COORDINATOR))
    stage.respond(stage.request(END), code)
    assert stage.manager.state is S.FATAL_ERROR
    assert isinstance(commit.error, CommitOutcomeUnknownError)
    assert isinstance(commit.error.__cause__, FatalTransactionError)


@pytest.mark.parametrize("code", [48, 120])
def test_a_commit_that_another_end_was_in_the_way_of_is_abortable(code: int) -> None:
    stage = Stage().begun()
    produced(stage)
    commit = stage.manager.commit()
    stage.respond(stage.request(END), 51)
    stage.wait()
    stage.respond(stage.request(END), code)
    assert isinstance(commit.error, TransactionAbortableError)


CLOSED = ProducerClosedError("closed")


def committing(level: int = 2) -> tuple[Stage, Operation, TransactionalRequest]:
    """A stage whose request to commit is out."""
    stage = Stage(level).begun()
    produced(stage)
    return stage, stage.manager.commit(), stage.request(END)


@pytest.mark.parametrize("level", [1, 2])
def test_a_commit_that_waits_for_its_answer_at_the_end_is_unknown(level: int) -> None:
    stage, commit, _ = committing(level)
    identity = stage.manager.identity
    stage.manager.fail(CLOSED)
    error = commit.error
    assert isinstance(error, CommitOutcomeUnknownError)
    assert error.persistence is Persistence.POSSIBLY_PERSISTED
    assert error.__cause__ is CLOSED
    assert identity is not None
    assert error.transaction == PreparedTransaction("tx", *identity, transaction_version=level)
    for _ in range(2):
        with pytest.raises(CommitOutcomeUnknownError):
            stage.manager.commit()
    with pytest.raises(ProducerClosedError):
        stage.manager.abort()


@pytest.mark.parametrize("code", [None, 7, 14, 15, 16])
def test_a_commit_that_may_have_worked_is_unknown_at_the_end(code: int | None) -> None:
    stage, commit, request = committing()
    if code is None:
        stage.lose(request)
    else:
        stage.respond(request, code)
    stage.manager.fail(CLOSED)
    assert isinstance(commit.error, CommitOutcomeUnknownError)


@pytest.mark.parametrize("code", [47, 90])
def test_a_commit_that_may_have_worked_is_unknown_to_a_producer_fenced_meanwhile(
    code: int,
) -> None:
    stage, commit, request = committing()
    stage.lose(request)
    stage.wait()
    stage.respond(stage.request(Rpc.FIND_COORDINATOR))
    stage.respond(stage.request(END), code)
    assert isinstance(commit.error, CommitOutcomeUnknownError)
    assert isinstance(commit.error.__cause__, ProducerFencedError)
    assert isinstance(stage.manager.error, ProducerFencedError)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (47, ProducerFencedError),
        (90, ProducerFencedError),
        (49, FatalTransactionError),
        (53, FatalTransactionError),
    ],
)
def test_a_commit_that_was_refused_is_known_not_to_be_persisted(
    code: int, expected: type[KafkaError]
) -> None:
    stage, commit, request = committing()
    stage.respond(request, code)
    assert isinstance(commit.error, expected)
    assert commit.error.persistence is Persistence.NOT_PERSISTED


@pytest.mark.parametrize("level", [1, 2])
def test_a_commit_that_was_not_sent_is_known_not_to_be_persisted(level: int) -> None:
    stage = Stage(level).begun()
    produced(stage)
    stage.core.append()
    stage.core.poll()
    commit = stage.manager.commit()
    stage.manager.fail(CLOSED)
    assert isinstance(commit.error, ProducerClosedError)
    assert commit.error.persistence is Persistence.NOT_PERSISTED
    assert "can be done again" in str(commit.error)


def test_a_commit_that_another_end_was_in_the_way_of_is_known_not_to_be_persisted() -> None:
    stage, commit, request = committing()
    stage.respond(request, 51)
    stage.manager.fail(CLOSED)
    assert isinstance(commit.error, ProducerClosedError)
    assert commit.error.persistence is Persistence.NOT_PERSISTED


def test_what_others_may_have_ended_is_unknown_at_the_end() -> None:
    stage = Stage().begun()
    produced(stage)
    stage.done(stage.manager.prepare())
    prepared, commit = stage.manager.prepared(), stage.manager.commit()
    stage.manager.fail(CLOSED)
    assert isinstance(commit.error, CommitOutcomeUnknownError)
    assert commit.error.transaction == prepared


def test_a_transaction_open_at_the_end_is_not_committed_and_one_prepared_says_nothing() -> None:
    stage = Stage().begun()
    produced(stage)
    stage.manager.fail(CLOSED)
    with pytest.raises(ProducerClosedError) as caught:
        stage.manager.commit()
    assert caught.value.persistence is Persistence.NOT_PERSISTED
    stage = Stage().begun()
    produced(stage)
    stage.done(stage.manager.prepare())
    stage.manager.fail(CLOSED)
    with pytest.raises(ProducerClosedError) as caught:
        stage.manager.commit()
    assert caught.value.persistence is None


def test_a_success_that_no_caller_has_seen_is_reported_once_after_the_end() -> None:
    stage, commit, request = committing()
    stage.respond(request)
    stage.manager.fail(CLOSED)
    assert stage.manager.commit() is commit
    assert commit.error is None
    stage.manager.on_seen(commit)
    with pytest.raises(ProducerClosedError):
        stage.manager.commit()


def test_an_upgrade_of_the_cluster_is_followed_at_the_next_begin_with_one_new_epoch() -> None:
    stage = Stage(level=1).begun()
    produced(stage)
    stage.done(stage.manager.commit())
    stage.level, stage.versions = 2, {**stage.versions, END: 5, OFFSETS: 5}
    stage.sent.clear()
    stage.begin()
    produced(stage)
    stage.done(stage.manager.commit())
    stage.begin()
    assert stage.sent == [INIT, END]
    assert stage.manager.uses_v2


def test_a_downgrade_is_followed_at_the_next_begin_with_one_new_epoch() -> None:
    stage = Stage(level=2).begun()
    produced(stage)
    stage.done(stage.manager.commit())
    stage.level = 1
    stage.sent.clear()
    for _ in range(2):
        stage.begin()
        produced(stage)
        stage.done(stage.manager.commit())
    # Under the epoch that the end of V2 gave, a late end of V2 would get the outcome of V1.
    assert stage.sent == [INIT, ADD, END, ADD, END]


def test_the_protocol_stays_while_no_broker_reports_the_version() -> None:
    stage = Stage().begun()
    stage.done(stage.manager.commit())
    stage.done(stage.manager.begin(None))
    assert stage.manager.uses_v2


def test_a_topic_created_anew_fails_the_transaction_that_wrote_to_it() -> None:
    stage = Stage().begun()
    produced(stage)
    stage.core.sequencer.on_recreated("t")
    assert stage.manager.state is S.ABORTABLE_ERROR


def test_a_topic_created_anew_leaves_a_transaction_alone_that_did_not_write_to_it() -> None:
    stage = Stage().begun()
    produced(stage)
    stage.done(stage.manager.commit())
    stage.begin()
    stage.manager.on_drained()  # a record of another topic
    stage.core.sequencer.on_recreated("t")
    stage.done(stage.manager.commit())
    stage.begin()
    produced(stage)


def test_v1_goes_on_after_a_topic_without_any_of_its_records_was_created_anew() -> None:
    stage = Stage(level=1).begun()
    produced(stage)
    stage.core.sequencer.on_recreated("u")
    stage.done(stage.manager.commit())
    stage.begin()
    assert stage.manager.identity == (7, 0)


def test_v1_does_not_wait_for_an_epoch_that_only_the_next_transaction_brings() -> None:
    stage = Stage(level=1).begun()
    produced(stage)
    stage.done(stage.manager.commit())
    stage.begin()
    stage.core.sequencer.on_recreated("t")
    assert stage.manager.state is S.ABORTABLE_ERROR
    stage.done(stage.manager.abort())
    stage.begin()
    produced(stage)


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("level", [1, 2])
def test_a_commit_that_may_have_happened_cannot_fail_any_more(level: int, answered: bool) -> None:
    stage = Stage(level).begun()
    produced(stage)
    number, commit = stage.manager.check_send(), stage.manager.commit()
    request = stage.request(END)
    stage.core.sequencer.on_recreated("t")
    stage.manager.on_send_refused(number, RecordTooLargeError("big"))
    assert not commit.done
    (stage.respond if answered else stage.lose)(request)
    stage.wait()
    stage.done(commit)
    stage.begin()
    produced(stage)
    stage.done(stage.manager.commit())


@pytest.mark.parametrize("level", [1, 2])
def test_a_transaction_prepared_for_another_process_cannot_fail_any_more(level: int) -> None:
    stage = Stage(level).begun()
    produced(stage)
    stage.done(stage.manager.prepare())
    stage.core.sequencer.on_recreated("t")
    stage.done(stage.manager.commit())


def test_another_cluster_is_the_end() -> None:
    stage = Stage().ready()
    stage.core.sequencer.on_other_cluster()
    assert stage.manager.state is S.FATAL_ERROR


# -- calls -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["commit", "abort"])
def test_a_call_whose_outcome_was_not_seen_can_only_be_repeated(first: str) -> None:
    stage = Stage().begun()
    produced(stage)
    operation = getattr(stage.manager, first)()
    other = "abort" if first == "commit" else "commit"
    with pytest.raises(IllegalStateError, match=f"repeat {first}_transaction"):
        getattr(stage.manager, other)()
    assert getattr(stage.manager, first)() is operation
    stage.respond(stage.request(END))
    with pytest.raises(IllegalStateError, match="has not been seen"):
        stage.manager.begin(2)
    assert getattr(stage.manager, first)() is operation
    stage.manager.on_seen(operation)
    stage.begin()


def test_an_init_whose_outcome_was_not_seen_can_be_repeated() -> None:
    stage = Stage()
    operation = stage.manager.init()
    assert stage.manager.init() is operation
    stage.done(operation)
    with pytest.raises(IllegalStateError):
        stage.manager.init()


def test_a_transaction_may_be_begun_after_an_abort_that_is_not_awaited() -> None:
    stage = Stage().begun()
    produced(stage)
    stage.manager.on_seen(stage.manager.abort())
    operation = stage.manager.begin(2)
    assert not operation.done
    stage.done(operation)
    assert stage.manager.state is S.IN_TRANSACTION
    assert stage.manager.identity == (7, 1)


def test_closing_aborts_what_is_open_and_waits_for_what_ends() -> None:
    stage = Stage().ready()
    assert stage.manager.end_for_close() is None
    stage.begin()
    produced(stage)
    operation = stage.manager.end_for_close()
    assert operation is not None
    assert stage.manager.end_for_close() is operation
    stage.done(operation)
    assert stage.manager.state is S.READY


def test_the_transaction_that_the_close_aborts_is_marked_and_no_other() -> None:
    stage = Stage().begun()
    stage.done(stage.manager.abort())
    stage.begin()
    assert stage.manager.aborted_by_close == 0
    assert stage.manager.end_for_close() is not None
    assert stage.manager.aborted_by_close == stage.manager.number == 2


def test_a_background_event_that_fits_no_state_is_fatal() -> None:
    stage, request = at(INIT)
    stage.respond(request)
    stage.respond(request)
    assert stage.manager.state is S.FATAL_ERROR


def test_a_misplaced_call_changes_nothing() -> None:
    stage = Stage()
    manager = stage.manager
    calls: list[Callable[[], object]] = [
        lambda: manager.begin(2),
        lambda: manager.send_offsets({T0: OffsetAndMetadata(1)}, GROUP),
        lambda: manager.assume("other"),
        manager.prepare,
        manager.prepared,
        manager.commit,
        manager.abort,
        manager.check_send,
    ]
    for call in calls:
        with pytest.raises(IllegalStateError):
            call()
    stage.ready()
    for call in calls[1:]:
        with pytest.raises(IllegalStateError):
            call()
    stage.begin()
    stage.done(stage.manager.commit())


def at(rpc: Rpc) -> tuple[Stage, TransactionalRequest]:
    """A stage whose request of this kind is out; V1, since V2 lacks some."""
    stage = Stage(level=1)
    if rpc in (Rpc.FIND_COORDINATOR, INIT):
        stage.manager.init()
        return stage, stage.request(rpc)
    stage.begun()
    if rpc is ADD:
        stage.core.append()
    elif rpc is END:
        produced(stage)
        stage.manager.commit()
    else:
        stage.manager.send_offsets({T0: OffsetAndMetadata(1)}, GROUP)
        if rpc is OFFSETS:
            stage.respond(stage.request(Rpc.ADD_OFFSETS))
    return stage, stage.request(rpc)


def test_every_pending_call_about_offsets_fails_with_the_producer() -> None:
    stage = Stage().begun()
    calls = [
        stage.manager.send_offsets({T0: OffsetAndMetadata(position)}, GROUP) for position in (5, 6)
    ]
    stage.manager.fail(ProducerFencedError("fenced"))
    assert [call.done for call in calls] == [True, True]
    assert all(isinstance(call.error, ProducerFencedError) for call in calls)


def test_a_producer_id_that_is_awaited_is_work() -> None:
    stage = Stage()
    assert not stage.manager.has_work(is_idle=True)
    stage.manager.init()
    assert stage.manager.has_work(is_idle=True)


def test_a_producer_id_of_zero_is_one() -> None:
    stage = Stage()
    stage.producer_id = 0
    stage.begun()
    batch = stage.core.append()
    stage.done(stage.manager.commit())
    assert (batch.producer_id, batch.producer_epoch) == (0, 0)
    stage.begin()
    batch = stage.core.append()
    stage.done(stage.manager.commit())
    assert (batch.producer_id, batch.producer_epoch) == (0, 1)


@pytest.mark.parametrize(("groups", "asked_again"), [(98, False), (99, False), (100, True)])
def test_the_hundred_and_first_coordinator_takes_the_place_of_all_others(
    groups: int, asked_again: bool
) -> None:
    stage = Stage().begun()  # the coordinator of its transactions is the first one

    def send_offsets(number: int) -> None:
        group = ConsumerGroupMetadata(f"group-{number}")
        stage.done(stage.manager.send_offsets({T0: OffsetAndMetadata(1)}, group))

    for number in range(groups):
        send_offsets(number)
    stage.sent.clear()
    send_offsets(0)
    assert (Rpc.FIND_COORDINATOR in stage.sent) is asked_again
