"""The embedded brokers' gate: what it lets through, and when sessions end."""

from __future__ import annotations

import pytest

from aioproducer.testing.framing import RequestHeader, decode_request_header
from aioproducer.testing.security import ListenerSecurity, SaslGate
from aioproducer.wire.framing import decode_response, encode_request
from aioproducer.wire.messages.api_versions import ApiVersionsRequest
from aioproducer.wire.messages.metadata import MetadataRequest
from aioproducer.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from aioproducer.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from aioproducer.wire.schema import Message


def header(request: Message, version: int = 1) -> RequestHeader:
    return decode_request_header(encode_request(request, version, 7, "me")[4:])


def gate(max_reauth_ms: int = 0) -> SaslGate:
    return SaslGate(
        ListenerSecurity(mechanisms=("PLAIN",), users={"me": "pw"}, max_reauth_ms=max_reauth_ms)
    )


def asked(it: SaslGate, request: Message, version: int = 1, now_ms: int = 0) -> Message:
    reply = it.take_request(header(request, version), now_ms)
    assert reply is not None
    assert reply.frame is not None
    return decode_response(type(request), version, reply.frame[4:])[1]


def authenticate(it: SaslGate, token: bytes = b"\0me\0pw", now_ms: int = 0) -> Message:
    handshake = asked(it, SaslHandshakeRequest(mechanism="PLAIN"), now_ms=now_ms)
    assert handshake == SaslHandshakeResponse(mechanisms=["PLAIN"])
    return asked(it, SaslAuthenticateRequest(auth_bytes=token), now_ms=now_ms)


def test_without_mechanisms_everything_passes() -> None:
    assert SaslGate(ListenerSecurity()).take_request(header(MetadataRequest()), 0) is None


def test_before_authentication_only_the_versions_may_be_asked() -> None:
    it = gate()
    assert it.take_request(header(ApiVersionsRequest()), 0) is None
    reply = it.take_request(header(MetadataRequest()), 0)
    assert reply is not None
    assert reply.close is not None
    assert reply.frame is None


def test_after_authentication_everything_passes() -> None:
    it = gate()
    assert authenticate(it) == SaslAuthenticateResponse()
    assert it.take_request(header(MetadataRequest()), 10**9) is None


@pytest.mark.parametrize("token", [b"\0me\0wrong", b"\0you\0pw", b"nonsense", b"\0\xff\0\xff"])
def test_what_is_no_proof_is_refused_and_the_connection_closed(token: bytes) -> None:
    it = gate()
    asked(it, SaslHandshakeRequest(mechanism="PLAIN"))
    reply = it.take_request(header(SaslAuthenticateRequest(auth_bytes=token)), 0)
    assert reply is not None
    assert reply.close == "authentication failed"
    assert reply.frame is not None
    answer = decode_response(SaslAuthenticateRequest, 1, reply.frame[4:])[1]
    assert getattr(answer, "error_code") == 58  # noqa: B009


def test_a_session_that_has_ended_takes_only_a_renewal() -> None:
    it = gate(max_reauth_ms=100)
    answer = authenticate(it)
    assert answer == SaslAuthenticateResponse(session_lifetime_ms=100)
    assert it.take_request(header(MetadataRequest()), 99) is None
    late = it.take_request(header(MetadataRequest()), 100)
    assert late is not None
    assert late.close == "the session has ended"
    authenticate(it, now_ms=150)
    assert it.take_request(header(MetadataRequest()), 249) is None


def test_a_request_in_the_middle_of_a_renewal_ends_the_connection() -> None:
    it = gate(max_reauth_ms=100)
    authenticate(it)
    asked(it, SaslHandshakeRequest(mechanism="PLAIN"))
    reply = it.take_request(header(MetadataRequest()), 50)
    assert reply is not None
    assert reply.close is not None


def test_sessions_without_end_cannot_be_renewed() -> None:
    it = gate()
    authenticate(it)
    assert it.take_request(header(SaslHandshakeRequest(mechanism="PLAIN")), 0) is None
