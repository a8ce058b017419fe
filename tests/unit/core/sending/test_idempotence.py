"""Sequences: given out in order, never reused, restarted only when nothing is at stake."""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import inf
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.core.sending.actions import RECHECK_S, Connect, Dispatch
from aioproducer.core.sending.idempotence import MAX_EPOCH, ProducerIdentity, Sequencer
from aioproducer.core.sending.reasons import Obstacle
from aioproducer.errors import (
    BatchRefusedError,
    ClusterAuthorizationFailedError,
    DeliveryTimeoutError,
    InvalidRequestError,
    KafkaError,
    NodeDisconnectedError,
    NotCoordinatorError,
    OutOfOrderSequenceNumberError,
    UnknownServerError,
    UnsupportedVersionError,
)
from aioproducer.records.batch import parse_header
from aioproducer.testing.broker.producers import ProducerBatchKey, ProducerStates, sequence_after
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.types import Persistence
from aioproducer.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

from ..support import Core

NOT_LEADER, NOT_ENOUGH_REPLICAS, INVALID_ID, UNKNOWN_TOPIC_ID = 6, 19, 49, 100


def idempotent_core(**options: object) -> Core:
    core = Core((1,), sequencer=Sequencer(5), **options)  # type: ignore[arg-type]
    core.sender.on_identity(ProducerIdentity(9, 0))
    return core


def answer(code: int = 0, offset: int = 0, index: int = 0) -> ProduceResponse:
    partition = PartitionProduceResponse(
        index=index, error_code=code, base_offset=-1 if code else offset
    )
    return ProduceResponse(
        responses=[TopicProduceResponse(name="t", partition_responses=[partition])]
    )


def acknowledged(core: Core) -> None:
    """One batch there and back: from then on several may be in flight."""
    core.append()
    (dispatch,) = core.poll()
    core.sender.on_response(1, dispatch.batches, answer(), core.now)


def core_that_writes_by_name() -> Core:
    """A core with an acknowledged batch, whose requests have no topic ids."""
    core = idempotent_core()
    core.topic_id = UUID(int=0)
    acknowledged(core)
    return core


def recreate(core: Core, topic: str) -> None:
    assert core.metadata.on_recreated is not None
    core.metadata.on_recreated(topic)


def stamps(batch: ProducerBatch) -> tuple[int, int, int]:
    return batch.producer_id, batch.producer_epoch, batch.base_sequence


def test_nothing_goes_out_before_the_producer_id_is_there() -> None:
    core = Core((1,), sequencer=Sequencer(5))
    batch = core.append()
    assert core.poll() == []
    assert core.identity_requests == 1
    core.sender.producer_id.on_sent()
    core.poll()
    assert core.identity_requests == 1
    core.sender.on_identity(ProducerIdentity(9, 0))
    (dispatch,) = core.poll()
    assert dispatch.batches == [batch]
    assert stamps(batch) == (9, 0, 0)


def test_a_failed_request_for_the_id_is_repeated_after_the_backoff() -> None:
    core = Core((1,), sequencer=Sequencer(5))
    core.append()
    core.poll()
    core.sender.producer_id.on_sent()
    core.sender.on_identity_failure(NotCoordinatorError("not here"), core.now)
    core.poll()
    assert core.identity_requests == 1
    assert core.now < core.sender.next_deadline(core.now, core.nodes) <= core.now + 0.13
    core.now += 0.13
    core.poll()
    assert core.identity_requests == 2


def refuse_producer_id(core: Core) -> None:
    core.poll()
    core.sender.producer_id.on_sent()
    core.sender.on_identity_failure(ClusterAuthorizationFailedError("no"), core.now)


def test_a_record_fails_when_its_producer_may_not_have_an_id() -> None:
    core = Core((1,), sequencer=Sequencer(5))
    batch = core.append()
    refuse_producer_id(core)
    assert batch.outcome is not None
    assert isinstance(batch.outcome.error, ClusterAuthorizationFailedError)
    assert batch.outcome.error.persistence is Persistence.NOT_PERSISTED
    assert core.sender.fatal_error is None


def test_after_a_refused_producer_id_the_next_record_asks_again() -> None:
    core = Core((1,), sequencer=Sequencer(5))
    core.append()
    refuse_producer_id(core)
    core.now += 1.2
    core.poll()
    assert core.identity_requests == 1
    assert core.sender.next_deadline(core.now, core.nodes) == inf
    batch = core.append()
    core.poll()
    assert core.identity_requests == 2
    core.sender.on_identity(ProducerIdentity(9, 0))
    (dispatch,) = core.poll()
    assert dispatch.batches == [batch]


def test_a_refused_producer_id_fails_what_waits_for_it_and_nothing_in_flight() -> None:
    core = Core((1, 1), sequencer=Sequencer(5))
    core.sender.on_identity(ProducerIdentity(9, MAX_EPOCH))
    core.append(0)
    (bad,) = core.poll()
    in_flight = core.append(1)
    (sent,) = core.poll()
    core.sender.on_response(1, bad.batches, answer(87), core.now)
    waiting = core.append(0)
    refuse_producer_id(core)
    assert waiting.outcome is not None
    assert isinstance(waiting.outcome.error, ClusterAuthorizationFailedError)
    assert in_flight.outcome is None
    core.sender.on_response(1, sent.batches, answer(index=1), core.now)
    assert in_flight.outcome is not None
    assert in_flight.outcome.error is None


