"""RecordAccumulator: what is ready when, in which order it leaves, and what comes back."""

from __future__ import annotations

from math import inf

import pytest

from aioproducer.core.batching.accumulator import AccumulatorSettings
from aioproducer.core.batching.batch import BatchOutcome, OutgoingRecord, ProducerBatch
from aioproducer.core.sending.idempotence import ProducerIdentity, Sequencer
from aioproducer.records.batch import HEADER_SIZE
from aioproducer.types import TopicPartition

from ..support import Core, metadata_response


def test_a_batch_waits_for_its_linger() -> None:
    core = Core(linger=5.0)
    core.append()
    assert core.drain(1) == []
    assert core.accumulator.readiness.next_at == core.now + 5
    core.now += 5
    assert len(core.drain(1)) == 1


@pytest.mark.parametrize(("options", "first"), [({}, 9000), ({"grows": True}, 4096)])
def test_a_batch_takes_its_memory_at_once_unless_it_grows(
    options: dict[str, bool], first: int
) -> None:
    settings = AccumulatorSettings(9000, 0.0, 120.0, 10_000, False, **options)
    assert [settings.first_size(size) for size in (100, 9500)] == [first, 9500]


def test_full_batch_is_sent_before_linger_ends() -> None:
    core = Core(linger=5.0)
    full = core.fill()
    assert core.drain(1) == [full]
    assert core.drain(1) == []


def test_what_lingers_goes_along_with_a_request_to_its_node() -> None:
    core = Core(leaders=(1, 1, 2, 1), linger=5.0)
    lingering, elsewhere = core.append(1), core.append(2)
    again = core.fill(3)
    core.drain(1)
    core.accumulator.reenqueue(again, core.now, 60)
    full = core.fill(0)
    after = core.append(1)
    assert core.drain(1) == [full, after] and after is not lingering
    assert core.drain(1) == core.drain(2) == []
    core.now += 5
    assert core.drain(2) == [elsewhere]


def test_a_partition_that_backs_off_meanwhile_does_not_hold_up_the_others() -> None:
    core = Core(leaders=(1, 1))
    failed = core.fill(0)
    assert core.drain(1) == [failed]
    core.fill(0)
    other = core.fill(1)
    core.accumulator.readiness.collect(core.now)
    core.accumulator.reenqueue(failed, core.now, 60)
    assert core.drain(1) == [other]
    core.now += 60
    assert failed in core.drain(1)


def test_a_whole_batch_ends_the_linger_of_the_one_before_it() -> None:
    core = Core(linger=5.0)
    full, opened = core.fill(), core.append()
    meta = core.metadata.topic("t")
    assert meta is not None
    record = OutgoingRecord(meta, 0, 1, None, b"v", (), 100)
    whole = core.accumulator.append_as_batch([record], 0, core.now, buffer=bytearray(200), size=200)
    assert [core.drain(1) for _ in range(4)] == [[full], [opened], [whole], []]


def test_a_drained_batch_takes_no_more_records() -> None:
    core = Core()
    batch = core.append()
    core.drain(1)
    assert core.append() is not batch


def test_one_request_carries_one_batch_per_partition_and_all_partitions_of_the_node() -> None:
    core = Core(leaders=(1, 1, 2))
    first = core.fill(0)
    other = core.append(1)
    core.append(2)
    assert core.drain(1) == [first, other]


def test_max_request_size_splits_and_the_next_request_starts_where_it_stopped() -> None:
    core = Core(leaders=(1, 1, 1), max_request_size=250)
    batches = [core.fill(partition) for partition in range(3)]
    assert core.drain(1) == batches[:1]
    assert core.drain(1) == batches[1:2]
    assert core.drain(1) == batches[2:]


@pytest.mark.parametrize(("missing", "together"), [(0, 3), (1, 2)])
def test_a_request_is_filled_up_to_the_last_byte_of_its_limit(missing: int, together: int) -> None:
    limit = 3 * Core().append().wire_size - missing
    core = Core(leaders=(1, 1, 1), max_request_size=limit)
    for partition in range(3):
        core.append(partition)
    assert len(core.drain(1)) == together


