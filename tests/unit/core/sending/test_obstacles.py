"""The cause of each wait of a batch is named, and a wait that nothing ends is found."""

from __future__ import annotations

from math import inf

import pytest
from support.liveness_rule import unattended

from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.core.sending.idempotence import ProducerIdentity, Sequencer
from aioproducer.core.sending.reasons import Obstacle
from aioproducer.core.transactions.rules import Rpc
from aioproducer.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    DeliveryTimeoutError,
    NodeDisconnectedError,
)

from ..support import Core
from ..transactions.transaction_stage import Stage


def obstacle(core: Core, batch: ProducerBatch) -> Obstacle:
    return core.sender.wait_of(batch).obstacle


def test_a_batch_waits_for_its_turn_then_for_the_response() -> None:
    core = Core((1,))
    batch = core.append()
    assert obstacle(core, batch) is Obstacle.TURN
    (dispatch,) = core.poll()
    assert obstacle(core, batch) is Obstacle.RESPONSE
    core.answer(dispatch, 19)
    assert obstacle(core, batch) is Obstacle.RETRY


def test_a_batch_waits_for_a_connection_and_for_a_leader() -> None:
    core = Core((1, -1))
    core.nodes.unready[1] = inf
    connecting, leaderless = core.append(0), core.append(1)
    core.poll()
    assert obstacle(core, connecting) is Obstacle.CONNECTION
    assert obstacle(core, leaderless) is Obstacle.LEADER


def test_a_batch_waits_for_the_producer_id_and_its_expiry_says_why_there_is_none() -> None:
    core = Core((1,), sequencer=Sequencer(5))
    batch = core.append()
    core.poll()
    core.sender.producer_id.on_sent()
    error = CoordinatorLoadInProgressError("loading")
    core.sender.on_identity_failure(error, core.now)
    assert core.sender.wait_of(batch) == (Obstacle.PRODUCER_ID, error)
    core.now += 121
    core.poll()
    assert batch.outcome is not None
    assert isinstance(batch.outcome.error, DeliveryTimeoutError)
    assert "producer id" in batch.outcome.error.message
    assert "loading" in batch.outcome.error.message


def test_a_batch_waits_for_the_first_one_under_an_epoch() -> None:
    core = Core((1,), sequencer=Sequencer(5))
    core.sender.on_identity(ProducerIdentity(9, 0))
    core.append()
    core.poll()
    later = core.append()
    core.poll()
    assert obstacle(core, later) is Obstacle.EARLIER_BATCH


def test_a_batch_waits_for_the_coordinator_with_the_error_of_the_request_for_its_partition() -> (
    None
):
    stage = Stage(level=1).begun()
    batch = stage.core.append()
    request = stage.request(Rpc.ADD_PARTITIONS)
    stage.core.poll()
    assert stage.core.sender.wait_of(batch) == (Obstacle.COORDINATOR, None)
    stage.respond(request, 51)
    stage.core.poll()
    wait = stage.core.sender.wait_of(batch)
    assert wait.obstacle is Obstacle.COORDINATOR
    assert isinstance(wait.error, ConcurrentTransactionsError)


def test_a_retry_waits_for_the_new_id_and_a_later_batch_for_the_earlier_one() -> None:
    core = Core((1,), sequencer=Sequencer(5))
    core.sender.on_identity(ProducerIdentity(9, 0))
    retried = core.append()
    (dispatch,) = core.poll()
    assert core.metadata.on_other_cluster is not None
    core.metadata.on_other_cluster()
    later = core.append()
    core.poll()
    assert obstacle(core, later) is Obstacle.EARLIER_BATCH
    core.sender.on_failure(1, dispatch.batches, NodeDisconnectedError("gone"), core.now)
    core.now += 1
    core.poll()
    assert obstacle(core, retried) is Obstacle.PRODUCER_ID


@pytest.mark.parametrize(
    ("at", "dialed", "is_attended"),
    [(inf, set(), False), (inf, {1}, True), (150.0, set(), True)],
    ids=["nothing under way", "dial in progress", "timer"],
)
def test_a_wait_for_a_connection_that_nothing_ends_is_found(
    at: float, dialed: set[int], is_attended: bool
) -> None:
    core = Core((1,))
    nodes = core.nodes
    nodes.unready, nodes.dialed = {1: at}, dialed
    batch = core.append()
    core.poll()
    found = unattended(core.sender, nodes, core.now)
    assert [each for each, _ in found] == ([] if is_attended else [batch])


@pytest.mark.parametrize("is_wanted", [True, False])
def test_after_a_rebootstrap_a_batch_waits_for_the_metadata_that_have_its_leader(
    is_wanted: bool,
) -> None:
    core = Core((1,))
    core.nodes.unready = {1: inf}
    batch = core.append()
    core.poll()
    core.nodes.known = ()
    if is_wanted:
        core.metadata.request_update()
    found = unattended(core.sender, core.nodes, core.now)
    assert [each for each, _ in found] == ([] if is_wanted else [batch])


def test_a_wait_for_an_earlier_batch_that_only_another_partition_has_is_found() -> None:
    core = Core((1, 1), sequencer=Sequencer(5))
    core.sender.on_identity(ProducerIdentity(9, 0))
    core.append(0)
    core.poll()
    later = core.append(0)
    core.poll()
    assert not list(unattended(core.sender, core.nodes, core.now))
    (first,) = core.accumulator.pinned
    core.append(1)
    core.poll()
    core.accumulator.pinned.discard(first)
    assert [each for each, _ in unattended(core.sender, core.nodes, core.now)] == [later]
