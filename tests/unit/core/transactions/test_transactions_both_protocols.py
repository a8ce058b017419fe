"""Behaviours of a transaction that are the same in V1 (KIP-98) and in V2 (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aioproducer.core.sending.actions import Dispatch
from aioproducer.core.transactions.requests import CoordinatorKind
from aioproducer.core.transactions.rules import Rpc
from aioproducer.core.transactions.states import TransactionState
from aioproducer.errors import (
    DeliveryTimeoutError,
    FatalTransactionError,
    IllegalStateError,
    KafkaError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnsupportedVersionError,
)
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, Persistence
from aioproducer.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from aioproducer.wire.messages.transactions import EndTxnRequest

from .transaction_stage import T0, T1, Stage

pytestmark = pytest.mark.parametrize("level", [1, 2])

S = TransactionState
ADD, END, FIND, INIT = Rpc.ADD_PARTITIONS, Rpc.END, Rpc.FIND_COORDINATOR, Rpc.INIT_PRODUCER_ID
GROUP = ConsumerGroupMetadata("group")
OFFSETS = {T0: OffsetAndMetadata(1)}


def produced(stage: Stage, partition: int = 0) -> None:
    """One record that the broker has."""
    stage.core.append(partition)
    if stage.level < 2:
        stage.respond(stage.request(ADD))
    assert stage.deliver()


def ended(stage: Stage) -> bool:
    """Confirm the EndTxn that is due now; return whether it commits."""
    request = stage.request(END)
    message = stage.message(request)
    assert isinstance(message, EndTxnRequest)
    stage.respond(request)
    return message.committed


def usable_again(stage: Stage) -> None:
    """The next transaction commits."""
    stage.begin()
    produced(stage)
    stage.done(stage.manager.commit())


def test_requests_of_a_transaction_with_records_and_offsets_are_in_order(level: int) -> None:
    stage = Stage(level).begun()
    produced(stage)
    stage.done(stage.manager.send_offsets(OFFSETS, GROUP))
    stage.done(stage.manager.commit())
    commit_offsets = [FIND, Rpc.COMMIT_OFFSETS, END]
    announced = [FIND, INIT, ADD, Rpc.ADD_OFFSETS, *commit_offsets]
    assert stage.sent == (announced if level == 1 else [FIND, INIT, *commit_offsets])


@pytest.mark.parametrize("commit", [True, False])
def test_end_of_a_transaction_says_whether_it_commits(level: int, commit: bool) -> None:
    stage = Stage(level).begun()
    produced(stage)
    operation = stage.manager.commit() if commit else stage.manager.abort()
    assert ended(stage) is commit
    stage.done(operation)
    usable_again(stage)


def test_send_is_refused_outside_a_transaction_and_after_errors(level: int) -> None:
    stage = Stage(level)
    with pytest.raises(IllegalStateError, match="init_transactions"):
        stage.manager.check_send()
    stage.ready()
    with pytest.raises(IllegalStateError, match="begin a transaction"):
        stage.manager.check_send()
    stage.begin()
    stage.manager.on_send_refused(stage.manager.check_send(), KafkaError("refused"))
    with pytest.raises(TransactionAbortableError):
        stage.manager.check_send()
    stage.done(stage.manager.abort())
    stage.begin()
    stage.manager.commit()
    with pytest.raises(IllegalStateError, match="commit_transaction"):
        stage.manager.check_send()
    stage.manager.fail(KafkaError("over"))
    with pytest.raises(FatalTransactionError):
        stage.manager.check_send()


def test_commit_sends_what_was_not_sent_yet_before_it_ends(level: int) -> None:
    stage = Stage(level, linger=60.0).begun()
    batch = stage.core.append()
    operation = stage.manager.commit()
    stage.core.accumulator.begin_flush()
    if level == 1:
        stage.respond(stage.request(ADD))
    assert stage.next_request() is None
    assert stage.deliver() == [batch]
    assert ended(stage)
    stage.done(operation)


def test_commit_waits_for_a_batch_that_is_retried(level: int) -> None:
    stage = Stage(level).begun()
    produced(stage)
    batch = stage.core.append()
    (dispatch,) = stage.core.poll()
    operation = stage.manager.commit()
    stage.core.answer(dispatch, 19)
    assert stage.next_request() is None
    stage.wait()
    assert stage.deliver() == [batch]
    assert ended(stage)
    stage.done(operation)


@pytest.mark.parametrize("sent", [True, False])
def test_batch_that_expires_fails_the_commit_that_waits_for_it(level: int, sent: bool) -> None:
    stage = Stage(level, delivery_timeout=5.0).begun()
    produced(stage)
    if not sent:
        stage.core.nodes.unready[1] = stage.core.now + 100
    batch = stage.core.append()
    dispatches = stage.core.poll()
    operation = stage.manager.commit()
    if sent:
        stage.core.answer(dispatches[0], 19)
    stage.wait(4.99)
    stage.core.nodes.unready[1] = stage.core.now + 100
    stage.wait(0.01)
    stage.core.poll()
    assert isinstance(batch.record_error(0), DeliveryTimeoutError)
    assert isinstance(operation.error, TransactionAbortableError)
    assert not operation.error.retriable
    abort = stage.manager.abort()
    assert not ended(stage)
    stage.done(abort)
    stage.core.nodes.unready.clear()
    usable_again(stage)


def test_error_of_a_batch_out_of_retries_is_abortable_for_the_caller(level: int) -> None:
    stage = Stage(level, retries=0).begun()
    produced(stage)
    batch = stage.core.append()
    (dispatch,) = stage.core.poll()
    stage.core.answer(dispatch, 19)
    assert isinstance(batch.record_error(0), NotEnoughReplicasError)
    with pytest.raises(TransactionAbortableError) as caught:
        stage.manager.check_send()
    assert isinstance(caught.value.__cause__, NotEnoughReplicasError)


def test_unsent_records_fail_with_an_abort_and_their_sequence_is_used_again(level: int) -> None:
    stage = Stage(level).begun()
    produced(stage)
    stage.core.nodes.unready[1] = stage.core.now + 100
    unsent = stage.core.append()
    operation = stage.manager.abort()
    stage.core.poll()
    error = unsent.record_error(0)
    assert isinstance(error, TransactionAbortedError)
    stage.done(operation)
    stage.core.nodes.unready.clear()
    stage.begin()
    batch = stage.core.append()
    if level == 1:
        stage.respond(stage.request(ADD))
    assert stage.deliver() == [batch]
    # V1 goes on after the acknowledged record; V2 starts over with its new epoch.
    assert (batch.producer_epoch, batch.base_sequence) == ((0, 1) if level == 1 else (1, 0))


def failed_beside_another(stage: Stage) -> tuple[Dispatch, Dispatch]:
    """A batch of partition 0 has failed for good while one of partition 1 is on the wire."""
    for partition in (0, 1):
        produced(stage, partition)
    stage.core.append(0)
    (failed,) = stage.core.poll()
    stage.core.append(1)
    (healthy,) = stage.core.poll()
    stage.core.answer(failed, 87)
    assert stage.manager.state is S.ABORTABLE_ERROR
    return failed, healthy


def test_abort_waits_for_a_batch_of_another_partition_that_is_on_the_wire(level: int) -> None:
    stage = Stage(level).begun()
    _, healthy = failed_beside_another(stage)
    operation = stage.manager.abort()
    stage.core.poll()
    assert stage.next_request() is None
    stage.core.acknowledge(healthy)
    assert healthy.batches[0].record_error(0) is None
    assert not ended(stage)
    stage.done(operation)
    usable_again(stage)


def test_abort_gives_up_a_batch_that_waits_for_its_retry(level: int) -> None:
    stage = Stage(level).begun()
    _, healthy = failed_beside_another(stage)
    stage.core.answer(healthy, 7)
    operation = stage.manager.abort()
    assert stage.core.poll() == []
    error = healthy.batches[0].record_error(0)
    assert isinstance(error, TransactionAbortedError)
    assert error.persistence is Persistence.POSSIBLY_PERSISTED
    assert not ended(stage)
    stage.done(operation)
    usable_again(stage)


def test_failed_record_in_a_transaction_without_writes_needs_no_request_to_abort(
    level: int,
) -> None:
    stage = Stage(level).begun()
    stage.sent.clear()
    stage.manager.on_send_refused(stage.manager.check_send(), KafkaError("too large"))
    with pytest.raises(TransactionAbortableError):
        stage.manager.commit()
    stage.done(stage.manager.abort())
    assert stage.sent == []
    usable_again(stage)


def test_batches_that_fail_after_a_fatal_error_change_nothing(level: int) -> None:
    stage = Stage(level).begun()
    produced(stage)
    batch = stage.core.append()
    (dispatch,) = stage.core.poll()
    stage.manager.fail(ProducerFencedError())
    stage.core.answer(dispatch, 87)
    assert batch.done
    assert stage.manager.state is S.FATAL_ERROR
    assert isinstance(stage.manager.error, ProducerFencedError)


def test_sending_no_offsets_asks_no_broker(level: int) -> None:
    stage = Stage(level).begun()
    stage.sent.clear()
    operation = stage.manager.send_offsets({}, GROUP)
    assert operation.done
    assert operation.error is None
    assert stage.next_request() is None


@pytest.mark.parametrize(
    ("code", "fatal"), [(30, False), (120, False), (53, True), (-1, True), (42, True)]
)
def test_refused_lookup_of_a_group_coordinator(level: int, code: int, fatal: bool) -> None:
    stage = Stage(level).begun()
    operation = stage.manager.send_offsets(OFFSETS, GROUP)
    if level == 1:
        stage.respond(stage.request(Rpc.ADD_OFFSETS))
    request = stage.request(FIND)
    assert request.coordinator.kind is CoordinatorKind.GROUP
    stage.respond(request, code)
    assert stage.manager.state is (S.FATAL_ERROR if fatal else S.ABORTABLE_ERROR)
    assert isinstance(
        operation.error, FatalTransactionError if fatal else TransactionAbortableError
    )
    if not fatal:
        stage.done(stage.manager.abort())
        usable_again(stage)


ENDS: dict[int, Callable[[Stage], bool]] = {
    47: lambda stage: isinstance(stage.manager.error, ProducerFencedError),
    90: lambda stage: isinstance(stage.manager.error, ProducerFencedError),
    49: lambda stage: isinstance(stage.manager.error, FatalTransactionError),
    53: lambda stage: isinstance(stage.manager.error, FatalTransactionError),
    -1: lambda stage: isinstance(stage.manager.error, FatalTransactionError),
    48: lambda stage: stage.manager.state is S.ABORTABLE_ERROR,
    59: lambda stage: stage.manager.state is S.ABORTABLE_ERROR,
    120: lambda stage: stage.manager.state is S.ABORTABLE_ERROR,
}


@pytest.mark.parametrize("code", ENDS)
def test_commit_that_is_refused_is_fatal_or_can_be_aborted(level: int, code: int) -> None:
    stage = Stage(level).begun()
    produced(stage)
    operation = stage.manager.commit()
    stage.respond(stage.request(END), code)
    assert operation.error is not None
    assert ENDS[code](stage)
    if stage.manager.state is S.ABORTABLE_ERROR:
        stage.done(stage.manager.abort())
        usable_again(stage)


@pytest.mark.parametrize("code", [7, 14, 51, 15, 16])
def test_commit_that_is_refused_for_now_is_repeated(level: int, code: int) -> None:
    stage = Stage(level).begun()
    produced(stage)
    operation = stage.manager.commit()
    stage.respond(stage.request(END), code)
    assert not operation.done
    assert stage.next_request() is None  # a backoff comes first
    stage.wait()
    again = stage.request(END)
    assert (stage.sent[-2] is FIND) == (code in {15, 16})
    stage.respond(again)
    assert operation.done
    assert operation.error is None


def test_backoff_grows_although_the_coordinator_is_looked_up_in_between(level: int) -> None:
    stage = Stage(level).begun()
    produced(stage)
    operation = stage.manager.commit()
    waits = []
    for _ in range(4):
        stage.respond(stage.request(END), 16)
        error = stage.manager.coordinator_error
        assert isinstance(error, NotCoordinatorError)
        waits.append(stage.coordinator_session.due_at(stage.core.now) - stage.core.now)
        stage.wait()
        stage.respond(stage.request(FIND))
        assert stage.manager.coordinator_error is error
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8])
    stage.done(operation)
    assert stage.manager.coordinator_error is None


@pytest.mark.parametrize("code", [120, 48, -1, 49, 53])
def test_abort_that_is_refused_is_fatal(level: int, code: int) -> None:
    stage = Stage(level).begun()
    produced(stage)
    stage.manager.abort()
    stage.respond(stage.request(END), code)
    assert stage.manager.state is S.FATAL_ERROR
    assert isinstance(stage.manager.error, FatalTransactionError)


def test_abort_of_an_unknown_producer_id_ends_with_a_new_epoch(level: int) -> None:
    stage = Stage(level).begun()
    produced(stage)
    operation = stage.manager.abort()
    stage.respond(stage.request(END), 59)
    stage.done(operation)
    assert stage.manager.state is S.INITIALIZING
    usable_again(stage)
    assert stage.sent.count(INIT) == 2


def test_init_goes_on_after_a_coordinator_was_lost_or_moved(level: int) -> None:
    stage = Stage(level)
    operation = stage.manager.init()
    stage.lose(stage.request(INIT))
    stage.wait()
    stage.respond(stage.request(INIT), 16)
    stage.wait()
    stage.done(operation)
    assert stage.sent == [FIND, INIT, FIND, INIT, FIND, INIT]


@pytest.mark.parametrize("others", [[], [Coordinator("another", 1, "h", 1, 0)]])
def test_a_response_that_leaves_the_transactional_id_out_names_no_coordinator(
    level: int, others: list[Coordinator]
) -> None:
    stage = Stage(level)
    operation = stage.manager.init()
    response = FindCoordinatorResponse(coordinators=others)
    session = stage.coordinator_session
    session.on_response(stage.request(FIND), response, stage.core.now)
    assert session.failures == 1
    stage.wait()
    stage.done(operation)
    assert stage.sent == [FIND, FIND, INIT]


def test_a_coordinator_that_advertises_no_address_is_named_by_the_error(level: int) -> None:
    stage = Stage(level)
    operation = stage.manager.init()
    response = FindCoordinatorResponse(coordinators=[Coordinator("tx", 1, "${HOST}", 9092, 0)])
    stage.coordinator_session.on_response(stage.request(FIND), response, stage.core.now)
    assert "node 1, which advertises '${HOST}', port 9092" in str(stage.manager.coordinator_error)
    stage.wait()
    stage.done(operation)
    assert stage.sent == [FIND, FIND, INIT]


@pytest.mark.parametrize("rpc", [FIND, INIT])
def test_brokers_without_a_usable_version_are_fatal(level: int, rpc: Rpc) -> None:
    stage = Stage(level)
    operation = stage.manager.init()
    request = stage.request(rpc)
    stage.coordinator_session.on_unsupported(request, UnsupportedVersionError("too old"))
    assert isinstance(operation.error, FatalTransactionError)
    assert isinstance(operation.error.__cause__, UnsupportedVersionError)


def test_begin_is_refused_while_init_goes_on_and_while_a_transaction_is_open(level: int) -> None:
    stage = Stage(level)
    operation = stage.manager.init()
    for call in (lambda: stage.manager.begin(level), stage.manager.commit, stage.manager.abort):
        with pytest.raises(IllegalStateError, match="repeat init_transactions"):
            call()
    stage.done(operation)
    stage.begin()
    with pytest.raises(IllegalStateError, match="commit or abort the transaction first"):
        stage.manager.begin(level)
    produced(stage)
    stage.done(stage.manager.commit())


@pytest.mark.parametrize("first", ["commit", "abort"])
def test_end_that_timed_out_is_repeated_with_one_request(level: int, first: str) -> None:
    stage = Stage(level).begun()
    produced(stage)
    operation = getattr(stage.manager, first)()
    request = stage.request(END)
    other = "abort" if first == "commit" else "commit"
    for call in (getattr(stage.manager, other), lambda: stage.manager.begin(level)):
        with pytest.raises(IllegalStateError, match=f"repeat {first}_transaction"):
            call()
    assert getattr(stage.manager, first)() is operation
    assert stage.next_request() is None
    stage.respond(request)
    assert stage.sent.count(END) == 1
    stage.done(operation)
    usable_again(stage)


def test_coordinator_that_gives_another_producer_id_is_followed(level: int) -> None:
    stage = Stage(level).begun()
    produced(stage)
    stage.core.append()
    (dispatch,) = stage.core.poll()
    stage.core.answer(dispatch, 87)
    stage.producer_id, stage.epoch = 99, -1
    stage.done(stage.manager.abort())
    stage.begin()
    assert stage.manager.identity == (99, 0)
    batch = stage.core.append()
    if level == 1:
        stage.respond(stage.request(ADD))
    assert stage.deliver() == [batch]
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (99, 0, 0)


def test_records_of_several_partitions_are_ended_together(level: int) -> None:
    stage = Stage(level).begun()
    for partition in (0, 1):
        produced(stage, partition)
    assert {T0, T1} == {b.topic_partition for b in map(stage.core.append, (0, 1))}
    assert len(stage.deliver()) == 2
    stage.done(stage.manager.commit())
    assert stage.sent.count(END) == 1


def test_batch_that_is_split_is_committed_in_parts(level: int) -> None:
    stage = Stage(level).begun()
    produced(stage)
    whole = {stage.core.append() for _ in range(4)}.pop()
    (dispatch,) = stage.core.poll()
    stage.core.answer(dispatch, 10)
    operation = stage.manager.commit()
    sequences = []
    while not whole.done:
        assert stage.next_request() is None
        sequences += [batch.base_sequence for batch in stage.deliver()]
    assert sequences == [1, 3]
    assert ended(stage)
    stage.done(operation)