def test_records_that_grow_on_their_way_count_as_what_they_grow_to() -> None:
    core = Core(leaders=(1, 1, 1), max_request_size=250)
    for partition in (0, 1, 2):
        core.append(partition)
    core.accumulator.growth_per_record = 100
    assert [len(core.drain(1)) for _ in range(3)] == [1, 1, 1]


def test_each_record_of_a_batch_grows_on_its_way() -> None:
    core = Core(leaders=(1, 1), max_request_size=300)
    for partition in (0, 1):
        core.append(partition)
        core.append(partition)
    core.accumulator.growth_per_record = 40
    assert [len(core.drain(1)) for _ in range(2)] == [1, 1]


def test_a_buffer_that_is_too_small_for_its_record_is_refused() -> None:
    core = Core()
    meta = core.metadata.topic("t")
    assert meta is not None
    record = OutgoingRecord(meta, 0, 1, None, b"v" * 50, (), 150)
    with pytest.raises(ValueError, match="a buffer of 20 bytes does not hold"):
        core.accumulator.begin_batch(record, 0, core.now, buffer=bytearray(20), size=20)


def test_a_batch_beyond_max_request_size_goes_alone() -> None:
    core = Core(max_request_size=50)
    batch = core.append()
    assert core.drain(1) == [batch]


def test_draining_rotates_so_that_no_partition_starves() -> None:
    core = Core(leaders=(1, 1), max_request_size=250)
    for partition in (0, 0, 1):
        core.fill(partition)
    partitions = [core.drain(1)[0].topic_partition.partition for _ in range(3)]
    assert partitions == [0, 1, 0]


def test_a_partition_without_a_leader_keeps_its_records_and_is_reported() -> None:
    core = Core(leaders=(-1, 2, 3))
    batch = core.append(0)
    assert core.drain(1) == []
    assert [q.topic_partition.partition for q in core.accumulator.readiness.leaderless] == [0]
    core.learn((1, 2, 3), epoch=2)
    assert not core.accumulator.readiness.leaderless
    assert core.drain(1) == [batch]


def test_ready_batches_follow_their_leader() -> None:
    core = Core()
    batch = core.append(0)
    core.accumulator.readiness.collect(core.now)
    core.learn((2, 2, 3), epoch=2)
    assert core.drain(1) == []
    assert core.drain(2) == [batch]


def test_leader_that_moves_away_and_back_gets_one_batch_of_the_partition() -> None:
    core = Core((1,))
    first = core.fill()
    core.fill()
    core.accumulator.readiness.collect(core.now)
    for epoch, leader in ((2, 2), (3, 1)):
        core.learn((leader,), epoch=epoch)
        core.accumulator.readiness.collect(core.now)
    assert core.drain(1) == [first]


def test_a_muted_partition_gives_nothing_until_the_answer() -> None:
    core = Core(guarantee_order=True)
    first = core.fill()
    assert core.drain(1) == [first]
    assert core.drain(1) == []
    core.accumulator.unmute(first.topic_partition)
    assert len(core.drain(1)) == 1


def test_backing_off_excludes_a_batch_even_while_flushing() -> None:
    core = Core()
    batch = core.append()
    core.drain(1)
    core.accumulator.reenqueue(batch, core.now, 1)
    core.accumulator.begin_flush()
    assert core.drain(1) == []
    core.now += 1
    assert core.drain(1) == [batch]


def test_a_newer_leader_epoch_ends_the_backoff() -> None:
    core = Core()
    batch = core.append()
    core.drain(1)
    core.accumulator.reenqueue(batch, core.now, 1)
    core.learn((2, 2, 3), epoch=2)
    assert core.drain(2) == [batch]


def test_a_leader_that_changed_while_the_batch_was_in_flight_ends_the_backoff_too() -> None:
    core = Core()
    batch = core.append()
    core.drain(1)
    core.learn((2, 2, 3), epoch=2)
    core.accumulator.reenqueue(batch, core.now, 1)
    assert core.drain(2) == [batch]


