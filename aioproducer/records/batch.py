"""RecordBatch v2 (KIP-98): the header written in front of a built body.

`reader.py` reads batches; its names are offered here too.

Invariants: the body is never copied, so header and body travel as two buffers; an encoded batch
never changes, a new producer id or sequence makes a new one around the same body.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from aioproducer.records.codecs import CompressionType
from aioproducer.records.layout import (
    CRC_END,
    FRONT,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    TAIL,
    TRANSACTIONAL,
)
from aioproducer.records.reader import (
    MAX_DECOMPRESSED_BYTES,
    DecodedRecord,
    RecordBatch,
    parse_header,
    read_batches,
)

__all__ = [
    "HEADER_SIZE",
    "MAX_DECOMPRESSED_BYTES",
    "DecodedRecord",
    "EncodedBatch",
    "RecordBatch",
    "encode_batch",
    "parse_header",
    "read_batches",
]


@dataclass(slots=True)
class EncodedBatch:
    """A batch ready for a Produce request: `header` is sent before `body`."""

    header: bytes
    body: bytes | memoryview
    count: int
    codec: CompressionType

    @property
    def magic(self) -> int:
        """The record format's version."""
        return MAGIC

    @property
    def buffers(self) -> tuple[bytes, bytes | memoryview]:
        """The batch as buffers to write."""
        return self.header, self.body

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return HEADER_SIZE + len(self.body)

    def restamped(self, producer_id: int, producer_epoch: int, base_sequence: int) -> EncodedBatch:
        """Return the same records under another producer id, epoch and sequence (KIP-360)."""
        # A new header: a transport may still read the old one.
        attributes, last_delta, base_timestamp, max_timestamp, *_ = TAIL.unpack_from(
            self.header, CRC_END
        )
        tail = TAIL.pack(
            attributes,
            last_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self.count,
        )
        return replace(self, header=_header(tail, self.body))


def encode_batch(
    body: bytes | memoryview,
    *,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    codec: CompressionType = CompressionType.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> EncodedBatch:
    """Put a header in front of `body`, the records of a builder, compressed by `codec`.

    Timestamps are in ms.
    """
    if count < 1:
        raise ValueError("a batch needs at least one record")
    tail = TAIL.pack(
        codec | (TRANSACTIONAL if transactional else 0),
        count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    return EncodedBatch(_header(tail, body), body, count, codec)


@cache
def _checksum() -> Callable[[bytes | memoryview, int], int]:
    """Import it with the first batch: `import aioproducer` loads no third-party package."""
    from crc32c import crc32c

    return crc32c


def _header(tail: bytes, body: bytes | memoryview) -> bytes:
    crc32c = _checksum()
    length = HEADER_SIZE - LENGTH_END + len(body)
    # The broker sets the base offset and the leader epoch.
    return FRONT.pack(0, length, -1, MAGIC, crc32c(body, crc32c(tail, 0))) + tail
