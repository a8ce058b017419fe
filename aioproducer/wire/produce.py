"""The Produce request as a list of buffers, record data uncopied.

The buffers in order are the frame, size included. Record pieces of `JOIN_BELOW_BYTES` or more are
handed on as they are and must stay unchanged until they have been written out; smaller ones and
the fields between them are joined, so that a request costs few buffers.

Invariant: joined, the buffers equal `encode_request(ProduceRequest(...))` byte for byte, in every
version (property-tested).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from aioproducer.errors import UnsupportedVersionError
from aioproducer.wire.acknowledgement import FIRST_BY_TOPIC_ID, acknowledgement_start
from aioproducer.wire.framing import CORRELATION_ID, CORRELATION_ID_AT, begin_request, set_size
from aioproducer.wire.messages.produce import ProduceRequest
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

JOIN_BELOW_BYTES = 256

_FIRST_TRANSACTIONAL = 3
_FIRST_FLEXIBLE = ProduceRequest.FLEXIBLE_FROM or 0
_ACKS_TIMEOUT = Struct(">hi")
_INDEX = Struct(">i")
_START = Struct(">iIi")
"""Size of the frame, request and version, correlation id."""
_TAGS_AFTER = bytes(3)
"""After the records for one partition: tags of partition, topic, request."""


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
        buffers = _with_topics(head, version, topics)
    except UNENCODABLE as error:
        raise ValueError(f"a value does not fit ProduceRequest v{version}: {error}") from error
    return _sealed(head, buffers)


class ProduceRequestTemplate:
    """A Produce request for one batch of one partition, outside a transaction, without the batch.

    `suffix` are the bytes after the batch, whose length is a compact one if `is_flexible`.
    """

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
        self._encode = partial(
            encode_produce_request,
            version,
            client_id=client_id,
            transactional_id=None,
            acks=acks,
            timeout_ms=timeout_ms,
        )
        self._place = (topic, topic_id, partition)
        (frame,) = self.render(0, ())
        self.is_flexible: bool = version >= _FIRST_FLEXIBLE
        self.suffix: bytes = _TAGS_AFTER if self.is_flexible else b""
        no_records = 1 if self.is_flexible else _INDEX.size  # bytes of the length
        _, self._kind, _ = _START.unpack_from(frame)
        self._begin = bytes(frame[_START.size : -no_records - len(self.suffix)])
        self._acknowledgement = acknowledgement_start(_topic(version, topic, topic_id), partition)

    def prefix(self, correlation_id: int) -> bytes:
        """Return the bytes before the length of the batch; the frame's size is still to be set."""
        return _START.pack(0, self._kind, correlation_id) + self._begin

    def acknowledgement(self, correlation_id: int) -> bytes:
        """Return the bytes of the plain acknowledgement up to its `POSITION`."""
        before, after = self._acknowledgement
        return before + CORRELATION_ID.pack(correlation_id) + after

    def render(self, correlation_id: int, records: Sequence[Buffer]) -> list[Buffer]:
        """Return the frame with the pieces of a batch in it, uncopied."""
        topic, topic_id, partition = self._place
        topics = [ProduceTopic(topic, topic_id, [ProducePartition(partition, records)])]
        return self._encode(correlation_id, topics=topics)


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
def _name(name: str, is_flexible: bool) -> bytes:
    out = bytearray()
    write = write_compact_string if is_flexible else write_string
    write(out, name)
    return bytes(out)


def _topic(version: int, name: str, topic_id: UUID) -> bytes:
    """Return what names a topic in this version."""
    by_id = version >= FIRST_BY_TOPIC_ID
    return topic_id.bytes if by_id else _name(name, version >= _FIRST_FLEXIBLE)


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


def _with_topics(
    head: bytearray, version: int, topics: Sequence[ProduceTopic]
) -> list[Buffer | bytearray]:
    """Return the frame's buffers; its size is still to be set.

    From version 9 on lengths are compact, and each struct has an empty tagged section.
    """
    is_flexible = version >= _FIRST_FLEXIBLE
    write_length = write_compact_length if is_flexible else write_length32
    no_tags = b"\0" if is_flexible else b""
    buffers: list[Buffer | bytearray] = []
    tail = head
    write_length(tail, len(topics))
    for name, topic_id, partitions in topics:
        tail += _topic(version, name, topic_id)
        write_length(tail, len(partitions))
        for index, records in partitions:
            tail += _INDEX.pack(index)
            write_length(tail, sum(map(len, records)))
            tail = _add_records(records, buffers, tail)
            tail += no_tags
        tail += no_tags
    tail += no_tags
    buffers.append(tail)
    return buffers