def test_an_update_that_is_about_other_topics_replans_nothing() -> None:
    core = Core((1, -1))
    core.append(0)
    core.append(1)
    core.accumulator.readiness.collect(core.now)
    asked = []
    core.accumulator.readiness.leader_of = asked.append
    core.metadata.add_topic("other", core.now)
    core.metadata.start_request(core.now)
    core.metadata.on_response(metadata_response({"other": (1,)}), core.now)
    core.accumulator.on_metadata_update(core.now)
    assert asked == []


def test_leaderless_partition_is_ready_when_its_leader_becomes_a_known_node() -> None:
    core = Core((9,))
    batch = core.append()
    assert core.drain(9) == []
    core.metadata.add_topic("other", core.now)
    core.metadata.start_request(core.now)
    core.metadata.on_response(metadata_response({"other": (1,)}, nodes=(1, 9)), core.now)
    core.accumulator.on_metadata_update(core.now)
    assert core.drain(9) == [batch]


def test_the_same_leader_epoch_does_not_end_the_backoff() -> None:
    core = Core()
    batch = core.append()
    core.drain(1)
    core.accumulator.reenqueue(batch, core.now, 1)
    core.learn((1, 2, 3), epoch=1)
    assert core.drain(1) == []
    assert batch.retry_at == core.now + 1


def test_retried_batches_regain_their_old_order() -> None:
    core = Core()
    first, second = core.fill(), core.fill()
    drained = core.drain(1) + core.drain(1)
    assert drained == [first, second]
    core.accumulator.reenqueue(second, core.now, 0)
    core.accumulator.reenqueue(first, core.now, 0)
    assert core.drain(1) == [first]
    assert core.drain(1) == [second]


def test_batch_that_waits_for_its_retry_moves_with_its_leader_before_younger_ones() -> None:
    core = Core(leaders=(1, 1))
    first = core.fill(0)
    elsewhere = core.append(1)
    assert core.drain(1) == [first, elsewhere]
    core.accumulator.reenqueue(first, core.now, 10)
    assert core.drain(1) == []  # younger batches of the partition wait for it
    core.learn((2, 1), epoch=2)
    assert core.drain(2) == [first]
    assert [batch.topic_partition.partition for batch in core.drain(2)] == [0]
    assert core.drain(1) == []


def test_node_that_leads_nothing_gets_nothing() -> None:
    core = Core(leaders=(1, 1))
    core.append(0)
    assert core.drain(2) == []
    assert core.drain(99) == []
    assert len(core.drain(1)) == 1


def test_record_larger_than_a_batch_has_its_own_batch() -> None:
    core = Core(batch_size=200)
    small = core.append(value=b"v")
    large = core.append(value=b"v" * 500)
    after = core.append(value=b"v" * 100)
    assert len({small, large, after}) == 3
    assert [batch.count for batch in (small, large, after)] == [1, 1, 1]
    assert core.pool.available == core.pool.total - 200 - large.size - after.size
    for expected in (small, large, after):
        (batch,) = core.drain(1)
        assert batch is expected
        core.accumulator.complete(batch, BatchOutcome())
    assert core.pool.available == core.pool.total


def test_flushing_closing_and_exhausted_memory_end_the_linger() -> None:
    for expedite in ("flush", "close", "memory"):
        core = Core(linger=60.0, memory=400, batch_size=200)
        core.append(0)
        core.append(1)
        assert core.drain(1) == []
        if expedite == "flush":
            core.accumulator.begin_flush()
        elif expedite == "close":
            core.accumulator.closing = True
            core.accumulator.readiness.expedite()
        else:
            core.pool.enqueue(200, lambda _: None)
            core.accumulator.readiness.expedite()
        assert len(core.drain(1)) == 1, expedite


@pytest.mark.parametrize("linger", [0.0, 60.0])
def test_a_flush_does_not_wait_for_a_bulk_call_to_fill_its_batch(linger: float) -> None:
    core = Core(linger=linger)
    batch = core.append()
    batch.gathering = True
    core.accumulator.replan_all()
    core.now += 100
    assert core.drain(1) == []
    core.accumulator.begin_flush()
    assert core.drain(1) == [batch]


