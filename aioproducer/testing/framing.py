"""Frames as a broker reads and writes them, and the requests that it may answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aioproducer.errors import ProtocolError
from aioproducer.testing.messages import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
)
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.framing import (
    CORRELATION_ID,
    REQUEST_HEADER,
    SIZE_BYTES,
    has_header_tags,
    set_size,
)
from aioproducer.wire.messages import (
    api_versions,
    describe_configs,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offsets,
    produce,
    sasl_authenticate,
    sasl_handshake,
    telemetry,
    transactions,
)
from aioproducer.wire.primitives import (
    MALFORMED,
    Buffer,
    ElementBudget,
    read_nullable_string,
    skip_tags,
)
from aioproducer.wire.schema import Message

_MODULES: Final = (
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offsets,
    produce,
    sasl_authenticate,
    sasl_handshake,
    telemetry,
    transactions,
)
REQUEST_TYPES: Final[Mapping[ApiKey, type[Message]]] = {
    kind.API_KEY: kind
    for module in _MODULES
    for kind in vars(module).values()
    if hasattr(kind, "RESPONSE")
}
"""The request class of each API that is declared in this package."""


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """The header of a received request; `body` is what follows it, uncopied."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: memoryview


def decode_request_header(frame: Buffer) -> RequestHeader:
    """Return the header of a received request frame, given without its size.

    Unknown APIs and versions are no error here, so that a server can name them in its refusal; the
    header of an unknown API is taken to end after the client id.

    Raises:
        ProtocolError: the bytes are not a request header.
    """
    try:
        api_key, api_version, correlation_id = REQUEST_HEADER.unpack_from(frame)
        client_id, pos = read_nullable_string(frame, REQUEST_HEADER.size)
        request_type = REQUEST_TYPES.get(api_key)
        if request_type is not None and request_type.is_flexible(api_version):
            pos = skip_tags(frame, pos, ElementBudget())
    except MALFORMED as error:
        raise ProtocolError(f"malformed request header: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id, memoryview(frame)[pos:])


def encode_response(response: Message, version: int, correlation_id: int) -> bytes:
    """Return a whole response frame, size included; errors as `Message.encode`."""
    out = bytearray(SIZE_BYTES)
    out += CORRELATION_ID.pack(correlation_id)
    if has_header_tags(type(response), version):
        out.append(0)
    response.encode_into(out, version)
    set_size(out)
    return bytes(out)
