"""Decoding of response frames."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.errors import ProtocolError
from aioproducer.net.responses import (
    BareFrame,
    UndecodedAnswer,
    answers,
    decode_answer,
    describe_end,
)
from aioproducer.testing.framing import encode_response
from aioproducer.wire.acknowledgement import Acknowledgement
from aioproducer.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aioproducer.wire.messages.metadata import MetadataRequest, MetadataResponse
from aioproducer.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from aioproducer.wire.schema import Message


def frame_of(response: Message, version: int, correlation_id: int = 7) -> bytes:
    return encode_response(response, version, correlation_id)[4:]


def produced(error_code: int) -> ProduceResponse:
    partition = PartitionProduceResponse(3, error_code, -1 if error_code else 40)
    return ProduceResponse([TopicProduceResponse("t", partition_responses=[partition])])


def test_a_plain_acknowledgement_is_not_decoded_in_full() -> None:
    seen = decode_answer(ProduceRequest, 9, 7, frame_of(produced(0), 9))
    assert isinstance(seen, Acknowledgement)
    assert seen.whole() == produced(0)


def test_any_other_response_to_produce_is_decoded() -> None:
    assert decode_answer(ProduceRequest, 9, 7, frame_of(produced(6), 9)) == produced(6)


@pytest.mark.parametrize(
    ("kind", "response"),
    [
        (ProduceRequest, produced(0)),
        (MetadataRequest, MetadataResponse()),
        (UndecodedAnswer, MetadataResponse()),
    ],
)
def test_a_response_to_another_request_is_refused(kind: type[Message], response: Message) -> None:
    with pytest.raises(ProtocolError, match="correlation id 8 came where 7 was due"):
        decode_answer(kind, 9, 7, frame_of(response, 9, 8))


def test_a_response_to_a_request_that_was_encoded_elsewhere_stays_as_it_is() -> None:
    frame = frame_of(MetadataResponse(), 9)
    seen = decode_answer(UndecodedAnswer, 0, 7, frame)
    assert isinstance(seen, UndecodedAnswer)
    assert seen.frame == frame
    assert repr(seen) == f"UndecodedAnswer({len(frame)} bytes)"


def test_a_token_has_no_header_and_is_not_shown() -> None:
    seen = decode_answer(BareFrame, 0, 7, b"secret")
    assert isinstance(seen, BareFrame)
    assert seen.data == b"secret"
    assert repr(seen) == "BareFrame(6 bytes)"


def test_the_refusal_of_a_version_of_api_versions_is_in_version_0() -> None:
    refused = ApiVersionsResponse(error_code=35)
    assert decode_answer(ApiVersionsRequest, 4, 7, frame_of(refused, 0)) == refused
    other = ApiVersionsResponse(error_code=42)
    assert decode_answer(ApiVersionsRequest, 4, 7, frame_of(other, 4)) == other


def test_a_frame_answers_the_request_whose_id_it_begins_with() -> None:
    frame = frame_of(MetadataResponse(), 9, 2**31 - 1)
    assert answers(frame, 2**31 - 1)
    assert not answers(frame, 7)
    assert not answers(frame[:3], 2**31 - 1)
    assert not answers(b"", 0)


@pytest.mark.parametrize(
    ("received", "expected", "unanswered", "words"),
    [
        (b"", 4, 0, "the broker closed the connection"),
        (b"", 4, 2, "the broker closed the connection with 2 request(s) unanswered"),
        (b"\0\0", 4, 2, "the broker closed the connection in the middle of a response"),
        (b"", 3, 2, "the broker closed the connection in the middle of a response"),
        (b"", 5, 0, "the broker closed the connection in the middle of a response"),
    ],
)
def test_the_end_of_a_stream_is_described_by_what_it_leaves_open(
    received: bytes, expected: int, unanswered: int, words: str
) -> None:
    """A response begins with its size in 4 bytes; then its frame is read, of any length."""
    end = asyncio.IncompleteReadError(received, expected)
    assert describe_end(end, unanswered) == words
