"""Coordinators, features in ApiVersions, the admin API, and faults of these requests."""

from __future__ import annotations

import pytest

from aioproducer.testing.broker import ClusterState, TopicSpec
from aioproducer.testing.broker.transactions.shards import CoordinatorKind
from aioproducer.testing.framing import RequestHeader
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.api_versions import ApiVersionsRequest
from aioproducer.wire.messages.find_coordinator import FindCoordinatorRequest
from aioproducer.wire.messages.init_producer_id import InitProducerIdRequest
from aioproducer.wire.messages.transactions import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)

from .support import NOW_MS, ask, make_state
from .transactional import V1_VERSIONS, V2_VERSIONS, TransactionalProducer, coordinator_of

SOFTWARE = ApiVersionsRequest(client_software_name="tests", client_software_version="1")


@pytest.fixture
def state() -> ClusterState:
    state = make_state()
    state.create_topic("t", TopicSpec(2, 3))
    return state


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        *((CoordinatorKind.GROUP, version) for version in range(7)),
        *((CoordinatorKind.TRANSACTION, version) for version in range(1, 7)),
    ],
)
def test_every_version_names_the_coordinator(
    state: ClusterState, version: int, kind: CoordinatorKind
) -> None:
    request = FindCoordinatorRequest(key_type=kind)
    if version >= 4:
        request.coordinator_keys = ["a", "b"]
    else:
        request.key = "a"
    response = ask(state, request, version)
    answers = response.coordinators if version >= 4 else [response]
    for key, answer in zip("ab", answers, strict=False):
        leader = state.shards.shard(kind, key).leader
        assert (answer.error_code, answer.node_id) == (0, leader)
        assert (answer.host, answer.port) == state.brokers[leader][1:3]


def test_keys_go_where_java_sends_them(state: ClusterState) -> None:
    # "polygenelubricants" hashes to -2^31, which has no absolute value; "\\U0001F600" is two units.
    shards = {key: state.shards.shard(CoordinatorKind.GROUP, key).index for key in ("a", "ab")}
    assert shards == {"a": 97 % 5, "ab": (97 * 31 + 98) % 5}
    assert state.shards.shard(CoordinatorKind.GROUP, "polygenelubricants").index == 0
    smile = 31 * 0xD83D + 0xDE00
    assert state.shards.shard(CoordinatorKind.GROUP, "\U0001f600").index == smile % 5


def test_other_kinds_of_coordinators_there_are_none(state: ClusterState) -> None:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=["a"])
    assert ask(state, request, 6).coordinators[0].error_code == 42


def test_coordinators_move_when_their_brokers_stop(state: ClusterState) -> None:
    producer = TransactionalProducer(state, V1_VERSIONS)
    assert producer.initialize() == 0
    first = coordinator_of(state)
    state.set_broker_down(first)
    second = coordinator_of(state)
    assert second != first
    state.set_broker_up(first)
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1)
    assert ask(state, request, 4, node_id=first).error_code == 16
    assert producer.initialize() == 0
    assert producer.epoch == 1, "the state moved with it"


def test_without_any_replica_there_is_no_coordinator() -> None:
    state = make_state(brokers=4)
    state.create_topic("t", TopicSpec(1, 4))
    shard = state.shards.shard(CoordinatorKind.TRANSACTION, "tx")
    (outsider,) = {1, 2, 3, 4} - {*shard.replicas}
    for node_id in shard.replicas:
        state.set_broker_down(node_id)
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"])
    answer = ask(state, request, 4, node_id=outsider).coordinators[0]
    assert (answer.error_code, answer.node_id) == (15, -1)
    producer = TransactionalProducer(state, V2_VERSIONS, producer_id=0, epoch=0)
    assert producer.produce(0) == 19


def test_a_loading_coordinator_says_so() -> None:
    state = make_state(coordinator_load_ms=100)
    state.create_topic("t", TopicSpec(1, 3))
    producer = TransactionalProducer(state, V2_VERSIONS)
    assert producer.initialize() == 0, "a new coordinator has nothing to load"
    state.set_broker_down(coordinator_of(state))
    assert producer.initialize() == 14
    assert producer.produce(0) == 19
    producer.now_ms += 100
    assert producer.initialize() == 0


def test_features_are_reported_and_may_change(state: ClusterState) -> None:
    def reported(version: int = 4) -> tuple[int, dict[str, int]]:
        answer = ask(state, SOFTWARE, version)
        levels = {each.name: each.max_version_level for each in answer.finalized_features}
        return answer.finalized_features_epoch, levels

    assert reported() == reported(3) == (0, {"transaction.version": 2})
    state.set_transaction_version(1)
    assert reported() == (1, {"transaction.version": 1})
    state.set_transaction_version(0)
    assert reported() == (2, {})
    assert [each.max_version for each in ask(state, SOFTWARE, 4).supported_features] == [2]
    assert ask(state, SOFTWARE, 3).supported_features == []
    with pytest.raises(ValueError, match="levels 0 to 2"):
        state.set_transaction_version(3)


