"""The worker that acknowledges at once: a broker that counts records and validates nothing.

Owns: the few requests a producer needs. Not here: clients. Arguments: none; topics are created by
CreateTopics, or in an order. It reports `ready` with its address, and counts after each order.

A Produce request costs it one walk over the partition headers; record bytes are not touched after
the kernel copied them, nothing is kept but the number of records per partition. The rest of the
protocol comes from `aioproducer.wire`, at start-up only. `capacity` in `bench/README.md` is what it
takes from a program that replays one request.

Invariants: Produce is served up to v13, the last one, as real brokers do: clients take other ways
with older ones. A request that is not understood closes its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from struct import Struct, error
from typing import Any, cast
from uuid import UUID, uuid4

from aioproducer.errors import ProtocolError, UnknownTopicOrPartitionError, UnsupportedVersionError
from aioproducer.testing.framing import (
    REQUEST_TYPES,
    RequestHeader,
    decode_request_header,
    encode_response,
)
from aioproducer.testing.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from aioproducer.testing.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.framing import frame_size
from aioproducer.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from aioproducer.wire.messages.init_producer_id import InitProducerIdResponse
from aioproducer.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from aioproducer.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer.wire.schema import Message
from bench.workers import new_runner, next_order, orders, tell

_NODE = 1
_BUFFER_BYTES = 2 << 20
_SIZE_BYTES = 4
_SHORT = Struct(">h")
_INT = Struct(">i")
_REQUEST_HEAD = Struct(">hhih")  # api key, version, correlation id, length of the client id
_BODY_HEAD = Struct(">hhi")  # length of the transactional id, acks, timeout
_ACKS = Struct(">hi")  # and timeout
_PARTITION = Struct(">ii")  # index, bytes of records
_ACKNOWLEDGED = Struct(">ihqqqih")  # index, error, offset, append time, log start, errors, message
_FLEXIBLE_ACKNOWLEDGED = Struct(">ihqqqBBB")  # the same: no errors, no message, no tags
_FIRST_FLEXIBLE, _FIRST_WITH_IDS = 9, 13
_UUID_BYTES = 16
_NO_TAGS = b"\0"
_BATCH_LENGTH_AT, _BATCH_COUNT_AT, _BATCH_OVERHEAD = 8, 57, 12


class Log:
    """The content of the topics: numbers of records, and counters since the start."""

    def __init__(self) -> None:
        self.ends: dict[str, list[int]] = {}
        self.encoded_names: dict[bytes, list[int]] = {}
        """By name, and by the id of the topic."""
        self.ids: dict[str, UUID] = {}
        self.requests = 0
        self.batches = 0
        self.records = 0
        self.producers = 0

    def create(self, name: str, partitions: int) -> None:
        """A topic; one that exists is emptied."""
        self.delete(name)
        self.ids[name] = uuid4()
        self.ends[name] = ends = [0] * partitions
        self.encoded_names[name.encode()] = self.encoded_names[self.ids[name].bytes] = ends

    def delete(self, name: str) -> None:
        if self.ends.pop(name, None) is not None:
            del self.encoded_names[name.encode()], self.encoded_names[self.ids.pop(name).bytes]

    def append(self, frame: memoryview) -> bytes | None:
        """Count what a Produce request (v3 to v13, without its size) holds; gives the answer."""
        _, version, correlation, length = _REQUEST_HEAD.unpack_from(frame)
        position = _REQUEST_HEAD.size + max(length, 0)
        if version >= _FIRST_FLEXIBLE:
            return self._append_flexible(frame, position + len(_NO_TAGS), version, correlation)
        length, acks, _ = _BODY_HEAD.unpack_from(frame, position)
        position += _BODY_HEAD.size + max(length, 0)
        (topics,) = _INT.unpack_from(frame, position)
        position += _INT.size
        answer = [b"", _INT.pack(topics)]
        for _ in range(topics):
            position = self._append_topic(frame, position, version, answer)
        answer.append(_INT.pack(0))
        answer[0] = _PARTITION.pack(_INT.size + sum(map(len, answer)), correlation)
        self.requests += 1
        return b"".join(answer) if acks else None

    def _append_topic(
        self, frame: memoryview, position: int, version: int, answer: list[bytes]
    ) -> int:
        (length,) = _SHORT.unpack_from(frame, position)
        start = position
        position += _SHORT.size + length
        ends = self.encoded_names[bytes(frame[position - length : position])]
        (partitions,) = _INT.unpack_from(frame, position)
        position += _INT.size
        answer.append(bytes(frame[start:position]))
        kept = _ACKNOWLEDGED.size if version >= 8 else _ACKNOWLEDGED.size - _SHORT.size - _INT.size
        if version < 5:
            kept -= 8
        for _ in range(partitions):
            index, size = _PARTITION.unpack_from(frame, position)
            position += _PARTITION.size
            offset = ends[index]
            ends[index] = offset + self._count(frame, position, position + size)
            position += size
            answer.append(_ACKNOWLEDGED.pack(index, 0, offset, -1, 0, 0, -1)[:kept])
        return position

    def _append_flexible(
        self, frame: memoryview, position: int, version: int, correlation: int
    ) -> bytes | None:
        length, position = _unsigned(frame, position)
        position += max(length - 1, 0)
        acks, _ = _ACKS.unpack_from(frame, position)
        start = position = position + _ACKS.size
        topics, position = _unsigned(frame, position)
        answer = [b"", _INT.pack(correlation), _NO_TAGS, bytes(frame[start:position])]
        for _ in range(topics - 1):
            start = position
            length = _UUID_BYTES
            if version < _FIRST_WITH_IDS:
                length, position = _unsigned(frame, position)
                length -= 1
            position += length
            ends = self.encoded_names[bytes(frame[position - length : position])]
            partitions, position = _unsigned(frame, position)
            answer.append(bytes(frame[start:position]))
            for _ in range(partitions - 1):
                (index,) = _INT.unpack_from(frame, position)
                size, position = _unsigned(frame, position + _INT.size)
                offset, end = ends[index], position + size - 1
                ends[index] = offset + self._count(frame, position, end)
                position = end + len(_NO_TAGS)
                answer.append(_FLEXIBLE_ACKNOWLEDGED.pack(index, 0, offset, -1, 0, 1, 0, 0))
            position += len(_NO_TAGS)
            answer.append(_NO_TAGS)
        answer += (_INT.pack(0), _NO_TAGS)
        answer[0] = _INT.pack(sum(map(len, answer)))
        self.requests += 1
        return b"".join(answer) if acks else None

    def _count(self, frame: memoryview, position: int, end: int) -> int:
        records = 0
        while position < end:
            records += _INT.unpack_from(frame, position + _BATCH_COUNT_AT)[0]
            position += _INT.unpack_from(frame, position + _BATCH_LENGTH_AT)[0] + _BATCH_OVERHEAD
            self.batches += 1
        self.records += records
        return records


def _unsigned(frame: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint, and where it ends."""
    number = shift = 0
    while True:
        byte = frame[position]
        number |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return number, position
        shift += 7