def test_a_refused_producer_id_is_not_asked_for_while_all_records_are_in_flight() -> None:
    core = Core((1, 1), sequencer=Sequencer(5))
    core.sender.on_identity(ProducerIdentity(9, MAX_EPOCH))
    core.append(0)
    (bad,) = core.poll()
    core.append(1)
    core.poll()
    core.sender.on_response(1, bad.batches, answer(87), core.now)
    core.append(0)
    refuse_producer_id(core)
    asked = core.identity_requests
    core.now += 1.2
    core.poll()
    assert core.identity_requests == asked
    core.append(0)
    core.poll()
    assert core.identity_requests == asked + 1


@pytest.mark.parametrize("error", [InvalidRequestError("no"), UnknownServerError("no")])
def test_a_producer_id_that_is_refused_for_good_ends_the_producer(error: KafkaError) -> None:
    core = Core((1,), sequencer=Sequencer(5))
    core.append()
    core.poll()
    core.sender.producer_id.on_sent()
    core.sender.on_identity_failure(error, core.now)
    assert core.sender.fatal_error is error


def test_the_request_for_an_id_has_a_timer_while_every_node_backs_off() -> None:
    core = Core((1,), sequencer=Sequencer(5))
    core.append()
    core.nodes.unready = {1: inf, 2: core.now + 0.3, 3: core.now + 0.5}
    core.nodes.known = (2, 3)
    core.sender.poll(core.now, core.nodes)
    assert core.sender.next_deadline(core.now, core.nodes) == core.now + 0.3
    core.now += 0.3
    assert core.sender.poll(core.now, core.nodes)[-1] == Connect(2)


def test_the_request_for_an_id_has_a_timer_while_a_dial_drags_on() -> None:
    core = Core((1,), sequencer=Sequencer(5))
    core.append()
    core.nodes.unready = {1: inf, 2: inf, 3: inf}
    assert core.sender.poll(core.now, core.nodes)[-1] == Connect(1)
    assert core.sender.next_deadline(core.now, core.nodes) == core.now + RECHECK_S


def test_an_identity_that_a_drain_gives_up_is_asked_for_in_the_same_turn() -> None:
    core = Core((1,), sequencer=Sequencer(5))
    core.sender.on_identity(ProducerIdentity(9, MAX_EPOCH))
    acknowledged(core)
    failing = core.append()
    (dispatch,) = core.poll()
    core.answer(dispatch, 10)
    assert failing.done
    core.append()
    core.poll()
    assert core.identity_requests == 1


def test_an_id_that_was_asked_for_before_the_cluster_changed_is_not_used() -> None:
    core = Core((1,), sequencer=Sequencer(5))
    batch = core.append()
    core.poll()
    core.sender.producer_id.on_sent()
    assert core.metadata.on_other_cluster is not None
    core.metadata.on_other_cluster()
    core.sender.on_identity(ProducerIdentity(9, 0))
    assert core.poll() == []
    assert core.identity_requests == 2
    core.sender.producer_id.on_sent()
    core.sender.on_identity(ProducerIdentity(4, 0))
    core.poll()
    assert stamps(batch) == (4, 0, 0)


def test_a_topic_created_anew_starts_over_when_nothing_is_on_the_wire() -> None:
    core = idempotent_core()
    acknowledged(core)
    core.append()
    (first,) = core.poll()
    core.append()
    (second,) = core.poll()
    recreate(core, "t")
    third = core.append()
    assert core.poll() == []
    core.sender.on_response(1, first.batches, answer(), core.now)  # in the log that is gone
    core.sender.on_response(1, second.batches, answer(UNKNOWN_TOPIC_ID), core.now)
    core.now += 1
    (again,) = core.poll()
    assert again.batches == second.batches
    assert stamps(second.batches[0]) == (9, 1, 0)
    core.sender.on_response(1, again.batches, answer(), core.now)
    core.poll()
    assert stamps(third) == (9, 1, 1)
    core.append()
    assert len(core.poll()) == 1  # several are in flight, as one has been acknowledged


def test_batch_that_may_be_in_the_topic_created_anew_keeps_its_sequence() -> None:
    core = core_that_writes_by_name()
    core.append()
    (first,) = core.poll()
    core.sender.on_failure(1, first.batches, NodeDisconnectedError("gone"), core.now)
    recreate(core, "t")
    core.now += 1
    (again,) = core.poll()
    assert again.batches == first.batches
    assert stamps(first.batches[0]) == (9, 0, 1)


def test_batch_overtaken_in_the_topic_created_anew_is_not_written_after_the_later_one() -> None:
    core = core_that_writes_by_name()
    first = core.append()
    (earlier,) = core.poll()
    core.append()
    (later,) = core.poll()
    recreate(core, "t")
    core.sender.on_response(1, earlier.batches, answer(NOT_ENOUGH_REPLICAS), core.now)
    core.sender.on_response(1, later.batches, answer(), core.now)
    assert first.done
    core.now += 1
    assert core.poll() == []


@pytest.mark.parametrize("refused_before", [False, True])
def test_batch_that_may_be_the_first_one_in_the_topic_created_anew_is_not_written_twice(
    refused_before: bool,
) -> None:
    core = core_that_writes_by_name()
    first = core.append()
    (earlier,) = core.poll()
    second = core.append()
    (later,) = core.poll()
    if refused_before:
        core.sender.on_response(1, earlier.batches, answer(NOT_ENOUGH_REPLICAS), core.now)
    else:
        core.sender.on_failure(1, earlier.batches, NodeDisconnectedError("gone"), core.now)
    core.sender.on_failure(1, later.batches, NodeDisconnectedError("gone"), core.now)
    recreate(core, "t")
    core.now += 1
    (again,) = core.poll()
    assert again.batches == earlier.batches
    core.sender.on_response(1, again.batches, answer(45), core.now)
    assert first.done  # a later one is in the log
    core.now += 1
    (again,) = core.poll()
    assert again.batches == later.batches
    assert stamps(second) == (9, 0, 2)
    core.sender.on_response(1, again.batches, answer(46), core.now)
    assert second.outcome is not None
    assert second.outcome.error is None
    third = core.append()
    core.poll()
    assert stamps(third) == (9, 0, 3)


