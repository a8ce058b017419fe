"""The bytes of a connection with requests in flight: framing, correlation, decoding, the end.

Input: how many requests, API key and version of each, how the stream is cut, then the stream.
"""

from __future__ import annotations

from collections.abc import Iterator

from aioproducer.errors import NodeDisconnectedError, NotKafkaError, ProtocolError
from aioproducer.testing.framing import encode_response
from aioproducer.wire.schema import Message
from fuzz.guard import Target, require
from fuzz.messages import every_version, samples, selected, selector
from fuzz.source import Source
from fuzz.streams import Wire, pieces, run_on_virtual_time

_MOST_REQUESTS = 6

_Requests = list[tuple[type[Message], int]]


def run(data: bytes) -> None:
    source = Source(data)
    requests = [selected(source) for _ in range(source.number(1) % _MOST_REQUESTS)]
    cut = source.number(1)
    stream = source.rest()
    whole = run_on_virtual_time(_outcome(requests, stream, 0))
    if cut:
        parts = run_on_virtual_time(_outcome(requests, stream, cut))
        require(parts == whole, "in one piece {}, in several {}", whole, parts)


async def _outcome(requests: _Requests, stream: bytes, cut: int) -> list[object]:
    """The responses that were understood, and the text of what ended the connection."""
    wire = Wire()
    futures = [
        wire.connection.send(
            [b"request"],
            correlation_id=wire.connection.next_correlation_id(),
            request_type=request_type,
            version=version,
            deadline=60.0,
        )
        for request_type, version in requests
    ]
    error = await wire.receive(pieces(stream, cut))
    require(
        type(error) in {ProtocolError, NodeDisconnectedError, NotKafkaError},
        "the connection ended with {!r}",
        error,
    )
    require(all(future.done() for future in futures), "a request is left waiting")
    answered = [future.result() for future in futures if future.exception() is None]
    failed = [future.exception() for future in futures if future.exception() is not None]
    require(answered == wire.witness.responses, "the observer got something else")
    require(
        all(type(each) is type(error) for each in failed),
        "{} though it ended with {!r}",
        failed,
        error,
    )
    require(wire.connection.in_flight == 0, "requests count as in flight after the end")
    return [*answered, str(error)]


def seeds() -> Iterator[bytes]:
    messages = [(kind, version) for kind, version in every_version()]
    for first in range(0, len(messages), 40):
        requests = messages[first : first + 3]
        stream = b"".join(
            encode_response(next(samples(kind.RESPONSE, version)), version, number)
            for number, (kind, version) in enumerate(requests, 1)
        )
        head = bytes([len(requests)]) + b"".join(selector(*request) for request in requests)
        yield head + bytes([first % 3]) + stream
    yield b"\x00\x00" + bytes(4)
    yield b"\x00\x00GET / HTTP/1.1\r\n\r\n"
    yield b"\x01\x03\x0d\x01" + (100 * 1024 * 1024).to_bytes(4, "big") + bytes(2000)


TARGET = Target("connection", run, seeds, bytes_per_byte=128)