def test_clients_are_offered_versions_that_only_brokers_may_use(
    state: ClusterState,
) -> None:
    ranges = {each.api_key: each.max_version for each in ask(state, SOFTWARE, 4).api_keys}
    assert ranges[ApiKey.ADD_PARTITIONS_TO_TXN] == 5
    header = RequestHeader(int(ApiKey.ADD_PARTITIONS_TO_TXN), 4, 7, "x", memoryview(b""))
    reply = state.respond(1, header, NOW_MS)
    assert (reply.frame, reply.close) == (None, "ADD_PARTITIONS_TO_TXN v4 is not served")


def test_transactions_are_listed_at_their_coordinators(state: ClusterState) -> None:
    ids = [f"job-{index}" for index in range(6)]
    for transactional_id in ids:
        producer = TransactionalProducer(state, V2_VERSIONS, transactional_id)
        assert producer.initialize() == 0
    producer.write(0)

    def listed(version: int = 2, **filters: object) -> set[str]:
        return {
            each.transactional_id
            for node_id in (1, 2, 3)
            for each in ask(
                state,
                ListTransactionsRequest(**filters),
                version,
                node_id=node_id,
                now_ms=NOW_MS + 1000,
            ).transaction_states
        }

    assert listed(0) == set(ids)
    assert listed(state_filters=["Ongoing"]) == {"job-5"}
    assert listed(producer_id_filters=[producer.producer_id]) == {"job-5"}
    assert listed(duration_filter=999) == {"job-5"}
    assert listed(duration_filter=1000) == set()
    assert listed(transactional_id_pattern="job-[12]") == {"job-1", "job-2"}
    answer = ask(state, ListTransactionsRequest(state_filters=["Odd"]), 2)
    assert (answer.unknown_state_filters, answer.transaction_states) == (["Odd"], [])
    assert ask(state, ListTransactionsRequest(transactional_id_pattern="("), 2).error_code == 128


def test_a_transaction_is_described_at_its_coordinator(state: ClusterState) -> None:
    producer = TransactionalProducer(state, V2_VERSIONS)
    assert producer.initialize() == 0
    producer.write(1, 0)
    request = DescribeTransactionsRequest(transactional_ids=["tx"])
    (found,) = ask(state, request, 0, node_id=coordinator_of(state)).transaction_states
    assert (found.error_code, found.transaction_state) == (0, "Ongoing")
    assert (found.producer_id, found.producer_epoch) == producer.identity
    assert (found.transaction_timeout_ms, found.transaction_start_time_ms) == (60_000, NOW_MS)
    assert [(each.topic, each.partitions) for each in found.topics] == [("t", [0, 1])]
    other = next(node for node in (1, 2, 3) if node != coordinator_of(state))
    assert ask(state, request, 0, node_id=other).transaction_states[0].error_code == 16
    for unknown, code in [("", 42), ("nobody", 105)]:
        request.transactional_ids = [unknown]
        node_id = coordinator_of(state, unknown)
        assert ask(state, request, 0, node_id=node_id).transaction_states[0].error_code == code


def test_faults_strike_before_or_after_the_work(state: ClusterState) -> None:
    producer = TransactionalProducer(state, V1_VERSIONS)
    for api in (ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN):
        state.faults.error(api, 14)
        state.faults.error(api, 7, apply=True)
    assert [producer.initialize() for _ in range(3)] == [14, 7, 0]
    assert producer.epoch == 1, "the second one was carried out"
    assert [producer.add_group() for _ in range(3)] == [14, 7, 0]
    assert [producer.end() for _ in range(3)] == [14, 7, 0]


def test_faults_of_single_partitions_keep_the_others_out_of_the_transaction(
    state: ClusterState,
) -> None:
    producer = TransactionalProducer(state, V1_VERSIONS)
    assert producer.initialize() == 0
    state.faults.error(ApiKey.ADD_PARTITIONS_TO_TXN, 29, topic="t", partition=1)
    assert producer.add(0, 1) == [55, 29]
    state.faults.error(ApiKey.ADD_PARTITIONS_TO_TXN, 51)
    assert producer.add(0, 1) == [51, 51]
    assert not state.transactions.transactions["tx"].partitions
    assert producer.add(0, 1) == [0, 0]
