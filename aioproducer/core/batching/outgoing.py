"""One record between `send()` and its batch: the serialized parts and the bound of the size."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aioproducer.types import HeaderPairs

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.types import TopicMetadata

OnOpened = Callable[["ProducerBatch"], None] | None
"""Called with the batch that is opened for a record, if any."""


class OutgoingRecord:
    """A checked record on its way into a batch.

    `partition` is None until the sticky partitioner has chosen; `size` bounds the bytes of a batch
    of this record alone, header included. `on_opened` is set by a call that has more records to
    add: it receives the batch that is opened for the record, which is not sent before it is full or
    the call ends its `gathering`. `is_awaited` is set if its sender waits for the outcome at once.
    """

    __slots__ = (
        "headers",
        "is_awaited",
        "key",
        "meta",
        "on_opened",
        "partition",
        "size",
        "timestamp_ms",
        "value",
    )

    def __init__(
        self,
        meta: TopicMetadata,
        partition: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs,
        size: int,
        on_opened: OnOpened = None,
        *,
        is_awaited: bool = False,
    ) -> None:
        self.meta: TopicMetadata = meta
        self.partition: int | None = partition
        self.timestamp_ms: int = timestamp_ms
        self.key: bytes | None = key
        self.value: bytes | None = value
        self.headers: HeaderPairs = headers
        self.size: int = size
        self.on_opened: OnOpened = on_opened
        self.is_awaited: bool = is_awaited
