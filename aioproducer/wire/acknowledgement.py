"""Plain acknowledgements, which are recognized by their layout instead of decoded field by field.

A plain acknowledgement says that batches of one topic were written, and nothing else. Its frame:

    size int32 | correlation id int32 | tags 0 | topics 1
      name, or topic id (from v13 on) | partitions
        index int32 | error 0 int16 | base offset, log append time, log start int64
        record errors 0 | message null | tags 0
      tags 0
    throttle time int32 | tags 0

Counts are compact: one byte, plus one. Classic responses (before v9) have no such layout.

Invariant: an `Acknowledgement` is what `ProduceResponse.decode` makes of the same frame
(property-tested).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from uuid import UUID

from aioproducer.wire.framing import CORRELATION_ID, SIZE_BYTES
from aioproducer.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from aioproducer.wire.schema import Message

FIRST_BY_TOPIC_ID = 13

_NO_ID = UUID(int=0)
_ONE = 2
_LONGEST_IN_A_BYTE = 0x7F
_HEAD = Struct(">iBB")
"""Up to the topic, without the size."""
_PARTITION = Struct(">ihqqqHB")
_UP_TO_POSITION = Struct(">Bih")
"""Number of partitions, index and error of the first."""
POSITION = Struct(">qqq")
"""Base offset, log append time, log start."""
Position = tuple[int, int, int]
"""The same as numbers, the time in ms; -1 for an unknown one."""
_NOTHING_MORE = 1 << 8
"""No record errors, no message."""
_TAIL = Struct(">BiB")
ACKNOWLEDGEMENT_SUFFIX = Struct(">HB").pack(_NOTHING_MORE, 0) + _TAIL.pack(0, 0, 0)
"""What follows the only position, without a throttle time."""


def acknowledgement_start(topic: bytes, partition: int) -> tuple[bytes, bytes]:
    """Return what is before and after the correlation id in the acknowledgement of one batch.

    `POSITION` and `ACKNOWLEDGEMENT_SUFFIX` follow.
    """
    after = bytes((0, _ONE)) + topic + _UP_TO_POSITION.pack(_ONE, partition, 0)
    size = CORRELATION_ID.size + len(after) + POSITION.size + len(ACKNOWLEDGEMENT_SUFFIX)
    return size.to_bytes(SIZE_BYTES, "big"), after


@dataclass(slots=True)
class Acknowledgement(Message):
    """A plain acknowledgement.

    Attributes:
        name: the topic's, up to v12; else empty.
        topic_id: the topic's, from v13 on.
        positions: those of each partition's batch.
    """

    name: str
    topic_id: UUID
    positions: dict[int, Position]
    throttle_time_ms: int

    def whole(self) -> ProduceResponse:
        """Return the same with all optional parts filled in."""
        partitions = [
            PartitionProduceResponse(index, 0, *position)
            for index, position in self.positions.items()
        ]
        topic = TopicProduceResponse(self.name, self.topic_id, partitions)
        return ProduceResponse([topic], self.throttle_time_ms)


def position_after(start: bytes, frame: bytes) -> Position | None:
    """Return the position in the acknowledgement of one batch that begins so, else None.

    `start` is of `ProduceRequestTemplate.acknowledgement`; the frame comes with its size.
    """
    at = len(start)
    if frame[:at] != start or frame[at + POSITION.size :] != ACKNOWLEDGEMENT_SUFFIX:
        return None
    base_offset, stamped, log_start = POSITION.unpack_from(frame, at)
    return None if base_offset < 0 else (base_offset, stamped, log_start)


def decode_acknowledgement(
    frame: bytes, version: int, correlation_id: int
) -> Acknowledgement | None:
    """Return the outcome of a plain acknowledgement, None for any other response.

    The frame comes without its size.
    """
    start = _HEAD.size
    if version >= FIRST_BY_TOPIC_ID:
        at = start + len(_NO_ID.bytes)
    elif ProduceResponse.is_flexible(version) and len(frame) > start:
        at = start + frame[start]
    else:
        return None
    end = len(frame) - _TAIL.size
    if at >= end or frame[at] > _LONGEST_IN_A_BYTE:
        return None
    count = frame[at] - 1
    if count < 1 or at + 1 + count * _PARTITION.size != end:
        return None
    tags, throttle_ms, more_tags = _TAIL.unpack_from(frame, end)
    if _HEAD.unpack_from(frame) != (correlation_id, 0, _ONE) or tags or more_tags:
        return None
    positions: dict[int, Position] = {}
    for index, code, offset, stamped, log_start, nothing, tags in _PARTITION.iter_unpack(
        memoryview(frame)[at + 1 : end]
    ):
        if code or offset < 0 or nothing != _NOTHING_MORE or tags:
            return None
        positions[index] = (offset, stamped, log_start)
    if len(positions) < count:
        return None  # one that comes twice
    if version >= FIRST_BY_TOPIC_ID:
        return Acknowledgement("", _topic_id(frame[start:at]), positions, throttle_ms)
    name = frame[start + 1 : at]
    if frame[start] > _LONGEST_IN_A_BYTE or not name.isascii():
        return None
    return Acknowledgement(name.decode("ascii"), _NO_ID, positions, throttle_ms)


@lru_cache(maxsize=1024)
def _topic_id(raw: bytes) -> UUID:
    return UUID(bytes=raw)