def test_batches_are_withdrawn_by_whether_a_transport_has_them() -> None:
    core = Core()
    sent, queued, other = core.append(0), core.append(1), core.append(2)
    core.accumulator.pin(core.drain(1)[0])
    withdraw = core.accumulator.withdraw_all
    assert withdraw(in_flight=True, queued=False) == [sent]
    assert withdraw(in_flight=False, only=lambda batch: batch is other) == [other]
    assert core.drain(3) == []
    assert withdraw(in_flight=True) == [sent, queued, other]
    assert core.drain(2) == []


def test_a_batch_opened_while_flushing_does_not_linger() -> None:
    core = Core(linger=60.0)
    core.accumulator.begin_flush()
    batch = core.append()
    assert core.drain(1) == [batch]
    core.accumulator.end_flush()
    core.append()
    assert core.drain(1) == []


def test_batches_expire_wherever_they_are() -> None:
    core = Core(delivery_timeout=10.0, leaders=(1, 2, -1))
    in_flight, queued, leaderless = core.append(0), core.append(1), core.append(2)
    core.accumulator.pin(core.drain(1)[0])
    assert core.accumulator.next_expiry_at == core.now + 10
    core.now += 10
    expired = core.take_expired()
    assert expired == [in_flight, queued, leaderless]
    assert core.drain(2) == []
    for batch in expired:
        core.accumulator.complete(batch, BatchOutcome())
    assert core.accumulator.next_expiry_at == inf


def test_what_is_due_to_expire_does_expire_whatever_the_rounding() -> None:
    for step in range(1, 400):
        core = Core(delivery_timeout=0.1 + step * 0.37)
        core.now = step * 1.1
        batch = core.append()
        core.now = core.accumulator.next_expiry_at
        assert core.take_expired() == [batch]


def test_memory_of_an_expired_batch_in_flight_is_kept_until_the_transport_lets_go() -> None:
    core = Core(delivery_timeout=10.0, memory=200)
    batch = core.append()
    core.accumulator.pin(core.drain(1)[0])
    core.now += 10
    core.take_expired()
    core.accumulator.complete(batch, BatchOutcome())
    assert core.pool.available == 0
    core.accumulator.unpin(batch)
    assert core.pool.available == 200


def test_completing_twice_counts_once_and_frees_once() -> None:
    core = Core(memory=400)
    batch = core.append()
    core.drain(1)
    assert core.accumulator.complete(batch, BatchOutcome(base_offset=5))
    assert not core.accumulator.complete(batch, BatchOutcome(base_offset=9))
    assert batch.outcome == BatchOutcome(base_offset=5)
    assert core.pool.available == 400


def test_a_turn_checks_ready_partitions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core(leaders=(1,) * 2000)
    for partition in range(2000):
        core.append(partition)
    for batch in core.drain(1):
        core.accumulator.complete(batch, BatchOutcome())
    looked_at: list[TopicPartition] = []
    readiness = core.accumulator.readiness
    leader_of = readiness.leader_of

    def counting(topic_partition: TopicPartition) -> int | None:
        looked_at.append(topic_partition)
        return leader_of(topic_partition)

    monkeypatch.setattr(readiness, "leader_of", counting)
    core.append(17)
    core.accumulator.readiness.collect(core.now)
    assert set(looked_at) == {("t", 17)}


