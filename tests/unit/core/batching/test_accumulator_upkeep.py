"""RecordAccumulator: its work and its size follow what waits, not what has ever been there."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from math import inf
from types import FrameType

from aioproducer.core.batching.batch import BatchOutcome
from aioproducer.core.sending.actions import Connect

from ..support import Core


def calls_during(work: Callable[[], object]) -> int:
    """Count the calls, of Python functions or built-in ones, that a piece of work makes."""
    count = 0

    def on_event(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    previous = sys.getprofile()
    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(previous)
    return count


def test_making_room_costs_nothing_for_batches_that_do_not_linger() -> None:
    core = Core(leaders=(1,) * 500, linger=60.0, max_request_size=1 << 20)
    core.accumulator.begin_flush()
    for partition in range(500):
        core.append(partition)
    for batch in core.drain(1):
        core.accumulator.pin(batch)
    core.accumulator.end_flush()
    assert core.accumulator.has_incomplete
    assert calls_during(core.accumulator.readiness.expedite) < 50


def test_a_need_for_memory_ends_lingers() -> None:
    core = Core(leaders=(1,) * 5, linger=60.0)
    batches = [core.append(partition) for partition in range(5)]
    assert core.drain(1) == []
    core.accumulator.closing = True
    core.accumulator.readiness.expedite()
    assert core.drain(1) == batches


def test_a_partition_whose_batches_expired_is_not_connected_for() -> None:
    core = Core(delivery_timeout=10.0)
    core.nodes.unready[1] = core.now + 1
    core.append()
    assert core.sender.poll(core.now, core.nodes) == [Connect(1)]
    core.now += 10
    assert core.sender.poll(core.now, core.nodes) == []
    assert core.accumulator.readiness.nodes() == []
    assert core.sender.next_deadline(core.now, core.nodes) == inf


def test_the_broker_with_node_id_0_is_a_leader_as_any_other() -> None:
    core = Core(leaders=(0,), delivery_timeout=10.0)
    core.learn((0,), nodes=(0,))
    core.nodes.unready[0] = core.now + 1
    core.append()
    assert core.sender.poll(core.now, core.nodes) == [Connect(0)]
    queue = core.accumulator.queue("t", 0)
    assert queue is not None
    assert (queue.node_id, queue.is_leaderless) == (0, False)
    core.now += 10
    assert core.sender.poll(core.now, core.nodes) == []
    assert core.accumulator.readiness.nodes() == []


def test_a_partition_without_a_leader_whose_batches_expired_is_not_asked_about() -> None:
    core = Core(leaders=(-1,), delivery_timeout=10.0)
    core.append()
    core.poll()
    assert core.accumulator.readiness.leaderless
    core.now += 10
    core.poll()
    assert not core.accumulator.readiness.leaderless


def test_a_partition_is_sent_again_after_its_batches_expired() -> None:
    core = Core(delivery_timeout=10.0)
    core.nodes.unready[1] = core.now + 1
    core.append()
    core.poll()
    core.now += 10
    core.poll()
    core.nodes.unready.clear()
    batch = core.append()
    (dispatch,) = core.poll()
    assert dispatch.batches == [batch]


def test_delivered_batches_leave_nothing_in_a_long_linger() -> None:
    core = Core(leaders=(1,) * 4, linger=600.0, delivery_timeout=900.0)
    for round_ in range(1000):
        core.fill(round_ % 4)
        core.now += 0.001
        for batch in core.drain(1):
            core.accumulator.complete(batch, BatchOutcome())
    assert len(core.accumulator.readiness._heap) <= 64


def test_partitions_of_topics_that_left_the_metadata_are_dropped() -> None:
    core = Core()
    batch = core.append()
    core.drain(1)
    core.accumulator.complete(batch, BatchOutcome())
    core.learn((1, 2, 3))
    assert core.accumulator.queue("t", 0) is not None
    core.now += 301
    core.learn((1, 2, 3))
    assert core.metadata.topic("t") is None
    core.accumulator.drop_expired_topics()
    assert core.accumulator.queue("t", 0) is None


def test_a_topic_that_gets_batches_stays_in_the_metadata() -> None:
    core = Core()
    core.now += 200
    core.append()
    core.now += 300
    assert core.metadata.start_request(core.now).topics == ["t"]


def test_a_topic_with_a_batch_in_flight_keeps_its_partitions() -> None:
    core = Core(guarantee_order=True)
    core.append()
    core.drain(1)
    core.now += 301
    core.learn((1, 2, 3))
    core.accumulator.drop_expired_topics()
    queue = core.accumulator.queue("t", 0)
    assert queue is not None
    assert queue.muted


def test_partitions_with_records_outlive_their_topics_metadata() -> None:
    core = Core(delivery_timeout=900.0, leaders=(-1,))
    batch = core.append()
    core.now += 301
    core.metadata.start_request(core.now)
    core.learn((-1,))
    queue = core.accumulator.queue("t", 0)
    assert queue is not None
    assert list(queue.batches) == [batch]


class CountedTime(float):
    """A loop time that counts how often one is compared with another."""

    compared = 0

    def __add__(self, seconds: float) -> CountedTime:
        return CountedTime(float(self) + seconds)

    def __eq__(self, other: object) -> bool:
        CountedTime.compared += 1
        return float(self) == other

    def __ne__(self, other: object) -> bool:
        CountedTime.compared += 1
        return float(self) != other

    def __lt__(self, other: float) -> bool:
        CountedTime.compared += 1
        return float(self) < other

    __hash__ = float.__hash__


def test_a_retry_is_planned_without_a_comparison_with_all_others() -> None:
    core = Core((1,) * 1000, memory=1 << 22, max_request_size=1 << 22)
    waiting = [core.append(partition) for partition in range(1000)]
    core.drain(1)
    core.now = CountedTime(core.now)
    for batch in waiting:
        core.accumulator.reenqueue(batch, core.now, 1000)
    before = CountedTime.compared
    for number, batch in enumerate(waiting):
        core.accumulator.withdraw([batch])
        core.accumulator.reenqueue(batch, core.now, 2000 + number)
    assert CountedTime.compared - before < 30 * len(waiting)


def test_a_partition_whose_lingering_batch_expired_is_in_no_later_request() -> None:
    core = Core((1, 1), linger=60.0, delivery_timeout=10.0)
    core.append(0)
    core.now += 5
    later = core.append(1)
    core.now += 5
    assert core.take_expired()
    later.close()
    core.accumulator.replan_all()
    assert core.drain(1) == [later]


def test_partitions_are_due_in_their_order_after_many_were_replanned() -> None:
    core = Core((1,) * 100, memory=1 << 22, max_request_size=1 << 22)
    waiting = [core.append(partition) for partition in range(100)]
    core.drain(1)
    rng = random.Random(3)
    for batch in waiting:
        core.accumulator.reenqueue(batch, core.now, rng.uniform(1, 1000))
    for batch in rng.choices(waiting, k=1000):
        core.accumulator.withdraw([batch])
        core.accumulator.reenqueue(batch, core.now, rng.uniform(1, 1000))
    for batch in sorted(waiting, key=lambda each: each.retry_at):
        assert core.accumulator.readiness.next_at == batch.retry_at
        core.accumulator.withdraw([batch])
    assert core.accumulator.readiness.next_at == inf
