"""Sender: answers become outcomes, failures become retries or truthful errors."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from aioproducer.core.batching.batch import BatchOutcome
from aioproducer.core.sending.actions import Connect, Dispatch
from aioproducer.core.sending.idempotence import ProducerIdentity, Sequencer
from aioproducer.errors import (
    BatchRefusedError,
    DeliveryTimeoutError,
    KafkaError,
    NodeDisconnectedError,
    NotLeaderOrFollowerError,
    ProducerClosedError,
    ProtocolError,
    RecordTooLargeError,
    RequestTimeoutError,
)
from aioproducer.types import Persistence
from aioproducer.wire.acknowledgement import Acknowledgement
from aioproducer.wire.messages.common import LeaderIdAndEpoch, NodeEndpoint
from aioproducer.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

from ..support import TOPIC_ID, Core, metadata_response

NO_ID = UUID(int=0)


def answer(*partitions: PartitionProduceResponse, topic: str = "t") -> ProduceResponse:
    return ProduceResponse(
        responses=[TopicProduceResponse(name=topic, partition_responses=list(partitions))]
    )


def ok(index: int = 0, offset: int = 42, stamped: int = -1) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, error_code=0, base_offset=offset, log_append_time_ms=stamped
    )


def refused(code: int, index: int = 0) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=code, base_offset=-1)


def error_of(batch: object) -> KafkaError:
    outcome = batch.outcome  # type: ignore[attr-defined]
    assert outcome is not None
    assert outcome.error is not None
    return outcome.error


def test_one_record_one_request_one_offset() -> None:
    core = Core()
    batch = core.append()
    (dispatch,) = core.poll()
    core.sender.on_response(1, dispatch.batches, answer(ok(offset=7)), core.now)
    assert batch.outcome is not None
    assert batch.outcome.base_offset == 7
    assert core.pool.available == core.pool.total
    assert core.stats.records_acknowledged == 1


def test_a_response_counts_for_the_time_in_which_it_arrives() -> None:
    core = Core()
    core.append()
    (dispatch,) = core.poll()
    began = core.now
    core.now = began + 50
    core.acknowledge(dispatch)
    assert core.stats.rate("responses", began + 70) > 0
    assert core.stats.rate("responses", began + 105) > 0


@pytest.mark.parametrize("is_plain", [True, False])
def test_times_are_counted_from_the_first_record_and_from_the_last_attempt(is_plain: bool) -> None:
    core = Core(linger=2.0)
    core.append()
    core.now += 2
    (dispatch,) = core.poll()
    core.now += 5
    plain, usual = acknowledgement("t", NO_ID, 0), answer(ok())
    core.sender.on_response(1, dispatch.batches, plain if is_plain else usual, core.now)
    assert (core.stats.latency, core.stats.queue_time) == (5, 2)
    assert core.stats.delivery_times.snapshot().percentile(1.0) == pytest.approx(7, rel=0.1)


def test_log_append_time_is_the_brokers() -> None:
    core = Core()
    batch = core.append()
    (dispatch,) = core.poll()
    core.sender.on_response(1, dispatch.batches, answer(ok(stamped=1234)), core.now)
    assert batch.outcome is not None
    assert batch.outcome.log_append_time_ms == 1234


def test_acks_0_succeeds_without_an_offset() -> None:
    core = Core()
    batch = core.append()
    (dispatch,) = core.poll()
    core.sender.on_response(1, dispatch.batches, None, core.now)
    assert batch.outcome is not None
    assert batch.outcome.base_offset is None
    assert batch.outcome.error is None


def test_a_duplicate_sequence_is_success_without_an_offset() -> None:
    core = Core()
    batch = core.append()
    (dispatch,) = core.poll()
    core.sender.on_response(1, dispatch.batches, answer(refused(46)), core.now)
    assert batch.outcome is not None
    assert batch.outcome.error is None
    assert batch.outcome.base_offset is None


def test_a_node_that_is_not_ready_is_connected_to() -> None:
    core = Core()
    core.nodes.unready[1] = core.now + 3
    core.append()
    assert core.sender.poll(core.now, core.nodes) == [Connect(1)]
    assert core.sender.next_deadline(core.now, core.nodes) == core.now + 3


def test_a_node_that_cannot_be_reached_causes_a_metadata_request() -> None:
    core = Core()
    core.nodes.unready[1] = core.now + 3
    core.append()
    core.sender.poll(core.now, core.nodes)
    assert core.metadata.next_update_at(core.now) > core.now + 10
    core.nodes.failures[1] = NodeDisconnectedError("refused")
    core.sender.poll(core.now, core.nodes)
    assert core.metadata.next_update_at(core.now) < core.now + 10


def test_a_node_in_preparation_gets_no_second_request() -> None:
    core = Core()
    core.append()
    (first,) = core.sender.poll(core.now, core.nodes)
    core.append()
    assert core.sender.poll(core.now, core.nodes) == []
    core.sender.on_dispatched(1, first.batches)  # type: ignore[union-attr]
    assert len(core.sender.poll(core.now, core.nodes)) == 1


def test_retriable_error_is_sent_again_after_the_backoff() -> None:
    core = Core()
    batch = core.append()
    (dispatch,) = core.poll()
    core.sender.on_response(1, dispatch.batches, answer(refused(19)), core.now)
    assert core.poll() == []
    core.now += 0.13  # 100 ms and at most 20% of jitter
    (again,) = core.poll()
    assert again.batches == [batch]
    core.sender.on_response(1, again.batches, answer(ok()), core.now)
    assert batch.outcome is not None
    assert batch.outcome.error is None
    assert core.stats.records_retried == 1


@pytest.mark.parametrize("code", [3, 6, 56, 7, 20, -1, 9999])
def test_an_error_that_may_follow_the_append_does_not_claim_otherwise(code: int) -> None:
    core = Core(retries=0)
    batch = core.append()
    (dispatch,) = core.poll()
    core.sender.on_response(1, dispatch.batches, answer(refused(code)), core.now)
    assert error_of(batch).persistence is Persistence.POSSIBLY_PERSISTED


@pytest.mark.parametrize(
    ("code", "persistence"),
    [
        (19, Persistence.NOT_PERSISTED),
        (20, Persistence.POSSIBLY_PERSISTED),
        (51, Persistence.NOT_PERSISTED),  # of the check before the append (KIP-890)
    ],
)
def test_retriable_error_says_whether_the_batch_was_written_before_that(
    code: int, persistence: Persistence
) -> None:
    core = Core(retries=2)
    batch = core.append()
    for _ in range(3):
        (dispatch,) = core.poll()
        core.sender.on_response(1, dispatch.batches, answer(refused(code)), core.now)
        core.now += 2
    error = error_of(batch)
    assert error.code == code  # type: ignore[attr-defined]
    assert error.persistence is persistence


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({"retries": 0}, "raise retries=0, which ended after 1 attempt(s)"),
        ({"delivery_timeout": 1.0}, "raise delivery_timeout_ms=1000, which ended after 1"),
    ],
)
@pytest.mark.parametrize("code", [19, 20])
def test_a_refusal_that_ends_the_retries_keeps_its_own_advice(
    code: int, limits: dict[str, Any], named: str
) -> None:
    core = Core(**limits)
    batch = core.append()
    (dispatch,) = core.poll()
    core.sender.on_response(1, dispatch.batches, answer(refused(code)), core.now + 1)
    advice = str(error_of(batch).advice)
    assert "min.insync.replicas" in advice
    assert named in advice


def test_retries_used_up_fails_with_the_last_error() -> None:
    core = Core(retries=1)
    batch = core.append()
    for _ in range(2):
        (dispatch,) = core.poll()
        core.sender.on_response(1, dispatch.batches, answer(refused(6)), core.now)
        core.now += 2
    error = error_of(batch)
    assert isinstance(error, NotLeaderOrFollowerError)
    # A leader that is deposed while it waits for its followers answers so after the append.
    assert error.persistence is Persistence.POSSIBLY_PERSISTED
    assert (error.topic, error.partition, error.node_id) == ("t", 0, 1)


def test_a_moved_leader_asks_for_metadata() -> None:
    core = Core()
    core.append()
    (dispatch,) = core.poll()
    before = core.metadata.next_update_at(core.now)
    core.sender.on_response(1, dispatch.batches, answer(refused(6)), core.now)
    assert core.metadata.next_update_at(core.now) < before


def test_a_node_that_does_not_lead_is_a_reason_to_ask_about_its_topic_alone() -> None:
    core = Core()
    core.metadata.add_topic("other", core.now)
    core.append()
    (dispatch,) = core.poll()
    core.metadata.start_request(core.now)
    core.metadata.on_response(metadata_response({"other": (1,)}), core.now)
    core.sender.on_response(1, dispatch.batches, answer(refused(6)), core.now)
    fetch = core.metadata.start_request(core.now + 1)
    assert (fetch.topics, fetch.partial) == (["t"], True)


def test_partition_without_a_leader_is_a_reason_to_ask_about_its_topic_alone() -> None:
    core = Core((-1,))
    core.metadata.add_topic("other", core.now)
    core.append()
    assert core.poll() == []
    fetch = core.metadata.start_request(core.now + 1)
    assert (fetch.topics, fetch.partial) == (["t", "other"], True)


def test_a_request_that_is_prepared_for_one_node_holds_up_no_other() -> None:
    core = Core((1, 2))
    core.append(0)
    (first,) = core.sender.poll(core.now, core.nodes)
    core.append(0)
    other = core.append(1)
    (dispatch,) = core.poll()
    assert isinstance(first, Dispatch)
    assert (first.node_id, dispatch.node_id, dispatch.batches) == (1, 2, [other])


def hint(node_id: int, epoch: int) -> ProduceResponse:
    hinted = refused(6)
    hinted.current_leader = LeaderIdAndEpoch(leader_id=node_id, leader_epoch=epoch)
    response = answer(hinted)
    response.node_endpoints = [
        NodeEndpoint(node_id=node_id, host="127.0.0.1", port=9002, rack=None)
    ]
    return response


def test_a_leader_hint_moves_the_batch_without_backoff() -> None:
    core = Core()
    batch = core.append()
    (dispatch,) = core.poll()
    core.sender.on_response(1, dispatch.batches, hint(2, 9), core.now)
    (again,) = core.poll()
    assert (again.node_id, again.batches) == (2, [batch])


def test_a_leader_hint_ends_the_backoff_of_an_earlier_batch() -> None:
    core = Core()
    earlier = core.append()
    (first,) = core.poll()
    later = core.append()
    (second,) = core.poll()
    core.sender.on_response(1, first.batches, answer(refused(6)), core.now)
    assert core.poll() == []
    core.sender.on_response(1, second.batches, hint(2, 9), core.now)
    batches = [(dispatch.node_id, dispatch.batches) for dispatch in core.poll() + core.poll()]
    assert batches == [(2, [earlier]), (2, [later])]


def test_a_leader_hint_is_compared_with_the_metadata_of_the_cluster() -> None:
    core = Core()
    core.append()
    (dispatch,) = core.poll()
    core.metadata.on_response(metadata_response({"other": (1,)}), core.now)
    core.sender.on_response(1, dispatch.batches, hint(2, 9), core.now)
    assert core.metadata.next_update_at(core.now + 1) == core.now + 1
    assert core.metadata.start_request(core.now + 1).topics == ["t"]


@pytest.mark.parametrize(("topic_id", "leader"), [(TOPIC_ID, 2), (UUID(int=8), 1)])
def test_leader_hint_for_a_topic_that_was_created_anew_is_ignored(
    topic_id: UUID, leader: int
) -> None:
    core = Core()
    batch = core.append()
    (dispatch,) = core.poll()
    batch.topic_id = TOPIC_ID
    response = metadata_response({"t": (1,)})
    response.topics[0].topic_id = topic_id
    core.metadata.on_response(response, core.now)
    hinted = hint(2, 9)
    hinted.responses[0].name, hinted.responses[0].topic_id = "", TOPIC_ID
    core.sender.on_response(1, dispatch.batches, hinted, core.now)
    assert core.metadata.leader_of(batch.topic_partition) == leader


@pytest.mark.parametrize("moves", [0, 1])
def test_leader_hints_without_end_back_off(moves: int) -> None:
    core = Core()
    core.append()
    (dispatch,) = core.poll()
    for number in range(3):
        response = hint(2 + moves * number, 9 + number)
        core.sender.on_response(dispatch.node_id, dispatch.batches, response, core.now)
        (dispatch,) = core.poll()
    core.sender.on_response(dispatch.node_id, dispatch.batches, hint(99, 99), core.now)
    assert core.poll() == []
    core.now += 2
    (dispatch,) = core.poll()
    assert dispatch.node_id == 99


def test_a_stale_leader_hint_backs_off() -> None:
    core = Core()
    core.append()
    (dispatch,) = core.poll()
    hinted = refused(6)
    hinted.current_leader = LeaderIdAndEpoch(leader_id=1, leader_epoch=1)
    core.sender.on_response(1, dispatch.batches, answer(hinted), core.now)
    assert core.poll() == []


def test_with_one_request_in_flight_a_leader_change_does_not_reorder() -> None:
    core = Core(guarantee_order=True)
    first = core.fill()
    (dispatch,) = core.poll()
    core.learn((2, 2, 3), epoch=2)
    assert core.poll() == []
    core.sender.on_response(1, dispatch.batches, answer(refused(6)), core.now)
    core.now += 2
    (again,) = core.poll()
    assert (again.node_id, again.batches) == (2, [first])
    assert core.poll() == []


@pytest.mark.parametrize("lost", [RequestTimeoutError("late"), ProtocolError("garbage")])
def test_a_lost_answer_is_retried_and_possibly_persisted(lost: KafkaError) -> None:
    core = Core(delivery_timeout=1.0)
    batch = core.append()
    (dispatch,) = core.poll()
    core.sender.on_failure(1, dispatch.batches, lost, core.now)
    assert not batch.done
    core.now += 1
    core.poll()
    error = error_of(batch)
    assert isinstance(error, DeliveryTimeoutError)
    assert error.persistence is Persistence.POSSIBLY_PERSISTED


@pytest.mark.parametrize("records", [1, 2])
def test_what_may_be_written_without_sequences_is_not_split_nor_called_refused(
    records: int,
) -> None:
    core = Core()
    (batch,) = {core.append() for _ in range(records)}
    (dispatch,) = core.poll()
    core.sender.on_failure(1, dispatch.batches, NodeDisconnectedError("gone"), core.now)
    core.now += 1
    (again,) = core.poll()
    core.sender.on_response(1, again.batches, answer(refused(10)), core.now)
    error = error_of(batch)
    # Of several records it is unknown which one is too large.
    assert isinstance(error, RecordTooLargeError if records == 1 else BatchRefusedError)
    assert error.persistence is Persistence.POSSIBLY_PERSISTED


def test_a_batch_never_sent_expires_as_not_persisted_and_says_why() -> None:
    core = Core(delivery_timeout=5.0, leaders=(-1,))
    batch = core.append()
    core.poll()
    core.now += 5
    core.poll()
    error = error_of(batch)
    assert isinstance(error, DeliveryTimeoutError)
    assert error.persistence is Persistence.NOT_PERSISTED
    assert "LEADER_NOT_AVAILABLE" in str(error) or "leader" in str(error)
    assert "delivery_timeout_ms=5000" in str(error)


def test_an_answer_after_the_expiry_changes_nothing_but_frees_the_memory() -> None:
    core = Core(delivery_timeout=5.0)
    batch = core.append()
    (dispatch,) = core.poll()
    core.now += 5
    core.poll()
    assert core.pool.available < core.pool.total
    core.sender.on_response(1, dispatch.batches, answer(ok()), core.now)
    assert isinstance(error_of(batch), DeliveryTimeoutError)
    assert core.pool.available == core.pool.total
    assert core.stats.records_acknowledged == 0


def test_a_request_that_never_left_costs_no_retry() -> None:
    core = Core(retries=0)
    batch = core.append()
    (action,) = core.sender.poll(core.now, core.nodes)
    core.sender.on_not_dispatched(
        1,
        action.batches,  # type: ignore[union-attr]
        NodeDisconnectedError("not connected"),
        core.now,
    )
    assert not batch.done
    assert not batch.possibly_persisted
    (again,) = core.poll()
    assert again.batches == [batch]


def test_a_batch_that_expired_before_its_request_left_fails_by_its_delivery_timeout() -> None:
    core = Core(delivery_timeout=5.0)
    batch = core.append()
    core.sender.poll(core.now, core.nodes)
    core.sender.on_dispatching([batch])
    core.now += 5
    core.sender.on_not_dispatched(1, [batch], NodeDisconnectedError("not connected"), core.now)
    error = error_of(batch)
    assert isinstance(error, DeliveryTimeoutError)
    assert error.persistence is Persistence.NOT_PERSISTED


def test_a_partition_missing_from_the_answer_is_retried() -> None:
    core = Core(leaders=(1, 1))
    kept, missing = core.append(0), core.append(1)
    (dispatch,) = core.poll()
    core.sender.on_response(1, dispatch.batches, answer(ok(0)), core.now)
    assert kept.done
    assert not missing.done
    core.now += 1
    (again,) = core.poll()
    assert again.batches == [missing]


def test_invented_and_repeated_partitions_are_ignored() -> None:
    core = Core()
    batch = core.append()
    (dispatch,) = core.poll()
    response = answer(ok(offset=1), ok(offset=2), refused(1, index=99))
    core.sender.on_response(1, dispatch.batches, response, core.now)
    assert batch.outcome is not None
    assert batch.outcome.base_offset == 1


def test_answers_by_topic_id_find_their_batch() -> None:
    core = Core()
    batch = core.append()
    (dispatch,) = core.poll()
    batch.topic_id = TOPIC_ID
    # Meanwhile a lagging broker denies the topic: the id it was sent under still counts.
    core.metadata.start_request(core.now)
    core.metadata.on_response(metadata_response({}), core.now)
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(name="", topic_id=TOPIC_ID, partition_responses=[ok(offset=3)])
        ]
    )
    core.sender.on_response(1, dispatch.batches, response, core.now)
    assert batch.outcome is not None
    assert batch.outcome.base_offset == 3


def acknowledgement(name: str, topic_id: UUID, index: int, offset: int = 5) -> Acknowledgement:
    return Acknowledgement(name, topic_id, {index: (offset, -1, 2)}, 0)


@pytest.mark.parametrize("by_id", [False, True])
def test_an_acknowledgement_ends_the_one_batch_of_its_request(by_id: bool) -> None:
    core = Core()
    batch = core.append()
    (dispatch,) = core.poll()
    batch.topic_id = TOPIC_ID
    seen = acknowledgement("", TOPIC_ID, 0) if by_id else acknowledgement("t", NO_ID, 0)
    core.sender.on_response(1, dispatch.batches, seen, core.now)
    assert batch.outcome == BatchOutcome(base_offset=5, log_start_offset=2)
    assert core.pool.available == core.pool.total


@pytest.mark.parametrize(
    "seen",
    [
        acknowledgement("u", NO_ID, 0),
        acknowledgement("t", NO_ID, 1),
        acknowledgement("", UUID(int=99), 0),
    ],
)
def test_an_acknowledgement_of_something_else_leaves_the_batch_in_doubt(
    seen: Acknowledgement,
) -> None:
    core = Core()
    batch = core.append()
    (dispatch,) = core.poll()
    batch.topic_id = TOPIC_ID
    core.sender.on_response(1, dispatch.batches, seen, core.now)
    assert batch.outcome is None
    assert batch.possibly_persisted


def test_only_queued_batches_and_due_metadata_wait_for_capacity() -> None:
    core = Core()
    assert not core.sender.waits_for_capacity(core.now)
    core.append()
    assert core.sender.waits_for_capacity(core.now)
    (dispatch,) = core.poll()
    assert not core.sender.waits_for_capacity(core.now)
    core.sender.on_failure(1, dispatch.batches, NodeDisconnectedError("lost"), core.now)
    assert core.sender.waits_for_capacity(core.now)


@pytest.mark.parametrize("is_direct", [True, False])
def test_an_answer_after_a_long_time_counts_in_the_sample_of_its_time(is_direct: bool) -> None:
    core = Core()
    batch = core.append()
    (dispatch,) = core.poll()
    core.sender.on_dispatched(1, dispatch.batches)
    core.now += 100
    if is_direct:
        core.sender.on_acknowledged(batch, (7, -1, -1), core.now)
    else:
        core.sender.on_response(1, dispatch.batches, answer(ok(offset=7)), core.now)
    assert core.stats.rate("records_acknowledged", core.now) > 0


def test_due_metadata_waits_for_capacity() -> None:
    core = Core()
    core.metadata.request_update()
    assert core.sender.waits_for_capacity(core.metadata.next_update_at(core.now))


def test_an_acknowledgement_that_comes_late_changes_nothing() -> None:
    core = Core()
    batch = core.append()
    (dispatch,) = core.poll()
    core.sender.abort(ProducerClosedError("closed"))
    core.sender.on_response(1, dispatch.batches, acknowledgement("t", NO_ID, 0), core.now)
    assert isinstance(error_of(batch), ProducerClosedError)
    assert core.stats.records_acknowledged == 0
    assert core.pool.available == core.pool.total


def test_an_acknowledgement_ends_every_batch_of_its_request() -> None:
    core = Core(leaders=(1, 1))
    first, second = core.append(0), core.append(1)
    (dispatch,) = core.poll()
    core.sender.abort(ProducerClosedError("closed"), queued=False)
    third, fourth = core.append(0), core.append(1)
    (later,) = core.poll()
    places = {1: (7, -1, 2), 0: (6, 1234, -1)}
    core.sender.on_response(1, dispatch.batches, Acknowledgement("t", NO_ID, places, 3), core.now)
    assert isinstance(error_of(first), ProducerClosedError)
    assert isinstance(error_of(second), ProducerClosedError)
    core.sender.on_response(1, later.batches, Acknowledgement("t", NO_ID, places, 3), core.now)
    assert third.outcome == BatchOutcome(base_offset=6, log_append_time_ms=1234)
    assert fourth.outcome == BatchOutcome(base_offset=7, log_start_offset=2)
    assert core.stats.records_acknowledged == 2
    assert core.stats.responses == 2
    assert core.pool.available == core.pool.total


def test_an_acknowledgement_of_one_of_two_batches_leaves_the_other_in_doubt() -> None:
    core = Core(leaders=(1, 1))
    first, second = core.append(0), core.append(1)
    (dispatch,) = core.poll()
    core.sender.on_response(1, dispatch.batches, acknowledgement("t", NO_ID, 0), core.now)
    assert first.outcome == BatchOutcome(base_offset=5, log_start_offset=2)
    assert second.outcome is None


def test_abort_fails_everything_with_the_right_persistence() -> None:
    core = Core()
    sent, queued = core.append(0), core.append(1)
    core.nodes.unready[2] = core.now + 1
    core.poll()
    assert core.sender.abort(ProducerClosedError("closed")) == 2
    assert error_of(sent).persistence is Persistence.POSSIBLY_PERSISTED
    assert error_of(queued).persistence is Persistence.NOT_PERSISTED


def test_a_failure_that_was_not_retrieved_is_reported_once_per_batch() -> None:
    core = Core(retries=0)
    unretrieved: list[int] = []
    core.accumulator._on_unretrieved = lambda batch: unretrieved.append(batch.count)
    core.append()
    core.append()
    core.sender.abort(ProducerClosedError("closed"))
    gc.collect()
    assert unretrieved == [2]


@pytest.mark.parametrize("code", [17, 29, 42, 43, 44])
def test_error_that_no_retry_can_cure_fails_the_batch_alone(code: int) -> None:
    core = Core(leaders=(1, 1))
    failed, kept = core.append(0), core.append(1)
    (dispatch,) = core.poll()
    response = answer(refused(code), ok(1))
    core.sender.on_response(1, dispatch.batches, response, core.now)
    error = error_of(failed)
    assert (error.code, error.retriable) == (code, False)  # type: ignore[attr-defined]
    assert error.persistence is Persistence.NOT_PERSISTED
    assert kept.outcome is not None and kept.outcome.error is None
    assert core.sender.fatal_error is None
    next_one = core.append(0)
    core.now += 2
    (again,) = core.poll()
    assert again.batches == [next_one]


def test_error_has_the_brokers_words_or_else_ours() -> None:
    texts = []
    for words in (None, "come back on Monday"):
        core = Core()
        batch = core.append()
        (dispatch,) = core.poll()
        bad = refused(42)
        bad.error_message = words
        core.sender.on_response(1, dispatch.batches, answer(bad), core.now)
        texts.append(str(error_of(batch)))
    ours, theirs = texts
    assert "INVALID_REQUEST (42): The broker could not make sense of the request" in ours
    assert "INVALID_REQUEST (42): come back on Monday" in theirs


def test_retry_backoff_grows_to_its_maximum_with_each_attempt() -> None:
    core = Core()
    core.append()
    delays = []
    for _ in range(6):
        (dispatch,) = core.poll()
        core.sender.on_response(1, dispatch.batches, answer(refused(19)), core.now)
        delay = core.sender.next_deadline(core.now, core.nodes) - core.now
        delays.append(delay)
        core.now += delay
    for delay, expected in zip(delays, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0], strict=True):
        assert 0.8 * expected <= delay <= 1.2 * expected


def test_batch_after_another_transaction_is_retried_after_a_short_backoff() -> None:
    core = Core()
    core.append()
    delays = []
    for _ in range(3):
        (dispatch,) = core.poll()
        core.answer(dispatch, 51)
        delays.append(core.sender.next_deadline(core.now, core.nodes) - core.now)
        core.now += 2
    for delay, expected in zip(delays, [0.02, 0.04, 0.08], strict=True):
        assert 0.8 * expected <= delay <= 1.2 * expected


def test_after_a_fatal_answer_everything_fails_and_a_late_answer_is_harmless() -> None:
    core = Core((1, 1), sequencer=Sequencer(5))
    core.sender.on_identity(ProducerIdentity(9, 0))
    first, second = core.append(0), core.append(1)
    core.accumulator.settings = replace(core.accumulator.settings, max_request_size=1)
    (one,) = core.poll()
    (two,) = core.poll()
    queued = core.append(0)
    core.answer(one, 31)
    fatal = core.sender.fatal_error
    assert fatal is not None
    core.sender.abort(fatal)
    assert error_of(first).persistence is Persistence.NOT_PERSISTED
    assert error_of(second).persistence is Persistence.POSSIBLY_PERSISTED
    assert error_of(queued).persistence is Persistence.NOT_PERSISTED
    core.sender.on_response(1, two.batches, answer(ok(1)), core.now)
    assert error_of(second) is not None
    assert core.pool.available == core.pool.total
    assert core.stats.records_acknowledged == 0


def test_with_one_request_in_flight_an_expired_one_still_holds_its_successor_back() -> None:
    core = Core(guarantee_order=True, delivery_timeout=5.0)
    expired = core.append()
    (dispatch,) = core.poll()
    core.now += 4
    following = core.append()
    core.now += 1
    assert core.poll() == []
    assert isinstance(error_of(expired), DeliveryTimeoutError)
    core.sender.on_response(1, dispatch.batches, answer(ok()), core.now)
    (later,) = core.poll()
    assert later.batches == [following]


def test_next_deadline_follows_the_oldest_batch() -> None:
    core = Core(leaders=(1, 2), delivery_timeout=10.0)
    began = core.now
    core.append(0)
    (first,) = core.poll()
    assert core.sender.next_deadline(core.now, core.nodes) == began + 10
    core.now += 3
    core.append(1)
    core.poll()
    assert core.sender.next_deadline(core.now, core.nodes) == began + 10
    core.sender.on_response(1, first.batches, answer(ok()), core.now)
    assert core.sender.next_deadline(core.now, core.nodes) == began + 13


def test_a_record_sent_without_a_turn_counts_as_sent() -> None:
    core = Core()
    batch = core.append()
    core.drain(1)
    core.sender.on_dispatched(1, (batch,))
    assert batch.on_wire
    assert core.stats.requests_sent == 1


def test_batches_that_ended_while_their_request_was_prepared_are_left_out_of_it() -> None:
    core = Core((1, 1))
    ended, live = core.append(0), core.append(1)
    (dispatch,) = core.sender.poll(core.now, core.nodes)
    core.accumulator.complete(ended, BatchOutcome(error=ProducerClosedError("closed")))
    assert core.sender.without_done(1, dispatch.batches) == [live]
    assert core.accumulator.pinned == {live}


def test_a_batch_past_its_time_fails_with_that_when_its_connection_ends() -> None:
    core = Core((1, 1), delivery_timeout=10)
    late = core.append(0)
    (first,) = core.poll()
    core.now += 9
    core.append(1)
    (second,) = core.poll()
    core.now += 2
    core.sender.on_failure(1, second.batches, NodeDisconnectedError("gone"), core.now)
    assert isinstance(error_of(late), DeliveryTimeoutError)
    core.sender.on_failure(1, first.batches, NodeDisconnectedError("gone"), core.now)
    assert isinstance(error_of(late), DeliveryTimeoutError)
