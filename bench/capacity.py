"""The capacity of the sink: one request, made once, replayed as fast as it is answered.

In measurements of clients against the sink, the client has to be the limit.
"""

from __future__ import annotations

import asyncio
import struct
import time

from bench.cells import BATCH_BYTES
from bench.clients import values
from bench.clients.streams import produce_request

_VERSION = 8
_VALUE_BYTES = 100
_OUTSTANDING = 8
_SECONDS = 0.5
_MARGIN = 20
"""More than the bytes around a value in a batch."""


async def capacity(bootstrap: str, topic: str) -> float:
    """Records of 100 bytes that it acknowledges per second, in batches of `BATCH_BYTES`."""
    count = BATCH_BYTES // (_VALUE_BYTES + _MARGIN)
    records = (values(_VALUE_BYTES) * (count // 256 + 1))[:count]
    frame = produce_request(topic, records, _VERSION)
    host, _, port = bootstrap.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    begin, answered = time.perf_counter(), 0
    writer.write(frame * _OUTSTANDING)
    while time.perf_counter() - begin < _SECONDS:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        await reader.readexactly(size)
        answered += 1
        writer.write(frame)
    spent = time.perf_counter() - begin
    writer.close()
    await writer.wait_closed()
    return answered * count / spent
