"""Whatever a broker does, a typed error comes within the configured bound, and nothing is left."""

from __future__ import annotations

import asyncio
import hashlib
import math
import random

import pytest
from support import hostile
from support.hostile import HostileServer, after_handshake

from aioproducer.errors import (
    KafkaConnectionError,
    KafkaError,
    NodeDisconnectedError,
    NotKafkaError,
    ProtocolError,
    RequestTimeoutError,
    TlsError,
    UnsupportedVersionError,
)
from aioproducer.net.client import PreparedRequest
from aioproducer.net.context import NodeState
from aioproducer.net.dial.dialer import TcpDialer
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.produce import ProduceRequest
from net.harness import harness

BOUND_S = 0.3
SLACK_S = 1.5

MISBEHAVIOURS = [
    (hostile.silent, NodeDisconnectedError),
    (hostile.deaf, NodeDisconnectedError),
    (hostile.garbage, NotKafkaError),
    (hostile.garbled_body, ProtocolError),
    (hostile.wrong_correlation_id, ProtocolError),
    (hostile.empty_frame, ProtocolError),
    (hostile.closes_before_answering, NodeDisconnectedError),
    (hostile.closes_mid_response, NodeDisconnectedError),
    (hostile.resets, NodeDisconnectedError),
    (hostile.oversize_length, ProtocolError),
    (hostile.negative_length, ProtocolError),
    (hostile.huge_promise, NodeDisconnectedError),
    (hostile.slow_loris, NodeDisconnectedError),
]
every_misbehaviour = pytest.mark.parametrize(
    ("behaviour", "error_type"), MISBEHAVIOURS, ids=[b.__name__ for b, _ in MISBEHAVIOURS]
)


async def no_connection_open(server: HostileServer) -> None:
    """Waits until the server has seen all its connections end."""
    async with asyncio.timeout(SLACK_S):
        await server.until_idle()


@every_misbehaviour
async def test_misbehaviour_during_the_handshake_is_a_typed_connection_failure(
    behaviour: hostile.Behaviour, error_type: type[KafkaError]
) -> None:
    async with (
        HostileServer(behaviour) as server,
        harness(TcpDialer(), {1: (server.host, server.port)}, request_timeout_s=BOUND_S) as it,
    ):
        started = it.now
        async with asyncio.timeout(BOUND_S + SLACK_S):
            error = await it.connect()
        assert type(error) is error_type
        assert error.node_id == 1
        assert it.now - started < BOUND_S + SLACK_S
        assert it.client.state(1) in {NodeState.BACKING_OFF, NodeState.DISCONNECTED}
        if behaviour is not hostile.deaf:
            await no_connection_open(server)


@every_misbehaviour
async def test_misbehaviour_fails_every_request_in_flight_with_a_typed_error(
    behaviour: hostile.Behaviour, error_type: type[KafkaError]
) -> None:
    async with (
        HostileServer(after_handshake(behaviour)) as server,
        harness(TcpDialer(), {1: (server.host, server.port)}, request_timeout_s=BOUND_S) as it,
    ):
        assert await it.connect() is None
        requests = [it.send() for _ in range(3)]
        async with asyncio.timeout(BOUND_S + SLACK_S):
            errors = await asyncio.gather(*requests, return_exceptions=True)
        assert [type(error) for error in errors] == [error_type] * 3
        assert len({id(error) for error in errors}) == 3
        assert it.client.in_flight(1) == 0
        assert type(it.client.connection_failures(1)) is error_type
        if behaviour is not hostile.deaf:
            await no_connection_open(server)


async def test_a_tls_alert_shows_a_port_for_tls_only_before_the_connection_is_ready() -> None:
    for behaviour, error_type in (
        (hostile.tls_alert, TlsError),
        (after_handshake(hostile.tls_alert), ProtocolError),
    ):
        async with (
            HostileServer(behaviour) as server,
            harness(TcpDialer(), {1: (server.host, server.port)}) as it,
        ):
            error = await it.connect()
            if error is None:
                with pytest.raises(KafkaError) as caught:
                    await it.ask()
                error = caught.value
            assert type(error) is error_type


async def test_a_timed_out_request_names_itself_and_its_age_as_the_cause() -> None:
    async with (
        HostileServer(after_handshake(hostile.silent)) as server,
        harness(TcpDialer(), {1: (server.host, server.port)}) as it,
    ):
        await it.connect()
        with pytest.raises(
            NodeDisconnectedError, match="MetadataRequest v13 was not ans"
        ) as caught:
            await it.ask(timeout_s=0.1)
        assert isinstance(caught.value.__cause__, RequestTimeoutError)
        assert caught.value.elapsed_ms is not None
        assert 90 <= caught.value.elapsed_ms < 1500


