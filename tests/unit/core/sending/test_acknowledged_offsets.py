"""A loss is reported when it is proven; what may have another cause is a warning."""

from __future__ import annotations

from uuid import UUID

import pytest

from aioproducer.core.sending.actions import Dispatch
from aioproducer.core.sending.idempotence import ExpiredProducer, ProducerIdentity, Sequencer
from aioproducer.types import TopicPartition
from aioproducer.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

from ..support import Core

PLACE = TopicPartition("t", 0)
NOT_ENOUGH_REPLICAS, OUT_OF_ORDER, UNKNOWN_PRODUCER_ID = 19, 45, 59


def core_with_acknowledged(offset: int, *, sequencer: Sequencer | None = None) -> Core:
    core = Core((1,), sequencer=sequencer or Sequencer(5))
    core.sender.on_identity(ProducerIdentity(9, 0))
    answer(core, sent(core), offset=offset)
    return core


def sent(core: Core) -> Dispatch:
    core.append()
    (dispatch,) = core.poll()
    return dispatch


def answer(
    core: Core, dispatch: Dispatch, code: int = 0, *, offset: int = -1, log_start: int = -1
) -> None:
    partition = PartitionProduceResponse(
        index=0, error_code=code, base_offset=offset, log_start_offset=log_start
    )
    topic = TopicProduceResponse(name="t", partition_responses=[partition])
    response = ProduceResponse(responses=[topic])
    core.sender.on_response(1, dispatch.batches, response, core.now)


@pytest.mark.parametrize("code", [OUT_OF_ORDER, UNKNOWN_PRODUCER_ID])
@pytest.mark.parametrize("log_start", [-1, 0, 41, 42, 100])
def test_unknown_producer_is_a_warning_and_its_batch_goes_out_under_a_new_epoch(
    code: int, log_start: int
) -> None:
    core = core_with_acknowledged(41)
    refused = sent(core)
    answer(core, refused, code, log_start=log_start)
    core.now += 2
    (again,) = core.poll()
    assert again.batches == refused.batches
    assert (again.batches[0].producer_epoch, again.batches[0].base_sequence) == (1, 0)
    answer(core, again, offset=100)
    assert core.data_losses == []
    (expired,) = core.expired_producers
    assert expired == ExpiredProducer(PLACE, 41, None if log_start < 0 else log_start)
    assert expired.is_retention is (log_start > 41)
    assert ("deleted" in str(expired)) is (log_start > 41)


@pytest.mark.parametrize("assigned", [0, 40, 41])
def test_acknowledged_offset_that_is_assigned_again_is_a_loss(assigned: int) -> None:
    core = core_with_acknowledged(41)
    refused = sent(core)
    answer(core, refused, OUT_OF_ORDER, log_start=0)
    assert core.data_losses == []
    core.now += 2
    (again,) = core.poll()
    answer(core, again, offset=assigned)
    assert core.data_losses == [PLACE]
    answer(core, sent(core), offset=assigned + 1)
    assert core.data_losses == [PLACE]


def test_loss_is_reported_also_where_no_sequence_was_refused() -> None:
    core = core_with_acknowledged(41)
    answer(core, sent(core), offset=40)
    assert core.data_losses == [PLACE]
    assert core.expired_producers == []


def test_offset_of_a_batch_that_is_answered_late_is_no_loss() -> None:
    core = core_with_acknowledged(41)
    first, second = sent(core), sent(core)
    answer(core, second, offset=43)
    answer(core, first, offset=42)
    assert core.data_losses == []


def test_topic_created_anew_begins_at_0() -> None:
    core = core_with_acknowledged(41)
    assert core.metadata.on_recreated is not None
    core.metadata.on_recreated("t")
    answer(core, sent(core), offset=0)
    assert core.data_losses == []


def test_batch_that_was_written_to_the_topic_before_it_was_created_anew_proves_nothing() -> None:
    core = core_with_acknowledged(41)
    old = sent(core)
    old.batches[0].topic_id = UUID(int=1)
    assert core.metadata.on_recreated is not None
    core.metadata.on_recreated("t")
    answer(core, old, offset=42)
    new = sent(core)
    new.batches[0].topic_id = UUID(int=2)
    answer(core, new, offset=0)
    assert core.data_losses == []


def test_other_cluster_assigns_its_own_offsets() -> None:
    core = core_with_acknowledged(41)
    assert core.metadata.on_other_cluster is not None
    core.metadata.on_other_cluster()
    core.sender.on_identity(ProducerIdentity(4, 0))
    answer(core, sent(core), offset=0)
    assert core.data_losses == []


def test_batches_without_sequences_may_be_written_in_any_order() -> None:
    core = core_with_acknowledged(41, sequencer=Sequencer(5, idempotent=False))
    answer(core, sent(core), offset=40)
    assert core.data_losses == []