def refused_before_a_later_one(core: Core) -> tuple[ProducerBatch, ProducerBatch]:
    """Two batches that may be written, of which the first is refused as out of order then."""
    first = core.append()
    (earlier,) = core.poll()
    second = core.append()
    (later,) = core.poll()
    core.sender.on_response(1, earlier.batches, answer(NOT_LEADER), core.now)
    core.sender.on_response(1, later.batches, answer(NOT_LEADER), core.now)
    core.now += 1
    core.learn((1, 2, 3))
    refuse_again(core, first)
    return first, second


def refuse_again(core: Core, batch: ProducerBatch) -> None:
    core.now += 1
    (again,) = core.poll()
    assert again.batches == [batch]
    core.sender.on_response(1, again.batches, answer(45), core.now)


def test_batch_refused_by_a_topic_created_anew_is_not_numbered_anew_before_metadata() -> None:
    core = core_that_writes_by_name()
    first, second = refused_before_a_later_one(core)
    assert core.metadata.is_awaited
    refuse_again(core, first)
    assert stamps(first) == (9, 0, 1)
    core.learn((1, 2, 3))
    recreate(core, "t")
    refuse_again(core, first)
    assert first.done  # the later one may be in the new log
    assert stamps(second) == (9, 0, 2)


def test_batch_that_expires_before_metadata_does_not_renumber_a_later_one_that_may_be_written() -> (
    None
):
    core = core_that_writes_by_name()
    first = core.append()
    (earlier,) = core.poll()
    core.now += 1
    second = core.append()
    (later,) = core.poll()
    core.sender.on_response(1, earlier.batches, answer(NOT_ENOUGH_REPLICAS), core.now)
    core.sender.on_failure(1, later.batches, NodeDisconnectedError("gone"), core.now)
    refuse_again(core, first)
    assert not first.done
    core.now = core.accumulator.next_expiry_at
    (again,) = core.poll()
    assert first.done
    assert again.batches == [second]
    assert stamps(second) == (9, 0, 2)


def test_batch_refused_by_a_topic_that_newer_metadata_keep_is_numbered_anew() -> None:
    core = core_that_writes_by_name()
    first, second = refused_before_a_later_one(core)
    core.learn((1, 2, 3))
    refuse_again(core, first)
    assert not first.done
    assert stamps(first) == (9, 1, 0)
    assert stamps(second) == (9, 1, 1)


def test_batch_whose_request_was_prepared_for_a_deleted_topic_is_numbered_anew() -> None:
    core = idempotent_core()
    acknowledged(core)
    core.append()
    (first,) = core.poll()
    later = core.append()
    (prepared,) = core.sender.poll(core.now, core.nodes)
    assert isinstance(prepared, Dispatch)
    assert prepared.batches == [later]
    recreate(core, "t")
    core.sender.on_response(1, first.batches, answer(UNKNOWN_TOPIC_ID), core.now)
    assert core.sender.without_outdated(1, prepared.batches, core.now) == []
    core.now += 1
    (again,) = core.poll()
    assert again.batches == first.batches
    assert stamps(first.batches[0]) == (9, 1, 0)
    assert stamps(later) == (9, 1, 1)


def test_prepared_requests_of_other_topics_keep_their_batches() -> None:
    core = idempotent_core()
    core.append()
    (prepared,) = core.sender.poll(core.now, core.nodes)
    assert isinstance(prepared, Dispatch)
    recreate(core, "u")
    assert core.sender.without_outdated(1, prepared.batches, core.now) == prepared.batches


def test_another_topic_created_anew_changes_nothing() -> None:
    core = idempotent_core()
    acknowledged(core)
    recreate(core, "u")
    batch = core.append()
    core.poll()
    assert stamps(batch) == (9, 0, 1)


def test_in_another_cluster_every_partition_waits_for_a_new_id() -> None:
    core = idempotent_core()
    acknowledged(core)
    batch = core.append()
    (lost,) = core.poll()
    core.sender.on_failure(1, lost.batches, NodeDisconnectedError("gone"), core.now)
    assert core.metadata.on_other_cluster is not None
    core.metadata.on_other_cluster()
    core.now += 1
    assert core.poll() == []
    assert core.identity_requests == 1
    core.sender.on_identity(ProducerIdentity(9, 0))
    (again,) = core.poll()
    assert again.batches == [batch]
    assert stamps(batch) == (9, 0, 0)


def test_where_brokers_give_no_ids_batches_go_out_without_if_that_may_be() -> None:
    reported: list[str] = []
    core = Core((1,), sequencer=Sequencer(5, lambda: reported.append("without")))
    core.append()
    core.poll()
    core.sender.on_identity_failure(UnsupportedVersionError("no InitProducerId"), core.now)
    batches: list[ProducerBatch] = []
    for _ in range(7):
        batches += [batch for dispatch in core.poll() for batch in dispatch.batches]
        core.append()
    assert len(batches) == 7
    assert not any(batch.has_sequence for batch in batches)
    assert (reported, core.identity_requests, core.sender.fatal_error) == (["without"], 1, None)


def test_where_brokers_give_no_ids_a_producer_that_needs_them_fails() -> None:
    core = Core((1,), sequencer=Sequencer(5))
    core.append()
    core.poll()
    core.sender.on_identity_failure(UnsupportedVersionError("no InitProducerId"), core.now)
    assert isinstance(core.sender.fatal_error, UnsupportedVersionError)