class Sink:
    """Everything but Produce, by its message classes."""

    def __init__(self, log: Log, address: Callable[[], tuple[str, int]]) -> None:
        self._log = log
        self._address = address
        self._served: Mapping[ApiKey, tuple[int, int, Callable[[Any], Message]]] = {
            ApiKey.API_VERSIONS: (0, 3, self._versions),
            ApiKey.METADATA: (0, 12, self._metadata),
            ApiKey.INIT_PRODUCER_ID: (0, 1, self._new_producer),
            ApiKey.LIST_OFFSETS: (1, 5, self._ends),
            ApiKey.CREATE_TOPICS: (2, 4, self._create),
            ApiKey.DELETE_TOPICS: (1, 3, self._delete),
        }

    def answer(self, header: RequestHeader) -> bytes:
        """Return the frame of the response; raise `ProtocolError` for other requests."""
        try:
            key = ApiKey(header.api_key)
            lowest, highest, handler = self._served[key]
        except (ValueError, KeyError):
            raise ProtocolError(f"API {header.api_key} is not served") from None
        if not lowest <= header.api_version <= highest:
            # KIP-511: the answer to a version of ApiVersions that is not there is one of v0.
            refusal = self._versions(None, UnsupportedVersionError.code)
            return encode_response(refusal, 0, header.correlation_id)
        request = REQUEST_TYPES[key].decode_from(header.body, 0, header.api_version)
        return encode_response(handler(request), header.api_version, header.correlation_id)

    def _versions(self, _: Any, code: int = 0) -> Message:
        # librdkafka infers the record format and the codecs from APIs that it never calls here.
        ranges = {ApiKey.PRODUCE: (0, 13), ApiKey.FETCH: (0, 11), ApiKey.FIND_COORDINATOR: (0, 2)}
        ranges |= {key: (lowest, highest) for key, (lowest, highest, _) in self._served.items()}
        return ApiVersionsResponse(
            error_code=code,
            api_keys=[
                ApiVersion(api_key=int(key), min_version=lowest, max_version=highest)
                for key, (lowest, highest) in ranges.items()
            ],
        )

    def _metadata(self, request: Any) -> Message:
        host, port = self._address()
        asked = self._log.ends if not request.topics else [each.name for each in request.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=_NODE, host=host, port=port)],
            cluster_id="sink",
            controller_id=_NODE,
            topics=[self._topic(name) for name in asked],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self._log.ends:
            return MetadataResponseTopic(error_code=UnknownTopicOrPartitionError.code, name=name)
        return MetadataResponseTopic(
            name=name,
            topic_id=self._log.ids[name],
            partitions=[
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=_NODE,
                    leader_epoch=0,
                    replica_nodes=[_NODE],
                    isr_nodes=[_NODE],
                )
                for index in range(len(self._log.ends[name]))
            ],
        )

    def _new_producer(self, _: Any) -> Message:
        self._log.producers += 1
        return InitProducerIdResponse(producer_id=self._log.producers)

    def _ends(self, request: Any) -> Message:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            offset=self._log.ends[topic.name][each.partition_index],
                            leader_epoch=0,
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _create(self, request: Any) -> Message:
        for topic in request.topics:
            self._log.create(topic.name, topic.num_partitions)
        return CreateTopicsResponse(
            topics=[CreatableTopicResult(name=topic.name) for topic in request.topics]
        )

    def _delete(self, request: Any) -> Message:
        for name in request.topic_names:
            self._log.delete(name)
        return DeleteTopicsResponse(
            responses=[DeletableTopicResult(name=name) for name in request.topic_names]
        )


