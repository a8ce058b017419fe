"""ApiVersions negotiation (KIP-35, KIP-511)."""

from __future__ import annotations

import asyncio
import ssl

import pytest
from support.hostile import (
    CONTROLLER_RANGES,
    SANE_RANGES,
    Behaviour,
    Peer,
    Ranges,
    advertises,
    obedient,
    silent,
    versions_response,
)

from aioproducer.errors import (
    AuthenticationError,
    InvalidRequestError,
    KafkaError,
    NodeDisconnectedError,
    NotKafkaError,
    TlsError,
    UnsupportedVersionError,
)
from aioproducer.errors.advice import ADVICE
from aioproducer.net.cluster_check import ClusterCheck
from aioproducer.net.connection import Connection
from aioproducer.net.handshake import shake_hands
from aioproducer.net.security.sasl import fixed
from aioproducer.net.security.sasl.plain import Plain
from aioproducer.net.session import Session
from aioproducer.net.settings import software_label
from aioproducer.testing.framing import REQUEST_TYPES
from aioproducer.types import SaslCredentials
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.api_versions import ApiVersionsRequest
from aioproducer.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from aioproducer.wire.schema import Message
from net.harness import SETTINGS, harness
from net.virtual import MemoryDialer, memory_pair, virtual_time

UNSUPPORTED_VERSION = 35


class Unobserved:
    def response_received(self, kind: type[Message], version: int, response: Message) -> None:
        return

    def capacity_freed(self) -> None:
        return

    def connection_failed(self, connection: Connection, error: KafkaError, lost: int) -> None:
        return


def old_broker(highest: int, *, lists_versions: bool, asked: list[int]) -> Behaviour:
    """Supports ApiVersions up to a version; answers others in version 0, as brokers do."""

    async def behave(peer: Peer) -> None:
        while True:
            header = await peer.expect(ApiKey.API_VERSIONS)
            asked.append(header.api_version)
            if header.api_version <= highest:
                peer.respond(header, versions_response())
                break
            ranges: Ranges = {ApiKey.API_VERSIONS: (0, highest)} if lists_versions else {}
            peer.respond(header, versions_response(ranges, UNSUPPORTED_VERSION), version=0)
        await obedient(peer)

    return behave


@pytest.mark.parametrize(
    ("highest", "lists_versions", "expected"),
    [(4, True, [3]), (3, True, [3]), (2, True, [3, 2]), (0, True, [3, 0]), (2, False, [3, 0])],
)
def test_negotiation_falls_back_to_what_the_broker_supports(
    highest: int, lists_versions: bool, expected: list[int]
) -> None:
    @virtual_time
    async def run() -> None:
        asked: list[int] = []
        broker = old_broker(highest, lists_versions=lists_versions, asked=asked)
        async with harness(MemoryDialer({"broker": broker})) as it:
            assert await it.connect() is None
            assert asked == expected
            assert await it.ask() is not None

    run()


@virtual_time
async def test_a_service_that_closes_connections_at_version_4_is_asked_for_version_3() -> None:
    async def behave(peer: Peer) -> None:
        header = await peer.expect(ApiKey.API_VERSIONS)
        if header.api_version > 3:
            return
        peer.respond(header, versions_response())
        await obedient(peer)

    async with harness(MemoryDialer({"broker": behave})) as it:
        assert await it.connect() is None


@pytest.mark.parametrize("claimed", [-5, 4, 9, 2])
def test_a_broker_that_refuses_every_version_does_not_hold_us_up(claimed: int) -> None:
    @virtual_time
    async def run() -> None:
        asked: list[int] = []

        async def behave(peer: Peer) -> None:
            while True:
                header = await peer.request()
                asked.append(header.api_version)
                ranges = {ApiKey.API_VERSIONS: (0, claimed)}
                peer.respond(header, versions_response(ranges, UNSUPPORTED_VERSION), version=0)

        async with harness(MemoryDialer({"broker": behave})) as it:
            error = await it.connect()
            assert type(error) is UnsupportedVersionError
            assert error.node_id == 1
            assert asked == ([3, 2, 0] if claimed == 2 else [3, 0])

    run()