def test_a_sequence_that_is_out_is_not_given_up() -> None:
    core = Core((1,), sequencer=Sequencer(5, lambda: None))
    core.sender.on_identity(ProducerIdentity(9, 0))
    core.append()
    core.poll()
    assert core.metadata.on_other_cluster is not None
    core.metadata.on_other_cluster()
    core.sender.on_identity_failure(UnsupportedVersionError("no InitProducerId"), core.now)
    assert isinstance(core.sender.fatal_error, UnsupportedVersionError)


def test_sequences_count_records_per_partition() -> None:
    core = idempotent_core()
    acknowledged(core)
    core.append()
    core.append()
    (first,) = core.poll()
    core.append()
    (second,) = core.poll()
    assert stamps(first.batches[0]) == (9, 0, 1)
    assert stamps(second.batches[0]) == (9, 0, 3)


def test_until_the_first_acknowledgement_one_batch_is_in_flight() -> None:
    core = idempotent_core()
    core.append()
    (first,) = core.poll()
    core.append()
    assert core.poll() == []
    core.sender.on_response(1, first.batches, answer(), core.now)
    assert len(core.poll()) == 1


def test_after_a_new_epoch_one_batch_is_in_flight_until_it_is_acknowledged() -> None:
    core = idempotent_core()
    acknowledged(core)
    core.append()
    (bad,) = core.poll()
    core.sender.on_response(1, bad.batches, answer(87), core.now)
    core.append()
    (first,) = core.poll()
    assert stamps(first.batches[0]) == (9, 1, 0)
    core.append()
    assert core.poll() == []
    core.sender.on_response(1, first.batches, answer(), core.now)
    core.append()
    assert len(core.poll()) == 1
    core.append()
    assert len(core.poll()) == 1


def test_at_most_five_batches_of_a_partition_are_in_flight() -> None:
    core = idempotent_core()
    acknowledged(core)
    dispatched = 0
    for _ in range(8):
        core.append()
        dispatched += len(core.poll())
    assert dispatched == 5


def test_a_retry_keeps_its_sequence_and_goes_out_alone_and_first() -> None:
    core = idempotent_core()
    acknowledged(core)
    dispatches = []
    for _ in range(3):
        core.append()
        dispatches += core.poll()
    for dispatch in reversed(dispatches):
        core.sender.on_failure(1, dispatch.batches, NodeDisconnectedError("gone"), core.now)
    core.now += 2
    order = []
    for _ in range(3):
        (again,) = core.poll()
        assert core.poll() == []
        order.append(again.batches[0].base_sequence)
        core.sender.on_response(1, again.batches, answer(), core.now)
    assert order == [1, 2, 3]


def test_the_encoded_batch_carries_the_stamp_also_after_it_changed() -> None:
    core = idempotent_core()
    batch = core.append()
    core.poll()
    batch.set_producer(11, 3, 40)
    assert batch.encoded is not None
    header = parse_header(batch.encoded.header + bytes(batch.encoded.body))
    header.check_crc()
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (11, 3, 40)


def test_a_batch_that_failed_unwritten_renumbers_what_follows_under_a_new_epoch() -> None:
    core = idempotent_core()
    acknowledged(core)
    core.append()
    (bad,) = core.poll()
    following = core.append()
    (good,) = core.poll()
    core.sender.on_response(1, bad.batches, answer(87), core.now)
    # The follower is on the wire with the old stamp: nothing may change under it.
    assert stamps(following) == (9, 0, 2)
    core.sender.on_response(1, good.batches, answer(45), core.now)
    core.now += 2
    (again,) = core.poll()
    assert again.batches == [following]
    assert stamps(following) == (9, 1, 0)
    core.sender.on_response(1, again.batches, answer(), core.now)
    assert following.outcome is not None
    assert following.outcome.error is None


def test_a_sequence_that_may_have_been_written_is_never_given_to_other_records() -> None:
    # franz-go #1484: the next batch under the same sequence would be taken for a duplicate.
    core = idempotent_core(delivery_timeout=5.0)
    acknowledged(core)
    lost = core.append()
    core.poll()
    core.now += 5
    core.poll()
    assert lost.record_error(0) is not None
    fresh = core.append()
    (dispatch,) = core.poll()
    assert dispatch.batches == [fresh]
    assert stamps(fresh) == (9, 1, 0)


def test_a_gap_that_was_written_after_all_needs_no_new_epoch() -> None:
    core = idempotent_core(delivery_timeout=5.0)
    acknowledged(core)
    lost = core.append()
    core.poll()
    core.now += 1
    later = core.append()
    (second,) = core.poll()
    core.now += 4
    core.poll()
    assert lost.done
    assert not later.done
    core.sender.on_response(1, second.batches, answer(), core.now)
    fresh = core.append()
    core.poll()
    assert stamps(fresh) == (9, 0, 3)


def test_a_batch_whose_first_attempt_may_yet_be_written_is_not_renumbered() -> None:
    # Both requests may still be at the broker, and be carried out one after the other.
    core = idempotent_core(delivery_timeout=5.0)
    acknowledged(core)
    before = core.append()
    (one,) = core.poll()
    core.now += 1
    batch = core.append()
    (two,) = core.poll()
    for sent in (one, two):
        core.sender.on_failure(1, sent.batches, NodeDisconnectedError("gone"), core.now)
    core.now += 4
    (again,) = core.poll()
    assert before.done
    assert again.batches == [batch]
    core.sender.on_response(1, again.batches, answer(45), core.now)
    error = batch.record_error(0)
    assert error is not None
    assert error.persistence is Persistence.POSSIBLY_PERSISTED
    fresh = core.append()
    core.poll()
    assert stamps(fresh) == (9, 1, 0)


