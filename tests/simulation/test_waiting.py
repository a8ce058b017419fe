"""Rules for a waiting producer: each finds the state that breaks it, and no other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.core.sending.idempotence import ProducerIdentity, Sequencer
from aioproducer.types import TopicPartition
from simulation.waiting import (
    Numbers,
    _not_dialed,
    _renewed_late,
    _several_before_the_first,
    _sleeps_although_woken,
    _waits_though_leader_changed,
    numbers_on_wire,
)

_WHERE = TopicPartition("t", 0)


def _batch(**state: Any) -> Any:
    known = {"topic_partition": _WHERE, "on_wire": True, "pins": 1, "attempts": 1}
    return SimpleNamespace(**known | state)


@pytest.mark.parametrize(
    ("was_woken", "is_asleep", "found"), [(True, True, 1), (False, True, 0), (True, False, 0)]
)
def test_a_task_that_sleeps_although_it_was_woken_is_found_out(
    was_woken: bool, is_asleep: bool, found: int
) -> None:
    task = SimpleNamespace(_wakeup=SimpleNamespace(_woken=was_woken, is_asleep=is_asleep))
    engine: Any = SimpleNamespace(sender_task=task, metadata_task=None, transactions=None)
    assert len(list(_sleeps_although_woken(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("on_wire", "newest", "log_is_new", "found"),
    [
        ((True, True), (), False, 1),
        ((True, False), (), False, 0),
        ((True, True), (3,), False, 0),
        ((True, True), (), True, 0),
    ],
)
def test_batches_sent_together_before_the_first_acknowledgement_are_found_out(
    on_wire: tuple[bool, ...], newest: tuple[int, ...], log_is_new: bool, found: int
) -> None:
    sequencer = Sequencer(5)
    sequencer.on_identity(ProducerIdentity(7, 0))
    partition = sequencer._partition(_WHERE)
    partition.newest, partition.log_is_new = newest, log_is_new
    partition.in_flight += [_batch(on_wire=each) for each in on_wire]
    engine: Any = SimpleNamespace(
        accumulator=SimpleNamespace(sequencer=sequencer), transactions=None
    )
    assert len(list(_several_before_the_first(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("pins", "attempts", "leader_epoch", "retry_at", "found"),
    [
        (0, 1, 4, 1.5, 1),
        (0, 1, 5, 1.5, 0),
        (0, 1, 4, 1.0, 0),
        (0, 4, 4, 1.5, 0),
        (0, 0, -1, 1.5, 0),
        (1, 1, 4, 1.5, 0),
    ],
)
def test_a_batch_that_waits_although_its_leader_has_changed_is_found_out(
    pins: int, attempts: int, leader_epoch: int, retry_at: float, found: int
) -> None:
    batch = _batch(pins=pins, attempts=attempts, leader_epoch=leader_epoch, retry_at=retry_at)
    engine: Any = SimpleNamespace(
        accumulator=SimpleNamespace(incomplete=lambda: [batch]),
        metadata=SimpleNamespace(leader_epoch=lambda topic, partition: 5),
    )
    assert len(list(_waits_though_leader_changed(engine, 1.0))) == found


@pytest.mark.parametrize(("renew_at", "found"), [(19.0, 0), (20.0, 0), (20.1, 1)])
def test_a_session_that_is_renewed_after_its_end_is_found_out(renew_at: float, found: int) -> None:
    link = SimpleNamespace(
        versions=object(),
        node=SimpleNamespace(id=1),
        ready_since=10.0,
        _session=SimpleNamespace(lifetime_s=10.0),
        _renew_at=renew_at,
    )
    engine: Any = SimpleNamespace(client=SimpleNamespace(_links=lambda: [link]))
    assert len(list(_renewed_late(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("due_at", "is_dialing", "retry_at", "found"),
    [(1.0, False, 0.8, 1), (1.0, True, 0.8, 0), (1.0, False, 0.95, 0), (2.0, False, 0.8, 0)],
)
def test_a_broker_that_is_not_dialed_is_found_out(
    due_at: float, is_dialing: bool, retry_at: float, found: int
) -> None:
    link = SimpleNamespace(
        is_dialing=is_dialing, _retry_at=retry_at, can_connect=lambda now: now >= retry_at
    )
    client = SimpleNamespace(
        _brokers={1: link}, _bootstrap={}, _links=lambda: [link], any_connected=lambda: False
    )
    metadata = SimpleNamespace(next_update_at=lambda now: due_at)
    engine: Any = SimpleNamespace(client=client, metadata=metadata)
    assert len(list(_not_dialed(engine, 1.0))) == found


def test_the_numbers_on_the_wire_are_those_of_each_attempt() -> None:
    numbers = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 3}
    sent = _batch(ordinal=(4,), attempts=2, **numbers)
    queued = _batch(ordinal=(5,), attempts=1, on_wire=False, **numbers)
    engine: Any = SimpleNamespace(accumulator=SimpleNamespace(pinned=[sent, queued]))
    assert numbers_on_wire(engine) == {((4,), 2): Numbers(7, 1, 3)}
