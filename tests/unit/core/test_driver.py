"""The order and the times of turns: decided without tasks, timers or connections."""

from __future__ import annotations

from math import inf

import pytest
from support import liveness_rule
from support.liveness_rule import after_turn

from aioproducer.core.driver import Driver, Turns
from aioproducer.core.metadata.requests import MetadataNodes
from aioproducer.core.sending.actions import (
    RECHECK_S,
    Action,
    Connect,
    CoordinatorUnreachable,
    Dispatch,
    NoBrokerReady,
    Rebootstrap,
    RequestMetadata,
    RequestOfCoordinator,
)
from aioproducer.core.transactions.rules import Rpc
from aioproducer.errors import NodeDisconnectedError, RebootstrapRequiredError
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata

from .support import metadata_response
from .transactions.transaction_stage import T0, Stage

ASLEEP = Turns(inf, inf, inf)


def broken_rules(stage: Stage, driver: Driver, timers: Turns) -> list[str]:
    return list(liveness_rule.broken_rules(driver, stage.core.now, stage.core.nodes, timers))


def poll(driver: Driver, now: float, nodes: MetadataNodes) -> list[Action]:
    """Return the actions of all deciders."""
    actions = driver.sender.poll(now, nodes) + driver.metadata.poll(now, nodes)
    if driver.transactions is not None:
        actions += driver.transactions.poll(now, nodes)
    return actions


def test_with_nothing_pending_only_the_age_of_the_metadata_has_a_timer() -> None:
    stage = Stage().ready()
    driver, core = stage.driver(), stage.core
    assert poll(driver, core.now, core.nodes) == []
    turns = after_turn(driver, core.now, core.nodes)
    assert turns == driver.after_event(core.now, core.nodes)
    assert turns.sender == turns.transactions == inf
    assert core.now < turns.metadata < inf
    assert broken_rules(stage, driver, turns) == []


def test_metadata_are_asked_for_at_once_and_then_wait_for_the_answer() -> None:
    stage = Stage()
    driver, core = stage.driver(), stage.core
    stage.wait()
    core.metadata.request_update()
    assert driver.after_event(core.now, core.nodes).metadata == core.now
    assert poll(driver, core.now, core.nodes) == [RequestMetadata(1)]
    core.metadata.start_request(core.now)
    assert poll(driver, core.now, core.nodes) == []
    assert after_turn(driver, core.now, core.nodes).metadata == inf
    core.metadata.on_failure(NodeDisconnectedError("gone"), core.now)
    assert core.now < driver.after_event(core.now, core.nodes).metadata < core.now + 1


@pytest.mark.parametrize(
    ("unready_until", "node_id", "deadline"), [(inf, 1, RECHECK_S), (100.5, None, 0.5)]
)
def test_metadata_without_a_broker_are_checked_again_and_after_every_event(
    unready_until: float, node_id: int | None, deadline: float
) -> None:
    stage = Stage()
    driver, core = stage.driver(), stage.core
    core.metadata.invalidate()
    core.metadata.request_update()
    core.now += 0.4
    core.nodes.unready = dict.fromkeys((1, 2, 3), unready_until + 0.4)
    assert poll(driver, core.now, core.nodes) == [NoBrokerReady(node_id)]
    assert after_turn(driver, core.now, core.nodes).metadata == pytest.approx(core.now + deadline)
    assert driver.after_event(core.now, core.nodes).metadata == core.now


def test_known_brokers_have_their_time_before_the_bootstrap_servers_are_asked_again() -> None:
    stage = Stage()
    driver, core = stage.driver(rebootstrap_after=10), stage.core
    driver.metadata.on_answer()
    core.nodes.unready = dict.fromkeys((1, 2, 3), inf)
    core.now += 400
    assert poll(driver, core.now, core.nodes) == [NoBrokerReady(1)]
    core.now += 9.9
    assert poll(driver, core.now, core.nodes) == [NoBrokerReady(1)]
    core.now += 0.1
    (action,) = poll(driver, core.now, core.nodes)
    assert isinstance(action, Rebootstrap)
    driver.metadata.on_rebootstrap(core.now)
    assert poll(driver, core.now, core.nodes) == [NoBrokerReady(1)]


def test_a_broker_that_wants_a_new_start_gets_it_at_once() -> None:
    stage = Stage()
    driver, core = stage.driver(), stage.core
    core.nodes.rebootstrap_required = RebootstrapRequiredError()
    assert driver.after_event(core.now, core.nodes).metadata == core.now
    (action,) = poll(driver, core.now, core.nodes)
    assert isinstance(action, Rebootstrap)


def test_a_request_of_a_transaction_waits_for_its_connection() -> None:
    stage = Stage().begun()
    driver, core = stage.driver(), stage.core
    core.append()
    (dispatch,) = poll(driver, core.now, core.nodes)
    assert isinstance(dispatch, Dispatch)
    core.sender.on_dispatched(1, dispatch.batches)
    stage.manager.commit()
    assert driver.after_event(core.now, core.nodes).transactions == inf  # the batch is out
    assert broken_rules(stage, driver, ASLEEP._replace(sender=-inf, metadata=-inf)) == []
    core.acknowledge(dispatch)
    core.nodes.unready = {1: inf}
    assert driver.after_event(core.now, core.nodes).transactions == core.now
    assert poll(driver, core.now, core.nodes) == [Connect(1)]
    assert after_turn(driver, core.now, core.nodes).transactions == core.now + RECHECK_S
    core.nodes.unready = {}
    (action,) = poll(driver, core.now, core.nodes)
    assert isinstance(action, RequestOfCoordinator)
    assert (action.node_id, action.request.rpc) == (1, Rpc.END)
    stage.send(action.request)
    assert after_turn(driver, core.now, core.nodes).transactions == inf
    assert broken_rules(stage, driver, ASLEEP._replace(metadata=-inf)) == []


