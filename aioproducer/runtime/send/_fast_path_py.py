"""The fast path of `send()` in pure Python: start with `FastPath`.

`_fast_path.pyx` is the native implementation, with the same names and results. A record takes the
fast path when no wait is needed; `RecordAppender`, the slow path, takes any other.

Invariants
- A refusal has no effect: the slow path may take the same record at once. A partitioner is asked
  once all the same: its choice is kept for the slow path (`PartitionChoice`).
- Only `check_transaction`, `Batches` and the partitioner raise here.
- While calls wait for memory (`waiting`), no record is appended here.
- Bytes for a topic's sticky partitioner are counted in one place at a time: in the fast path from
  `use_batch` until `count_sticky_bytes`, which adds them to the partitioner.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import _get_running_loop as running_loop
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from aioproducer.core.batching.buffer_pool import NO_CEILING
from aioproducer.records import murmur2_partition, record_size_bound
from aioproducer.records.layout import HEADER_SIZE
from aioproducer.runtime.delivery._delivery_py import Delivery
from aioproducer.runtime.send.validation import SECONDS
from aioproducer.types import HeaderPairs, TopicMetadata

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.core.batching.partitioners import BuiltInPartitioner
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.records import RecordBatchBuilder
    from aioproducer.runtime.send.validation import PartitionChoice

_TIMESTAMPS = 2**63


class Batches(Protocol):
    """The batches of the slow path: `BatchAppender`.

    Attributes:
        size_limit: the largest upper bound of a record's size in bytes, batch header included.
        hashes_keys: whether a record with a key gets its partition from Java's murmur2.
        sticks: whether other records get theirs from the sticky partitioner; if not, from `choice`.
    """

    size_limit: int
    hashes_keys: bool
    sticks: bool

    def append_checked(
        self,
        meta: TopicMetadata,
        partition: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs,
        size: int,
        is_awaited: bool,
        /,
    ) -> Delivery | None:
        """Append a record for which no open batch has room; None if the slow path has to take it.

        `size` are the bytes that a batch with this record alone takes at most. Without `partition`
        the sticky partitioner chooses it. `is_awaited`: the caller awaits the outcome at once.
        """

    def send_spare(self) -> None:
        """Send the spare batch, to which the fast path has appended a record."""

    def count_till_next_turn(self) -> None:
        """Reset the counts of this turn of the loop at its end."""


def wall_clock_ms() -> int:
    """Return the milliseconds since the epoch: the default timestamp of records."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True, eq=False)
class _TopicState:
    """State of one topic: its open batches, its sticky partition."""

    meta: TopicMetadata
    version: int
    builders: list[RecordBatchBuilder | None]
    sticky: BuiltInPartitioner | None = None
    partition: int | None = None
    room: int = 0
    used: int = 0

    def use_sticky_partition(self) -> None:
        if self.sticky is not None:
            self.partition, self.room = self.sticky.peek(self.meta), self.sticky.room

    def count_sticky_bytes(self) -> None:
        if self.used and self.sticky is not None and self.partition is not None:
            self.sticky.update(self.partition, self.used, self.meta, enable_switch=False)
            self.used = 0
        self.partition = None


def _is_partition(number: object, state: _TopicState) -> TypeGuard[int]:
    return type(number) is int and 0 <= number < len(state.builders)