def test_out_of_order_after_a_retry_is_no_loss_and_no_bump() -> None:
    core = idempotent_core()
    acknowledged(core)
    first = core.append()
    (one,) = core.poll()
    second = core.append()
    (two,) = core.poll()
    core.sender.on_response(1, one.batches, answer(19), core.now)
    core.sender.on_response(1, two.batches, answer(45), core.now)
    assert (core.data_losses, core.expired_producers) == ([], [])
    core.now += 2
    (again,) = core.poll()
    assert again.batches == [first]
    core.sender.on_response(1, again.batches, answer(), core.now)
    core.now += 2
    (later,) = core.poll()
    assert later.batches == [second]
    assert stamps(second) == (9, 0, 2)


def test_a_bump_leaves_other_partitions_under_their_epoch_until_they_are_drained() -> None:
    core = Core((1, 1), sequencer=Sequencer(5), delivery_timeout=5.0)
    core.sender.on_identity(ProducerIdentity(9, 0))
    core.append(0)
    (dispatch,) = core.poll()
    core.append(1)
    (other,) = core.poll()
    core.sender.on_response(1, dispatch.batches, answer(87), core.now)
    fresh = core.append(0)
    core.poll()
    assert stamps(fresh) == (9, 1, 0)
    assert stamps(other.batches[0]) == (9, 0, 0)
    core.sender.on_response(1, other.batches, answer(index=1), core.now)
    next_one = core.append(1)
    core.poll()
    assert stamps(next_one) == (9, 1, 0)


def test_used_up_epochs_ask_for_a_new_producer_id() -> None:
    core = Core((1,), sequencer=Sequencer(5))
    core.sender.on_identity(ProducerIdentity(9, MAX_EPOCH))
    core.append()
    (dispatch,) = core.poll()
    core.sender.on_response(1, dispatch.batches, answer(87), core.now)
    fresh = core.append()
    assert core.poll() == []
    assert core.identity_requests == 1
    core.sender.on_identity(ProducerIdentity(10, 0))
    core.poll()
    assert stamps(fresh) == (10, 0, 0)


def with_the_last_epoch() -> Core:
    core = Core((1,), sequencer=Sequencer(5))
    core.sender.on_identity(ProducerIdentity(9, MAX_EPOCH))
    acknowledged(core)
    return core


def sent(core: Core) -> Dispatch:
    core.append()
    (dispatch,) = core.poll()
    return dispatch


def test_a_new_producer_id_is_requested_while_the_batch_that_needs_it_backs_off() -> None:
    core = with_the_last_epoch()
    failing, following = sent(core), sent(core)
    core.answer(failing, 10)
    assert core.poll() == []
    assert core.identity_requests == 0  # the follower is on the wire
    core.answer(following, 45)
    assert core.poll() == []
    assert core.identity_requests == 1


def test_a_new_producer_id_is_requested_once_the_last_batch_with_the_old_one_is_acknowledged() -> (
    None
):
    core = with_the_last_epoch()
    first, failing, following = sent(core), sent(core), sent(core)
    core.answer(first, 19)
    core.answer(failing, 10)
    core.now += 0.2
    (again,) = core.poll()
    core.answer(following, 45)
    core.poll()
    assert core.identity_requests == 0
    core.sender.on_acknowledged(again.batches[0], (1, -1, -1), core.now)
    assert core.poll() == []
    assert core.identity_requests == 1


def test_a_new_producer_id_is_requested_once_the_log_that_is_gone_has_no_batch_on_the_wire() -> (
    None
):
    core = with_the_last_epoch()
    first, second = sent(core), sent(core)
    recreate(core, "t")
    core.answer(second, UNKNOWN_TOPIC_ID)
    core.poll()
    assert core.identity_requests == 0
    core.sender.on_acknowledged(first.batches[0], (1, -1, -1), core.now)
    assert core.poll() == []
    assert core.identity_requests == 1


def test_batches_of_another_cluster_wait_for_the_new_id_and_not_for_each_other() -> None:
    core = idempotent_core()
    acknowledged(core)
    first, second = sent(core), sent(core)
    assert core.metadata.on_other_cluster is not None
    core.metadata.on_other_cluster()
    core.answer(first, UNKNOWN_TOPIC_ID)
    assert core.sequencer.obstacle(first.batches[0]) is Obstacle.EARLIER_BATCH
    core.answer(second, UNKNOWN_TOPIC_ID)
    assert core.sequencer.obstacle(first.batches[0]) is Obstacle.PRODUCER_ID


def test_first_batch_that_is_out_of_order_is_no_loss() -> None:
    core = idempotent_core()
    core.append()
    (dispatch,) = core.poll()
    assert not core.sequencer.on_out_of_order(dispatch.batches[0])
    core.sender.on_response(1, dispatch.batches, answer(45), core.now)
    core.now += 2
    assert len(core.poll()) == 1


def test_without_idempotence_a_batch_waits_for_nothing_but_its_turn() -> None:
    core = Core((1,))
    batch = core.append()
    assert core.sequencer.may_drain(batch, core.now, 1)
    assert core.sequencer.obstacle(batch) is Obstacle.TURN


def test_a_producer_without_idempotence_has_no_order_to_keep_or_to_turn_off() -> None:
    core = Core((1,))
    batch = core.append()
    sequencer = core.sequencer
    sequencer.on_drained(batch)
    assert not batch.has_sequence
    assert not sequencer.wants_identity
    assert not sequencer.disable_idempotence()
    assert sequencer.may_renumber(batch)
    assert not sequencer.on_out_of_order(batch)
    assert not sequencer.is_overtaken(batch)
    assert not sequencer.on_acknowledged(batch, core.now)
    assert sequencer.coordinator_error is None


