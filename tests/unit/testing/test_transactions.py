"""The life of a transaction at its coordinator, under both transaction versions."""

from __future__ import annotations

import dataclasses

import pytest

from aioproducer.testing.broker import ClusterState, TopicSpec
from aioproducer.testing.broker.transactions.states import ProducerIdentity, TransactionState
from aioproducer.types import TopicPartition
from aioproducer.wire.messages.init_producer_id import InitProducerIdRequest

from .support import NOW_MS, ask, make_batch, make_state, produce
from .transactional import (
    V1_VERSIONS,
    V2_VERSIONS,
    TransactionalProducer,
    coordinator_of,
)

LAST_EPOCH = 2**15 - 2

INVALID_REQUEST, INVALID_EPOCH, INVALID_STATE, INVALID_MAPPING = 42, 47, 48, 49
INVALID_TIMEOUT, CONCURRENT, FENCED, ABORTABLE = 50, 51, 90, 120

BOTH = pytest.mark.parametrize("versions", [V1_VERSIONS, V2_VERSIONS], ids=["v1", "v2"])


@pytest.fixture
def state() -> ClusterState:
    return _state()


def _state(**settings: object) -> ClusterState:
    state = make_state(**settings)
    state.create_topic("t", TopicSpec(3, 3))
    return state


def _producer(state: ClusterState, versions: dict[str, int]) -> TransactionalProducer:
    producer = TransactionalProducer(state, versions)
    assert producer.initialize() == 0
    return producer


def _ends(state: ClusterState) -> list[int]:
    return [partition.log.end_offset for partition in state.topics["t"].partitions]


@BOTH
def test_a_transaction_ends_with_a_marker_in_each_of_its_partitions(
    state: ClusterState, versions: dict[str, int]
) -> None:
    producer = _producer(state, versions)
    producer.write(0, 2)
    assert producer.end() == 0
    assert _ends(state) == [2, 0, 2]
    assert state.transactions.transactions["tx"].state is TransactionState.COMPLETE_COMMIT


def test_v2_bumps_the_epoch_at_every_end_and_v1_keeps_it(state: ClusterState) -> None:
    producer = _producer(state, V1_VERSIONS)
    for version, epoch in [(4, 0), (5, 1), (5, 2)]:
        producer.versions = V1_VERSIONS if version == 4 else V2_VERSIONS
        producer.write(0)
        assert producer.end(version=version, commit=False) == 0
        assert producer.epoch == epoch


@BOTH
def test_a_new_incarnation_aborts_the_transaction_of_the_old_and_fences_it(
    state: ClusterState, versions: dict[str, int]
) -> None:
    old = _producer(state, versions)
    old.write(0)
    new = TransactionalProducer(state, versions)
    assert new.initialize() == CONCURRENT
    assert state.transactions.transactions["tx"].state is TransactionState.COMPLETE_ABORT
    assert new.initialize() == 0
    assert new.producer_id == old.producer_id
    assert new.epoch > old.epoch
    assert old.end() == FENCED
    assert old.end(version=1) == INVALID_EPOCH
    assert old.add(1) == [FENCED]
    assert old.add(1, version=1) == [INVALID_EPOCH]
    assert old.produce(0) == INVALID_EPOCH
    assert old.initialize(resume=True) == FENCED
    assert _ends(state) == [2, 0, 0]


@pytest.mark.parametrize(("level", "code"), [(1, FENCED), (2, 0)])
def test_a_fenced_producer_may_resume_under_v2_until_another_is_initialized(
    level: int, code: int
) -> None:
    state = _state(transaction_version=level)
    old = _producer(state, V1_VERSIONS)
    old.write(0)
    new = TransactionalProducer(state, V1_VERSIONS)
    assert new.initialize() == CONCURRENT
    assert state.transactions.transactions["tx"].epoch == 1
    again = dataclasses.replace(old)
    assert again.initialize(resume=True) == code
    assert new.initialize() == 0
    assert (old.initialize(resume=True), again.initialize(resume=True)) == (FENCED, FENCED)


