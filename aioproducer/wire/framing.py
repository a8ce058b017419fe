"""Frames and headers: from a request to its bytes, and from bytes to a response.

Frame:            size int32 | header | body
Request header:   api_key int16 | api_version int16 | correlation_id int32 | client_id (classic
                  nullable string in every version, KIP-482) | tagged fields if the body has them
Response header:  correlation_id int32 | tagged fields if the body has them, but never for
                  ApiVersions, whose response must be readable by any client (KIP-511)

Invariants: a size is checked before a byte is read for it; bad bytes only raise `ProtocolError`.
"""

from __future__ import annotations

from struct import Struct

from aioproducer.errors import ProtocolError
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.primitives import (
    MALFORMED,
    UNENCODABLE,
    Buffer,
    ElementBudget,
    skip_tags,
    write_nullable_string,
)
from aioproducer.wire.schema import Message

MAX_FRAME_BYTES = 100 * 1024 * 1024
"""The largest frame taken from a peer, as the brokers' `socket.request.max.bytes`."""

SIZE_BYTES = 4

CORRELATION_ID = Struct(">i")
CORRELATION_ID_AT = SIZE_BYTES + 4
"""Its offset in the frame of a request, after API key and version."""

_SIZE = Struct(">i")
REQUEST_HEADER = Struct(">hhi")


def frame_size(prefix: Buffer) -> int:
    """Return the size announced by a frame's first four bytes."""
    try:
        (size,) = _SIZE.unpack(prefix)
    except MALFORMED as error:
        raise ProtocolError(f"a frame size takes four bytes, not {len(prefix)}") from error
    if not 0 <= size <= MAX_FRAME_BYTES:
        raise ProtocolError(
            f"frame of {size} bytes announced, the limit is {MAX_FRAME_BYTES}; "
            "is this a Kafka listener, and one without TLS?"
        )
    return int(size)


def begin_request(
    request_type: type[Message], version: int, correlation_id: int, client_id: str | None
) -> bytearray:
    """Return a frame with an empty size and a full header, ready for the body; see `set_size`."""
    out = bytearray(SIZE_BYTES)
    try:
        out += REQUEST_HEADER.pack(request_type.API_KEY, version, correlation_id)
        write_nullable_string(out, client_id)
    except UNENCODABLE as error:
        raise ValueError(f"a value does not fit the request header: {error}") from error
    if request_type.is_flexible(version):
        out.append(0)
    return out


def set_size(frame: bytearray, extra: int = 0) -> None:
    """Write the size of `frame`, and of `extra` bytes that follow it, into its first four bytes."""
    _SIZE.pack_into(frame, 0, len(frame) - SIZE_BYTES + extra)


def encode_request(
    request: Message, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Return a whole request frame, size included; errors as `Message.encode`."""
    out = begin_request(type(request), version, correlation_id, client_id)
    request.encode_into(out, version)
    set_size(out)
    return bytes(out)


def has_header_tags(response_type: type[Message], version: int) -> bool:
    """Return whether the header of a response has tagged fields."""
    return response_type.API_KEY is not ApiKey.API_VERSIONS and response_type.is_flexible(version)


def decode_response(
    request_type: type[Message], version: int, frame: Buffer
) -> tuple[int, Message]:
    """Return correlation id and message of a response frame, given without its size.

    `records` fields keep a view of the frame.
    """
    response_type = request_type.RESPONSE
    try:
        (correlation_id,) = CORRELATION_ID.unpack_from(frame)
        pos = CORRELATION_ID.size
        if has_header_tags(response_type, version):
            pos = skip_tags(frame, pos, ElementBudget())
    except MALFORMED as error:
        raise ProtocolError(f"malformed response header: {error}") from error
    return correlation_id, response_type.decode_from(frame, pos, version)


def peek_correlation_id(frame: Buffer) -> int:
    """Return the correlation id of a response frame, whatever its body."""
    try:
        return int(CORRELATION_ID.unpack_from(frame)[0])
    except MALFORMED as error:
        raise ProtocolError(f"malformed response header: {error}") from error
