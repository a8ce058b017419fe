"""No client at all: one Produce request, made once, sent over asyncio streams again and again.

It is what an idempotent client sends for a single record, byte for byte: only the correlation id,
the sequence and the checksum over it differ from one to the next. It is what an answer costs with
no batching, no partitioner and no memory: the floor under every asyncio client's latency.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Self, cast
from uuid import UUID

from crc32c import crc32c

from aioproducer.records import RecordBatchBuilder
from aioproducer.records.batch import encode_batch
from aioproducer.records.layout import CRC_END
from aioproducer.testing.wire_client import WireClient
from aioproducer.wire.framing import encode_request
from aioproducer.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from bench.clients import Adapter, Job, Pair, values

_VERSION = 13
_CORRELATION_AT = 8
_TAGS = 3
"""Empty sections after the batch: of the partition, of the topic, of the request."""
_CRC, _NUMBER = struct.Struct(">I"), struct.Struct(">i")
_SEQUENCE_AT = 53
_TIMEOUT_MS = 30_000
_START_S = 30.0
_NO_TIMEOUT = 2**31 - 1


class Client(Adapter):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._number = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> Self:
        topic = self.topic
        async with WireClient(self.job.bootstrap, timeout_s=_START_S) as asking:
            (known,) = (await asking.metadata([topic])).topics
            wanted = InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT
            )
            given = cast(InitProducerIdResponse, await asking.ask(None, wanted, 2, 4))
        batch = _batch(values(self.job.size)[:1], (given.producer_id, given.producer_epoch))
        self._frame = bytearray(_frame(topic, batch, _VERSION, known.topic_id))
        batch_at = len(self._frame) - _TAGS - len(batch)
        self._sequence_at = batch_at + _SEQUENCE_AT
        self._crc_at = batch_at + CRC_END - _CRC.size
        self._checked = slice(batch_at + CRC_END, -_TAGS)
        host, _, port = self.job.bootstrap.split(",")[0].rpartition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._reading.cancel()
        self._writer.close()
        await self._writer.wait_closed()

    async def ask(self, record: Pair) -> None:
        frame = self._frame
        _NUMBER.pack_into(frame, _CORRELATION_AT, self._number)
        _NUMBER.pack_into(frame, self._sequence_at, self._number)
        _CRC.pack_into(frame, self._crc_at, crc32c(frame[self._checked]))
        self._number += 1
        answered = asyncio.get_running_loop().create_future()
        self._waiting.append(answered)
        self._writer.write(bytes(frame))
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


def produce_request(topic: str, records: Sequence[bytes], version: int) -> bytes:
    """The frame of a Produce request with one batch for partition 0, without a producer id."""
    return _frame(topic, _batch(records, (-1, -1)), version)


def _batch(records: Sequence[bytes], producer: tuple[int, int]) -> bytes:
    builder = RecordBatchBuilder(bytearray(sum(map(len, records)) + 64 * len(records)))
    now_ms = int(time.time() * 1000)
    for value in records:
        builder.try_append(now_ms, None, value, ())
    producer_id, producer_epoch = producer
    batch = encode_batch(
        bytes(builder.body()),
        count=builder.count,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=min(producer_id, 0),
    )
    return b"".join(batch.buffers)


def _frame(topic: str, batch: bytes, version: int, topic_id: UUID | None = None) -> bytes:
    data = PartitionProduceData(index=0, records=batch)
    entry = TopicProduceData(name=topic, partition_data=[data])
    if topic_id is not None:
        entry = TopicProduceData(topic_id=topic_id, partition_data=[data])
    request = ProduceRequest(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[entry])
    return encode_request(request, version, 0, "streams")