@BOTH
def test_a_replaced_producer_that_asks_for_its_next_epoch_aborts_what_runs(
    state: ClusterState, versions: dict[str, int]
) -> None:
    old = _producer(state, versions)
    new = _producer(state, versions)
    new.write(0)
    assert old.initialize(resume=True) == CONCURRENT
    assert state.transactions.transactions["tx"].state is TransactionState.COMPLETE_ABORT
    assert state.transactions.overtaken == {new.identity}
    assert old.initialize(resume=True) == FENCED


@BOTH
def test_a_producer_that_starts_displaces_the_one_whose_transaction_runs(
    state: ClusterState, versions: dict[str, int]
) -> None:
    running = _producer(state, versions)
    running.write(0)
    assert TransactionalProducer(state, versions).initialize() == CONCURRENT
    assert state.transactions.displaced == {running.identity}
    assert not state.transactions.overtaken


def test_a_producer_that_asks_amid_its_own_transaction_is_not_overtaken(
    state: ClusterState,
) -> None:
    producer = _producer(state, V1_VERSIONS)
    producer.write(0)
    assert producer.initialize(resume=True) == CONCURRENT
    assert TransactionalProducer(state, V1_VERSIONS).initialize() == 0
    assert not state.transactions.overtaken


def test_a_producer_that_resumes_gets_the_next_epoch_once(state: ClusterState) -> None:
    producer = _producer(state, V1_VERSIONS)
    before = producer.identity
    assert producer.initialize(resume=True) == 0
    assert producer.identity == (before[0], 1)
    producer.epoch = 0
    assert producer.initialize(resume=True) == 0, "a repeated request"
    assert producer.identity == (before[0], 1)


def test_half_an_identity_is_no_request(state: ClusterState) -> None:
    request = InitProducerIdRequest(
        transactional_id="tx", transaction_timeout_ms=1, producer_id=3, producer_epoch=-1
    )
    assert ask(state, request, 4, node_id=coordinator_of(state)).error_code == INVALID_REQUEST


@pytest.mark.parametrize(
    ("timeout_ms", "code"),
    [(0, INVALID_TIMEOUT), (900_001, INVALID_TIMEOUT), (900_000, 0), (1, 0)],
)
def test_the_timeout_has_bounds(state: ClusterState, timeout_ms: int, code: int) -> None:
    assert TransactionalProducer(state, V1_VERSIONS).initialize(timeout_ms=timeout_ms) == code


def test_two_phases_are_for_clusters_that_allow_them() -> None:
    request = InitProducerIdRequest(transactional_id="tx", enable2_pc=True)
    codes = []
    for allowed in (False, True):
        state = _state(two_phase_commit=allowed, api_versions={22: (0, 6)})
        codes.append(ask(state, request, 6, node_id=coordinator_of(state)).error_code)
        assert "tx" not in state.transactions.transactions or allowed
    assert codes == [53, 0]
    producer = TransactionalProducer(state, V2_VERSIONS, producer_id=0, epoch=0)
    producer.write(0)
    assert state.next_wakeup_ms is None
    request.keep_prepared_txn = True
    assert ask(state, request, 6, node_id=coordinator_of(state)).error_code == 35


@pytest.mark.parametrize(("version", "code"), [(10, INVALID_STATE), (11, ABORTABLE)])
def test_before_v2_a_partition_has_to_be_added_before_it_is_written_to(
    state: ClusterState, version: int, code: int
) -> None:
    producer = _producer(state, V1_VERSIONS)
    assert producer.add(0) == [0]
    assert producer.produce(1, version=version) == code
    assert producer.produce(0, version=version) == 0
    assert producer.end() == 0
    assert producer.produce(0, version=version) == code, "the transaction is over"


def test_v2_adds_partitions_as_they_are_written_to(state: ClusterState) -> None:
    producer = _producer(state, V2_VERSIONS)
    assert producer.produce(1) == 0
    transaction = state.transactions.transactions["tx"]
    assert transaction.partitions == {TopicPartition("t", 1)}
    assert transaction.started_ms == NOW_MS


def test_all_partitions_are_added_or_none(state: ClusterState) -> None:
    producer = _producer(state, V1_VERSIONS)
    assert producer.add(0, 99) == [55, 3]
    assert state.transactions.transactions["tx"].state is TransactionState.EMPTY


