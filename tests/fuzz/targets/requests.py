"""A request frame, as a server gets it: the header, and the body if that names a known message.

Input: the frame without its size.
"""

from __future__ import annotations

from collections.abc import Iterator

from aioproducer.errors import ProtocolError, UnsupportedVersionError
from aioproducer.testing.framing import REQUEST_TYPES, decode_request_header
from aioproducer.wire.framing import SIZE_BYTES, encode_request
from fuzz.guard import Target, require
from fuzz.messages import every_version, samples


def run(data: bytes) -> None:
    try:
        header = decode_request_header(data)
    except ProtocolError:
        return
    require(bytes(header.body) == data[len(data) - len(header.body) :], "the body is not the rest")
    request_type = REQUEST_TYPES.get(header.api_key)  # type: ignore[call-overload]
    if request_type is None:
        return
    version = header.api_version
    try:
        request = request_type.decode(header.body, version)
    except ProtocolError:
        return
    except UnsupportedVersionError:
        lowest, highest = request_type.VALID_VERSIONS
        require(
            not lowest <= version <= highest, "version {} of {} is refused", version, request_type
        )
        return
    frame = encode_request(request, version, header.correlation_id, header.client_id)
    again = decode_request_header(frame[SIZE_BYTES:])
    require(
        (again.api_key, again.api_version, again.correlation_id, again.client_id)
        == (header.api_key, version, header.correlation_id, header.client_id),
        "{} came back as {}",
        header,
        again,
    )
    repeated = request_type.decode(again.body, version)
    require(repeated == request, "{} came back as {}", request, repeated)


def seeds() -> Iterator[bytes]:
    for request_type, version in every_version():
        for client_id, request in zip(("fuzz", None), samples(request_type, version), strict=True):
            yield encode_request(request, version, 7, client_id)[SIZE_BYTES:]


TARGET = Target("requests", run, seeds, bytes_per_byte=64)
