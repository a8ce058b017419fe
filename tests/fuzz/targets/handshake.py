"""The first responses of a connection: answers to ApiVersions, and the versions chosen from them.

Input: how the stream is cut, then the stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from aioproducer.errors import KafkaError, UnsupportedVersionError
from aioproducer.net.cluster_check import ClusterCheck
from aioproducer.net.handshake import shake_hands
from aioproducer.net.session import Session
from aioproducer.net.settings import NetSettings
from aioproducer.net.versions import BrokerVersions
from aioproducer.testing.framing import REQUEST_TYPES, encode_response
from aioproducer.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from fuzz.guard import Target, require
from fuzz.source import Source
from fuzz.streams import Wire, pieces, run_on_virtual_time


def run(data: bytes) -> None:
    source = Source(data)
    cut = source.number(1)
    run_on_virtual_time(_shake_hands(source.rest(), cut))


async def _shake_hands(stream: bytes, cut: int) -> None:
    wire = Wire()
    check = ClusterCheck(
        enabled=True, cluster_id="c", latest_version=ApiVersionsRequest.VALID_VERSIONS[1]
    )
    session = Session(wire.connection, NetSettings(), check=check, host="broker", deadline=60.0)
    handshake = asyncio.create_task(shake_hands(session))
    await wire.receive(pieces(stream, cut))
    async with asyncio.timeout(1):
        await asyncio.wait({handshake})
    error = handshake.exception()
    if error is None:
        _choose_all(handshake.result())
    else:
        require(isinstance(error, KafkaError), "the handshake raised {!r}", error)


def _choose_all(versions: BrokerVersions) -> None:
    for request_type in REQUEST_TYPES.values():
        lowest, highest = request_type.VALID_VERSIONS
        try:
            chosen = versions.choose(request_type)
        except UnsupportedVersionError:
            continue
        require(lowest <= chosen <= highest, "version {} was chosen for {}", chosen, request_type)


def seeds() -> Iterator[bytes]:
    ranges = [
        ApiVersion(api_key=int(key), min_version=low, max_version=high)
        for key, (low, high) in ((k, REQUEST_TYPES[k].VALID_VERSIONS) for k in REQUEST_TYPES)
    ]
    yield b"\0" + encode_response(ApiVersionsResponse(api_keys=ranges), 5, 1)
    refusal = encode_response(ApiVersionsResponse(error_code=35), 0, 1)
    yield b"\1" + refusal + encode_response(ApiVersionsResponse(api_keys=ranges), 0, 2)
    for highest in (0, 2, 3):
        known = ApiVersion(api_key=18, min_version=0, max_version=highest)
        offer = encode_response(ApiVersionsResponse(error_code=35, api_keys=[known]), 0, 1)
        for cut in (0, 1):
            answer = encode_response(ApiVersionsResponse(api_keys=ranges), highest, 2)
            yield bytes([cut]) + offer + answer
    yield b"\2" + encode_response(ApiVersionsResponse(error_code=58), 5, 1)


TARGET = Target("handshake", run, seeds, bytes_per_byte=128)