class Connection(asyncio.BufferedProtocol):
    """Frames out of one growing buffer, answers as they come."""

    def __init__(self, log: Log, sink: Sink) -> None:
        self._log = log
        self._sink = sink
        self._buffer = bytearray(_BUFFER_BYTES)
        self._filled = 0
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._filled == len(self._buffer):  # one frame that is larger
            self._buffer = self._buffer + bytes(len(self._buffer))
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        try:
            with memoryview(self._buffer) as view:
                done = self._serve(view[: self._filled], transport)
                rest = self._filled - done
                if done:
                    view[:rest] = bytes(view[done : self._filled])
        except (ProtocolError, error, KeyError, IndexError):
            transport.close()
            return
        self._filled = rest

    def _serve(self, view: memoryview, transport: asyncio.WriteTransport) -> int:
        """Answer every whole frame; how many bytes they were."""
        position = 0
        while len(view) - position >= _SIZE_BYTES:
            start = position + _SIZE_BYTES
            end = start + frame_size(view[position:start])
            if end > len(view):
                break
            frame = view[start:end]
            if _SHORT.unpack_from(frame)[0] == ApiKey.PRODUCE:
                answer = self._log.append(frame)
            else:
                answer = self._sink.answer(decode_request_header(frame))
            if answer is not None:
                transport.write(answer)
            position = end
        return position


async def _serve() -> None:
    log = Log()
    address: dict[str, tuple[str, int]] = {}
    sink = Sink(log, lambda: address["own"])
    heard = await orders()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(log, sink), "127.0.0.1", 0)
    address["own"] = server.sockets[0].getsockname()[:2]
    tell("ready", bootstrap_servers="{}:{}".format(*address["own"]))
    while (order := await next_order(heard)) is not None:
        for name in order.get("create", ()):
            log.create(name, order["partitions"])
        for name in order.get("delete", ()):
            log.delete(name)
        counts = {name: getattr(log, name) for name in ("requests", "batches", "records")}
        arrived = sum(sum(log.ends[name]) for name in order.get("count", ()))
        tell(order["kind"], arrived=arrived, **counts)
    server.close()


if __name__ == "__main__":
    with new_runner() as runner:
        runner.run(_serve())
