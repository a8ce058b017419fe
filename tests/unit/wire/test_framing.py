"""Tests of `aioproducer.wire.framing`."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import ProtocolError, UnsupportedVersionError
from aioproducer.testing.framing import REQUEST_TYPES, decode_request_header, encode_response
from aioproducer.wire import framing
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from aioproducer.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from aioproducer.wire.messages.sasl_handshake import SaslHandshakeRequest


def body(frame: bytes) -> bytes:
    """Return what follows the size, having checked it."""
    assert framing.frame_size(frame[:4]) == len(frame) - 4
    return frame[4:]


def test_a_classic_request_has_a_header_without_tags() -> None:
    frame = framing.encode_request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 7, "me")
    assert body(frame) == b"\0\x11\0\x01\0\0\0\x07\0\x02me" + b"\0\x05PLAIN"


def test_a_flexible_request_keeps_the_classic_client_id_and_has_header_tags() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    frame = framing.encode_request(request, 9, -1, "me")
    header = b"\0\x03\0\x09\xff\xff\xff\xff\0\x02me\0"
    assert body(frame) == header + b"\x02\x02t\0" + b"\x01\0\0\0"


def test_a_null_client_id_is_allowed() -> None:
    frame = framing.encode_request(ApiVersionsRequest(), 0, 1, None)
    assert body(frame) == b"\0\x12\0\0\0\0\0\x01\xff\xff"
    assert decode_request_header(frame[4:]).client_id is None


@given(
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=20),
    version=st.integers(0, 13),
)
def test_a_request_header_is_read_back_and_leaves_the_body(
    correlation_id: int, client_id: str | None, version: int
) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="topic")])
    frame = framing.encode_request(request, version, correlation_id, client_id)
    header = decode_request_header(body(frame))
    assert (header.api_key, header.api_version) == (ApiKey.METADATA, version)
    assert (header.correlation_id, header.client_id) == (correlation_id, client_id)
    assert MetadataRequest.decode(header.body, version) == request


def test_unknown_tags_of_a_request_header_are_skipped() -> None:
    frame = body(framing.encode_request(MetadataRequest(), 9, 1, "me"))
    at = len(b"\0\x03\0\x09\0\0\0\x01\0\x02me")
    tagged = frame[:at] + b"\x01\x05\x02zz" + frame[at + 1 :]
    header = decode_request_header(tagged)
    assert MetadataRequest.decode(header.body, 9) == MetadataRequest()


def test_the_header_of_an_unknown_api_or_version_is_still_read() -> None:
    unknown_api = decode_request_header(b"\x03\xe7\0\0\0\0\0\x09\0\x02merest")
    assert (unknown_api.api_key, unknown_api.correlation_id) == (999, 9)
    assert unknown_api.body == b"rest"
    future = body(framing.encode_request(ApiVersionsRequest(), 3, 5, "me"))
    header = decode_request_header(future[:2] + b"\0\x63" + future[4:])
    assert (header.api_version, header.correlation_id, header.client_id) == (99, 5, "me")


@pytest.mark.parametrize(
    "frame", [b"", b"\0\x03\0\x09\0\0\0", b"\0\x03\0\x09\0\0\0\x01\0\x09me", b"\0\x03\0\x09" * 2]
)
def test_a_broken_request_header_is_a_protocol_error(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(frame)


@pytest.mark.parametrize("version", [0, 8, 9, 13])
def test_a_response_carries_its_correlation_id(version: int) -> None:
    response = MetadataResponse(controller_id=-1)
    frame = body(encode_response(response, version, 42))
    assert framing.peek_correlation_id(frame) == 42
    assert framing.decode_response(MetadataRequest, version, frame) == (42, response)


def test_only_flexible_responses_have_header_tags_and_api_versions_never() -> None:
    classic = body(encode_response(MetadataResponse(), 8, 1))
    assert classic == b"\0\0\0\x01" + MetadataResponse().encode(8)
    flexible = body(encode_response(MetadataResponse(), 9, 1))
    assert flexible == b"\0\0\0\x01\0" + MetadataResponse().encode(9)
    versions = ApiVersionsResponse(api_keys=[ApiVersion(0, 0, 13)])
    frame = body(encode_response(versions, 3, 1))
    assert frame == b"\0\0\0\x01" + versions.encode(3)
    assert framing.decode_response(ApiVersionsRequest, 3, frame) == (1, versions)


def test_unknown_tags_of_a_response_header_are_skipped() -> None:
    frame = b"\0\0\0\x01" + b"\x01\x05\x02zz" + MetadataResponse().encode(9)
    assert framing.decode_response(MetadataRequest, 9, frame) == (1, MetadataResponse())


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\x01", b"\0\0\0\x01\x05"])
def test_a_broken_response_is_a_protocol_error(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        framing.decode_response(MetadataRequest, 9, frame)


def test_peeking_into_less_than_a_header_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        framing.peek_correlation_id(b"\0\0\0")


@pytest.mark.parametrize("size", [-1, -(2**31), framing.MAX_FRAME_BYTES + 1, 2**31 - 1])
def test_an_impossible_frame_size_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match="Kafka listener"):
        framing.frame_size(size.to_bytes(4, "big", signed=True))


def test_frame_sizes_up_to_the_limit_are_taken() -> None:
    assert framing.frame_size(b"\0\0\0\0") == 0
    limit = framing.MAX_FRAME_BYTES
    assert framing.frame_size(limit.to_bytes(4, "big")) == limit


@pytest.mark.parametrize("prefix", [b"", b"\0\0\0", b"\0\0\0\0\0"])
def test_a_frame_size_takes_exactly_four_bytes(prefix: bytes) -> None:
    with pytest.raises(ProtocolError):
        framing.frame_size(prefix)


def test_values_that_do_not_fit_the_header_are_value_errors() -> None:
    with pytest.raises(ValueError, match="request header"):
        framing.encode_request(ApiVersionsRequest(), 0, 2**31, None)
    with pytest.raises(ValueError, match="request header"):
        framing.encode_request(ApiVersionsRequest(), 0, 1, "x" * 40_000)


def test_a_version_the_request_never_had_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError):
        framing.encode_request(MetadataRequest(), 14, 1, None)


@given(st.binary(max_size=80), st.sampled_from(sorted(REQUEST_TYPES)), st.integers(0, 13))
def test_noise_is_read_or_refused_with_a_protocol_error(
    noise: bytes, key: ApiKey, version: int
) -> None:
    request_type = REQUEST_TYPES[key]
    version = min(version, request_type.VALID_VERSIONS[1])
    with suppress(ProtocolError):
        header = decode_request_header(noise)
        assert header.body.nbytes < len(noise)
    with suppress(ProtocolError):
        framing.decode_response(request_type, version, noise)
    with suppress(ProtocolError):
        decode_request_header(key.to_bytes(2, "big") + version.to_bytes(2, "big") + noise)
