"""The Produce request as a list of buffers, record data uncopied, and a fast decoder of plain acks.

The buffers in order are the frame, size included. Record pieces of `JOIN_BELOW_BYTES` or more are
handed on as they are and must stay unchanged until they have been written out; smaller ones and
the fields between them are joined, so that a request costs few buffers.

Invariant: joined, the buffers equal `encode_request(ProduceRequest(...))` byte for byte, in every
version, and an `Acknowledgement` is what `ProduceResponse.decode` makes of the same frame
(property-tested).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from aioproducer.errors import UnsupportedVersionError
from aioproducer.wire.framing import (
    CORRELATION_ID,
    CORRELATION_ID_AT,
    SIZE_BYTES,
    begin_request,
    set_size,
)
from aioproducer.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from aioproducer.wire.primitives import (
    UNENCODABLE,
    Buffer,
    write_compact_length,
    write_compact_string,
    write_length32,
    write_nullable_compact_string,
    write_nullable_string,
    write_string,
)
from aioproducer.wire.schema import Message

JOIN_BELOW_BYTES = 256

_FIRST_TRANSACTIONAL = 3
_FIRST_FLEXIBLE = ProduceRequest.FLEXIBLE_FROM or 0
_FIRST_BY_TOPIC_ID = 13
_ACKS_TIMEOUT = Struct(">hi")
_INDEX = Struct(">i")
_INDEX_SIZE = Struct(">ii")

_NO_RECORDS, _TAGS_AFTER = b"\x01", bytes(3)
"""What ends a request for one partition: no bytes of records, tags of partition, topic, request."""
_NO_RECORDS_CLASSIC = bytes(_INDEX.size)

# An answer that is not decoded field by field.
_ONE = 2
"""As a compact length."""
_BEGIN = Struct(">iBB")
"""Correlation id, tags, topics."""
_TOPIC_AT = _BEGIN.size
_UUID_SIZE = 16
_NO_ID = UUID(int=0)
_LONGEST_IN_A_BYTE = 0x7F
_ACKNOWLEDGED = Struct(">ihqqqHB")
"""Of one partition: index, error, offsets and times, no record errors nor message, tags."""
_NOTHING_MORE = 1 << 8
_AFTER = Struct(">BiB")
"""Tags of the topic, throttle time, tags."""
_START = Struct(">iIi")
"""Size of the frame, request and version, correlation id."""
_ONE_TOPIC = bytes((0, _ONE))
"""No tags."""
_ONE_PARTITION = Struct(">Bih")
_NO_ERRORS = 1 << 24
"""No record errors, no message, no tags of the partition nor of the topic."""
_SIZE_AND_ID = Struct(">ii")
POSITION = Struct(">qqq")
"""The position of an acknowledged batch: base offset, log append time, log start."""
ACKNOWLEDGEMENT_SUFFIX = Struct(">IiB").pack(_NO_ERRORS, 0, 0)
"""No errors, no throttle time and no tags."""


class ProducePartition(NamedTuple):
    """The batches for one partition, in pieces of any size."""

    partition: int
    records: Sequence[Buffer]


class ProduceTopic(NamedTuple):
    """The batches for one topic; `name` is used up to v12, `topic_id` from v13 on."""

    name: str
    topic_id: UUID
    partitions: list[ProducePartition]


def encode_produce_request(
    version: int,
    correlation_id: int,
    client_id: str | None,
    *,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: Sequence[ProduceTopic],
) -> list[Buffer]:
    """Return the frame of a Produce request, size included, as buffers to be written in order."""
    try:
        head = bytearray(_head(version, client_id, transactional_id, acks, timeout_ms))
        CORRELATION_ID.pack_into(head, CORRELATION_ID_AT, correlation_id)
        if version >= _FIRST_FLEXIBLE:
            buffers = _flexible(head, version, topics)
        else:
            buffers = _classic(head, topics)
    except UNENCODABLE as error:
        raise ValueError(f"a value does not fit ProduceRequest v{version}: {error}") from error
    return _sealed(head, buffers)


class ProduceRequestTemplate:
    """A Produce request for one batch of one partition, outside a transaction, without the batch.

    `suffix` are the bytes after the batch, whose length is a compact one if `is_flexible`.
    """

    __slots__ = (
        "_acks",
        "_answer",
        "_answer_size",
        "_begin",
        "_client_id",
        "_kind",
        "_partition",
        "_timeout_ms",
        "_topic",
        "_topic_id",
        "_version",
        "is_flexible",
        "suffix",
    )

    def __init__(
        self,
        version: int,
        client_id: str | None,
        *,
        acks: int,
        timeout_ms: int,
        topic: str,
        topic_id: UUID,
        partition: int,
    ) -> None:
        self._version = version
        self._client_id = client_id
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._topic = topic
        self._topic_id = topic_id
        self._partition = partition
        (frame,) = self.render(0, ())
        self.is_flexible: bool = version >= _FIRST_FLEXIBLE
        self.suffix: bytes = _TAGS_AFTER if self.is_flexible else b""
        nothing = _NO_RECORDS if self.is_flexible else _NO_RECORDS_CLASSIC
        _, self._kind, _ = _START.unpack_from(frame)
        self._begin = bytes(frame[_START.size : -len(nothing + self.suffix)])
        # The fixed part of a plain acknowledgement: its topic and partition, and no error.
        name = topic_id.bytes if version >= _FIRST_BY_TOPIC_ID else _compact_name(topic)
        self._answer = _ONE_TOPIC + name + _ONE_PARTITION.pack(_ONE, partition, 0)
        position_at = _SIZE_AND_ID.size + len(self._answer)
        size = position_at + POSITION.size + len(ACKNOWLEDGEMENT_SUFFIX)
        self._answer_size = size if self.is_flexible else -1

    def prefix(self, correlation_id: int) -> bytes:
        """Return the bytes before the length of the batch; the frame's size is still to be set."""
        return _START.pack(0, self._kind, correlation_id) + self._begin

    def render(self, correlation_id: int, records: Sequence[Buffer]) -> list[Buffer]:
        """Return the frame with the pieces of a batch in it, uncopied."""
        partitions = [ProducePartition(self._partition, records)]
        return encode_produce_request(
            self._version,
            correlation_id,
            self._client_id,
            transactional_id=None,
            acks=self._acks,
            timeout_ms=self._timeout_ms,
            topics=[ProduceTopic(self._topic, self._topic_id, partitions)],
        )

    def acknowledgement_prefix(self, correlation_id: int) -> bytes:
        """Return the start of a plain acknowledgement.

        `POSITION` and `ACKNOWLEDGEMENT_SUFFIX` follow. Responses before v9 do not start so.
        """
        return _SIZE_AND_ID.pack(self._answer_size - SIZE_BYTES, correlation_id) + self._answer