class FastPath:
    """Appends records that need no wait.

    `records_per_turn` records may be appended before a caller has to yield.

    Attributes:
        waiting: number of calls that queue for memory, or are about to; the slow path counts them.
        records_this_turn: records appended, on both paths, since the last turn that was counted.
        appended: all records appended, on both paths.
        ceiling: upper bound of `appended`: `buffer_max_records` plus the records no longer
            buffered.
        check_transaction: raises when no record may be sent now.
        open: whether records are accepted.
    """

    def __init__(
        self,
        batches: Batches,
        records_per_turn: int,
        *,
        metadata: Metadata,
        loop: asyncio.AbstractEventLoop,
        wall_ms: Callable[[], int],
        choice: PartitionChoice,
    ) -> None:
        self.waiting = 0
        self.records_this_turn: int = 0
        self.appended: int = 0
        self.ceiling = NO_CEILING
        self.check_transaction: Callable[[], object] | None = None
        self.open: bool = True
        self._records_per_turn = records_per_turn
        self._size_limit = batches.size_limit
        self._hashes_keys = batches.hashes_keys
        self._sticks = batches.sticks
        self._metadata = metadata
        self._loop = loop
        self._wall_ms = wall_ms
        self._choice = choice
        self._on_full_turn = batches.count_till_next_turn
        self._open_batch = batches.append_checked
        self._send_spare = batches.send_spare
        self._topics: dict[str, _TopicState] = {}
        self._spare: RecordBatchBuilder | None = None
        self._spare_room = 0

    def append(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Any,
        partition: int | None,
        timestamp_ms: int | None,
        awaited: bool = False,
        /,
    ) -> Delivery | None:
        """Append a record; return None when the slow path has to take it."""
        if self.records_this_turn >= self._records_per_turn:
            return None
        return self._try_append(topic, value, key, headers, partition, timestamp_ms, awaited)

    def append_nowait(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Any,
        partition: int | None,
        timestamp_ms: int | None,
        /,
    ) -> Delivery | None:
        """Append a record for a caller that cannot yield to the event loop."""
        return self._try_append(topic, value, key, headers, partition, timestamp_ms, False)

    def _try_append(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Any,
        partition: int | None,
        timestamp_ms: int | None,
        awaited: bool,
    ) -> Delivery | None:
        if (
            not self._has_room()
            or running_loop() is not self._loop
            or not (key is None or type(key) is bytes)
            or not (value is None or type(value) is bytes)
            or type(topic) is not str
        ):
            return None
        if self.check_transaction is not None:
            self.check_transaction()
        state = self._topics.get(topic)
        if state is None or (
            state.version != self._metadata.version and not self._is_current(topic, state)
        ):
            return None
        if headers is None:
            headers = ()
        elif type(headers) is list:
            headers = tuple(headers)
        elif type(headers) is not tuple:
            return None
        if timestamp_ms is None:
            timestamp_ms = self._wall_ms()
        elif (
            type(timestamp_ms) is not int
            or not 0 <= timestamp_ms < _TIMESTAMPS
            or timestamp_ms in SECONDS
        ):
            return None
        return self._put(state, partition, timestamp_ms, key, value, headers, awaited)

    def _put(
        self,
        state: _TopicState,
        partition: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs,
        awaited: bool,
    ) -> Delivery | None:
        """Write a record to its partition's open batch, if that has room."""
        try:
            size = record_size_bound(key, value, headers)
        except (TypeError, ValueError):
            return None  # the slow path raises the error
        if size + HEADER_SIZE > self._size_limit:
            return None
        is_sticky = is_chosen = False
        if partition is not None:
            if not _is_partition(partition, state):
                return None
        elif key is not None and self._hashes_keys:
            partition = murmur2_partition(key, len(state.builders))
        elif not self._sticks:
            chosen = self._choice(state.meta.name, key, value, state.meta)
            # A partitioner may have sent records, or closed the producer.
            if not _is_partition(chosen, state) or not self._has_room():
                self._choice.keep(key, value, state.meta, chosen)
                return None
            partition, is_chosen = chosen, True
        else:
            is_sticky = True
            partition = state.partition if state.used + size < state.room else None
        builder = None if partition is None else state.builders[partition]
        index = -1
        if builder is self._spare and size > self._spare_room:
            builder = None  # a batch for this record would be larger
        if builder is not None:
            index = builder.try_append(timestamp_ms, key, value, headers)
        if builder is None or index < 0:
            partition, size = None if is_sticky else partition, size + HEADER_SIZE
            delivery = self._open_batch(
                state.meta, partition, timestamp_ms, key, value, headers, size, awaited
            )
            if delivery is None and is_chosen:
                self._choice.keep(key, value, state.meta, partition)
            return delivery
        batch: Any = builder.owner
        if is_sticky:
            state.used += size
        if builder is self._spare:
            if is_sticky:
                state.used += HEADER_SIZE
            self._spare = None
            self._send_spare()
        key_size = -1 if key is None else len(key)
        return self.delivery(
            batch, index, timestamp_ms, key_size, -1 if value is None else len(value)
        )

    def _has_room(self) -> bool:
        return self.open and not self.waiting and self.appended < self.ceiling

    def delivery(
        self, batch: ProducerBatch, index: int, timestamp_ms: int, key_size: int, value_size: int
    ) -> Delivery:
        """Count a record that was appended; return its `Delivery`. Sizes are -1 for None."""
        self.appended += 1
        self.records_this_turn += 1
        if self.records_this_turn == self._records_per_turn:
            self._on_full_turn()
        return Delivery(batch, index, timestamp_ms, key_size, value_size)

    def _is_current(self, topic: str, state: _TopicState) -> bool:
        if self._metadata.topic(topic) is not state.meta:
            self.drop_topic(topic)
            return False
        state.version = self._metadata.version
        return True

    def use_batch(
        self, meta: TopicMetadata, batch: ProducerBatch, sticky: BuiltInPartitioner | None, /
    ) -> None:
        """Append further records to this batch while it is open.

        `sticky` is the partitioner that chose the partition, None when it was chosen otherwise.
        """
        if not self.open:
            return
        state = self._topics.get(meta.name)
        if state is None or state.meta is not meta:
            self.drop_topic(meta.name)
            builders: list[RecordBatchBuilder | None] = [None] * len(meta.partitions)
            state = _TopicState(meta, self._metadata.version, builders)
            self._topics[meta.name] = state
        builder = None if batch.full else batch.builder
        if builder is not None:
            builder.owner = batch  # before a record can find the builder
        state.builders[batch.topic_partition.partition] = builder
        if sticky is not None and self._sticks:
            state.count_sticky_bytes()
            state.sticky = sticky
            state.use_sticky_partition()

    def use_spare(self, batch: ProducerBatch, /) -> None:
        """Append the next record for its partition to this batch, which no queue has.

        It has as many bytes as a sticky partition gets before the slow path may change it.
        """
        topic, partition = batch.topic_partition
        state, builder = self._topics.get(topic), batch.builder
        if state is None or partition >= len(state.builders) or builder is None:
            return
        if state.partition is None:
            state.use_sticky_partition()
        if state.room - state.used <= batch.size:
            state.count_sticky_bytes()
        self._spare, self._spare_room = builder, batch.size - HEADER_SIZE
        builder.owner = batch
        state.builders[partition] = builder

    def count_sticky_bytes(self, topic: str) -> None:
        """Add the bytes counted here to the topic's sticky partitioner."""
        state = self._topics.get(topic)
        if state is not None:
            state.count_sticky_bytes()

    def drop_topic(self, topic: str) -> None:
        """Drop the state of a topic."""
        self.count_sticky_bytes(topic)
        self._topics.pop(topic, None)

    def retain(self, topics: Container[str]) -> None:
        """Drop the state of all topics but these."""
        for topic in [topic for topic in self._topics if topic not in topics]:
            self.drop_topic(topic)

    def close(self) -> None:
        """Accept no more records."""
        self.open = False
        self._topics.clear()
        self._spare = None


def install_native_send(
    cls: type, name: str, function: Callable[..., object], waits: bool, /
) -> None:
    """Do nothing; the native implementation replaces a coroutine method by a faster callable.

    The instances of `cls` have their fast path, or None, in a slot `_fast_path`. `function` is the
    method itself, which takes the records that the fast path refuses; if the class has another one
    there, it is not replaced. With `waits` the call returns the delivery's outcome instead of the
    delivery.
    """
    del cls, name, function, waits