def test_an_unknown_producer_has_no_mapping(state: ClusterState) -> None:
    producer = _producer(state, V1_VERSIONS)
    producer.producer_id += 1
    assert (producer.end(), producer.add(0)) == (INVALID_MAPPING, [INVALID_MAPPING])
    producer.transactional_id = "nobody"
    assert (producer.end(), producer.end(version=5)) == (INVALID_MAPPING, INVALID_MAPPING)
    producer.transactional_id = ""
    assert producer.end() == INVALID_REQUEST


def test_a_repeated_end_is_answered_alike_and_a_contrary_one_refused(state: ClusterState) -> None:
    producer = _producer(state, V1_VERSIONS)
    assert producer.end() == INVALID_STATE, "nothing was begun"
    producer.write(0)
    assert [producer.end(), producer.end()] == [0, 0]
    assert producer.end(commit=False) == INVALID_STATE
    assert _ends(state)[0] == 2


def test_a_repeated_end_of_v2_gets_the_epoch_again(state: ClusterState) -> None:
    producer = _producer(state, V2_VERSIONS)
    producer.write(0)
    assert producer.end() == 0
    assert producer.end() == INVALID_STATE, "of the present epoch: the end of nothing"
    producer.epoch = 0
    assert producer.end(commit=False) == INVALID_STATE
    assert producer.end() == 0
    assert producer.epoch == 1
    assert _ends(state)[0] == 2


def test_an_end_by_a_replaced_producer_after_one_of_v1_is_no_repeated_one(
    state: ClusterState,
) -> None:
    old = _producer(state, V2_VERSIONS)
    new = TransactionalProducer(state, V1_VERSIONS)
    assert new.initialize() == 0
    new.write(0)
    assert new.end(commit=False) == 0
    assert (old.end(commit=False), old.epoch) == (FENCED, 0)


def test_v2_may_abort_what_was_never_begun(state: ClusterState) -> None:
    producer = _producer(state, V2_VERSIONS)
    assert producer.end(commit=True) == INVALID_STATE
    assert [producer.end(commit=False), producer.epoch] == [0, 1]
    assert [producer.end(commit=False), producer.epoch] == [0, 2]
    assert _ends(state) == [0, 0, 0]


@BOTH
def test_while_markers_are_written_everything_is_concurrent(versions: dict[str, int]) -> None:
    state = _state(marker_delay_ms=10)
    producer = _producer(state, versions)
    producer.write(0, 1)
    assert producer.end() == 0
    again = TransactionalProducer(
        state, versions, producer_id=producer.producer_id, epoch=producer.epoch
    )
    assert TransactionalProducer(state, versions).initialize() == CONCURRENT
    assert again.add(2) == [CONCURRENT]
    assert again.produce(2, version=12) == CONCURRENT
    assert again.produce(2, version=11) == 19
    assert again.initialize(resume=True) == CONCURRENT
    assert (again.end(), again.end(commit=False)) == (CONCURRENT, CONCURRENT)
    again.epoch += 1
    assert again.initialize(resume=True) == CONCURRENT
    assert again.end() == (CONCURRENT if producer.is_v2 else FENCED)
    again.producer_id += 1
    assert again.initialize(resume=True) == CONCURRENT
    assert again.end() == (CONCURRENT if producer.is_v2 else INVALID_MAPPING)
    steps = []
    for later_ms in (10, 20, 30):
        assert state.next_wakeup_ms == NOW_MS + later_ms
        state.advance(NOW_MS + later_ms)
        steps.append(sum(_ends(state)))
    assert steps == [3, 4, 4]
    assert state.next_wakeup_ms is None
    assert producer.initialize() == 0


