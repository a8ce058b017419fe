"""One record between `send()` and its batch: the serialized parts and the bound of the size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioproducer.types import HeaderPairs

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.types import TopicMetadata

RecordParts = tuple[Any, bytes | None, bytes | None, HeaderPairs, int | None, int | None]
"""Topic, key, value, headers, partition and timestamp in ms of a serialized record.

An interceptor may have set any object as the topic; a row of a bulk call may have none.
"""

OnOpened = Callable[["ProducerBatch"], None] | None
"""Called with the batch that is opened for a record, if any."""


@dataclass(slots=True, eq=False, repr=False)
class OutgoingRecord:
    """A checked record on its way into a batch.

    `partition` is None until the sticky partitioner has chosen; `size` bounds the bytes of a batch
    of this record alone, header included. `on_opened` is set by a call that has more records to
    add: it receives the batch that is opened for the record, which is not sent before it is full or
    the call ends its `gathering`. `is_awaited` is set if its sender waits for the outcome at once.
    """

    meta: TopicMetadata
    partition: int | None
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs
    size: int
    on_opened: OnOpened = None
    is_awaited: bool = field(default=False, kw_only=True)
