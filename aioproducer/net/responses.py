"""Decoding of response frames, bare frames, and descriptions of closed connections."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aioproducer.errors import ProtocolError
from aioproducer.wire.acknowledgement import decode_acknowledgement
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.framing import decode_response, peek_correlation_id
from aioproducer.wire.messages.produce import ProduceRequest
from aioproducer.wire.schema import Message

_UNSUPPORTED_VERSION = (35).to_bytes(2, "big")


@dataclass(slots=True)
class BareFrame(Message):
    """A frame without header: a SASL token, as brokers before 1.0 exchange them (KIP-43)."""

    data: bytes = b""

    def __repr__(self) -> str:
        return f"BareFrame({len(self.data)} bytes)"


@dataclass(slots=True)
class UndecodedAnswer(Message):
    """A response to a request that was encoded elsewhere: its frame, without the size."""

    frame: bytes = b""

    def __repr__(self) -> str:
        return f"UndecodedAnswer({len(self.frame)} bytes)"


def decode_answer(kind: type[Message], version: int, correlation_id: int, frame: bytes) -> Message:
    """Return the response to a request of this kind, version and correlation id."""
    if kind is BareFrame:
        return BareFrame(frame)
    if kind is ProduceRequest:
        acknowledgement = decode_acknowledgement(frame, version, correlation_id)
        if acknowledgement is not None:
            return acknowledgement
    # The id first: a response to another request could not be decoded anyway.
    received = peek_correlation_id(frame)
    if received != correlation_id:
        raise ProtocolError(f"correlation id {received} came where {correlation_id} was due")
    if kind is UndecodedAnswer:
        return UndecodedAnswer(bytes(frame))
    if kind.API_KEY is ApiKey.API_VERSIONS and frame[4:6] == _UNSUPPORTED_VERSION:
        # KIP-511: a broker that does not support the version answers in version 0.
        version = 0
    return decode_response(kind, version, frame)[1]


def answers(frame: bytes, correlation_id: int) -> bool:
    """Return whether a frame begins with the id of this request."""
    return frame[:4] == correlation_id.to_bytes(4, "big")


def describe_end(error: asyncio.IncompleteReadError, unanswered: int) -> str:
    """Return the message for an end of the stream at this point."""
    if error.partial or error.expected != 4:
        return "the broker closed the connection in the middle of a response"
    if unanswered:
        return f"the broker closed the connection with {unanswered} request(s) unanswered"
    return "the broker closed the connection"
