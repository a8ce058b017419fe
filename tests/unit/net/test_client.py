"""All brokers: readiness, backoff, choice of a node, throttling, changes of the cluster."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest
from support import hostile
from support.eager import start_tasks_eagerly
from support.hostile import Peer, after_handshake

from aioproducer.errors import (
    ConnectionSetupTimeoutError,
    KafkaConnectionError,
    NameResolutionError,
    NodeDisconnectedError,
    UnsupportedVersionError,
)
from aioproducer.errors.advice import ADVICE
from aioproducer.metrics.totals import IOStats
from aioproducer.net.client import NodeNotReady, PreparedRequest
from aioproducer.net.context import NodeState
from aioproducer.net.dial.dialer import Address
from aioproducer.net.link import DIAL_TIMEOUT_S
from aioproducer.types import Node
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.framing import encode_request
from aioproducer.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.wire.messages.metadata import MetadataRequest, MetadataResponse
from aioproducer.wire.messages.produce import ProduceRequest
from net.harness import SETTINGS, Harness, harness
from net.virtual import MemoryDialer, VirtualLoop, black_hole, virtual_time

obedient = after_handshake(hostile.obedient)
silent = after_handshake(hostile.silent)


def answers_after(seconds: float) -> hostile.Behaviour:
    async def behave(peer: Peer) -> None:
        while True:
            header = await peer.request()
            await asyncio.sleep(seconds)
            peer.respond(header, MetadataResponse())

    return after_handshake(behave)


def throttles(milliseconds: int, ranges: hostile.Ranges = hostile.SANE_RANGES) -> hostile.Behaviour:
    """Answers the first request with a throttle time, at once."""

    async def behave(peer: Peer) -> None:
        await peer.handshake(ranges)
        header = await peer.request()
        peer.respond(header, MetadataResponse(throttle_time_ms=milliseconds))
        await peer.until_closed()

    return behave


# -- becoming ready, sending ----------------------------------------------------------------------


@virtual_time
async def test_a_node_becomes_ready_and_answers() -> None:
    async with harness(MemoryDialer({"broker": obedient})) as it:
        assert it.client.state(1) is NodeState.DISCONNECTED
        assert it.client.connection_failures(1) is None
        assert not it.client.any_ready()
        assert not it.client.is_ready(1, it.now)
        assert it.client.ready_at(1, it.now) == it.now
        it.client.maybe_connect(1, it.now)
        assert it.client.state(1) is NodeState.CONNECTING
        assert it.client.ready_at(1, it.now) == math.inf
        assert await it.connect() is None
        assert it.client.is_ready(1, it.now)
        assert it.client.ready_at(1, it.now) == it.now
        assert isinstance(await it.ask(), MetadataResponse)


@virtual_time
async def test_asking_to_connect_again_and_again_dials_once() -> None:
    dialer = MemoryDialer({"broker": obedient})
    async with harness(dialer) as it:
        for _ in range(5):
            it.client.maybe_connect(1, it.now)
        await it.connect()
        it.client.maybe_connect(1, it.now)
        assert len(dialer.dials) == 1


@virtual_time
async def test_connections_run_in_the_context_of_the_client_not_in_that_of_a_caller() -> None:
    caller: ContextVar[str] = ContextVar("caller", default="none")
    seen: list[str] = []

    class Watched(MemoryDialer):
        async def resolve(self, host: str, port: int, *, canonical: bool) -> list[Address]:
            seen.append(caller.get())
            return await super().resolve(host, port, canonical=canonical)

    class WatchedLog(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(caller.get())

    async def request(it: Harness) -> None:
        caller.set("a request")
        assert await it.connect() is None
        with pytest.raises(KafkaConnectionError):
            await it.ask()

    logger, handler = logging.getLogger("aioproducer.net"), WatchedLog()
    logger.addHandler(handler)
    try:
        async with harness(Watched({"broker": silent}), request_timeout_s=5.0) as it:
            await asyncio.create_task(request(it))
    finally:
        logger.removeHandler(handler)
    assert len(seen) > 1
    assert set(seen) == {"none"}


@virtual_time
async def test_a_node_that_is_not_ready_takes_no_request() -> None:
    async with harness(MemoryDialer({})) as it:
        with pytest.raises(NodeNotReady):
            it.send()
        with pytest.raises(NodeNotReady):
            it.send(node_id=77)
        with pytest.raises(NodeNotReady):
            it.client.api_version(1, MetadataRequest)
        assert it.client.ready_at(77, it.now) == math.inf
        it.client.maybe_connect(77, it.now)


@virtual_time
async def test_a_node_that_was_never_dialed_has_no_request_in_flight() -> None:
    async with harness(MemoryDialer({"broker": silent})) as it:
        assert (it.client.in_flight(1), it.client.in_flight(77)) == (0, 0)
        await it.connect()
        assert it.client.in_flight(1) == 0
        it.send().add_done_callback(lambda request: request.exception())
        assert it.client.in_flight(1) == 1


@virtual_time
async def test_versions_of_a_node_are_those_of_its_open_connection() -> None:
    ranges = {**hostile.SANE_RANGES, ApiKey.METADATA: (2, 11)}
    async with harness(MemoryDialer({"broker": hostile.advertises(ranges)})) as it:

        def versions_are_refused(node_id: int) -> None:
            with pytest.raises(NodeNotReady, match="versions of the broker are not known"):
                it.client.version_ranges(node_id)
            with pytest.raises(NodeNotReady, match="versions of the broker are not known"):
                it.client.api_version(node_id, MetadataRequest)

        versions_are_refused(1)
        versions_are_refused(77)
        await it.connect()
        assert it.client.version_ranges(1) == ranges
        versions_are_refused(77)
        it.lose_connection("enough")
        versions_are_refused(1)


@pytest.mark.parametrize("node_id", [1, -1])
def test_some_node_is_connected_while_one_connection_is_open(node_id: int) -> None:
    @virtual_time
    async def run() -> None:
        nodes = {1: ("broker", 9092), 2: ("other", 9092)}
        async with harness(MemoryDialer({"broker": silent}), nodes) as it:
            it.client.set_bootstrap([("broker", 9092), ("other", 9092)])
            assert not it.client.any_connected()
            await it.connect(node_id)
            assert it.client.any_connected()
            it.client.link(node_id).throttle(it.now + 1)
            assert it.client.any_connected(), "a busy one counts"
            it.lose_connection("enough", node_id)
            assert not it.client.any_connected()

    run()


@virtual_time
async def test_requests_have_the_lowest_and_the_highest_version_of_the_client_by_default() -> None:
    lowest, highest = MetadataRequest.VALID_VERSIONS
    for only in (lowest, highest):
        ranges = {**hostile.SANE_RANGES, ApiKey.METADATA: (only, only)}
        async with harness(MemoryDialer({"broker": hostile.advertises(ranges)})) as it:
            await it.connect()
            assert it.client.api_version(1, MetadataRequest) == only
            prepared = PreparedRequest.of(MetadataRequest(topics=[]))
            for request in (MetadataRequest(topics=[]), prepared):
                assert await it.client.send(1, request, now=it.now) is not None


def begin(it: Harness) -> None:
    """Sends a request as the sender does."""
    request = PreparedRequest.of(MetadataRequest(topics=None))
    it.client.begin(1, request, timeout_s=30, now=it.now, on_end=lambda answer, failure: None)


@virtual_time
async def test_a_node_takes_max_in_flight_requests_and_reports_when_there_is_room() -> None:
    async with harness(MemoryDialer({"broker": answers_after(1)}), max_in_flight=2) as it:
        await it.connect()
        begin(it)
        begin(it)
        assert it.client.in_flight(1) == 2
        assert not it.client.is_ready(1, it.now)
        assert it.client.ready_at(1, it.now) == math.inf
        with pytest.raises(NodeNotReady):
            begin(it)
        await it.next_event()
        assert it.client.is_ready(1, it.now)


@virtual_time
async def test_one_request_that_is_no_produce_may_exceed_max_in_flight() -> None:
    async with harness(MemoryDialer({"broker": answers_after(1)}), max_in_flight=2) as it:
        await it.connect()
        begin(it)
        begin(it)
        assert it.client.can_ask(1, it.now)
        assert it.client.least_loaded_node(it.now) == 1
        question = it.send()
        assert not it.client.can_ask(1, it.now)
        with pytest.raises(NodeNotReady):
            it.send()
        await it.next_event()
        assert not it.client.is_ready(1, it.now)  # the question counts for the others
        await question
        assert it.client.is_ready(1, it.now)


@virtual_time
async def test_a_prepared_request_is_built_in_the_highest_common_version() -> None:
    ranges = {**hostile.SANE_RANGES, ApiKey.METADATA: (2, 11)}
    async with harness(MemoryDialer({"broker": hostile.advertises(ranges)})) as it:
        await it.connect()
        built: list[tuple[int, str | None]] = []

        def build(version: int, correlation_id: int, client_id: str | None) -> list[bytes]:
            built.append((version, client_id))
            frame = encode_request(MetadataRequest(), version, correlation_id, client_id)
            return [frame[:6], frame[6:]]

        for version in (None, 9):
            request = PreparedRequest(MetadataRequest, build, version=version)
            await it.client.send(1, request, now=it.now)
        assert built == [(11, "tests"), (9, "tests")]
        assert it.client.api_version(1, MetadataRequest) == 11
        assert it.client.api_version(1, MetadataRequest, 0, 5) == 5
        with pytest.raises(UnsupportedVersionError, match="12 to 13"):
            it.client.api_version(1, MetadataRequest, 12)


@virtual_time
async def test_a_request_without_answer_keeps_the_following_answers_in_step() -> None:
    async def behave(peer: Peer) -> None:
        await peer.expect(ApiKey.PRODUCE)
        peer.respond(await peer.expect(ApiKey.METADATA), MetadataResponse(cluster_id="after"))
        await peer.until_closed()

    async with harness(MemoryDialer({"broker": after_handshake(behave)})) as it:
        await it.connect()

        def build(version: int, correlation_id: int, client_id: str | None) -> list[bytes]:
            return [encode_request(ProduceRequest(acks=0), version, correlation_id, client_id)]

        request = PreparedRequest(ProduceRequest, build, expect_response=False)
        assert await it.client.send(1, request, now=it.now) is None
        answer = await it.ask()
        assert isinstance(answer, MetadataResponse)
        assert answer.cluster_id == "after"


# -- dialing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "code"),
    [(("localhost", 1), "advertised-unreachable"), (("localhost", 9092), "port-refused")],
)
@virtual_time
async def test_a_refused_address_has_advice_that_depends_on_the_bootstrap_servers(
    server: tuple[str, int], code: str
) -> None:
    async with harness(MemoryDialer({}), {1: ("localhost", 9092)}) as it:
        it.client.set_bootstrap([server])
        error = await it.connect(1)
        assert error is not None
        assert error.advice == ADVICE[code]


@virtual_time
async def test_all_addresses_of_a_name_are_tried_in_order() -> None:
    dialer = MemoryDialer({"10.0.0.3": obedient}, {"broker": ["10.0.0.1", "10.0.0.2", "10.0.0.3"]})
    async with harness(dialer) as it:
        assert await it.connect() is None
        assert [host for _, host in dialer.dials] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
        assert set(dialer.hostnames) == {"broker"}


@pytest.mark.parametrize("node_id", [1, -1])
def test_a_name_is_resolved_again_at_every_dial(node_id: int) -> None:
    @virtual_time
    async def run() -> None:
        dialer = MemoryDialer({"10.0.0.1": obedient}, {"broker": ["10.0.0.1"]})
        async with harness(dialer) as it:
            it.client.set_bootstrap([("broker", 9092)])
            assert await it.connect(node_id) is None
            dialer.servers = {"10.0.0.9": obedient}
            dialer.names["broker"] = ["10.0.0.8", "10.0.0.9"]
            await dialer.close_connections()
            await it.wait_for_state(NodeState.BACKING_OFF, node_id=node_id)
            await asyncio.sleep(1)
            assert await it.connect(node_id) is None
            assert [host for _, host in dialer.dials] == ["10.0.0.1", "10.0.0.8", "10.0.0.9"]

    run()


@virtual_time
async def test_an_address_that_accepts_and_is_of_no_use_comes_last_the_next_time() -> None:
    dialer = MemoryDialer(
        {"10.0.0.1": hostile.closes, "10.0.0.2": hostile.closes, "10.0.0.3": obedient},
        {"broker": ["10.0.0.1", "10.0.0.2", "10.0.0.3"]},
    )
    async with harness(dialer) as it:
        for _ in range(2):
            assert await it.connect() is not None
            await asyncio.sleep(1)
        assert await it.connect() is None
        assert [host for _, host in dialer.dials] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


@virtual_time
async def test_an_address_that_answered_keeps_its_place() -> None:
    dialer = MemoryDialer(
        {"10.0.0.1": obedient, "10.0.0.2": obedient}, {"broker": ["10.0.0.1", "10.0.0.2"]}
    )
    async with harness(dialer) as it:
        for _ in range(2):
            assert await it.connect() is None
            await it.ask()
            await dialer.close_connections()
            await it.wait_for_state(NodeState.BACKING_OFF)
            await asyncio.sleep(1)
        assert [host for _, host in dialer.dials] == ["10.0.0.1", "10.0.0.1"]


@virtual_time
async def test_an_address_that_swallows_packets_leaves_time_for_the_next() -> None:
    dialer = MemoryDialer(
        {"10.0.0.1": black_hole, "10.0.0.2": obedient}, {"broker": ["10.0.0.1", "10.0.0.2"]}
    )
    async with harness(dialer) as it:
        started = it.now
        assert await it.connect() is None
        assert 4 - 1e-6 <= it.now - started <= 6 + 1e-6  # half of 10 s ± 20 %


@virtual_time
async def test_the_setup_timeout_bounds_a_dial_and_grows_with_jitter() -> None:
    dialer = MemoryDialer({"broker": black_hole})
    async with harness(dialer) as it:
        took = []
        for _ in range(4):
            started = it.now
            error = await it.connect()
            assert isinstance(error, ConnectionSetupTimeoutError)
            took.append(it.now - started)
            assert error.elapsed_ms == round(took[-1] * 1000)
            await asyncio.sleep(2)
        for seconds, expected in zip(took, (10, 20, 30, 30), strict=True):
            assert expected * 0.8 - 1e-6 <= seconds <= min(expected * 1.2, 30) + 1e-6
        assert took[0] != 10


@virtual_time
async def test_an_accepted_connection_resets_the_setup_timeout() -> None:
    dialer = MemoryDialer({"broker": black_hole})
    async with harness(dialer) as it:
        took = []
        for server in (black_hole, black_hole, hostile.closes, black_hole, black_hole):
            dialer.servers["broker"] = server
            started = it.now
            await it.connect()
            took.append(it.now - started)
            await asyncio.sleep(2)
        assert took[3] <= 12 + 1e-6
        assert took[4] >= 16 - 1e-6


@virtual_time
async def test_reconnects_back_off_exponentially_with_jitter() -> None:
    dialer = MemoryDialer({})
    async with harness(dialer) as it:
        pauses = []
        for _ in range(7):
            assert isinstance(await it.connect(), KafkaConnectionError)
            assert it.client.state(1) is NodeState.BACKING_OFF
            pauses.append(it.client.ready_at(1, it.now) - it.now)
            it.client.maybe_connect(1, it.now)
            assert it.client.state(1) is NodeState.BACKING_OFF
            await asyncio.sleep(pauses[-1] + 1e-6)
            assert it.client.state(1) is NodeState.DISCONNECTED
        for seconds, expected in zip(pauses, (0.05, 0.1, 0.2, 0.4, 0.8, 1, 1), strict=True):
            assert expected * 0.8 - 1e-6 <= seconds <= min(expected * 1.2, 1) + 1e-6


@virtual_time
async def test_an_answered_request_resets_the_reconnect_backoff() -> None:
    async def one_answer(peer: Peer) -> None:
        peer.respond(await peer.request(), MetadataResponse())

    dialer = MemoryDialer({"broker": after_handshake(hostile.closes)})
    async with harness(dialer) as it:
        for _ in range(4):
            await it.connect()
            await it.wait_for_state(NodeState.BACKING_OFF)
            await asyncio.sleep(1)
        dialer.servers["broker"] = after_handshake(one_answer)
        await it.connect()
        await it.ask()
        await it.wait_for_state(NodeState.BACKING_OFF)
        assert it.client.ready_at(1, it.now) - it.now <= 0.06


@virtual_time
async def test_a_connection_that_lasted_resets_the_reconnect_backoff() -> None:
    for seconds, is_reset in ((2, True), (1, True), (0.9, False)):

        async def lasts(peer: Peer, seconds: float = seconds) -> None:
            await asyncio.sleep(seconds)

        dialer = MemoryDialer({})
        async with harness(dialer) as it:
            for _ in range(4):
                await it.connect()
                await asyncio.sleep(1)
            dialer.servers["broker"] = after_handshake(lasts)
            await it.connect()
            await it.wait_for_state(NodeState.BACKING_OFF)
            assert (it.client.ready_at(1, it.now) - it.now <= 0.06) is is_reset
            await asyncio.sleep(1)
            dialer.servers.clear()
            await it.connect()
            assert it.client.ready_at(1, it.now) - it.now >= 0.08


@virtual_time
async def test_a_dead_broker_delays_no_other() -> None:
    dialer = MemoryDialer({"dead": black_hole, "alive": obedient})
    async with harness(dialer, {1: ("dead", 1), 2: ("alive", 1)}) as it:
        started = it.now
        it.client.maybe_connect(1, it.now)
        assert await it.connect(2) is None
        assert it.now == started
        assert it.client.state(1) is NodeState.CONNECTING


@virtual_time
async def test_an_unknown_host_is_an_error_that_says_so() -> None:
    async with harness(MemoryDialer({}, {"broker": []})) as it:
        error = await it.connect()
        assert type(error) is NameResolutionError
        assert "name resolution: broker is unknown" in str(error)


@virtual_time
async def test_canonical_names_are_asked_for_bootstrap_servers_only() -> None:
    dialer = MemoryDialer({"broker": obedient})
    nodes = {0: ("broker", 9092), 1: ("broker", 9092)}
    async with harness(dialer, nodes, dns_canonical=True) as it:
        it.client.set_bootstrap([("broker", 9092)])
        for node_id in (-1, 0, 1):
            await it.connect(node_id)
        assert dialer.canonical_asked == [True, False, False]
        assert dialer.hostnames == ["canonical-broker", "broker", "broker"]


@virtual_time
async def test_a_dialer_with_a_defect_ends_in_a_visible_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(MemoryDialer):
        async def resolve(self, host: str, port: int, *, canonical: bool) -> list[object]:
            raise ZeroDivisionError

    async with harness(Broken({})) as it:
        error = await it.connect()
        assert type(error) is KafkaConnectionError
        assert isinstance(error.__cause__, ZeroDivisionError)
        assert "failed unexpectedly" in caplog.text


@virtual_time
async def test_a_dial_that_fails_at_once_is_over_also_with_eager_tasks() -> None:
    async with harness(MemoryDialer({}), {1: ("a", 1)}) as it:
        start_tasks_eagerly()
        it.client.set_bootstrap([("x", 1)])
        await it.connect(1)
        assert not it.client.is_dialing(1)
        assert it.client.least_loaded_node(it.now) == -1


# -- losing connections ---------------------------------------------------------------------------


@virtual_time
async def test_a_timed_out_request_disconnects_the_node() -> None:
    async with harness(MemoryDialer({"broker": silent})) as it:
        await it.connect()
        started = it.now
        errors = await asyncio.gather(
            it.send(timeout_s=3), it.send(timeout_s=20), return_exceptions=True
        )
        assert [type(error) for error in errors] == [NodeDisconnectedError] * 2
        assert it.now - started == pytest.approx(3)
        assert it.client.state(1) is NodeState.BACKING_OFF


@virtual_time
async def test_an_idle_connection_is_closed_without_backoff_and_reopened_on_demand() -> None:
    dialer = MemoryDialer({"broker": obedient})
    async with harness(dialer, connections_max_idle_s=60.0) as it:
        await it.connect()
        connected_at = it.now
        await it.next_event()
        assert it.now - connected_at == pytest.approx(60)
        await asyncio.sleep(1)
        assert dialer.connections[0].is_lost
        assert it.client.state(1) is NodeState.DISCONNECTED
        assert it.client.connection_failures(1) is None
        assert await it.connect() is None
        assert isinstance(await it.ask(), MetadataResponse)


@virtual_time
async def test_a_lost_connection_fails_what_is_in_flight_with_its_error() -> None:
    async with harness(MemoryDialer({"broker": silent})) as it:
        await it.connect()
        request = it.send()
        it.lose_connection("fenced")
        with pytest.raises(NodeDisconnectedError, match="fenced"):
            await request
        assert it.client.state(1) is NodeState.BACKING_OFF


@virtual_time
async def test_repeated_failures_are_logged_ever_more_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with harness(
        MemoryDialer({}), reconnect_backoff_s=0.01, reconnect_backoff_max_s=0.01
    ) as it:
        started = it.now
        with caplog.at_level(logging.WARNING, "aioproducer.net"):
            while it.now - started < 2.5:
                await it.connect()
                await asyncio.sleep(0.01)
        assert len(caplog.records) == 2
        assert "node 1 (broker:9092) is not reachable" in caplog.text


@virtual_time
async def test_failures_that_were_not_logged_are_counted_when_the_client_closes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with harness(
        MemoryDialer({}), reconnect_backoff_s=0.01, reconnect_backoff_max_s=0.01
    ) as it:
        with caplog.at_level(logging.WARNING, "aioproducer.net"):
            for _ in range(3):
                await it.connect()
                await asyncio.sleep(0.02)
            await it.client.close(1)
        (_, left_out) = (record.getMessage() for record in caplog.records)
        assert left_out.startswith("2 line(s) like this were not logged")
        assert "node 1 (broker:9092) is not reachable" in left_out


@pytest.mark.parametrize(
    ("node_id", "host", "name"),
    [
        (0, "broker", "node 0 (broker:9092)"),
        (7, "broker", "node 7 (broker:9092)"),
        (7, "::1", "node 7 ([::1]:9092)"),
        (-1, "broker", "bootstrap server broker:9092"),
        (-1, "::1", "bootstrap server [::1]:9092"),
    ],
)
def test_the_log_names_brokers_by_their_ids_and_bootstrap_servers_by_their_addresses(
    node_id: int, host: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    @virtual_time
    async def run() -> None:
        async with harness(MemoryDialer({}), {max(node_id, 0): (host, 9092)}) as it:
            it.client.set_bootstrap([(host, 9092)])
            await it.connect(node_id)

    with caplog.at_level(logging.WARNING, "aioproducer.net"):
        run()
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{name} is not reachable: ")


@virtual_time
async def test_a_broker_that_is_reachable_again_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dialer = MemoryDialer({})
    async with harness(dialer) as it:
        with caplog.at_level(logging.WARNING, "aioproducer.net"):
            await it.connect()
            await asyncio.sleep(5)
            dialer.servers["broker"] = obedient
            assert await it.connect() is None
            await it.ask()
            await dialer.close_connections()
            await it.wait_for_state(NodeState.BACKING_OFF)
            await asyncio.sleep(1)
            assert await it.connect() is None
        (lost, found) = (record.getMessage() for record in caplog.records)
        assert "node 1 (broker:9092) is not reachable" in lost
        assert found.startswith("node 1 (broker:9092) is reachable again after 5.0 s")


@virtual_time
async def test_a_node_that_was_never_lost_is_not_logged_as_reachable_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with harness(MemoryDialer({"b": obedient}), {1: ("a", 1), 2: ("b", 1)}) as it:
        with caplog.at_level(logging.WARNING, "aioproducer.net"):
            await it.connect(1)
            await it.connect(2)
        (record,) = caplog.records
        assert "node 1 (a:1) is not reachable" in record.getMessage()


@virtual_time
async def test_a_close_that_cost_one_request_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with harness(
        MemoryDialer({"broker": after_handshake(hostile.closes_before_answering)})
    ) as it:
        with caplog.at_level(logging.WARNING, "aioproducer.net"):
            await it.connect()
            with pytest.raises(NodeDisconnectedError):
                await it.ask()
        (record,) = caplog.records
        assert "connection to node 1 (broker:9092) lost: " in record.getMessage()


@virtual_time
async def test_a_close_that_cost_nothing_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def closes_later(peer: Peer) -> None:
        await asyncio.sleep(1)

    async with harness(MemoryDialer({"broker": after_handshake(closes_later)})) as it:
        with caplog.at_level(logging.DEBUG, "aioproducer.net"):
            await it.connect()
            await it.wait_for_state(NodeState.BACKING_OFF)
        assert [record.levelname for record in caplog.records] == ["DEBUG"]
        assert "closed the connection" in caplog.text


# -- counting -------------------------------------------------------------------------------------


@virtual_time
async def test_connections_requests_and_bytes_are_counted_per_node() -> None:
    async with harness(MemoryDialer({"broker": obedient})) as it:
        traffic = it.client.io_stats
        assert await it.connect() is None
        node = traffic.of(1)
        shook_hands = node.requests
        assert (traffic.connections_created, traffic.open_connections) == (1, 1)
        assert shook_hands == node.responses >= 1
        bytes_out, bytes_in = node.bytes_out, node.bytes_in
        await it.ask()
        assert node.requests == node.responses == shook_hands + 1
        assert node.bytes_out > bytes_out
        assert node.bytes_in > bytes_in
        it.lose_connection("enough")
        assert (traffic.connections_closed, traffic.open_connections) == (1, 0)


# -- throttling (KIP-219) -------------------------------------------------------------------------


@virtual_time
async def test_a_throttled_node_is_muted_until_the_time_is_over() -> None:
    async with harness(MemoryDialer({"broker": throttles(500)})) as it:
        await it.connect()
        await it.ask()
        until = it.now + 0.5
        assert it.client.state(1) is NodeState.THROTTLED
        assert not it.client.is_ready(1, it.now)
        assert it.client.ready_at(1, it.now) == pytest.approx(until)
        assert not it.client.can_ask(1, it.now)
        await asyncio.sleep(0.5)
        assert it.client.is_ready(1, it.now)


@virtual_time
async def test_a_full_node_waits_for_an_answer_once_its_throttle_time_is_over() -> None:
    async with harness(MemoryDialer({"broker": answers_after(1)}), max_in_flight=1) as it:
        await it.connect()
        begin(it)
        it.client.link(1).throttle(it.now + 0.5)
        assert it.client.ready_at(1, it.now) == it.now + 0.5
        await asyncio.sleep(0.5)
        assert it.client.ready_at(1, it.now) == math.inf


@virtual_time
async def test_throttling_extends_the_deadlines_of_what_is_in_flight() -> None:
    async with harness(MemoryDialer({"broker": throttles(4000)})) as it:
        await it.connect()
        started = it.now
        first, second = it.send(timeout_s=3), it.send(timeout_s=3)
        await first
        with pytest.raises(NodeDisconnectedError):
            await second
        assert it.now - started == pytest.approx(7)


@virtual_time
async def test_versions_whose_broker_did_the_waiting_are_not_muted() -> None:
    ranges = {**hostile.SANE_RANGES, ApiKey.METADATA: (0, 5)}
    async with harness(MemoryDialer({"broker": throttles(500, ranges)})) as it:
        await it.connect()
        await it.ask()
        assert it.client.is_ready(1, it.now)


@virtual_time
async def test_no_throttle_time_parks_a_node_for_weeks() -> None:
    async with harness(MemoryDialer({"broker": throttles(2**31 - 1)})) as it:
        await it.connect()
        await it.ask()
        assert it.client.ready_at(1, it.now) - it.now == 300


@virtual_time
async def test_throttle_time_that_is_cut_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    for milliseconds, warned in ((300_000, False), (600_000, True)):
        caplog.clear()
        async with harness(MemoryDialer({"broker": throttles(milliseconds)})) as it:
            await it.connect()
            await it.ask()
        assert ("throttle time of 600 s; the producer pauses for 300 s" in caplog.text) is warned
        assert ("asks for a throttle time" in caplog.text) is warned


@virtual_time
async def test_a_throttle_time_of_a_millisecond_is_obeyed() -> None:
    async with harness(MemoryDialer({"broker": throttles(1)})) as it:
        await it.connect()
        await it.ask()
        link, until = it.client.link(1), it.now + 0.001
        assert link is not None
        assert it.client.state(1) is NodeState.THROTTLED
        assert it.client.ready_at(1, it.now) == until
        assert link.state(until) is NodeState.READY
        assert link.is_ready(until)


@virtual_time
async def test_a_throttle_time_of_init_producer_id_counts_too() -> None:
    async def behave(peer: Peer) -> None:
        header = await peer.expect(ApiKey.INIT_PRODUCER_ID)
        peer.respond(header, InitProducerIdResponse(throttle_time_ms=200))
        await peer.until_closed()

    async with harness(MemoryDialer({"broker": after_handshake(behave)})) as it:
        await it.connect()
        await it.send(InitProducerIdRequest())
        assert it.client.state(1) is NodeState.THROTTLED


@virtual_time
async def test_the_rest_of_a_throttle_time_is_never_negative() -> None:
    async with harness(MemoryDialer({"broker": silent})) as it:
        assert it.client.throttled_for(1, it.now) == 0
        assert it.client.throttled_for(77, it.now) == 0
        await it.connect()
        it.client.link(1).throttle(it.now + 5)
        it.client.link(1).throttle(it.now + 3)
        assert it.client.throttled_for(1, it.now) == 5
        await asyncio.sleep(2)
        assert it.client.throttled_for(1, it.now) == 3
        await asyncio.sleep(4)
        assert it.client.throttled_for(1, it.now) == 0


@virtual_time
async def test_the_next_chance_is_the_first_end_of_a_backoff_or_throttle_time() -> None:
    nodes = {1: ("a", 1), 2: ("b", 1), 3: ("dead", 1)}
    async with harness(MemoryDialer({"a": silent, "b": silent, "x": silent}), nodes) as it:
        assert it.client.next_chance_at(it.now) == math.inf
        for node_id in (1, 2):
            await it.connect(node_id)
            it.client.link(node_id).throttle(it.now + 10 * node_id)
        assert it.client.next_chance_at(it.now) == it.now + 10
        await it.connect(3)
        backoff_ends = it.client.ready_at(3, it.now)
        assert it.client.next_chance_at(it.now) == backoff_ends
        await asyncio.sleep(1)
        assert it.client.next_chance_at(it.now) == it.now + 9
        it.client.set_bootstrap([("x", 1)])
        await it.connect(-1)
        it.client.link(-1).throttle(it.now + 2)
        assert it.client.next_chance_at(it.now) == it.now + 2


@virtual_time
async def test_a_request_has_the_request_timeout_unless_it_has_its_own() -> None:
    for timeout_s, expected in ((None, 30), (0, 0), (3, 3)):
        async with harness(MemoryDialer({"broker": silent})) as it:
            await it.connect()
            started = it.now
            with pytest.raises(NodeDisconnectedError):
                await it.ask(timeout_s=timeout_s)
            assert it.now - started == pytest.approx(expected)


# -- the least loaded node ------------------------------------------------------------------------


async def three_nodes(it: Harness, *connected: int) -> None:
    for node_id in connected:
        assert await it.connect(node_id) is None


THREE = {1: ("a", 1), 2: ("b", 1), 3: ("c", 1)}
THREE_SILENT = {"a": silent, "b": silent, "c": silent}


@virtual_time
async def test_node_to_avoid_is_chosen_if_no_other_one_is_usable() -> None:
    async with harness(MemoryDialer({"a": silent, "b": silent}), THREE) as it:
        await three_nodes(it, 1)
        it.client.avoided.add(1)
        assert {it.client.least_loaded_node(it.now) for _ in range(20)} == {2, 3}
        it.client.avoided.update((2, 3))
        assert {it.client.least_loaded_node(it.now) for _ in range(20)} == {1}


@virtual_time
async def test_node_to_avoid_is_chosen_before_a_throttled_one() -> None:
    async with harness(MemoryDialer(THREE_SILENT), THREE) as it:
        await three_nodes(it, 1, 2, 3)
        it.client.avoided.add(1)
        for node_id in (2, 3):
            it.client.link(node_id).throttle(it.now + 300)
        assert {it.client.least_loaded_node(it.now) for _ in range(20)} == {1}
        it.client.link(1).throttle(it.now + 300)
        assert it.client.least_loaded_node(it.now) in {1, 2, 3}


@virtual_time
async def test_the_ready_node_with_the_fewest_requests_is_preferred() -> None:
    async with harness(MemoryDialer(THREE_SILENT), THREE) as it:
        await three_nodes(it, 1, 2)
        requests = [it.send(node_id=1), it.send(node_id=1), it.send(node_id=2)]
        assert {it.client.least_loaded_node(it.now) for _ in range(20)} == {2}
        it.client.link(2).throttle(it.now + 1)
        assert it.client.least_loaded_node(it.now) == 1
        await it.client.close(0)
        await asyncio.gather(*requests, return_exceptions=True)


@virtual_time
async def test_an_optional_request_goes_to_the_ready_node_with_the_fewest_requests() -> None:
    async with harness(MemoryDialer({**THREE_SILENT, "x": silent}), THREE, max_in_flight=2) as it:
        it.client.set_bootstrap([("x", 1)])
        assert it.client.ready_node(it.now) is None
        await it.connect(-1)
        assert it.client.ready_node(it.now) == -1
        await three_nodes(it, 1, 2)
        requests = [it.send(node_id=node_id) for node_id in (-1, 1, 1)]
        assert it.client.ready_node(it.now) == 2
        it.client.link(2).throttle(it.now + 1)
        assert it.client.ready_node(it.now) == -1
        it.client.link(-1).throttle(it.now + 1)
        assert it.client.ready_node(it.now) is None, "node 1 takes no more"
        await it.client.close(0)
        await asyncio.gather(*requests, return_exceptions=True)


@virtual_time
async def test_a_node_is_being_dialed_until_its_handshake_has_ended() -> None:
    async with harness(MemoryDialer({"broker": silent})) as it:
        assert not it.client.is_dialing(1)
        assert not it.client.is_dialing(77)
        it.client.maybe_connect(1, it.now)
        assert it.client.is_dialing(1)
        await it.wait_for_state(NodeState.READY)
        assert not it.client.is_dialing(1)


@virtual_time
async def test_the_highest_version_is_the_lowest_of_all_connected_brokers() -> None:
    versions = {"a": 9, "b": 7, "x": 3}
    servers = {
        host: hostile.advertises({**hostile.SANE_RANGES, ApiKey.PRODUCE: (0, highest)})
        for host, highest in versions.items()
    }
    async with harness(MemoryDialer(servers), {1: ("a", 1), 2: ("b", 1)}) as it:
        it.client.set_bootstrap([("x", 1)])
        assert it.client.highest_version(ApiKey.PRODUCE) is None
        for node_id, highest in ((1, 9), (2, 7), (-1, 3)):
            await it.connect(node_id)
            assert it.client.highest_version(ApiKey.PRODUCE) == highest
        assert it.client.highest_version(ApiKey.FETCH) == -1


@virtual_time
async def test_equally_good_nodes_take_turns() -> None:
    async with harness(MemoryDialer(THREE_SILENT), THREE) as it:
        await three_nodes(it, 1, 2, 3)
        assert {it.client.least_loaded_node(it.now) for _ in range(50)} == {1, 2, 3}


@virtual_time
async def test_a_node_being_connected_to_comes_before_a_new_one() -> None:
    async with harness(MemoryDialer({"b": black_hole}), THREE) as it:
        it.client.maybe_connect(2, it.now)
        assert {it.client.least_loaded_node(it.now) for _ in range(20)} == {2}


@virtual_time
async def test_a_dial_that_drags_on_makes_room_for_another_and_says_so() -> None:
    async with harness(MemoryDialer({"b": black_hole}), THREE) as it:
        started = it.now
        it.client.maybe_connect(2, it.now)
        await it.next_event()
        assert it.now - started == pytest.approx(1)
        assert it.client.least_loaded_node(it.now) in {1, 3}


@virtual_time
async def test_a_dial_is_slow_when_its_timer_fires_however_the_times_are_rounded() -> None:
    async with harness(MemoryDialer({"b": black_hole}), THREE) as it:
        await asyncio.sleep(1023.1 - it.now)  # 1024.1 is rounded down, since it has one bit more
        began = it.now
        it.client.maybe_connect(2, began)
        await it.next_event()
        assert it.now - began < DIAL_TIMEOUT_S
        assert it.client.least_loaded_node(it.now) in {1, 3}


@virtual_time
async def test_of_the_others_the_one_tried_longest_ago_is_next() -> None:
    async with harness(MemoryDialer({}), THREE) as it:
        for node_id in (2, 1, 3):
            await it.connect(node_id)
            await asyncio.sleep(1)
        assert {it.client.least_loaded_node(it.now) for _ in range(20)} == {2}


@virtual_time
async def test_nodes_that_back_off_are_no_choice() -> None:
    async with harness(MemoryDialer({}), {1: ("a", 1)}) as it:
        await it.connect()
        assert it.client.least_loaded_node(it.now) is None


@pytest.mark.parametrize("rebootstrap", [True, False])
def test_bootstrap_servers_are_the_last_resort(rebootstrap: bool) -> None:
    @virtual_time
    async def run() -> None:
        async with harness(MemoryDialer({}), {}, rebootstrap=rebootstrap) as it:
            it.client.set_bootstrap([("x", 1), ("y", 2)])
            assert it.client.least_loaded_node(it.now) in {-1, -2}
            it.client.set_nodes({1: Node(1, "a", 1)})
            assert it.client.least_loaded_node(it.now) == 1
            await it.connect(1)
            expected = {-1, -2} if rebootstrap else {None}
            assert it.client.least_loaded_node(it.now) in expected

    run()


@virtual_time
async def test_throttled_broker_is_waited_for_instead_of_a_bootstrap_server() -> None:
    async with harness(MemoryDialer({"a": silent, "x": silent}), {1: ("a", 1)}) as it:
        it.client.set_bootstrap([("x", 1)])
        await it.connect(1)
        it.client.link(1).throttle(it.now + 5)
        assert it.client.least_loaded_node(it.now) == 1
        assert not it.client.can_ask(1, it.now)
        assert it.client.ready_at(1, it.now) == it.now + 5
        it.lose_connection("gone")
        await it.wait_for_state(NodeState.BACKING_OFF)
        assert it.client.least_loaded_node(it.now) == -1


@pytest.mark.parametrize("rebootstrap", [True, False])
def test_bootstrap_servers_are_tried_beside_dials_that_drag_on(rebootstrap: bool) -> None:
    @virtual_time
    async def run() -> None:
        dialer = MemoryDialer({"a": black_hole, "b": black_hole})
        async with harness(dialer, {1: ("a", 1), 2: ("b", 1)}, rebootstrap=rebootstrap) as it:
            it.client.set_bootstrap([("x", 1)])
            for node_id in (1, 2):
                it.client.maybe_connect(node_id, it.now)
            assert it.client.least_loaded_node(it.now) in {1, 2}
            await asyncio.sleep(1.1)
            assert it.client.least_loaded_node(it.now) in ({-1} if rebootstrap else {1, 2})

    run()


# -- changes of the cluster, closing --------------------------------------------------------------


@virtual_time
async def test_unchanged_nodes_keep_their_connections() -> None:
    dialer = MemoryDialer({"broker": obedient})
    async with harness(dialer) as it:
        await it.connect()
        it.client.set_nodes({1: Node(1, "broker", 9092, "other-rack"), 2: Node(2, "new", 1)})
        assert it.client.is_ready(1, it.now)
        assert it.client.state(2) is NodeState.DISCONNECTED
        assert len(dialer.dials) == 1


@virtual_time
async def test_a_node_that_moved_is_dialed_at_its_new_place() -> None:
    for host, port in (("elsewhere", 9092), ("broker", 9093)):
        dialer = MemoryDialer({"broker:9092": obedient, f"{host}:{port}": obedient})
        async with harness(dialer) as it:
            await it.connect()
            it.client.set_nodes({1: Node(1, host, port)})
            assert not it.client.is_ready(1, it.now)
            await asyncio.sleep(0)
            assert dialer.connections[0].is_lost
            assert await it.connect() is None
            assert [dialed for _, dialed in dialer.dials] == ["broker", host]


@virtual_time
async def test_a_node_that_left_may_still_answer_what_was_asked() -> None:
    dialer = MemoryDialer({"broker": answers_after(5)})
    async with harness(dialer) as it:
        await it.connect()
        request, link = it.send(), it.client.link(1)
        assert link is not None
        assert link.ready_connection(it.now) is not None
        it.client.set_nodes({})
        assert link.ready_connection(it.now) is None
        assert it.client.state(1) is NodeState.DISCONNECTED
        before = it.events
        assert isinstance(await request, MetadataResponse)
        await asyncio.sleep(0.1)
        assert it.events > before
        assert dialer.connections[0].is_lost


@virtual_time
async def test_what_a_node_that_left_still_owes_ends_with_the_client() -> None:
    async with harness(MemoryDialer({"broker": silent})) as it:
        await it.connect()
        request = it.send()
        it.client.set_nodes({})
        await it.client.close(1)
        assert isinstance(request.exception(), NodeDisconnectedError)


@virtual_time
async def test_nodes_that_left_are_removed_when_their_connections_have_ended() -> None:
    async with harness(MemoryDialer({"broker": silent})) as it:
        for _ in range(3):
            await it.connect()
            request = it.send(timeout_s=1)
            it.client.set_nodes({})
            await asyncio.wait({request})
            assert request.exception() is not None
            it.client.set_nodes({1: Node(1, "broker", 9092)})
        await asyncio.sleep(1)
        it.client.set_nodes({})
        it.client.set_nodes({})
        assert it.client._retired == {}


@virtual_time
async def test_a_dial_to_a_node_that_left_is_given_up() -> None:
    async with harness(MemoryDialer({"broker": black_hole})) as it:
        it.client.maybe_connect(1, it.now)
        await asyncio.sleep(0.5)
        link = it.client.link(1)
        it.client.set_nodes({})
        assert link is not None
        assert not link.is_dialing
        await asyncio.sleep(0)
        assert not [t for t in asyncio.all_tasks() if "dial" in t.get_name()]


class _UncancelledDialer(MemoryDialer):
    """One that suppresses cancellation, as `asyncio.wait_for` of Python 3.11 may."""

    async def connect(
        self, address: Address, *, server_hostname: str, limit: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(5)
        return await super().connect(address, server_hostname=server_hostname, limit=limit)


@pytest.mark.parametrize("servers", [{"broker": obedient}, {}])
def test_a_dial_that_goes_on_after_close_opens_nothing(
    servers: dict[str, hostile.Behaviour],
) -> None:
    @virtual_time
    async def run() -> None:
        dialer = _UncancelledDialer(servers)
        async with harness(dialer) as it:
            it.client.maybe_connect(1, it.now)
            link = it.client.link(1)
            await asyncio.sleep(1)
            await it.client.close(1)
            assert link is not None
            assert link.is_over
            assert all(connection.is_lost for connection in dialer.connections)

    run()


@virtual_time
async def test_close_ends_dials_connections_and_requests_within_its_bound() -> None:
    dialer = MemoryDialer({"a": silent, "b": black_hole, "c": hostile.silent})
    async with harness(dialer, THREE) as it:
        await it.connect(1)
        request = it.send()
        it.client.maybe_connect(2, it.now)
        it.client.maybe_connect(3, it.now)
        await asyncio.sleep(0.2)
        assert it.client.state(3) is NodeState.HANDSHAKING
        started = it.now
        await it.client.close(5)
        assert it.now == started
        with pytest.raises(NodeDisconnectedError, match="client was closed"):
            await request
        assert [t for t in asyncio.all_tasks() if t.get_name().startswith("aioproducer")] == []
        assert it.client.state(1) is NodeState.CLOSED
        it.client.maybe_connect(1, it.now)
        it.client.set_nodes({1: Node(1, "a", 1)})
        assert it.client.ready_at(1, it.now) == math.inf
        await it.client.close(5)


async def close_with_bytes_on_the_way(it: Harness, dialer: MemoryDialer) -> None:
    """Close while the transport still has the bytes of a request without a response."""
    dialer.connections[0].stall()
    request = PreparedRequest(ProduceRequest, lambda *_: [b"x" * 1000], expect_response=False)
    written = it.client.send(1, request, now=it.now)
    it.loop.call_later(2, dialer.connections[0].resume)
    await it.client.close(5)
    assert await written is None


@virtual_time
async def test_close_lets_written_requests_without_answer_out() -> None:
    received = bytearray()

    async def behave(peer: Peer) -> None:
        while data := await peer.reader.read(100):
            received.extend(data)

    dialer = MemoryDialer({"broker": after_handshake(behave)})
    async with harness(dialer) as it:
        await it.connect()
        await close_with_bytes_on_the_way(it, dialer)
        await asyncio.sleep(1)
        assert len(received) == 1000


@virtual_time
async def test_close_with_eager_tasks_completes_what_was_written() -> None:
    dialer = MemoryDialer({"broker": silent})
    async with harness(dialer) as it:
        await it.connect()
        start_tasks_eagerly()
        await close_with_bytes_on_the_way(it, dialer)


@virtual_time
async def test_close_waits_for_stuck_bytes_no_longer_than_its_timeout() -> None:
    dialer = MemoryDialer({"broker": silent})
    async with harness(dialer) as it:
        await it.connect()
        dialer.connections[0].stall()
        request = PreparedRequest(ProduceRequest, lambda *_: [b"x" * 1000], expect_response=False)
        written = it.client.send(1, request, now=it.now)
        started = it.now
        await it.client.close(5)
        assert it.now - started == pytest.approx(5)
        with pytest.raises(NodeDisconnectedError):
            await written


@virtual_time
async def test_close_waits_a_second_at_most_for_a_dialer_that_goes_on() -> None:
    class Stubborn(MemoryDialer):
        async def resolve(self, host: str, port: int, *, canonical: bool) -> list[Address]:
            try:
                await black_hole()
            except asyncio.CancelledError:
                await asyncio.sleep(20)
            return []

    async with harness(Stubborn({})) as it:
        it.client.maybe_connect(1, it.now)
        await asyncio.sleep(0.5)
        started = it.now
        await it.client.close(5)
        assert it.now - started == pytest.approx(1)
        await asyncio.sleep(20)


@virtual_time
async def test_close_waits_a_second_at_most_for_a_socket_that_does_not_close() -> None:
    dialer = MemoryDialer({"broker": silent})
    async with harness(dialer) as it:
        await it.connect()
        transport = dialer.connections[0]
        abort, transport.abort = transport.abort, lambda: None  # type: ignore[method-assign]
        started = it.now
        await it.client.close(5)
        assert it.now - started == pytest.approx(1)
        abort()


@virtual_time
async def test_a_dial_that_is_cancelled_with_its_loop_ends_cancelled_and_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with harness(MemoryDialer({"broker": black_hole})) as it:
        it.client.maybe_connect(1, it.now)
        await asyncio.sleep(0.5)
        (dial,) = [t for t in asyncio.all_tasks() if t.get_name() == "aioproducer-dial-1"]
        dial.cancel()
        await asyncio.wait({dial})
        assert dial.cancelled()
        assert it.client.state(1) is NodeState.BACKING_OFF
        assert caplog.records == []


async def harness_of(dialer: MemoryDialer) -> Harness:
    """A client with one node, for a loop that is not the test's."""
    it = Harness(dialer, SETTINGS)
    it.client.set_nodes({1: Node(1, "broker", 9092)})
    return it


