"""Markers in a partition: fenced producers, the view of a committed read, interruptions."""

from __future__ import annotations

import pytest

from aioproducer.records.batch import read_batches
from aioproducer.testing.broker import ClusterState, TopicSpec
from aioproducer.testing.broker.markers import Marker
from aioproducer.testing.broker.transactions.endings import RETRY_MS
from aioproducer.testing.broker.transactions.states import TransactionState
from aioproducer.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

from .support import NOW_MS, ask, make_batch, make_state, produce
from .transactional import (
    V1_VERSIONS,
    V2_VERSIONS,
    TransactionalProducer,
    coordinator_of,
    fetch,
)

BOTH = pytest.mark.parametrize("versions", [V1_VERSIONS, V2_VERSIONS], ids=["v1", "v2"])


def _state(partitions: int = 1, **settings: object) -> ClusterState:
    state = make_state(**settings)
    state.create_topic("t", TopicSpec(partitions, 3))
    return state


def _producer(
    state: ClusterState, versions: dict[str, int], transactional_id: str = "tx"
) -> TransactionalProducer:
    producer = TransactionalProducer(state, versions, transactional_id)
    assert producer.initialize() == 0
    return producer


def _end_offset(state: ClusterState, isolation_level: int) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        isolation_level=isolation_level, topics=[ListOffsetsTopic(name="t", partitions=[partition])]
    )
    leader = state.topics["t"].partitions[0].leader
    return int(ask(state, request, 5, node_id=leader).topics[0].partitions[0].offset)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_is_a_control_batch_that_reads_back(is_commit: bool) -> None:
    marker = Marker(7, 3, is_commit=is_commit, coordinator_epoch=5)
    (batch,) = read_batches(marker.encode(NOW_MS))
    batch.check_crc()
    assert (batch.is_control, batch.is_transactional, batch.count) == (True, True, 1)
    assert (batch.base_sequence, batch.max_timestamp) == (-1, NOW_MS)
    assert Marker.of(batch) == marker


@BOTH
def test_a_committed_read_ends_where_the_first_undecided_transaction_begins(
    versions: dict[str, int],
) -> None:
    state = _state()
    first, second = _producer(state, versions, "a"), _producer(state, versions, "b")
    produce(state, make_batch([b"plain"]))
    first.write(0)
    second.write(0)
    assert second.end() == 0
    assert (_end_offset(state, 0), _end_offset(state, 1)) == (4, 1)
    data = fetch(state)
    assert (data.high_watermark, data.last_stable_offset) == (4, 1)
    assert [batch.base_offset for batch in read_batches(data.records or b"")] == [0]
    assert len(fetch(state, committed=False).records or b"") > len(data.records or b"")
    assert first.end() == 0
    assert _end_offset(state, 1) == fetch(state).last_stable_offset == 5


def test_a_committed_read_gets_the_aborted_transactions_in_its_range() -> None:
    state = _state()
    first, second = _producer(state, V2_VERSIONS, "a"), _producer(state, V2_VERSIONS, "b")
    first.write(0)  # 0
    second.write(0)  # 1
    assert first.end(commit=False) == 0  # 2
    assert second.end() == 0  # 3
    first.write(0)  # 4
    assert first.end(commit=False) == 0  # 5

    def reported(offset: int) -> list[tuple[int, int]]:
        found = fetch(state, offset=offset).aborted_transactions or []
        return [(each.producer_id, each.first_offset) for each in found]

    pid = first.producer_id
    assert [reported(offset) for offset in (0, 2, 3, 6)] == [
        [(pid, 0), (pid, 4)],
        [(pid, 0), (pid, 4)],
        [(pid, 4)],
        [],
    ]
    assert fetch(state, committed=False).aborted_transactions is None


def test_a_v2_marker_fences_what_was_sent_before_it() -> None:
    state = _state()
    producer = _producer(state, V2_VERSIONS)
    producer.write(0)
    late = TransactionalProducer(state, V2_VERSIONS, producer_id=producer.producer_id, epoch=0)
    late.sequences[0, "t", 0] = 1
    assert producer.end() == 0
    assert late.produce(0) == 47
    assert producer.produce(0) == 0, "the next epoch begins at sequence 0"


def test_after_a_marker_began_an_epoch_its_sequences_begin_at_0() -> None:
    state = _state()
    producer = _producer(state, V2_VERSIONS)
    producer.write(0)
    assert producer.end() == 0
    producer.sequences[producer.epoch, "t", 0] = 1
    assert producer.produce(0) == 45


def test_a_marker_waits_for_its_partitions_leader() -> None:
    state = _state()
    state.create_topic("alone", TopicSpec(1, 1))
    producer = _producer(state, V1_VERSIONS)
    leader = state.topics["alone"].partitions[0].leader
    assert producer.add(0, topic="alone") == [0]
    state.set_broker_down(leader)
    assert producer.end() == 0
    assert producer.initialize() == 51
    state.advance(NOW_MS + 1000)
    assert state.transactions.transactions["tx"].state is TransactionState.PREPARE_COMMIT
    state.set_broker_up(leader)
    state.advance(NOW_MS + 2000)
    assert state.transactions.transactions["tx"].state is TransactionState.COMPLETE_COMMIT
    assert state.topics["alone"].partitions[0].log.end_offset == 1


def test_a_deleted_topic_needs_no_marker() -> None:
    state = _state(marker_delay_ms=5)
    producer = _producer(state, V1_VERSIONS)
    producer.write(0)
    assert producer.end() == 0
    state.delete_topic("t")
    for later_ms in (5, 10):
        state.advance(NOW_MS + later_ms)
    assert state.transactions.transactions["tx"].state is TransactionState.COMPLETE_COMMIT


@BOTH
def test_another_coordinator_goes_on_with_the_end_and_writes_all_markers(
    versions: dict[str, int],
) -> None:
    state = _state(2, marker_delay_ms=10, coordinator_load_ms=50)
    producer = _producer(state, versions)
    producer.write(0, 1)
    assert producer.end() == 0
    state.advance(NOW_MS + 10)
    logs = [partition.log for partition in state.topics["t"].partitions]
    assert sorted(log.end_offset for log in logs) == [1, 2]
    state.set_broker_down(coordinator_of(state))
    producer.now_ms = NOW_MS + 15
    assert producer.initialize() == 14
    producer.now_ms = NOW_MS + 100
    assert producer.initialize() == 51
    for later_ms in (110, 120, 130):
        state.advance(NOW_MS + later_ms)
    assert sorted(log.end_offset for log in logs) == [2, 3]
    assert state.transactions.transactions["tx"].state is TransactionState.COMPLETE_COMMIT
    assert fetch(state, 0).last_stable_offset == logs[0].end_offset
    assert producer.initialize() == 0


def test_the_coordinators_broker_may_be_gone_for_a_while() -> None:
    state = make_state(brokers=1)
    state.create_topic("t", TopicSpec(1, 1))
    producer = _producer(state, V1_VERSIONS)
    producer.write(0)
    state.set_broker_down(1)
    state.advance(NOW_MS + 3_600_000)
    assert state.next_wakeup_ms == NOW_MS + 3_600_000 + RETRY_MS, "not at once, again and again"
    assert state.transactions.transactions["tx"].state is TransactionState.ONGOING
    state.set_broker_up(1)
    producer.now_ms = NOW_MS + 3_600_000
    assert producer.end() == 90, "it timed out, which is noticed now"