def test_a_coordinator_that_left_or_backs_off_is_searched_anew() -> None:
    stage = Stage(level=1).begun()
    driver, core = stage.driver(), stage.core
    core.append(T0.partition)
    core.poll()
    core.nodes.unready = {1: core.now + 0.5}
    core.nodes.failures = {1: NodeDisconnectedError("gone")}
    (action,) = driver.transactions.poll(core.now, core.nodes) if driver.transactions else ()
    assert isinstance(action, CoordinatorUnreachable)
    assert action.error.message == "gone"
    core.nodes.unready = {1: inf}  # it is dialed again
    assert driver.transactions is not None
    assert driver.transactions.poll(core.now, core.nodes) == [Connect(1)]
    core.learn((2, 2), nodes=(2, 3))
    core.now += 5
    (action,) = driver.transactions.poll(core.now, core.nodes) if driver.transactions else ()
    assert isinstance(action, CoordinatorUnreachable)
    assert "not among the brokers" in action.error.message
    assert driver.after_event(core.now, core.nodes).metadata == core.now
    stage.coordinator_session.on_unreachable(action.request, action.error, core.now)
    turns = after_turn(driver, core.now, core.nodes)
    assert core.now < turns.transactions < core.now + 1


def test_the_error_of_a_search_for_a_coordinator_names_the_broker_that_was_asked() -> None:
    stage = Stage()
    driver, core = stage.driver(), stage.core
    stage.manager.init()
    (action,) = driver.transactions.poll(core.now, core.nodes) if driver.transactions else ()
    assert isinstance(action, RequestOfCoordinator)
    stage.answer(action.request, 15)
    error = stage.manager.coordinator_error
    assert error is not None
    assert error.node_id == action.node_id == 1


def test_metadata_are_asked_for_again_when_a_coordinator_does_not_have_a_topic() -> None:
    stage = Stage().begun()
    driver, core = stage.driver(), stage.core
    stage.wait()
    group = ConsumerGroupMetadata("group")
    stage.manager.send_offsets({T0: OffsetAndMetadata(1)}, group)
    request = stage.request(Rpc.COMMIT_OFFSETS)
    assert driver.after_event(core.now, core.nodes).metadata > core.now
    stage.respond(request, 3)
    assert driver.after_event(core.now, core.nodes).metadata == core.now


def test_metadata_without_a_leader_are_asked_for_again() -> None:
    stage = Stage(leaders=(-1, -1)).begun()
    driver, core = stage.driver(), stage.core
    core.append()
    core.poll()
    core.now += 1
    core.learn((-1, -1))
    assert driver.after_event(core.now, core.nodes).sender == core.now
    core.poll()
    assert driver.after_event(core.now, core.nodes).metadata < core.now + 1


def test_timers_that_are_set_too_late_break_the_rule() -> None:
    stage = Stage().begun()
    driver, core = stage.driver(), stage.core
    core.append()
    found = broken_rules(stage, driver, ASLEEP)
    assert [each.split(":")[0] for each in found] == ["sender", "metadata"]


def test_metadata_that_are_due_without_a_timer_break_the_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage().begun()
    driver, core = stage.driver(), stage.core
    core.now += 400
    assert broken_rules(stage, driver, Turns(-inf, -inf, -inf)) == []
    monkeypatch.setattr(driver.metadata, "next_deadline", lambda now, nodes: inf)
    (found,) = broken_rules(stage, driver, Turns(-inf, -inf, -inf))
    assert found.startswith("metadata: something is due")


def test_a_call_that_waits_for_nothing_breaks_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage().begun()
    driver = stage.driver()
    stage.manager.commit()
    timers = ASLEEP._replace(metadata=-inf)
    (found,) = broken_rules(stage, driver, timers)
    assert found.startswith("transactions: sleeps until inf")
    monkeypatch.setattr(stage.manager, "has_work", lambda is_idle: False)
    assert broken_rules(stage, driver, timers) == ["transactions: a call waits for nothing"]


def test_a_producer_without_tasks_delivers_a_record_by_actions_alone() -> None:
    """A runtime performs what is polled, then lets time pass until the deadline."""
    stage = Stage(leaders=(-1, -1)).begun()
    driver, core = stage.driver(), stage.core
    nodes = core.nodes
    nodes.unready = dict.fromkeys((1, 2, 3), core.now)
    batch = core.append()
    for _ in range(20):
        actions = poll(driver, core.now, nodes)
        for action in actions:
            match action:
                case Connect(int(node_id)) | NoBrokerReady(int(node_id)):
                    nodes.unready.pop(node_id, None)
                case RequestMetadata():
                    core.metadata.start_request(core.now)
                    core.metadata.on_response(metadata_response({"t": (1, 1)}), core.now)
                    core.accumulator.on_metadata_update(core.now)
                case Dispatch(node_id, batches):
                    core.sender.on_dispatched(node_id, batches)
                    core.acknowledge(action)
        if not actions:
            core.now = min(after_turn(driver, core.now, nodes))
    assert batch.outcome is not None
    assert batch.outcome.error is None