def test_an_interrupt_during_a_dial_ends_it_without_a_warning_and_passes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Interrupted(MemoryDialer):
        async def connect(self, address: Address, *, server_hostname: str, limit: int) -> Any:
            raise KeyboardInterrupt

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        it = runner.run(harness_of(Interrupted({})))
        loop = runner.get_loop()
        loop.call_soon(it.client.maybe_connect, 1, loop.time())
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(asyncio.sleep(1))
        assert it.client.state(1) is NodeState.BACKING_OFF
        assert "interrupted by KeyboardInterrupt" in str(it.client.connection_failures(1))
        loop.run_until_complete(it.client.close(1))
    gc.collect()
    assert caplog.records == []


def test_nodes_of_a_client_that_is_dropped_with_its_loop_are_closed() -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        it = runner.run(harness_of(MemoryDialer({})))
        assert it.client.state(1) is NodeState.DISCONNECTED
    it.client.drop()
    assert it.client.state(1) is NodeState.CLOSED


@virtual_time
async def test_a_cancelled_close_has_closed_all_the_same() -> None:
    dialer = MemoryDialer({"broker": silent})
    async with harness(dialer) as it:
        await it.connect()
        dialer.connections[0].stall()
        request = PreparedRequest(ProduceRequest, lambda *_: [b"x" * 1000], expect_response=False)
        written = it.client.send(1, request, now=it.now)
        closing = asyncio.create_task(it.client.close(60))
        await asyncio.sleep(1)
        closing.cancel()
        await asyncio.wait({closing})
        with pytest.raises(NodeDisconnectedError):
            await written
        await asyncio.sleep(0.1)
        assert dialer.connections[0].is_lost


def test_totals_of_brokers_that_come_and_go_are_bounded() -> None:
    traffic = IOStats()
    for node_id in range(25_000):
        traffic.of(node_id).requests += 1
    assert len(traffic.nodes) == 10_000
    assert traffic.of(24_999).requests == 1