def handed_out(core: Core, value: bytes = b"v") -> ProducerBatch:
    """A batch that no queue has seen."""
    accumulator, place = core.accumulator, TopicPartition("t", 0)
    size = accumulator.settings.batch_size
    buffer = core.pool.try_allocate(size)
    assert buffer is not None
    batch = accumulator.begin_spare(place, buffer, size)
    assert batch.builder is not None
    batch.builder.try_append(1, None, value, ())
    assert accumulator.try_hand_out(batch, core.now, core.metadata.leader_epoch("t", 0))
    return batch


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_batch_that_is_handed_out_directly_is_as_if_it_had_been_drained(idempotent: bool) -> None:
    def core() -> Core:
        if not idempotent:
            return Core(guarantee_order=True)
        core = Core(guarantee_order=True, sequencer=Sequencer(5))
        core.sender.on_identity(ProducerIdentity(9, 3))
        core.append()
        (first,) = core.drain(1)
        core.accumulator.sequencer.on_acknowledged(first, core.now)
        core.accumulator.complete(first, BatchOutcome())
        core.accumulator.unmute(first.topic_partition)
        return core

    direct, usual = core(), core()
    batch = handed_out(direct)
    usual.append(value=b"v")
    (other,) = usual.drain(1)
    usual.accumulator.pin(other)
    compared = {*ProducerBatch.__slots__} - {"builder", "owner", "on_unretrieved"}
    for name in compared:
        assert getattr(batch, name) == getattr(other, name), name
    for each in (direct, usual):
        assert each.accumulator.pinned
        queue = each.accumulator.queue("t", 0)
        assert queue is None or queue.muted
        each.append()
        assert each.drain(1) == []


def spare(core: Core) -> ProducerBatch:
    buffer = core.pool.try_allocate(core.accumulator.settings.batch_size)
    assert buffer is not None
    size = core.accumulator.settings.batch_size
    batch = core.accumulator.begin_spare(TopicPartition("t", 0), buffer, size)
    assert batch.builder is not None
    batch.builder.try_append(1, None, b"v", ())
    return batch


def may_go_directly(core: Core) -> bool:
    batch = spare(core)
    return core.accumulator.try_hand_out(batch, core.now, core.metadata.leader_epoch("t", 0))


def test_no_batch_is_handed_out_directly_while_another_one_waits() -> None:
    core = Core()
    core.append(1)
    batch = spare(core)
    assert not core.accumulator.try_hand_out(batch, core.now, 0)
    assert [*core.accumulator.incomplete()] != [batch]
    assert not core.accumulator.pinned
    core.accumulator.enqueue(batch, core.now)
    assert batch in [*core.accumulator.incomplete()]
    assert core.drain(1)


def test_no_batch_is_handed_out_directly_where_its_sequence_does_not_allow_it() -> None:
    core = Core(sequencer=Sequencer(5))
    assert not may_go_directly(core)  # there is no producer id yet
    core.sender.on_identity(ProducerIdentity(9, 3))
    first = handed_out(core)
    assert (first.producer_id, first.producer_epoch, first.base_sequence) == (9, 3, 0)
    assert not may_go_directly(core)  # nothing is acknowledged under it
    core.sender.on_acknowledged(first, (0, -1, -1), core.now)
    for sequence in range(1, 6):
        assert handed_out(core).base_sequence == sequence
    assert not may_go_directly(core)  # so many may be in flight


def test_no_batch_is_handed_out_directly_in_a_partition_that_is_muted() -> None:
    core = Core(guarantee_order=True)
    handed_out(core)
    assert not may_go_directly(core)


def test_a_batch_has_its_place_and_its_age_from_when_it_is_handed_out() -> None:
    core = Core()
    early = spare(core)
    core.now += 50
    late = core.append(1)
    core.drain(1)
    core.accumulator.pin(late)
    assert core.accumulator.try_hand_out(early, core.now, 0)
    assert early.ordinal > late.ordinal
    assert early.created_at == core.now


def test_a_batch_that_grows_doubles_its_memory_up_to_batch_size() -> None:
    core = Core(grows=True, batch_size=10_000, linger=5.0)
    batch = core.append(value=b"v" * 3000)
    sizes = [batch.size]
    while core.append(value=b"v" * 1000) is batch:
        sizes.append(batch.size)
    assert sorted(set(sizes)) == [4096, 8192, 10_000]
    assert core.pool.total - core.pool.available == 10_000 + 4096


