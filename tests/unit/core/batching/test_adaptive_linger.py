"""A linger ends early when every sending task waits for an answer, and not otherwise."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.core.batching.readiness import EARLY_FLUSH_RECORDS

from ..support import Core

LINGER = 5.0


def ask(core: Core, partition: int = 0) -> ProducerBatch:
    """Append a record whose outcome is awaited."""
    batch = core.append(partition)
    batch.add_listener(object(), lambda _: None)
    return batch


def asked(count: int, *, partitions: int = 1, **options: Any) -> Core:
    """So many tasks have waited for one linger to end, and got their answers."""
    core = Core(linger=LINGER, batch_size=50_000, memory=1 << 24, **options)
    for number in range(count):
        ask(core, number % partitions)
    assert core.poll() == []
    core.now += LINGER
    for dispatch in core.poll():
        core.acknowledge(dispatch)
    return core


def test_linger_ends_when_as_many_wait_as_the_last_one_has_brought() -> None:
    core = asked(10)
    for _ in range(9):
        ask(core)
    assert core.poll() == []
    ask(core)
    assert len(core.poll()) == 1


@pytest.mark.parametrize(("batches", "ends_early"), [(64, True), (65, False)])
def test_linger_of_more_than_64_batches_does_not_end_early(batches: int, ends_early: bool) -> None:
    core = asked(batches, partitions=batches, leaders=(1,) * batches)
    for number in range(batches):
        ask(core, number)
    assert bool(core.poll()) is ends_early


def test_record_that_is_observed_but_not_awaited_lingers() -> None:
    core = asked(1)
    core.append().add_observer(object(), lambda _: None)
    assert core.poll() == []
    core.now += LINGER
    assert len(core.poll()) == 1


def test_single_awaiter_does_not_linger_for_others_that_never_come() -> None:
    core = asked(1)
    for _ in range(3):
        ask(core)
        (dispatch,) = core.poll()
        core.acknowledge(dispatch)


def test_record_that_is_not_awaited_keeps_the_linger() -> None:
    core = asked(2)
    ask(core)
    core.append()
    ask(core)
    assert core.poll() == []
    core.now += LINGER
    assert len(core.poll()) == 1


def test_more_awaiters_than_known_linger_and_are_known_from_then_on() -> None:
    core = asked(2)
    for _ in range(2):
        for _ in range(3):
            ask(core)
        dispatches = core.poll()
        if not dispatches:
            core.now += LINGER
            dispatches = core.poll()
        for dispatch in dispatches:
            core.acknowledge(dispatch)
    for _ in range(2):
        ask(core)
    assert core.poll() == []
    ask(core)
    assert len(core.poll()) == 1


def test_more_senders_than_before_do_not_end_the_linger_while_others_are_in_flight() -> None:
    core = asked(2, leaders=(1, 1))
    for _ in range(2):
        ask(core)
    (dispatch,) = core.poll()
    ask(core, 1)
    assert core.poll() == []
    core.acknowledge(dispatch)
    assert core.poll() == []
    core.now += LINGER
    assert len(core.poll()) == 1


def test_all_partitions_go_together() -> None:
    core = asked(6, partitions=3)
    for number in range(6):
        ask(core, number % 3)
    assert sorted(dispatch.node_id for dispatch in core.poll()) == [1, 2, 3]


def test_many_partitions_just_linger() -> None:
    core = asked(100, partitions=100, leaders=(1,) * 100)
    for number in range(100):
        ask(core, number)
    assert core.poll() == []
    core.now += LINGER
    assert len(core.poll()) == 1


def test_some_of_many_senders_are_served_while_the_rest_send() -> None:
    core = asked(2 * EARLY_FLUSH_RECORDS)
    for _ in range(EARLY_FLUSH_RECORDS - 1):
        ask(core)
    assert core.poll() == []
    ask(core)
    (first,) = core.poll()
    for _ in range(EARLY_FLUSH_RECORDS - 1):
        ask(core)
    assert core.poll() == []
    ask(core)
    (second,) = core.poll()
    assert first.batches[0].count == second.batches[0].count == EARLY_FLUSH_RECORDS


def test_end_of_a_linger_that_was_cut_short_changes_no_estimate() -> None:
    core = asked(10)
    for _ in range(10):
        ask(core)
    (dispatch,) = core.poll()
    core.acknowledge(dispatch)
    core.now += LINGER
    ask(core)
    assert core.poll() == []
    for _ in range(9):
        ask(core)
    assert len(core.poll()) == 1


def test_no_task_sleeps_until_a_linger_that_ended_early() -> None:
    """A task that slept until then would miss the next batch, and send it too late."""
    core = asked(10)
    for _ in range(10):
        ask(core)
    assert core.accumulator.readiness.next_at == core.now + LINGER
    assert len(core.poll()) == 1
    assert core.accumulator.readiness.next_at == inf
