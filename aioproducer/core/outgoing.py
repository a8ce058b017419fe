"""One record between `send()` and its batch.

Owns: the record's serialized parts and the bound of its size. Must not know: batches, memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.types import HeaderPairs

if TYPE_CHECKING:
    from aioproducer.core.cluster import TopicMetadata


class OutgoingRecord:
    """A checked record on its way into a batch.

    `partition` is None while the sticky partitioner decides; `size` bounds the bytes of a batch of
    this record alone, header included.
    """

    __slots__ = ("headers", "key", "meta", "partition", "size", "timestamp_ms", "value")

    def __init__(
        self,
        meta: TopicMetadata,
        partition: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs,
        size: int,
    ) -> None:
        self.meta: TopicMetadata = meta
        self.partition: int | None = partition
        self.timestamp_ms: int = timestamp_ms
        self.key: bytes | None = key
        self.value: bytes | None = value
        self.headers: HeaderPairs = headers
        self.size: int = size