def test_a_record_that_fits_into_what_is_left_does_not_make_its_batch_grow() -> None:
    core = Core(grows=True, batch_size=10_000, linger=5.0)
    batch = core.append(value=b"v" * 3000)
    meta = core.metadata.topic("t")
    assert meta is not None
    room = batch.size - batch.wire_size + HEADER_SIZE
    record = OutgoingRecord(meta, 0, 1, None, b"v", (), room)
    assert core.accumulator.try_append(record, 0) is batch
    assert batch.size == 4096


def test_a_batch_does_not_grow_for_a_record_that_does_not_fit_into_batch_size() -> None:
    core = Core(grows=True, batch_size=10_000, linger=5.0)
    batch = core.append(value=b"v" * 6000)
    size = batch.size
    assert core.append(value=b"v" * 6000) is not batch
    assert batch.size == size


def test_a_batch_grows_for_a_record_that_just_fits_into_batch_size() -> None:
    core = Core(grows=True, batch_size=10_000, linger=5.0)
    batch = core.append(value=b"v" * 3000)
    meta = core.metadata.topic("t")
    assert meta is not None
    room = 10_000 - batch.wire_size + HEADER_SIZE
    record = OutgoingRecord(meta, 0, 1, None, b"v", (), room)
    assert core.accumulator.try_append(record, 0) is batch
    assert batch.size == 10_000


def test_a_batch_that_would_outgrow_the_whole_memory_is_full() -> None:
    core = Core(grows=True, batch_size=10_000, linger=5.0, memory=7000)
    batch = core.append(value=b"v" * 3000)
    meta = core.metadata.topic("t")
    assert meta is not None
    record = OutgoingRecord(meta, 0, 1, None, b"v" * 1500, (), 1600)
    assert core.accumulator.try_append(record, 0) is None
    assert (batch.size, batch.count, batch.full) == (4096, 1, True)
    assert core.pool.available == 7000 - 4096


def test_a_partition_needs_a_new_batch_where_there_is_none_or_the_last_is_full() -> None:
    core = Core()
    batch = core.append()
    queue = core.accumulator.queue("t", 0)
    assert queue is not None
    assert not queue.is_full_up()
    core.fill()
    assert len(queue.batches) == 2
    assert not queue.is_full_up()
    core.drain(1)
    batch = core.append()
    batch.close()
    assert queue.is_full_up()
    core.drain(1)
    assert queue.is_full_up()


def test_queues_report_their_lengths_and_only_those_that_had_a_record() -> None:
    core = Core()
    assert core.accumulator.queue("t", 0) is None
    assert core.accumulator.queue_sizes("t") == {}
    core.fill(1)
    assert core.accumulator.queue_sizes("t") == {1: 2}
    core.drain(2)
    assert core.accumulator.queue_sizes("t") == {1: 1}


def test_batches_are_numbered_from_their_first_in_the_order_of_their_making() -> None:
    core = Core()
    assert [core.append(partition).ordinal for partition in (0, 1, 2)] == [(1,), (2,), (3,)]


def test_a_full_batch_after_the_first_changes_nothing() -> None:
    core = Core(linger=5.0)
    first = core.fill()
    at = core.accumulator.readiness.next_at
    assert at <= core.now
    second = core.append()
    while core.append() is second:
        pass
    assert core.accumulator.readiness.next_at == at
    assert core.drain(1) == [first]


@pytest.mark.parametrize(("attempts", "pause"), [(3, 0), (4, 0.1)])
def test_leaders_that_change_with_every_attempt_get_a_pause(attempts: int, pause: float) -> None:
    core = Core()
    batch = core.append()
    core.drain(1)
    batch.attempts = attempts
    core.accumulator.reenqueue(batch, core.now, 1)
    core.learn((1, 2, 3), epoch=2)
    assert batch.retry_at == pytest.approx(core.now + pause)
    core.now += pause
    assert core.drain(1) == [batch]
    batch.attempts = attempts
    core.learn((1, 2, 3), epoch=3)
    core.accumulator.reenqueue(batch, core.now, 0.05)
    assert batch.retry_at == pytest.approx(core.now + min(pause, 0.05))