def test_a_batch_that_is_out_of_order_is_sent_again_after_a_backoff_that_grows() -> None:
    core = idempotent_core()
    acknowledged(core)
    batch = core.append()
    waits = []
    for _ in range(3):
        (dispatch,) = core.poll()
        core.sender.on_response(1, dispatch.batches, answer(45), core.now)
        waits.append(batch.retry_at - core.now)
        core.now += 2
    assert [round(wait / 0.1) for wait in waits] == [1, 2, 4]


def test_a_batch_that_is_out_of_order_until_it_expires_says_why() -> None:
    core = idempotent_core()
    acknowledged(core)
    batch = core.append()
    (dispatch,) = core.poll()
    core.sender.on_response(1, dispatch.batches, answer(45), core.now)
    core.now += 200
    core.poll()
    error = batch.outcome.error if batch.outcome else None
    assert isinstance(error, DeliveryTimeoutError)
    assert isinstance(error.__cause__, OutOfOrderSequenceNumberError)


def test_a_batch_that_is_refused_out_of_order_past_its_time_names_the_time_limit() -> None:
    core = idempotent_core()
    acknowledged(core)
    batch = core.append()
    (dispatch,) = core.poll()
    core.now += 200
    core.sender.on_response(1, dispatch.batches, answer(45), core.now)
    error = batch.outcome.error if batch.outcome else None
    assert isinstance(error, OutOfOrderSequenceNumberError)
    assert error.advice is not None and "raise delivery_timeout_ms" in error.advice


def test_a_split_batch_keeps_its_sequences_and_its_order() -> None:
    core = idempotent_core()
    acknowledged(core)
    whole = core.append(value=b"0")
    for number in range(1, 5):
        assert core.append(value=b"%d" % number) is whole
    (dispatch,) = core.poll()
    core.sender.on_response(1, dispatch.batches, answer(10), core.now)
    assert not whole.done
    sent = []
    offset = 100
    while not whole.done:
        (again,) = core.poll()
        (part,) = again.batches
        assert part.encoded is not None
        data = part.encoded.header + bytes(part.encoded.body)
        sent.append((part.base_sequence, [r.value for r in parse_header(data).records()]))
        core.sender.on_response(1, again.batches, answer(offset=offset), core.now)
        offset += part.count
    assert sent == [(1, [b"0", b"1"]), (3, [b"2", b"3", b"4"])]
    places = [whole.outcome_of(index) for index in range(5)]
    assert [p[0].base_offset + p[1] for p in places if p and p[0].base_offset is not None] == [
        100,
        101,
        102,
        103,
        104,
    ]
    assert core.pool.available == core.pool.total


def maybe_written_and_split(core: Core) -> ProducerBatch:
    """A batch of four whose first answer was lost, then refused as too large."""
    acknowledged(core)
    whole = core.append(value=b"0")
    for number in range(1, 4):
        assert core.append(value=b"%d" % number) is whole
    (dispatch,) = core.poll()
    core.sender.on_failure(1, dispatch.batches, NodeDisconnectedError("gone"), core.now)
    core.now += 2
    (again,) = core.poll()
    core.sender.on_response(1, again.batches, answer(10), core.now)
    assert not whole.done
    return whole


def test_a_batch_that_may_be_written_is_split_under_its_sequences() -> None:
    core = idempotent_core()
    whole = maybe_written_and_split(core)
    sent = []
    while not whole.done:
        (again,) = core.poll()
        (part,) = again.batches
        sent.append(stamps(part))
        core.sender.on_response(1, again.batches, answer(), core.now)
    assert sent == [(9, 0, 1), (9, 0, 3)]
    assert all(whole.record_error(index) is None for index in range(4))
    fresh = core.append()
    core.poll()
    assert stamps(fresh) == (9, 0, 5)


def test_parts_of_a_batch_that_is_in_the_log_whole_are_not_numbered_anew() -> None:
    core = idempotent_core()
    whole = maybe_written_and_split(core)
    sent = []
    for _ in range(10):
        for again in core.poll():
            sent.extend(map(stamps, again.batches))
            core.sender.on_response(1, again.batches, answer(45), core.now)
        core.now += 2
    assert whole.done
    assert sent == [(9, 0, 1), (9, 0, 3)]
    errors = [whole.record_error(index) for index in range(4)]
    assert all(e is not None and e.persistence is Persistence.POSSIBLY_PERSISTED for e in errors)
    assert core.data_losses == []


def test_a_later_answer_does_not_let_parts_be_numbered_anew() -> None:
    # It is the proof that the whole batch is in the log.
    core = idempotent_core()
    acknowledged(core)
    whole = core.append(value=b"0")
    core.append(value=b"1")
    (one,) = core.poll()
    core.append()
    (two,) = core.poll()
    core.sender.on_response(1, one.batches, answer(7), core.now)
    core.now += 2
    (again,) = core.poll()
    assert again.batches == [whole]
    core.sender.on_response(1, again.batches, answer(10), core.now)
    core.sender.on_response(1, two.batches, answer(), core.now)
    sent = []
    for _ in range(10):
        for again in core.poll():
            sent.extend(map(stamps, again.batches))
            core.sender.on_response(1, again.batches, answer(45), core.now)
        core.now += 2
    assert sent == [(9, 0, 1), (9, 0, 2)]
    errors = [whole.record_error(index) for index in range(2)]
    assert all(e is not None and e.persistence is Persistence.POSSIBLY_PERSISTED for e in errors)


def test_splitting_ends_with_single_records() -> None:
    core = idempotent_core()
    whole = core.append(value=b"a")
    core.append(value=b"b")
    core.append(value=b"c")
    for _ in range(20):
        for dispatch in core.poll():
            core.sender.on_response(1, dispatch.batches, answer(10), core.now)
        core.now += 2
        if whole.done:
            break
    errors = [whole.record_error(index) for index in range(3)]
    assert all(e is not None and e.persistence is Persistence.NOT_PERSISTED for e in errors)
    assert core.pool.available == core.pool.total