async def test_a_frame_that_was_not_requested_ends_the_connection() -> None:
    async with (
        HostileServer(after_handshake(hostile.unsolicited)) as server,
        harness(TcpDialer(), {1: (server.host, server.port)}) as it,
    ):
        await it.connect()
        async with asyncio.timeout(SLACK_S):
            await it.wait_for_state(NodeState.BACKING_OFF, NodeState.DISCONNECTED)
        assert type(it.client.connection_failures(1)) is ProtocolError
        await no_connection_open(server)


async def test_a_close_with_nothing_pending_is_noticed_and_the_socket_is_closed_too() -> None:
    async with (
        HostileServer(after_handshake(hostile.closes), after_handshake(hostile.obedient)) as server,
        harness(TcpDialer(), {1: (server.host, server.port)}) as it,
    ):
        await it.connect()
        async with asyncio.timeout(SLACK_S):
            await it.wait_for_state(NodeState.BACKING_OFF, NodeState.DISCONNECTED)
        await no_connection_open(server)
        assert type(it.client.connection_failures(1)) is NodeDisconnectedError
        await asyncio.sleep(0.1)
        assert server.accepted == 1  # not reopened before a request needs it
        assert await it.connect() is None
        assert await it.ask() is not None
        assert server.accepted == 2


@pytest.mark.parametrize(
    "theirs", [(100, 101), (9, 3), None], ids=["disjoint", "impossible", "absent"]
)
async def test_a_request_without_a_common_version_is_refused_by_naming_both_ranges(
    theirs: tuple[int, int] | None,
) -> None:
    ranges = dict(hostile.SANE_RANGES)
    del ranges[ApiKey.METADATA]
    if theirs is not None:
        ranges[ApiKey.METADATA] = theirs
    async with (
        HostileServer(hostile.advertises(ranges)) as server,
        harness(TcpDialer(), {1: (server.host, server.port)}) as it,
    ):
        assert await it.connect() is None
        offer = "nothing" if theirs is None else f"versions {theirs[0]} to {theirs[1]}"
        with pytest.raises(
            UnsupportedVersionError, match=f"METADATA: the broker supports {offer}.* 0 to 13"
        ):
            it.send()
        assert it.client.in_flight(1) == 0


async def test_an_unreachable_port_is_a_connection_error_that_names_the_address() -> None:
    async with HostileServer(hostile.silent) as server:
        place = (server.host, server.port)
    async with harness(TcpDialer(), {1: place}) as it:
        error = await it.connect()
        assert type(error) is KafkaConnectionError
        assert f"127.0.0.1:{place[1]}" in str(error)


async def test_a_broker_that_drops_every_connection_is_approached_with_growing_pauses() -> None:
    async with (
        HostileServer(after_handshake(hostile.closes)) as server,
        harness(
            TcpDialer(),
            {1: (server.host, server.port)},
            reconnect_backoff_s=0.02,
            reconnect_backoff_max_s=0.2,
        ) as it,
    ):
        started = it.now
        while it.now - started < 0.6:
            await it.connect()
            await asyncio.sleep(0.002)
        assert 3 <= server.accepted <= 10


async def test_closing_with_requests_in_flight_fails_them_and_leaves_nothing() -> None:
    async with (
        HostileServer(after_handshake(hostile.silent)) as server,
        harness(TcpDialer(), {1: (server.host, server.port)}) as it,
    ):
        await it.connect()
        requests = [it.send() for _ in range(5)]
        await it.client.close(0)
        errors = await asyncio.gather(*requests, return_exceptions=True)
        assert {type(error) for error in errors} == {NodeDisconnectedError}
        await no_connection_open(server)


async def test_megabytes_for_a_broker_that_stops_reading_wait_and_arrive_whole() -> None:
    reads = asyncio.Event()
    digest = hashlib.sha256()
    received = 0

    async def behave(peer: hostile.Peer) -> None:
        nonlocal received
        peer.writer.transport.pause_reading()
        await reads.wait()
        peer.writer.transport.resume_reading()
        while data := await peer.reader.read(1 << 20):
            digest.update(data)
            received += len(data)

    payload = memoryview(bytearray(random.Random(5).randbytes(8 << 20)))
    pieces = [payload[start : start + (1 << 20)] for start in range(0, len(payload), 1 << 20)]
    request = PreparedRequest(ProduceRequest, lambda *_: pieces, expect_response=False)
    async with (
        HostileServer(after_handshake(behave)) as server,
        harness(TcpDialer(), {1: (server.host, server.port)}) as it,
    ):
        await it.connect()
        await asyncio.sleep(0.05)  # the broker has stopped reading
        written = it.client.send(1, request, now=it.now)
        assert not it.client.is_ready(1, it.now)
        assert it.client.ready_at(1, it.now) == math.inf
        await asyncio.sleep(0.1)
        assert not written.done()
        assert not it.client.is_ready(1, it.now)
        reads.set()
        async with asyncio.timeout(10):
            assert await written is None
            while not it.client.is_ready(1, it.now):
                await it.next_event()
        await it.client.close(1)
        await server.until_idle()
        assert received == len(payload)
        assert digest.digest() == hashlib.sha256(payload).digest()
