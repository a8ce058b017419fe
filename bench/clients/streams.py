"""No client at all: one Produce request, made once, sent over asyncio's streams again and again.

Only the correlation id differs from request to request. It is what an answer costs with no
batching, no partitioner and no memory: the floor under every asyncio client's latency. Its batch
carries no producer id, since a broker would refuse the second of the same sequence.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Self

from aioproducer.records import RecordBatchBuilder
from aioproducer.records.batch import encode_batch
from aioproducer.wire.framing import encode_request
from aioproducer.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from bench.clients import Adapter, Job, Pair, values

_VERSION = 9
_CORRELATION_AT = 8
_TIMEOUT_MS = 30_000


class Client(Adapter):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._frame = bytearray(produce_request(job.topic, values(job.size)[:1]))
        self._number = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> Self:
        host, _, port = self.job.bootstrap.split(",")[0].rpartition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._reading.cancel()
        self._writer.close()
        await self._writer.wait_closed()

    async def ask(self, record: Pair) -> None:
        self._number += 1
        struct.pack_into(">i", self._frame, _CORRELATION_AT, self._number)
        answered = asyncio.get_running_loop().create_future()
        self._waiting.append(answered)
        self._writer.write(bytes(self._frame))
        await answered

    async def _read(self) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                await self._reader.readexactly(size)
                self._waiting.popleft().set_result(None)
        except (OSError, EOFError) as problem:
            for answered in self._waiting:
                answered.set_exception(ConnectionError(str(problem)))


def produce_request(topic: str, records: Sequence[bytes], version: int = _VERSION) -> bytes:
    """The frame of a Produce request with one batch for partition 0, with correlation id 0."""
    builder = RecordBatchBuilder(bytearray(sum(map(len, records)) + 64 * len(records)))
    now_ms = int(time.time() * 1000)
    for value in records:
        builder.try_append(now_ms, None, value, ())
    batch = encode_batch(
        bytes(builder.body()), count=builder.count, base_timestamp=now_ms, max_timestamp=now_ms
    )
    data = PartitionProduceData(index=0, records=b"".join(batch.buffers))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    return encode_request(request, version, 0, "streams")