@pytest.mark.parametrize("level", [1, 2])
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(level: int) -> None:
    state = _state(transaction_version=level)
    versions = V2_VERSIONS if level == 2 else V1_VERSIONS
    producer = TransactionalProducer(state, versions)
    assert producer.initialize(timeout_ms=1000) == 0
    producer.write(0)
    assert state.next_wakeup_ms == NOW_MS + 1000
    state.advance(NOW_MS + 999)
    assert _ends(state)[0] == 1
    state.advance(NOW_MS + 1000)
    assert _ends(state)[0] == 2
    assert state.topics["t"].partitions[0].transactions.aborted
    assert producer.produce(0) == INVALID_EPOCH
    assert producer.end(version=4) == FENCED
    assert producer.initialize(resume=True) == (0 if level == 2 else FENCED)
    assert producer.initialize() == 0


def test_an_exhausted_epoch_brings_a_new_producer_id(state: ClusterState) -> None:
    producer = _producer(state, V1_VERSIONS)
    state.transactions.transactions["tx"].epoch = producer.epoch = LAST_EPOCH
    old_id = producer.producer_id
    assert producer.initialize(resume=True) == 0
    assert (producer.producer_id != old_id, producer.epoch) == (True, 0)
    new = producer.identity
    producer.producer_id, producer.epoch = old_id, LAST_EPOCH
    assert producer.initialize(resume=True) == 0, "a repeated request"
    assert producer.identity == new


def test_v2_rotates_the_producer_id_at_the_end_of_a_transaction(state: ClusterState) -> None:
    producer = _producer(state, V2_VERSIONS)
    state.transactions.transactions["tx"].epoch = producer.epoch = LAST_EPOCH
    old_id = producer.producer_id
    producer.write(0)
    assert producer.end() == 0
    new = producer.identity
    assert (producer.producer_id != old_id, producer.epoch) == (True, 0)
    assert state.topics["t"].partitions[0].producers.epoch_of(old_id) == LAST_EPOCH + 1
    producer.producer_id, producer.epoch = old_id, LAST_EPOCH
    assert producer.end() == 0, "a repeated request"
    assert producer.identity == new
    producer.write(0)
    assert producer.end() == 0


def test_a_new_producer_id_of_an_end_is_not_wrong_while_markers_are_written() -> None:
    state = _state(marker_delay_ms=10)
    producer = _producer(state, V2_VERSIONS)
    state.transactions.transactions["tx"].epoch = producer.epoch = LAST_EPOCH
    producer.write(0)
    assert producer.end() == 0
    assert producer.produce(0) == CONCURRENT
    while state.next_wakeup_ms is not None:
        state.advance(state.next_wakeup_ms)
    assert producer.produce(0) == 0


def test_fencing_the_last_epoch_still_works(state: ClusterState) -> None:
    producer = _producer(state, V2_VERSIONS)
    state.transactions.transactions["tx"].epoch = producer.epoch = LAST_EPOCH
    producer.write(0)
    new = TransactionalProducer(state, V2_VERSIONS)
    assert new.initialize() == CONCURRENT
    assert new.initialize() == 0
    assert new.producer_id != producer.producer_id
    assert producer.end() in {INVALID_MAPPING, FENCED}


def test_one_producers_plain_record_cannot_hide_in_its_transaction(state: ClusterState) -> None:
    producer = _producer(state, V2_VERSIONS)
    producer.write(0)
    data = make_batch(producer_id=producer.producer_id, producer_epoch=0, base_sequence=1)
    assert produce(state, data).error_code == INVALID_STATE


@pytest.mark.parametrize(
    ("aborted", "late", "excused"),
    [(True, True, True), (False, True, False), (True, False, False)],
    ids=["late after an abort", "late after a commit", "in time"],
)
def test_only_a_transaction_begun_by_a_late_request_excuses_a_producer_that_fences_itself(
    aborted: bool, late: bool, excused: bool
) -> None:
    state = _state(transaction_version=1)
    producer = _producer(state, V1_VERSIONS)
    producer.write(0)
    assert producer.end() == 0
    if aborted:
        assert producer.end(commit=False) == 48
    state.transactions.sender_is_gone = late
    assert producer.add(0) == [0]
    state.transactions.sender_is_gone = False
    assert producer.initialize(resume=True) == 51
    state.advance(NOW_MS + 1000)
    assert producer.initialize(resume=True) == 90
    assert state.transactions.has_shut_out(ProducerIdentity(*producer.identity)) is excused