@virtual_time
async def test_another_error_code_refuses_the_connection() -> None:
    async def behave(peer: Peer) -> None:
        peer.respond(await peer.request(), versions_response(error_code=42))
        await peer.until_closed()

    async with harness(MemoryDialer({"broker": behave})) as it:
        assert type(await it.connect()) is InvalidRequestError


@virtual_time
async def test_the_client_names_itself_and_its_version_where_the_broker_can_read_it() -> None:
    seen: list[ApiVersionsRequest] = []

    async def behave(peer: Peer) -> None:
        while True:
            header = await peer.expect(ApiKey.API_VERSIONS)
            assert header.client_id == "tests"
            seen.append(ApiVersionsRequest.decode(header.body, header.api_version))
            lower = {ApiKey.API_VERSIONS: (0, header.api_version - 1)}
            if header.api_version == 2:
                break
            peer.respond(header, versions_response(lower, UNSUPPORTED_VERSION), version=0)
        peer.respond(header, versions_response())
        await peer.until_closed()

    async with harness(MemoryDialer({"broker": behave}), software_version="1.2-local") as it:
        assert await it.connect() is None
        named = [(it.client_software_name, it.client_software_version) for it in seen]
        assert named == [("aioproducer", "1.2-local"), ("", "")]


@virtual_time
async def test_the_whole_handshake_has_one_request_timeout() -> None:
    async def behave(peer: Peer) -> None:
        header = await peer.request()
        await asyncio.sleep(6)
        ranges = {ApiKey.API_VERSIONS: (0, 2)}
        peer.respond(header, versions_response(ranges, UNSUPPORTED_VERSION), version=0)
        await silent(peer)

    async with harness(MemoryDialer({"broker": behave}), request_timeout_s=10.0) as it:
        started = it.now
        assert await it.connect() is not None
        assert it.now - started == pytest.approx(10)


@pytest.mark.parametrize("is_closed", [False, True])
@virtual_time
async def test_a_first_session_asks_for_versions_only_and_suspects_the_options_if_it_is_closed(
    is_closed: bool,
) -> None:
    near, far = memory_pair()
    peer = Peer(*far)
    now = asyncio.get_running_loop().time
    connection = Connection(*near, node_id=1, observer=Unobserved(), loop_time=now)
    session = Session(connection, SETTINGS, ClusterCheck(False), "broker", now() + 30)
    handshake = asyncio.create_task(shake_hands(session))
    if is_closed:
        await peer.expect(ApiKey.API_VERSIONS)
        peer.writer.close()
        with pytest.raises(NodeDisconnectedError, match="the port may be one for TLS"):
            await handshake
    else:
        sasl = REQUEST_TYPES[ApiKey.SASL_HANDSHAKE].VALID_VERSIONS
        await peer.handshake({**SANE_RANGES, ApiKey.SASL_HANDSHAKE: sasl})
        versions = await handshake
        assert versions.highest(ApiKey.SASL_HANDSHAKE) == sasl[1]
    connection.abort(NodeDisconnectedError("the test is over"))
    await connection.wait_closed()
    assert await peer.reader.read() == b""
    peer.writer.close()


@pytest.mark.parametrize(
    ("error_code", "mechanisms", "is_refused"),
    [(33, ["PLAIN"], True), (33, [], False), (0, ["PLAIN"], False), (0, [], False)],
)
def test_a_listener_that_closes_at_the_first_request_is_asked_whether_it_requires_sasl(
    error_code: int, mechanisms: list[str], is_refused: bool
) -> None:
    """It answers UNSUPPORTED_SASL_MECHANISM with the mechanisms that it offers."""

    @virtual_time
    async def run() -> None:
        connections = 0

        async def behave(peer: Peer) -> None:
            nonlocal connections
            connections += 1
            sasl = REQUEST_TYPES[ApiKey.SASL_HANDSHAKE].VALID_VERSIONS
            await peer.handshake({**SANE_RANGES, ApiKey.SASL_HANDSHAKE: sasl})
            if connections == 1:
                await peer.request()
                return
            if connections == 3:
                await peer.expect(ApiKey.METADATA)
                return
            header = await peer.expect(ApiKey.SASL_HANDSHAKE)
            assert SaslHandshakeRequest.decode(header.body, header.api_version).mechanism == "?"
            peer.respond(header, SaslHandshakeResponse(error_code, mechanisms))
            await obedient(peer)

        async with harness(MemoryDialer({"broker": behave})) as it:
            assert await it.connect() is None
            with pytest.raises(NodeDisconnectedError):
                await it.ask()
            await asyncio.sleep(2)
            error = await it.connect()
            if is_refused:
                assert type(error) is AuthenticationError
                assert "the broker wants SASL on this port and offers PLAIN" in str(error)
            else:
                assert error is None
                assert await it.ask() is not None
                it.lose_connection("once more")
                await asyncio.sleep(2)
                assert await it.connect() is None, "it is asked once"
                with pytest.raises(NodeDisconnectedError):
                    await it.ask()
                assert connections == 3

    run()


