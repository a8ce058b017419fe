"""Produce and InitProducerId as a leader answers them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aioproducer.testing.broker import ClusterState, TopicSpec, UnknownProducers
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.init_producer_id import InitProducerIdRequest

from .support import NOW_MS, ask, header_of, make_batch, make_state, produce, produce_request
from .transactional import V2_VERSIONS, TransactionalProducer

DAY_MS = 86_400_000
UNKNOWN_TOPIC, NOT_LEADER, TOO_LARGE, NOT_ENOUGH_REPLICAS = 3, 6, 10, 19
INVALID_ACKS, OUT_OF_ORDER, INVALID_RECORD, UNKNOWN_TOPIC_ID = 21, 45, 87, 100
UNKNOWN_PRODUCER_ID = 59


@pytest.fixture
def state() -> ClusterState:
    state = make_state()
    state.create_topic("t", TopicSpec(3, 3))
    return state


@pytest.mark.parametrize("version", range(3, 14))
def test_batch_is_appended_in_every_version(state: ClusterState, version: int) -> None:
    first = produce(state, make_batch([b"a", b"b"]), version=version)
    second = produce(state, make_batch([b"c"]), version=version)
    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (0, 2)
    assert second.log_append_time_ms == -1


def test_partitions_of_one_request_are_answered_one_by_one(state: ClusterState) -> None:
    request = produce_request("t", 0, make_batch())
    request.topic_data[0].partition_data += (
        produce_request("t", 3, b"").topic_data[0].partition_data
    )
    request.topic_data[0].partition_data += (
        produce_request("t", 0, b"x").topic_data[0].partition_data
    )
    answers = ask(state, request, 9).responses[0].partition_responses
    assert [(each.index, each.error_code) for each in answers] == [(0, 0), (3, 3), (0, 87)]


def test_log_append_time_topic_answers_the_brokers_clock(state: ClusterState) -> None:
    state.create_topic("lat", TopicSpec(1, 1, {"message.timestamp.type": "LogAppendTime"}))
    answer = produce(state, make_batch(timestamps=[5]), topic="lat", now_ms=NOW_MS + 3)
    assert answer.log_append_time_ms == NOW_MS + 3


def test_broker_that_does_not_lead_names_the_leader_and_its_address(state: ClusterState) -> None:
    state.move_leader("t", 0, 2)
    response = ask(state, produce_request("t", 0, make_batch()), 10, node_id=1)
    answer = response.responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (NOT_LEADER, -1)
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 1)
    assert [(each.node_id, each.port) for each in response.node_endpoints] == [(2, 9093)]


def test_leader_is_not_named_before_v10(state: ClusterState) -> None:
    answer = produce(state, make_batch(), node_id=2, version=9)
    assert (answer.error_code, answer.current_leader.leader_id) == (NOT_LEADER, -1)


def test_partition_without_a_leader_names_none(state: ClusterState) -> None:
    state.create_topic("lonely", TopicSpec(1, 1))
    state.set_broker_down(state.topics["lonely"].partitions[0].leader)
    alive = state.live_brokers[0].node_id
    response = ask(state, produce_request("lonely", 0, make_batch()), 10, node_id=alive)
    answer = response.responses[0].partition_responses[0]
    assert (answer.error_code, answer.current_leader.leader_id) == (NOT_LEADER, -1)
    assert response.node_endpoints == []


def test_unknown_topics_and_ids_have_their_own_codes(state: ClusterState) -> None:
    assert produce(state, make_batch(), topic="nope").error_code == UNKNOWN_TOPIC
    assert produce(state, make_batch(), topic="nope", version=13).error_code == UNKNOWN_TOPIC_ID
    assert produce(state, make_batch(), partition=7).error_code == UNKNOWN_TOPIC


def test_v13_answers_by_topic_id(state: ClusterState) -> None:
    request = produce_request("t", 0, make_batch())
    request.topic_data[0].topic_id = state.topics["t"].topic_id
    assert ask(state, request, 13).responses[0].topic_id == state.topics["t"].topic_id


def test_impossible_acks_are_refused(state: ClusterState) -> None:
    assert produce(state, make_batch(), acks=2).error_code == INVALID_ACKS


def test_too_few_in_sync_replicas_refuse_acks_all_and_nothing_else(state: ClusterState) -> None:
    state.create_topic("safe", TopicSpec(1, 3, {"min.insync.replicas": "2"}))
    state.set_broker_down(1)
    assert produce(state, make_batch(), topic="safe").error_code == 0
    state.set_broker_down(2)
    assert produce(state, make_batch(), topic="safe").error_code == NOT_ENOUGH_REPLICAS
    assert produce(state, make_batch(), topic="safe", acks=1).error_code == 0


def test_no_more_in_sync_replicas_are_asked_for_than_there_are(state: ClusterState) -> None:
    state.create_topic("alone", TopicSpec(1, 1, {"min.insync.replicas": "2"}))
    assert produce(state, make_batch(), topic="alone").error_code == 0


def test_transactional_batch_needs_an_id_that_its_coordinator_has(state: ClusterState) -> None:
    stamps = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    request = produce_request("t", 0, make_batch(**stamps))
    codes = []
    for request.transactional_id in (None, "tx"):
        codes.append(ask(state, request, 9).responses[0].partition_responses[0].error_code)
    assert codes == [53, 49]


@pytest.mark.parametrize(
    ("code", "log_start"), [(2, -1), (6, -1), (10, -1), (19, 3), (45, 3), (59, 3), (87, 3)]
)
def test_errors_that_reach_the_log_report_where_it_begins(
    state: ClusterState, code: int, log_start: int
) -> None:
    produce(state, make_batch([b"x"] * 5))
    state.topics["t"].partitions[0].log.delete_before(3)
    state.faults.error(ApiKey.PRODUCE, code)
    assert produce(state, make_batch()).log_start_offset == log_start


def test_refused_sequence_reports_where_the_log_begins_and_a_missing_batch_does_not(
    state: ClusterState,
) -> None:
    produce(state, make_batch(producer_id=5, producer_epoch=0, base_sequence=0))
    state.topics["t"].partitions[0].log.delete_before(1)
    gap = make_batch(producer_id=5, producer_epoch=0, base_sequence=9)
    assert produce(state, gap).log_start_offset == 1
    assert produce(state, b"").log_start_offset == -1


def test_acks_0_is_never_answered_and_an_error_closes_the_connection(state: ClusterState) -> None:
    good = header_of(produce_request("t", 0, make_batch(), acks=0), 9)
    reply = state.respond(1, good, NOW_MS)
    assert (reply.frame, reply.close) == (None, None)
    assert state.topics["t"].partitions[0].log.end_offset == 1
    bad = header_of(produce_request("t", 0, b"junk", acks=0), 9)
    reply = state.respond(1, bad, NOW_MS)
    assert reply.frame is None
    assert reply.close is not None


def test_refused_records_are_named_from_v8(state: ClusterState) -> None:
    state.create_topic("c", TopicSpec(1, 1, {"cleanup.policy": "compact"}))
    data = make_batch([b"a", b"b"], keys=[b"k", None])
    answer = produce(state, data, topic="c", version=8)
    assert answer.error_code == INVALID_RECORD
    assert [each.batch_index for each in answer.record_errors] == [1]
    assert answer.error_message is not None
    assert produce(state, data, topic="c", version=7).record_errors == []


def test_too_large_batch_is_refused_and_not_written(state: ClusterState) -> None:
    state.create_topic("s", TopicSpec(1, 1, {"max.message.bytes": "100"}))
    assert produce(state, make_batch([b"x" * 100]), topic="s").error_code == TOO_LARGE
    assert state.topics["s"].partitions[0].log.end_offset == 0


def test_repeated_batch_gets_its_first_answer_and_is_written_once(state: ClusterState) -> None:
    data = make_batch([b"a"] * 3, producer_id=5, producer_epoch=0, base_sequence=0)
    produce(state, make_batch())
    assert [produce(state, data).base_offset for _ in range(3)] == [1, 1, 1]
    assert state.topics["t"].partitions[0].log.end_offset == 4
    assert produce(state, data).log_append_time_ms == NOW_MS
    gap = make_batch(producer_id=5, producer_epoch=0, base_sequence=4)
    assert produce(state, gap).error_code == OUT_OF_ORDER


def test_idle_producer_expires_after_a_day_and_may_go_on_anywhere(
    state: ClusterState,
) -> None:
    def send(sequence: int, now_ms: int, timestamp_ms: int) -> int:
        stamps = {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence}
        batch = make_batch(timestamps=[timestamp_ms], **stamps)
        return produce(state, batch, now_ms=now_ms).error_code

    assert send(0, NOW_MS, NOW_MS) == 0
    assert send(2, NOW_MS + DAY_MS - 1_200_000, NOW_MS) == OUT_OF_ORDER
    assert send(2, NOW_MS + DAY_MS + 600_000, NOW_MS) == 0
    # What counts is the records' time, where that is the producer's to say.
    assert send(9, NOW_MS + DAY_MS + 1_200_000, NOW_MS) == 0


@pytest.mark.parametrize(
    ("handling", "code", "log_start"),
    [
        (UnknownProducers.ACCEPT, 0, 2),
        (UnknownProducers.UNKNOWN_PRODUCER_ID, UNKNOWN_PRODUCER_ID, 2),
        (UnknownProducers.OUT_OF_ORDER, OUT_OF_ORDER, -1),
    ],
)
def test_brokers_differ_in_what_they_answer_an_unknown_producer(
    state: ClusterState, handling: UnknownProducers, code: int, log_start: int
) -> None:
    state.settings = replace(state.settings, unknown_producers=handling)
    for _ in range(2):
        produce(state, make_batch())
    partition = state.topics["t"].partitions[0]
    partition.log.delete_before(2)
    middle = make_batch(producer_id=5, producer_epoch=0, base_sequence=3)
    answer = produce(state, middle)
    assert (answer.error_code, answer.log_start_offset) == (code, log_start)
    beginning = make_batch(producer_id=6, producer_epoch=0, base_sequence=0)
    assert produce(state, beginning).error_code == 0
    following = make_batch(producer_id=6, producer_epoch=0, base_sequence=1)
    assert produce(state, following).error_code == 0
    assert produce(state, make_batch()).error_code == 0


def test_transaction_of_version_2_by_an_expired_producer_begins_at_sequence_0(
    state: ClusterState,
) -> None:
    producer = TransactionalProducer(state, V2_VERSIONS)
    assert producer.initialize() == 0
    producer.sequences[producer.epoch, "t", 0] = 3
    assert producer.produce() == OUT_OF_ORDER
    producer.sequences.clear()
    assert producer.produce() == 0


def test_sequences_survive_a_change_of_leader(state: ClusterState) -> None:
    data = make_batch([b"a"], producer_id=5, producer_epoch=0, base_sequence=0)
    produce(state, data)
    state.set_broker_down(1)
    answer = produce(state, data)
    assert (answer.error_code, answer.base_offset) == (0, 0)


@pytest.mark.parametrize("version", range(6))
def test_producer_ids_are_unique(state: ClusterState, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None)
    answers = [ask(state, request, version, node_id=node) for node in (1, 2, 3)]
    assert len({answer.producer_id for answer in answers}) == 3
    assert {(answer.error_code, answer.producer_epoch) for answer in answers} == {(0, 0)}


def test_scripted_error_is_answered_without_or_after_the_write(state: ClusterState) -> None:
    log = state.topics["t"].partitions[0].log
    state.faults.error(ApiKey.PRODUCE, NOT_ENOUGH_REPLICAS, topic="t", partition=0)
    state.faults.error(ApiKey.PRODUCE, 20, topic="t", partition=0, apply=True)
    assert produce(state, make_batch()).error_code == NOT_ENOUGH_REPLICAS
    assert log.end_offset == 0
    assert produce(state, make_batch()).error_code == 20
    assert log.end_offset == 1
    assert produce(state, make_batch()).error_code == 0
