"""One topic of a bulk call: its open batches, and its sticky partition while rows are written.

Invariant: the state of a topic is dropped when its metadata changes, as keys may then belong to
other partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.records.bulk import OpenBatches, Share

if TYPE_CHECKING:
    from aioproducer.core.batching.partitioners import BuiltInPartitioner
    from aioproducer.runtime.engine import ProducerEngine
    from aioproducer.types import TopicMetadata


class BulkTarget:
    """The batches of one topic that rows may be written to; None without metadata."""

    def __init__(self, engine: ProducerEngine, topic: str | None) -> None:
        self.topic: str | None = topic
        self.batches: OpenBatches | None = None
        self._metadata = engine.metadata
        self._batch_appender = engine.appender.batch_appender
        self._meta: TopicMetadata | None = None
        self._sticks = False
        # From `choose_sticky` to `count_sticky_bytes`:
        self._sticky: BuiltInPartitioner | None = None
        self._partition = -1

    def add_batch(self, partition: int, share: Share, sticks: bool) -> None:
        """Add a batch that has got a row; `sticks`: the sticky partitioner chose its partition."""
        self._refresh()
        if self.batches is None or self._meta is None or partition >= len(self._meta.partitions):
            return
        self.batches.add_batch(partition, share)
        self._sticks = self._sticks or sticks

    def choose_sticky(self) -> None:
        """Choose the sticky partition before rows are written."""
        self._refresh()
        if self._sticks and self.batches is not None and self._meta is not None:
            self._sticky = self._batch_appender.sticky_of(self._meta.name)
            self._partition = self._sticky.peek(self._meta)
            self.batches.stick(self._partition, self._sticky.room)

    def count_sticky_bytes(self) -> None:
        """Add the bytes of written rows to the sticky partitioner."""
        if self._sticky is not None and self.batches is not None and self._meta is not None:
            used = self.batches.take_sticky_bytes()
            if used:
                self._sticky.update(self._partition, used, self._meta, enable_switch=False)
            self._sticky = None

    def _refresh(self) -> None:
        """Drop all state if the topic's metadata has changed: keys may belong elsewhere now."""
        meta = None if self.topic is None else self._metadata.topic(self.topic)
        if meta is not self._meta:
            self._meta = meta
            self._sticks = False
            self.batches = None
            if meta is not None and meta.partitions:
                self.batches = OpenBatches(len(meta.partitions), self._batch_appender.hashes_keys)