def test_parts_expire_with_the_batch_they_came_from() -> None:
    core = idempotent_core(delivery_timeout=5.0)
    whole = core.append(value=b"a")
    core.append(value=b"b")
    (dispatch,) = core.poll()
    core.now += 1
    core.sender.on_response(1, dispatch.batches, answer(10), core.now)
    core.nodes.unready[1] = core.now + 100
    core.now += 4
    core.poll()
    assert isinstance(whole.record_error(0), DeliveryTimeoutError)
    assert isinstance(whole.record_error(1), DeliveryTimeoutError)


def test_batch_whose_producer_id_is_refused_is_sent_again_under_a_new_one() -> None:
    core = idempotent_core()
    acknowledged(core)
    dispatch = sent(core)
    core.sender.on_response(1, dispatch.batches, answer(INVALID_ID), core.now)
    core.now += 1
    assert core.poll() == []
    assert core.identity_requests == 1
    core.sender.on_identity(ProducerIdentity(10, 0))
    (again,) = core.poll()
    assert again.batches == dispatch.batches
    assert stamps(again.batches[0]) == (10, 0, 0)


def test_refusals_of_the_previous_producer_id_request_no_other_one() -> None:
    core = Core((1,), sequencer=Sequencer(5))
    core.sender.on_identity(ProducerIdentity(9, 0))
    acknowledged(core)
    first, second = sent(core), sent(core)
    core.sender.on_response(1, first.batches, answer(INVALID_ID), core.now)
    core.poll()
    core.sender.on_identity(ProducerIdentity(10, 0))
    core.sender.on_response(1, second.batches, answer(INVALID_ID), core.now)
    core.now += 1
    order = []
    for _ in range(2):
        (dispatch,) = core.poll()
        order += dispatch.batches
        core.sender.on_response(1, dispatch.batches, answer(), core.now)
        core.now += 1
    assert order == [*first.batches, *second.batches]
    assert core.identity_requests == 1


def test_batch_that_may_be_written_is_not_sent_under_a_new_producer_id() -> None:
    core = idempotent_core()
    acknowledged(core)
    dispatch = sent(core)
    core.sender.on_failure(1, dispatch.batches, NodeDisconnectedError(), core.now)
    core.now += 1
    (again,) = core.poll()
    core.sender.on_response(1, again.batches, answer(INVALID_ID), core.now)
    (batch,) = dispatch.batches
    assert batch.outcome is not None and batch.outcome.error is not None
    assert batch.outcome.error.persistence is Persistence.POSSIBLY_PERSISTED
    core.poll()
    core.sender.on_identity(ProducerIdentity(10, 0))
    assert stamps(sent(core).batches[0]) == (10, 0, 0)


@pytest.mark.parametrize("code", [31, 35, 53, 90])
def test_fatal_answers_end_the_producer(code: int) -> None:
    core = idempotent_core()
    core.append()
    (dispatch,) = core.poll()
    core.sender.on_response(1, dispatch.batches, answer(code), core.now)
    assert core.sender.fatal_error is not None
    assert core.sender.fatal_error.code == code  # type: ignore[attr-defined]


# -- every interleaving ---------------------------------------------------------------------------


@dataclass
class Sent:
    """A request as its bytes were when it left: later stamps do not change it."""

    batches: list[ProducerBatch]
    copies: list[bytes]
    broker: Broker
    """Whose log was meant: requests name topics by id."""