@dataclass(slots=True)
class Acknowledgement(Message):
    """A plain acknowledgement: batches of one topic were written, and nothing else.

    Attributes:
        name: the topic's, up to v12; else empty.
        topic_id: the topic's, from v13 on.
        places: base offset, log append time (ms) and log start of each partition's batch.
    """

    name: str
    topic_id: UUID
    places: dict[int, tuple[int, int, int]]
    throttle_time_ms: int

    def whole(self) -> ProduceResponse:
        """Return the same with all optional parts filled in."""
        partitions = [
            PartitionProduceResponse(index, 0, *place) for index, place in self.places.items()
        ]
        topic = TopicProduceResponse(self.name, self.topic_id, partitions)
        return ProduceResponse([topic], self.throttle_time_ms)


def decode_acknowledgement(
    frame: bytes, version: int, correlation_id: int
) -> Acknowledgement | None:
    """Return the outcome of a plain acknowledgement, None for any other response."""
    name, topic_id = "", _NO_ID
    if version >= _FIRST_BY_TOPIC_ID:
        at = _TOPIC_AT + _UUID_SIZE
    elif version >= _FIRST_FLEXIBLE and len(frame) > _TOPIC_AT:
        at = _TOPIC_AT + frame[_TOPIC_AT]
    else:
        return None
    end = len(frame) - _AFTER.size
    if at >= end or frame[at] > _LONGEST_IN_A_BYTE:
        return None
    count = frame[at] - 1  # a compact length
    if count < 1 or at + 1 + count * _ACKNOWLEDGED.size != end:
        return None
    tags, throttle_ms, more_tags = _AFTER.unpack_from(frame, end)
    if _BEGIN.unpack_from(frame) != (correlation_id, 0, _ONE) or tags or more_tags:
        return None
    places: dict[int, tuple[int, int, int]] = {}
    for index, code, offset, stamped, log_start, nothing, tags in _ACKNOWLEDGED.iter_unpack(
        memoryview(frame)[at + 1 : end]
    ):
        if code or offset < 0 or nothing != _NOTHING_MORE or tags:
            return None
        places[index] = (offset, stamped, log_start)
    if len(places) < count:
        return None  # one that comes twice
    if version >= _FIRST_BY_TOPIC_ID:
        topic_id = _topic_id(frame[_TOPIC_AT:at])
    else:
        raw = frame[_TOPIC_AT + 1 : at]
        if frame[_TOPIC_AT] > _LONGEST_IN_A_BYTE or not raw.isascii():
            return None
        name = raw.decode("ascii")
    return Acknowledgement(name, topic_id, places, throttle_ms)


