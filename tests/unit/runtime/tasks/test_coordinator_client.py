"""Questions to coordinators while brokers come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from support.picky_dialer import PickyDialer
from support.stage import Stage, play

from aioproducer.config import ProducerConfig
from aioproducer.core.transactions import coordinator_queries
from aioproducer.core.transactions.requests import CoordinatorKey, CoordinatorKind
from aioproducer.errors import (
    AuthorizationError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NodeDisconnectedError,
    ProtocolError,
    TlsError,
)
from aioproducer.net.client import PreparedRequest
from aioproducer.net.responses import UndecodedAnswer
from aioproducer.runtime.tasks.coordinator_client import CoordinatorClient
from aioproducer.testing.broker.faults import ConnectionFault, Fault
from aioproducer.types import OffsetAndMetadata, TopicPartition
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.framing import decode_response, encode_request
from aioproducer.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from aioproducer.wire.messages.metadata import MetadataRequest


def client_on(stage: Stage) -> CoordinatorClient:
    return CoordinatorClient(ProducerConfig(**stage.world.spec.options), dialer=stage.world.network)


def committed() -> coordinator_queries.CoordinatorQuery[Any]:
    return coordinator_queries.committed("group", None)


async def coordinator_of(client: CoordinatorClient) -> int:
    await client.ask(committed())
    (node,) = client._coordinators.values()
    return node


def test_a_coordinator_that_the_brokers_no_longer_list_is_searched_anew() -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        node = await coordinator_of(client)
        stage.crash(node)
        await asyncio.sleep(1)
        began = stage.loop.time()
        # Reads which brokers there are.
        await client.ask_each(coordinator_queries.list_open("tx", None))
        assert await coordinator_of(client) != node
        assert stage.loop.time() - began < 30
        await client.close()

    play(act, brokers=3)


@pytest.mark.parametrize("api", [ApiKey.API_VERSIONS, ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH])
@pytest.mark.parametrize("frame", [b"\x00\x00\x00\x02no", b"\x7f\xff\xff\xff", b"\x15\x03\x03\x00"])
def test_invalid_bytes_count_as_a_lost_connection(api: ApiKey, frame: bytes) -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        garbage = [
            stage.faults.garble(frame, api, node_id=node_id, close=True) for node_id in (1, 2, 3)
        ]
        if api is ApiKey.API_VERSIONS and frame.startswith(b"\x15"):
            with pytest.raises(TlsError):
                await client.ask(committed())
        else:
            assert await client.ask(committed()) == {}
        assert any(each.struck for each in garbage)
        await client.close()

    play(act, brokers=3)


@pytest.mark.parametrize("node_id", [0, 99])
def test_a_broker_that_is_not_listed_is_not_waited_for(node_id: int) -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        with pytest.raises(NodeDisconnectedError, match="left the cluster"):
            await client.ask_broker(node_id, coordinator_queries.list_open("tx", None))
        await client.close()

    play(act)


def test_the_brokers_are_listed_once_for_questions_to_one_of_them() -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        listed = stage.faults.add(Fault(ConnectionFault(), ApiKey.METADATA, times=None))
        for node_id in (1, 2, 1):
            assert await client.ask_broker(node_id, coordinator_queries.list_open("tx", None)) == []
        assert listed.struck == 1
        await client.close()

    play(act, brokers=2)


def test_the_first_question_to_every_broker_is_answered_by_each() -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        answers = await client.ask_each(coordinator_queries.list_open("tx", None))
        assert len(answers) == 3
        await client.close()

    play(act, brokers=3)


def test_all_brokers_are_asked_at_the_same_time() -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        for node_id in (1, 2, 3):
            stage.faults.delay(2000, ApiKey.LIST_TRANSACTIONS, node_id=node_id)
        began = stage.loop.time()
        await client.ask_each(coordinator_queries.list_open("tx", None))
        assert stage.loop.time() - began < 4
        await client.close()

    play(act, brokers=3)


def test_a_coordinator_found_in_advance_is_asked_without_another_search() -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        await client.find_coordinators(CoordinatorKind.GROUP, ["group"])
        search = stage.faults.error(ApiKey.FIND_COORDINATOR, 15, times=None)
        assert await client.ask(committed()) == {}
        assert search.struck == 0
        await client.close()

    play(act, brokers=3)


NOT_COORDINATOR = 16


def test_coordinators_that_have_moved_are_searched_anew() -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        moved = stage.faults.error(ApiKey.DESCRIBE_TRANSACTIONS, NOT_COORDINATOR)
        searches = stage.faults.add(Fault(ConnectionFault(), ApiKey.FIND_COORDINATOR, times=None))
        found = await client.ask_coordinators(
            CoordinatorKind.TRANSACTION, ["x", "y"], coordinator_queries.describe_each
        )
        assert (moved.struck, searches.struck, found) == (1, 2, {})
        await client.close()

    play(act, brokers=3)


def test_a_coordinator_that_is_dropped_during_the_search_of_another_is_asked() -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        kind, query = CoordinatorKind.TRANSACTION, coordinator_queries.describe_each
        await client.find_coordinators(kind, ["x"])
        stage.faults.add(Fault(ConnectionFault(delay_ms=500), ApiKey.FIND_COORDINATOR))
        asking = asyncio.create_task(client.ask_coordinators(kind, ["x", "y"], query))
        await asyncio.sleep(0.2)
        client.drop_coordinators()
        assert await asking == {}
        await client.close()

    play(act, brokers=3)


def test_coordinators_are_remembered_until_they_are_dropped() -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        searches = stage.faults.add(Fault(ConnectionFault(), ApiKey.FIND_COORDINATOR, times=None))
        for dropped in (False, False, True):
            if dropped:
                client.drop_coordinators()
            await client.ask(committed())
        assert searches.struck == 2
        await client.close()

    play(act, brokers=3)


def test_a_question_that_fails_is_repeated_ever_more_rarely() -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        refusal = stage.faults.error(ApiKey.FIND_COORDINATOR, 15, times=None)
        with pytest.raises(KafkaTimeoutError, match="COORDINATOR_NOT_AVAILABLE"):
            await client.ask(committed())
        # 100, 200, 400, 800 ms and then one a second.
        assert 15 < refusal.struck < 35
        await client.close()

    play(act, max_block_ms=20_000)


Ranges = Mapping[int, tuple[int, int]]


def cluster_id_request(versions: Ranges) -> PreparedRequest:
    """A Metadata request of version 4, encoded here."""
    assert versions[ApiKey.METADATA][0] <= 4 <= versions[ApiKey.METADATA][1]
    message = MetadataRequest(topics=[], allow_auto_topic_creation=False)

    def build(version: int, correlation_id: int, client_id: str | None) -> list[bytes]:
        return [encode_request(message, version, correlation_id, client_id)]

    return PreparedRequest(UndecodedAnswer, build, version=4)


def test_a_request_that_is_encoded_elsewhere_is_answered_by_the_frame() -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        frames = await asyncio.gather(*(client.relay(1, cluster_id_request) for _ in range(9)))
        answers = [decode_response(MetadataRequest, 4, frame)[1] for frame in frames]
        assert {len(answer.brokers) for answer in answers} == {3}
        await client.close()

    play(act, brokers=3)


def test_a_request_to_a_broker_that_is_not_listed_fails() -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        with pytest.raises(NodeDisconnectedError, match="left the cluster"):
            await client.relay(99, cluster_id_request)
        await client.close()

    play(act)


def test_a_request_that_waits_for_its_broker_fails_when_the_client_is_closed() -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        await client.relay(1, cluster_id_request)
        waiting = asyncio.create_task(client.relay(2, cluster_id_request))
        await asyncio.sleep(0)
        began = stage.loop.time()
        await client.close()
        with pytest.raises(KafkaConnectionError):
            await waiting
        assert stage.loop.time() - began < 3

    play(act, brokers=2)


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_question_is_not_repeated_after_the_client_was_closed(is_connected: bool) -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        stage.faults.swallow(ApiKey.FIND_COORDINATOR, times=None)
        waiting = asyncio.create_task(client.ask(committed()))
        await asyncio.sleep(0.5 if is_connected else 0)
        began = stage.loop.time()
        await client.close()
        with pytest.raises(NodeDisconnectedError, match="the client was closed"):
            await waiting
        assert stage.loop.time() - began < 3

    play(act, max_block_ms=60_000)


def test_a_timeout_has_the_last_failure_and_its_advice_if_there_is_one() -> None:
    repeat = "it may have had its effect; it is safe to repeat"

    async def act(stage: Stage) -> None:
        client = client_on(stage)
        swallowed = stage.faults.swallow(ApiKey.FIND_COORDINATOR, times=None)
        with pytest.raises(
            KafkaTimeoutError, match="no outcome within max_block_ms=3000"
        ) as silent:
            await client.ask(committed())
        assert silent.value.advice == repeat
        stage.faults.remove(swallowed)
        stage.crash()
        with pytest.raises(KafkaTimeoutError, match=r"broker-1\.sim:9092") as refused:
            await client.ask(committed())
        advice = refused.value.advice or ""
        assert advice.endswith(f"; {repeat}")
        assert "start the broker" in advice
        await client.close()

    play(act, max_block_ms=3_000)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_transaction_version_is_that_of_the_cluster(version: int) -> None:
    async def act(stage: Stage) -> None:
        stage.world.cluster.set_transaction_version(version)
        client = client_on(stage)
        assert await client.transaction_version() == version
        await client.close()

    play(act)


@pytest.mark.parametrize(
    ("query", "api", "code", "resource"),
    [
        (coordinator_queries.committed("g", None), ApiKey.OFFSET_FETCH, 30, "group 'g'"),
        (
            coordinator_queries.describe("tx"),
            ApiKey.DESCRIBE_TRANSACTIONS,
            53,
            "transactional id 'tx'",
        ),
        (coordinator_queries.list_open("", None), ApiKey.LIST_TRANSACTIONS, 31, "the cluster"),
    ],
    ids=["group", "transactional id", "cluster"],
)
def test_a_refused_question_names_the_principal_and_what_it_asked_about(
    query: coordinator_queries.CoordinatorQuery[Any], api: ApiKey, code: int, resource: str
) -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        stage.faults.error(api, code)
        with pytest.raises(AuthorizationError) as caught:
            await client.ask(query)
        assert "User:ANONYMOUS" in (caught.value.principal or "")
        assert caught.value.resource == resource
        await client.close()

    play(act)


HOSTS = {f"broker-{number}.sim" for number in (1, 2, 3)}


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_a_server_that_refuses_the_client_ends_no_question_that_another_can_answer(
    host: str,
) -> None:
    async def act(stage: Stage) -> None:
        dialer = PickyDialer(stage.world.network, {host})
        for _ in range(5):
            config = ProducerConfig(**stage.world.spec.options)
            client = CoordinatorClient(config, dialer=dialer)
            assert await client.ask(coordinator_queries.brokers())
            assert await client.transaction_version() == 2
            await client.close()

    play(act, brokers=3)


def test_once_all_servers_have_refused_the_client_a_question_fails_at_once() -> None:
    async def act(stage: Stage) -> None:
        dialer = PickyDialer(stage.world.network, set(HOSTS))
        client = CoordinatorClient(ProducerConfig(**stage.world.spec.options), dialer=dialer)
        with pytest.raises(TlsError):
            await client.ask(coordinator_queries.brokers())
        assert stage.loop.time() < 0.5
        assert dialer.refused == 3
        dialer.refuse.clear()
        await asyncio.sleep(5)
        assert await client.ask(coordinator_queries.brokers())
        await client.close()

    play(act, brokers=3)


def test_a_missing_topic_is_named_and_not_called_safe_to_repeat() -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        position = {TopicPartition("missing", 0): OffsetAndMetadata(1, "")}
        with pytest.raises(KafkaTimeoutError, match="UNKNOWN_TOPIC_OR_PARTITION") as caught:
            await client.ask(coordinator_queries.commit("group", position))
        assert caught.value.topic == "missing"
        assert "create the topic" in (caught.value.advice or "")
        await client.close()

    play(act)


def test_an_answer_that_leaves_out_a_coordinator_is_refused() -> None:
    read = coordinator_queries.find_coordinators(CoordinatorKind.GROUP, ["x", "y"]).read
    answer = FindCoordinatorResponse(
        coordinators=[Coordinator(key="x", node_id=1, host="a", port=9092)]
    )
    with pytest.raises(ProtocolError, match="left 'y' out of the coordinators"):
        read(answer)


@pytest.mark.parametrize(
    ("node_id", "host", "port"),
    [
        (1, "fe80::1%\r\nX: y", 9092),
        (1, "", 9092),
        (1, "b\u00fccher.example", 9092),
        (1, "h" * 30_000, 9092),
        (1, "a", 0),
        (1, "a", 70_000),
        (-1, "a", 9092),
    ],
)
def test_a_coordinator_at_an_impossible_address_is_refused(
    node_id: int, host: str, port: int
) -> None:
    kind = CoordinatorKind.TRANSACTION
    one = FindCoordinatorResponse(node_id=node_id, host=host, port=port)
    several = FindCoordinatorResponse(
        coordinators=[Coordinator(key="x", node_id=node_id, host=host, port=port)]
    )
    for read, answer in (
        (coordinator_queries.find_coordinator(CoordinatorKey(kind, "x")).read, one),
        (coordinator_queries.find_coordinator(CoordinatorKey(kind, "x")).read, several),
        (coordinator_queries.find_coordinators(kind, ["x"]).read, several),
    ):
        with pytest.raises(ProtocolError, match="a broker named a coordinator at") as raised:
            read(answer)
        assert len(str(raised.value)) < 500
        assert "\r" not in str(raised.value)