class Broker:
    """One partition's log with the rules of a real broker."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.log: list[int] = []

    def produce(self, data: bytes) -> tuple[int, int]:
        """The error code and the base offset."""
        batch = parse_header(data)
        batch.check_crc()
        key = ProducerBatchKey(
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            sequence_after(batch.base_sequence, batch.count - 1),
        )
        try:
            if (written := self.states.find_duplicate(key)) is not None:
                return 46, written.base_offset
        except RefusedError as refused:
            return refused.error.code, -1
        base_offset = len(self.log)
        self.states.remember(key, base_offset, 0)
        self.log += [int(record.value or b"") for record in batch.records()]
        return 0, base_offset


class ExactlyOnce(RuleBasedStateMachine):
    """Whatever is lost, late, refused or expired: each record is written once, in order, or not."""

    expires_producers = False
    """Whether the broker may expire the producer."""

    @initialize()
    def start(self) -> None:
        self.core = idempotent_core(delivery_timeout=20.0, batch_size=100)
        self.broker = Broker()
        self.deleted: list[Broker] = []
        self.wire: list[Sent] = []
        self.zombies: list[Sent] = []
        self.batches: dict[int, tuple[ProducerBatch, int]] = {}
        self.rng = random.Random(3)

    def _poll(self) -> None:
        self.core.nodes.unready = {1: inf} if len(self.wire) >= 5 else {}
        for dispatch in self.core.poll():
            copies = [
                batch.encoded.header + bytes(batch.encoded.body)
                for batch in dispatch.batches
                if batch.encoded is not None
            ]
            self.wire.append(Sent(dispatch.batches, copies, self.broker))

    @rule(count=st.integers(1, 4))
    def send(self, count: int) -> None:
        for _ in range(count):
            number = len(self.batches)
            batch = self.core.append(value=b"%08d" % number)
            self.batches[number] = (batch, batch.count - 1)
        self._poll()

    @rule(seconds=st.sampled_from([0.0, 0.2, 1.5, 21.0]))
    def time_passes(self, seconds: float) -> None:
        self.core.now += seconds
        self._poll()

    @precondition(lambda self: self.wire)
    @rule(code=st.sampled_from([0, 0, 0, 0, 6, 7, 10, 19, 20, 47, 87]), applied=st.booleans())
    def answer(self, code: int, applied: bool) -> None:
        """The oldest request is answered: carried out, refused, or (6, 7, 20) either."""
        sent = self.wire.pop(0)
        answered, offset = code, -1
        if sent.broker in self.deleted and not applied:
            answered = UNKNOWN_TOPIC_ID
        elif code == 0 or (code in {6, 7, 20} and applied):
            done, offset = sent.broker.produce(sent.copies[0])
            answered = code if done in {0, 46} and code else done
        self.core.sender.on_response(1, sent.batches, answer(answered, offset), self.core.now)

    @precondition(lambda self: self.wire)
    @rule(bad=st.sets(st.integers(0, 4), min_size=1))
    def bad_records_are_named(self, bad: set[int]) -> None:
        """The oldest request is refused because of some of its records."""
        sent = self.wire.pop(0)
        code = UNKNOWN_TOPIC_ID if sent.broker in self.deleted else 87
        refusal = answer(code)
        named = [BatchIndexAndErrorMessage(index, "bad") for index in bad]
        refusal.responses[0].partition_responses[0].record_errors = named
        self.core.sender.on_response(1, sent.batches, refusal, self.core.now)

    @precondition(lambda self: self.wire)
    @rule(carried_out=st.integers(0, 5), late=st.booleans())
    def connection_breaks(self, carried_out: int, late: bool) -> None:
        """Some requests were carried out, some never will be, some will be long after."""
        lost, self.wire = self.wire, []
        for sent in lost[:carried_out]:
            sent.broker.produce(sent.copies[0])
        if late:
            self.zombies += lost[carried_out:]
        for sent in lost:
            error = NodeDisconnectedError("gone")
            self.core.sender.on_failure(1, sent.batches, error, self.core.now)

    @precondition(lambda self: self.zombies)
    @rule()
    def zombie_arrives(self) -> None:
        zombie = self.zombies.pop(0)
        zombie.broker.produce(zombie.copies[0])

    @precondition(lambda self: not self.wire)
    @rule()
    def a_day_passes(self) -> None:
        """The broker expires the producer; what was on its way has arrived, or never will."""
        self.zombies.clear()
        self.core.now += 86_400.0
        self.broker.states.remove(9)
        self._poll()
        self._first_of_several_is_refused()

    def _first_of_several_is_refused(self) -> None:
        for _ in range(3):
            self.send(2)
        if self.wire:
            self.answer(19, False)

    @rule()
    def topic_is_created_anew(self) -> None:
        """Requests on their way were carried out before that, or never will be."""
        self.deleted.append(self.broker)
        self.broker = Broker()
        self.core.sequencer.on_recreated("t")
        self.core.accumulator.on_metadata_update(self.core.now)

    @invariant()
    def nothing_is_written_twice_or_out_of_order(self) -> None:
        if hasattr(self, "broker"):
            for broker in (*self.deleted, self.broker):
                assert broker.log == sorted(set(broker.log))

    @invariant()
    def every_outcome_is_true(self) -> None:
        if not hasattr(self, "broker"):
            return
        log = {number for broker in (*self.deleted, self.broker) for number in broker.log}
        for number, (batch, place) in self.batches.items():
            found = batch.outcome_of(place)
            if found is None:
                continue
            error: KafkaError | None = batch.record_error(place)
            if error is None:
                assert number in log
            elif error.persistence is Persistence.NOT_PERSISTED:
                assert number not in log
                # What is not to blame is sent again, if that keeps the order.
                assert self.expires_producers or not isinstance(error, BatchRefusedError)

    def teardown(self) -> None:
        if not hasattr(self, "broker"):
            return
        # From here on the broker behaves: what is sent now arrives, and soon.
        self.send(2)
        healed_at = self.core.now
        for _ in range(400):
            if not self.core.accumulator.has_incomplete and not self.wire:
                break
            self.core.now += 0.1
            self._poll()
            if self.wire:
                self.answer(0, True)
                self.nothing_is_written_twice_or_out_of_order()
        assert not self.core.accumulator.has_incomplete
        assert self.core.now < healed_at + 15
        for batch, place in list(self.batches.values())[-2:]:
            assert batch.record_error(place) is None
        assert self.core.pool.available == self.core.pool.total
        while self.zombies:
            self.zombie_arrives()
        self.nothing_is_written_twice_or_out_of_order()
        self.every_outcome_is_true()


class ExpiringBroker(ExactlyOnce):
    """A broker that may expire the producer at any time, but answers everything as it came.

    Order is not the client's to keep where answers get lost as well: what is sent again because it
    may not be written would be written twice.
    """

    expires_producers = True
    connection_breaks = zombie_arrives = topic_is_created_anew = None  # type: ignore[assignment]

    @precondition(lambda self: self.wire)
    @rule(code=st.sampled_from([0, 0, 0, 10, 19, 19, 47, 87]))
    def answer(self, code: int, applied: bool = True) -> None:
        """The oldest request is answered: carried out or refused."""
        super().answer(code, applied)

    @rule()
    def broker_expires_producer(self) -> None:
        """Not with a retry under way: nothing could keep that from being written out of order."""
        self.send(1)
        while self.wire:
            self.answer(0)
        self.broker.states.remove(9)
        self._first_of_several_is_refused()


ExactlyOnce.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestExactlyOnce = ExactlyOnce.TestCase
ExpiringBroker.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestExpiringBroker = ExpiringBroker.TestCase


def test_a_batch_without_a_sequence_has_overtaken_none_when_it_is_acknowledged() -> None:
    core = idempotent_core()
    assert core.sequencer.on_acknowledged(core.append(), core.now) == ()
