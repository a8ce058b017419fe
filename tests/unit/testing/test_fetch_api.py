"""Fetch and ListOffsets: limits, long polls, epochs, special timestamps."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer.records.batch import read_batches
from aioproducer.testing.broker import ClusterState, TopicSpec
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aioproducer.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

from .support import NOW_MS, ask, header_of, make_batch, make_state, produce

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, FENCED, UNKNOWN_EPOCH = 1, 3, 6, 74, 75


@pytest.fixture
def state() -> ClusterState:
    state = make_state()
    state.create_topic("t", TopicSpec(3, 3))
    for value in (b"a", b"b", b"c"):
        produce(state, make_batch([value] * 2))
    return state


def fetch_request(state: ClusterState, *wanted: FetchPartition, **limits: Any) -> FetchRequest:
    topic = state.topics["t"]
    given = list(wanted) or [fetch_partition()]
    return FetchRequest(
        **({"max_wait_ms": 0, "min_bytes": 1} | limits),
        topics=[FetchTopic(topic="t", topic_id=topic.topic_id, partitions=given)],
    )


def fetch_partition(index: int = 0, offset: int = 0, **more: Any) -> FetchPartition:
    return FetchPartition(
        partition=index, fetch_offset=offset, **({"partition_max_bytes": 1 << 20} | more)
    )


def offsets_in(data: Any) -> list[int]:
    return [record.offset for batch in read_batches(data.records) for record in batch.records()]


def fetch_one(state: ClusterState, request: FetchRequest, version: int = 11, node: int = 1) -> Any:
    return ask(state, request, version, node_id=node).responses[0].partitions[0]


@pytest.mark.parametrize("version", range(4, 18))
def test_records_are_read_in_every_version(state: ClusterState, version: int) -> None:
    data = fetch_one(state, fetch_request(state), version)
    assert (data.error_code, data.high_watermark) == (0, 6)
    assert offsets_in(data) == [0, 1, 2, 3, 4, 5]


def test_batch_that_holds_the_offset_comes_whole(state: ClusterState) -> None:
    data = fetch_one(state, fetch_request(state, fetch_partition(offset=3)))
    assert offsets_in(data) == [2, 3, 4, 5]


def test_partition_limit_holds_but_one_batch_always_comes(state: ClusterState) -> None:
    data = fetch_one(state, fetch_request(state, fetch_partition(partition_max_bytes=1)))
    assert offsets_in(data) == [0, 1]


def test_response_limit_holds_over_partitions(state: ClusterState) -> None:
    state.move_leader("t", 1, 1)
    produce(state, make_batch(), partition=1)
    wanted = [fetch_partition(0), fetch_partition(1)]
    partitions = ask(state, fetch_request(state, *wanted, max_bytes=1), 11).responses[0].partitions
    assert [len(offsets_in(data)) for data in partitions] == [2, 0]


@pytest.mark.parametrize("offset", [-1, 7])
def test_offset_outside_the_log_is_out_of_range(state: ClusterState, offset: int) -> None:
    data = fetch_one(state, fetch_request(state, fetch_partition(offset=offset)))
    assert data.error_code == OFFSET_OUT_OF_RANGE


def test_end_of_the_log_is_empty_not_an_error(state: ClusterState) -> None:
    data = fetch_one(state, fetch_request(state, fetch_partition(offset=6)))
    assert (data.error_code, offsets_in(data)) == (0, [])


def test_other_broker_names_the_leader(state: ClusterState) -> None:
    response = ask(state, fetch_request(state), 16, node_id=3)
    data = response.responses[0].partitions[0]
    assert (data.error_code, data.current_leader.leader_id) == (NOT_LEADER, 1)
    assert [each.node_id for each in response.node_endpoints] == [1]


def test_leader_epochs_are_compared(state: ClusterState) -> None:
    state.move_leader("t", 0, 2)
    state.move_leader("t", 0, 1)
    codes = [
        fetch_one(
            state, fetch_request(state, fetch_partition(current_leader_epoch=epoch))
        ).error_code
        for epoch in (-1, 1, 2, 3)
    ]
    assert codes == [0, FENCED, 0, UNKNOWN_EPOCH]


def test_fetch_session_is_never_opened_and_an_invented_one_is_refused(state: ClusterState) -> None:
    assert ask(state, fetch_request(state, session_epoch=0), 11).session_id == 0
    assert ask(state, fetch_request(state, session_id=5, session_epoch=1), 11).error_code == 70


def test_fetch_with_nothing_to_read_waits_and_sees_what_is_appended(state: ClusterState) -> None:
    header = header_of(fetch_request(state, fetch_partition(offset=6), max_wait_ms=500), 11)
    waiting = state.respond(1, header, NOW_MS)
    assert waiting.frame is None
    assert waiting.wait is not None
    assert waiting.wait.deadline_ms == NOW_MS + 500
    assert waiting.wait.poll.watching == {("t", 0)}
    again = state.respond(1, header, NOW_MS + 100, wait=waiting.wait)
    assert again.wait is not None
    assert again.wait.deadline_ms == NOW_MS + 500
    produce(state, make_batch())
    assert state.respond(1, header, NOW_MS + 200, wait=again.wait).frame is not None


def test_long_poll_ends_empty_at_its_deadline(state: ClusterState) -> None:
    header = header_of(fetch_request(state, fetch_partition(offset=6), max_wait_ms=500), 11)
    wait = state.respond(1, header, NOW_MS).wait
    assert wait is not None
    assert state.respond(1, header, wait.deadline_ms, wait=wait).frame is not None


def test_long_poll_ends_when_the_leader_moves(state: ClusterState) -> None:
    header = header_of(fetch_request(state, fetch_partition(offset=6), max_wait_ms=500), 11)
    wait = state.respond(1, header, NOW_MS).wait
    state.move_leader("t", 0)
    assert state.respond(1, header, NOW_MS + 1, wait=wait).frame is not None


def test_min_bytes_above_what_is_there_waits(state: ClusterState) -> None:
    request = fetch_request(state, max_wait_ms=500, min_bytes=1 << 20)
    assert state.respond(1, header_of(request, 11), NOW_MS).wait is not None


def test_scripted_fetch_error_is_answered_at_once(state: ClusterState) -> None:
    state.faults.error(ApiKey.FETCH, UNKNOWN_TOPIC, topic="t")
    assert fetch_one(state, fetch_request(state, max_wait_ms=500)).error_code == UNKNOWN_TOPIC


def list_offset(state: ClusterState, timestamp: int, version: int = 7, **more: Any) -> Any:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp, **more)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])]
    )
    return ask(state, request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 11))
def test_ends_of_the_log_are_reported_in_every_version(state: ClusterState, version: int) -> None:
    assert list_offset(state, -1, version).offset == 6
    assert list_offset(state, -2, version).offset == 0


def test_timestamps_are_looked_up(state: ClusterState) -> None:
    produce(state, make_batch([b"x", b"y"], timestamps=[NOW_MS + 5, NOW_MS + 9]))
    found = list_offset(state, NOW_MS + 6)
    assert (found.offset, found.timestamp) == (7, NOW_MS + 9)
    assert list_offset(state, -3).offset == 7
    assert list_offset(state, NOW_MS + 10).offset == -1
    assert list_offset(state, -5, 9).offset == -1


def test_offsets_of_a_moved_partition_are_refused(state: ClusterState) -> None:
    state.move_leader("t", 0, 2)
    assert list_offset(state, -1).error_code == NOT_LEADER
    state.move_leader("t", 0, 1)
    assert list_offset(state, -1, current_leader_epoch=0).error_code == FENCED
    state.faults.error(ApiKey.LIST_OFFSETS, 5)
    assert list_offset(state, -1).error_code == 5
