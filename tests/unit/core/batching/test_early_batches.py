"""Records of topics without metadata: they wait in batches of no partition, then are spread."""

from __future__ import annotations

import pytest

from aioproducer.core.batching.batch import (
    NO_PARTITION,
    BatchOutcome,
    OutgoingRecord,
    ProducerBatch,
)
from aioproducer.errors import NodeDisconnectedError
from aioproducer.types import TopicPartition

from ..support import Core

SIZE = 200


def record(core: Core, value: bytes) -> OutgoingRecord:
    meta = core.metadata.topic("t")
    assert meta is not None
    return OutgoingRecord(meta, 0, 1, None, value, (), len(value) + 100)


def opened(core: Core, *values: bytes) -> ProducerBatch:
    buffer = core.pool.try_allocate(SIZE)
    assert buffer is not None
    first, *others = [record(core, value) for value in values]
    batch = core.accumulator.open_early(first, core.now, buffer=buffer, size=SIZE)
    for each in others:
        assert batch.try_append(each)
    return batch


def part_of(core: Core, partition: int, *values: bytes) -> ProducerBatch:
    records = [record(core, value) for value in values]
    where = TopicPartition("t", partition)
    return core.accumulator.part_of_early(where, records, 500, core.now - 7)


def test_an_early_batch_is_in_no_queue_and_expires() -> None:
    core = Core(delivery_timeout=10.0)
    batch = opened(core, b"1", b"2")
    assert batch.topic_partition == TopicPartition("t", NO_PARTITION)
    assert core.accumulator.has_incomplete
    assert [core.drain(node) for node in (1, 2, 3)] == [[], [], []]
    assert core.accumulator.queue("t", NO_PARTITION) is None
    assert core.accumulator.next_expiry_at == core.now + 10
    core.now += 10
    assert core.accumulator.expired(core.now) == [batch]


def test_early_batches_come_before_those_that_are_opened_later() -> None:
    core = Core()
    first, second = opened(core, b"1"), opened(core, b"2")
    part = part_of(core, 0, b"1")
    later = core.append()
    assert first.ordinal < second.ordinal < part.ordinal < later.ordinal


def test_parts_are_sent_in_their_order_and_are_as_old_as_the_records() -> None:
    core = Core((1, 1))
    early = opened(core, b"1", b"2", b"3")
    one, two = part_of(core, 1, b"1", b"3"), part_of(core, 0, b"2")
    assert (one.full, one.size, one.created_at) == (True, 0, core.now - 7)
    assert one.topic_partition == TopicPartition("t", 1)
    core.accumulator.spread(early, [(one, 0), (two, 0), (one, 1)])
    assert early not in set(core.accumulator.incomplete())
    for part in (one, two):
        core.accumulator.line_up_part(part)
    assert core.drain(1) == [one, two]
    assert set(core.accumulator.incomplete()) == {one, two}
    assert [each.value for each in one.records()] == [b"1", b"3"]


def test_the_memory_of_early_records_is_counted_until_all_parts_are_done() -> None:
    core = Core((1, 1))
    free = core.pool.available
    early = opened(core, b"1", b"2")
    one, two = part_of(core, 0, b"1"), part_of(core, 1, b"2")
    core.accumulator.spread(early, [(one, 0), (two, 0)])
    assert core.pool.available == free - SIZE
    for part in (one, two):
        core.accumulator.line_up_part(part)
    called: list[object] = []
    early.add_listener("all", called.append)
    core.accumulator.complete(one, BatchOutcome(base_offset=5))
    assert (early.done, called, core.pool.available) == (False, [], free - SIZE)
    error = NodeDisconnectedError("gone")
    core.accumulator.complete(two, BatchOutcome(error=error))
    assert (early.done, called, core.pool.available) == (True, ["all"], free)
    assert early.outcome_of(0) == (BatchOutcome(base_offset=5), 0)
    assert early.record_error(1) is error
    assert not core.accumulator.has_incomplete
    assert not core.accumulator.pinned


@pytest.mark.parametrize("partition", [0, 1])
def test_records_after_a_part_need_another_batch(partition: int) -> None:
    core = Core((1, 1))
    early = opened(core, b"1")
    part = part_of(core, 0, b"1")
    core.accumulator.spread(early, [(part, 0)])
    core.accumulator.line_up_part(part)
    queue = core.accumulator.queue("t", 0)
    assert queue is not None
    assert queue.is_full_up()
    batch = core.append(partition)
    assert batch is not part
    assert core.drain(1) == [part, batch][: 2 - (partition == 0)]
