"""A response of any API in any version, as `decode_response` gets it from a connection.

Input: API key, version, then the frame without its size.
"""

from __future__ import annotations

from collections.abc import Iterator

from aioproducer.errors import ProtocolError
from aioproducer.testing.framing import encode_response
from aioproducer.wire.framing import SIZE_BYTES, decode_response
from fuzz.guard import Target, require
from fuzz.messages import every_version, samples, selected, selector
from fuzz.source import Source


def run(data: bytes) -> None:
    source = Source(data)
    request_type, version = selected(source)
    frame = source.rest()
    try:
        found = decode_response(request_type, version, frame)
    except ProtocolError:
        return
    correlation_id, response = found
    encoded = encode_response(response, version, correlation_id)[SIZE_BYTES:]
    again = decode_response(request_type, version, memoryview(encoded))
    require(again == found, "{} came back as {}", response, again[1])
    repeated = encode_response(again[1], version, correlation_id)[SIZE_BYTES:]
    require(repeated == encoded, "the same response has two encodings")


def seeds() -> Iterator[bytes]:
    for request_type, version in every_version():
        for response in samples(request_type.RESPONSE, version):
            frame = encode_response(response, version, 7)[SIZE_BYTES:]
            yield selector(request_type, version) + frame


TARGET = Target("responses", run, seeds, bytes_per_byte=64)
