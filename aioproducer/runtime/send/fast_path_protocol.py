"""The protocol of the fast path of `send()`: start with `FastPathProtocol`.

A record takes the fast path when no wait is needed: the path is open, no call queues for memory,
another record may be buffered, key and value are bytes or None, the timestamp does not look like
seconds, the topic has metadata, the topic has the partition that is given or chosen, and its open
batch has room or a new one can be opened (`OpenBatch`). Any other record takes the slow path
(`RecordAppender`).

Invariants
- A refusal has no effect: the slow path may take the same record at once. A partitioner is asked
  once all the same: its choice is kept for the slow path (`PartitionChoice`).
- Errors of a record are raised by the slow path.
  Only `check_transaction`, `OpenBatch` and the partitioner raise here.
- While calls wait for memory (`waiting`), no record is appended here. The fast path yields to the
  event loop as often as the slow path (`records_this_turn`).
- `send_spare` is called at once after the first record of a spare batch (`use_batch`, `is_spare`).
- Bytes for a topic's sticky partitioner are counted in one place at a time: in the fast path from
  `use_batch` until `count_sticky_bytes`, which adds them to the partitioner.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from aioproducer.types import HeaderPairs, HeadersInput

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.core.batching.partitioners import BuiltInPartitioner
    from aioproducer.runtime.delivery._delivery_py import Delivery
    from aioproducer.types import TopicMetadata

OpenBatch = Callable[
    [
        "TopicMetadata",
        int | None,
        int,
        bytes | None,
        bytes | None,
        HeaderPairs,
        int,
        bool,
    ],
    "Delivery | None",
]
"""Append a record for which no open batch has room; None when the slow path has to take it.

Arguments: topic, partition (None: chosen by the sticky partitioner), timestamp, key, value and
headers of a checked record, the bytes that a batch with this record alone takes at most, whether
the caller awaits the outcome at once.
"""


@dataclass(frozen=True, slots=True)
class FastPathSettings:
    """Settings of the fast path.

    Attributes:
        records_per_turn: records that a caller may append before it has to yield.
        size_limit: the largest upper bound of a record's size in bytes, batch header included.
        hashes_keys: whether a record with a key gets its partition from Java's murmur2.
        sticks: whether other records get theirs from the sticky partitioner; if not, from the
            `PartitionChoice`.
    """

    records_per_turn: int
    size_limit: int
    hashes_keys: bool
    sticks: bool


class FastPathProtocol(Protocol):
    """Interface of both implementations of `FastPath`."""

    waiting: int
    """Number of calls that queue for memory, or are about to; the slow path counts them."""
    records_this_turn: int
    """Records appended, on both paths, since the last turn that was counted."""
    appended: int
    """All records appended, on both paths."""
    ceiling: int
    """Upper bound of `appended`: `buffer_max_records` plus the records no longer buffered."""
    check_transaction: Callable[[], None] | None
    """Raises when no record may be sent now."""

    @property
    def open(self) -> bool:
        """Whether records are accepted."""
        ...

    def append(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: HeadersInput,
        partition: int | None,
        timestamp_ms: int | None,
        awaited: bool = False,
        /,
    ) -> Delivery | None:
        """Append a record; return None when the slow path has to take it.

        Args:
            awaited: whether the caller awaits the outcome at once.
        """
        ...

    def append_nowait(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: HeadersInput,
        partition: int | None,
        timestamp_ms: int | None,
        /,
    ) -> Delivery | None:
        """Append a record for a caller that cannot yield to the event loop."""
        ...

    def delivery(
        self,
        batch: ProducerBatch,
        index: int,
        timestamp_ms: int,
        key_size: int,
        value_size: int,
    ) -> Delivery:
        """Count a record that was appended elsewhere; return its `Delivery`.

        Sizes in bytes, -1 for None.
        """
        ...

    def use_batch(
        self,
        meta: TopicMetadata,
        batch: ProducerBatch,
        sticky: BuiltInPartitioner | None,
        is_spare: bool = False,
        /,
    ) -> None:
        """Append further records to this open batch.

        Args:
            sticky: the partitioner that chose the partition, None when it was chosen otherwise.
            is_spare: whether no queue has the batch yet.
        """
        ...

    def count_sticky_bytes(self, topic: str) -> None:
        """Add the bytes counted here to the topic's sticky partitioner."""
        ...

    def drop_topic(self, topic: str) -> None:
        """Drop the state of a topic."""
        ...

    def retain(self, topics: Container[str]) -> None:
        """Drop the state of all topics but these."""
        ...

    def close(self) -> None:
        """Accept no more records."""
        ...