@virtual_time
async def test_an_empty_range_matters_only_for_requests_we_use() -> None:
    async def behave(peer: Peer) -> None:
        await peer.handshake({**SANE_RANGES, 9999: (5, 1), ApiKey.JOIN_GROUP: (-1, -1)})
        await obedient(peer)

    async with harness(MemoryDialer({"broker": behave})) as it:
        assert await it.connect() is None
        assert await it.ask() is not None


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("aioproducer", "aioproducer"),
        ("1.0.dev3+g1a2b", "1.0.dev3-g1a2b"),
        ("-x-", "x"),
        ("größe", "gr-e"),
        ("", "unknown"),
        ("+++", "unknown"),
    ],
)
def test_names_are_made_acceptable_to_brokers(text: str, label: str) -> None:
    assert software_label(text) == label


@virtual_time
async def test_a_controller_is_no_broker_and_gets_no_credentials() -> None:
    received: list[int] = []

    async def control(peer: Peer) -> None:
        await peer.handshake(CONTROLLER_RANGES)
        received.append((await peer.request()).api_key)

    sasl = Plain(fixed(SaslCredentials("me", "password")))
    async with harness(MemoryDialer({"broker": control}), sasl=sasl) as it:
        error = await it.connect()
    assert isinstance(error, NotKafkaError)
    assert error.message == "a Kafka controller answers there, not a broker"
    assert "controller.listener.names" in str(error)
    assert received == []


@virtual_time
async def test_a_broker_that_is_a_controller_as_well_is_a_broker() -> None:
    async with harness(
        MemoryDialer({"broker": advertises({**CONTROLLER_RANGES, **SANE_RANGES})})
    ) as it:
        assert await it.connect() is None
        assert await it.ask() is not None


@virtual_time
async def test_a_certificate_that_is_refused_after_the_tls_handshake_is_a_tls_error() -> None:
    """In TLS 1.3 the refusal arrives while the client waits for the first response."""
    refusal = ssl.SSLError(1, "tlsv13 alert certificate required")
    refusal.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"

    async def refuses(peer: Peer) -> None:
        await peer.request()
        dialer.connections[-1].break_off(refusal)

    dialer = MemoryDialer({"broker": refuses})
    async with harness(dialer) as it:
        error = await it.connect()
        assert isinstance(error, TlsError)
        assert error.node_id == 1
        assert "broker refused the TLS handshake (tlsv13 alert certificate required)" in str(error)
        assert error.advice == ADVICE["client-certificate-refused"]


@pytest.mark.parametrize(
    "reason",
    ["DECRYPTION_FAILED_OR_BAD_RECORD_MAC", "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"],
)
@virtual_time
async def test_damaged_bytes_after_the_tls_handshake_are_a_lost_connection(reason: str) -> None:
    async def damages(peer: Peer) -> None:
        await peer.request()
        failure = ssl.SSLError(1, reason.lower())
        failure.reason = reason
        dialer.connections[-1].break_off(failure)

    dialer = MemoryDialer({"broker": damages})
    async with harness(dialer) as it:
        error = await it.connect()
        assert isinstance(error, NodeDisconnectedError)
        assert error.retriable
