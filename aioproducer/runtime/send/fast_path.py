"""The fast lane of `send()`: what it is, and which of its two forms this process uses.

Owns: the contract of `_fast_path.pyx` (native) and `_fast_path_py.py` (pure Python), and the
choice, as for the native core (`AIOPRODUCER_IMPL`). Not here: opening
and sending of batches.

A record takes the lane when nothing has to be waited for: the lane is open, nobody queues for
memory, another record may be buffered, key and value are bytes or None, the timestamp does not look
like seconds, the topic is known, the partition is given or chosen by a built-in rule, and its open
batch has room or a new one can be had (`OpenBatch`). Everything else is left to the general lane
(`RecordAppender`), which does the same and more.

Invariants
- Refusing has no effect: the general lane may take the same record at once.
- The lane never says what is wrong with a record; the general lane does. Only `check_admission`
  and `OpenBatch` raise here, as they do there.
- The lane passes nobody who waits for memory (`waiting`), and pauses as often as the general lane
  (`records_this_turn`).
- `send_spare` is called at once when a spare batch (`adopt` with `is_spare`) has got a record.
- The account of a topic's sticky partitioner is in one place at a time: `adopt` lends it to the
  lane, `settle` takes it back.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from aioproducer.records import IMPLEMENTATION
from aioproducer.types import HeaderPairs, HeadersInput

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.core.batching.partitioners import BuiltInPartitioner
    from aioproducer.runtime.delivery._delivery_py import Delivery
    from aioproducer.types import TopicMetadata

__all__ = [
    "LANE_IMPLEMENTATION",
    "FastLane",
    "Lane",
    "LaneSettings",
    "shorten",
    "wall_clock_ms",
]


OpenBatch = Callable[
    [
        "TopicMetadata",
        int | None,
        int,
        bytes | None,
        bytes | None,
        HeaderPairs,
        int,
    ],
    "Delivery | None",
]
"""Appends a record that found no room; None when the general lane has to take it.

Of the record, which is checked, it gets topic, partition (None: left to the sticky partitioner),
timestamp, key, value, headers, and the bytes that a batch of it alone takes at most.
"""


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """What the lane obeys.

    Attributes:
        records_per_turn: records that a caller may append before it has to pause.
        size_limit: bytes that the bound of a record's size, batch header included, may reach.
        hashes_keys: whether a key alone decides the partition, by Java's murmur2.
        sticks: whether the sticky partitioner takes what no key decides.
    """

    records_per_turn: int
    size_limit: int
    hashes_keys: bool
    sticks: bool


class Lane(Protocol):
    """What both forms of `FastLane` are."""

    waiting: int
    """How many calls queue for memory, or are about to; the general lane counts them."""
    records_this_turn: int
    """Records appended, on whichever lane, since the last turn that was counted."""
    appended: int
    """All records appended, on whichever lane."""
    ceiling: int
    """How many may have been: `buffer_max_records` more than are buffered no longer."""
    check_admission: Callable[[], None] | None
    """Raises when no record may be sent now."""

    @property
    def open(self) -> bool:
        """Whether records are let in at all."""
        ...

    def append(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: HeadersInput,
        partition: int | None,
        timestamp_ms: int | None,
        /,
    ) -> Delivery | None:
        """The record's `Delivery`, or None when the general lane has to take it."""
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
        """`append` for a caller that cannot be asked to pause."""
        ...

    def delivery(
        self,
        batch: ProducerBatch,
        index: int,
        timestamp_ms: int,
        key_size: int,
        value_size: int,
    ) -> Delivery:
        """Counts a record that was appended elsewhere; its `Delivery`.

        Sizes in bytes, -1 for None.
        """
        ...

    def adopt(
        self,
        meta: TopicMetadata,
        batch: ProducerBatch,
        sticky: BuiltInPartitioner | None,
        is_spare: bool = False,
        /,
    ) -> None:
        """Records for this batch, which is open, may come in here.

        Args:
            sticky: the partitioner that chose the partition, None when it was chosen otherwise.
            is_spare: whether no queue has it yet.
        """
        ...

    def settle(self, topic: str) -> None:
        """Hands the account of a topic's sticky partitioner back to it."""
        ...

    def forget(self, topic: str) -> None:
        """Drops what is known of a topic."""
        ...

    def retain(self, topics: Container[str]) -> None:
        """Drops what is known of topics other than these."""
        ...

    def close(self) -> None:
        """Lets no record in any more."""
        ...


LANE_IMPLEMENTATION: str = IMPLEMENTATION
"""`native` or `pure`: which form this process uses."""

if not TYPE_CHECKING and IMPLEMENTATION == "native":
    try:
        from aioproducer.runtime.send import _fast_path  # noqa: F401
    except ImportError:
        # Compiled one by one, the two native modules may come apart; any pair of forms works.
        LANE_IMPLEMENTATION = "pure"

if TYPE_CHECKING or LANE_IMPLEMENTATION == "native":
    from aioproducer.runtime.send._fast_path import FastLane, shorten, wall_clock_ms
else:
    from aioproducer.runtime.send._fast_path_py import FastLane, shorten, wall_clock_ms

if TYPE_CHECKING:
    from aioproducer.runtime.send import _fast_path_py

    _LANES: tuple[type[Lane], ...] = (FastLane, _fast_path_py.FastLane)