@lru_cache(maxsize=16)
def _head(
    version: int, client_id: str | None, transactional_id: str | None, acks: int, timeout_ms: int
) -> bytes:
    """Return the frame up to its topics; only its correlation id differs between requests."""
    lowest, highest = ProduceRequest.VALID_VERSIONS
    if not lowest <= version <= highest:
        raise UnsupportedVersionError(
            f"ProduceRequest has versions {lowest} to {highest}, not {version}"
        )
    if transactional_id is not None and version < _FIRST_TRANSACTIONAL:
        raise UnsupportedVersionError(
            f"ProduceRequest.transactional_id is set, but version {version} cannot carry it"
        )
    head = begin_request(ProduceRequest, version, 0, client_id)
    if version >= _FIRST_FLEXIBLE:
        write_nullable_compact_string(head, transactional_id)
    elif version >= _FIRST_TRANSACTIONAL:
        write_nullable_string(head, transactional_id)
    return bytes(head + _ACKS_TIMEOUT.pack(acks, timeout_ms))


@lru_cache(maxsize=1024)
def _topic_id(raw: bytes) -> UUID:
    return UUID(bytes=raw)


@lru_cache(maxsize=1024)
def _compact_name(name: str) -> bytes:
    out = bytearray()
    write_compact_string(out, name)
    return bytes(out)


def _add_records(
    records: Sequence[Buffer], buffers: list[Buffer | bytearray], tail: bytearray
) -> bytearray:
    """Return the tail to append to; a large piece ends the present one."""
    for piece in records:
        if len(piece) < JOIN_BELOW_BYTES:
            tail += piece
        else:
            buffers += (tail, piece)
            tail = bytearray()
    return tail


def _sealed(head: bytearray, buffers: Sequence[Buffer | bytearray]) -> list[Buffer]:
    """Return the buffers of a whole frame; its size is set in the first of them, `head`."""
    set_size(head, sum(map(len, buffers)) - len(head))
    if len(buffers) == 1:
        return [bytes(head)]
    return [bytes(each) if isinstance(each, bytearray) else each for each in buffers if each]


def _classic(head: bytearray, topics: Sequence[ProduceTopic]) -> list[Buffer | bytearray]:
    """Return the frame's buffers; its size is still to be set: versions 0 to 8."""
    buffers: list[Buffer | bytearray] = []
    tail = head
    write_length32(tail, len(topics))
    for name, _, partitions in topics:
        write_string(tail, name)
        write_length32(tail, len(partitions))
        for index, records in partitions:
            tail += _INDEX_SIZE.pack(index, sum(map(len, records)))
            tail = _add_records(records, buffers, tail)
    buffers.append(tail)
    return buffers


def _flexible(
    head: bytearray, version: int, topics: Sequence[ProduceTopic]
) -> list[Buffer | bytearray]:
    """Return the same from version 9 on: compact lengths, an empty tagged section per struct."""
    buffers: list[Buffer | bytearray] = []
    tail = head
    write_compact_length(tail, len(topics))
    for name, topic_id, partitions in topics:
        tail += topic_id.bytes if version >= _FIRST_BY_TOPIC_ID else _compact_name(name)
        write_compact_length(tail, len(partitions))
        for index, records in partitions:
            tail += _INDEX.pack(index)
            write_compact_length(tail, sum(map(len, records)))
            tail = _add_records(records, buffers, tail)
            tail.append(0)
        tail.append(0)
    tail.append(0)
    buffers.append(tail)
    return buffers
