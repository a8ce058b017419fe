"""One topic of a bulk call: which batches rows may be written to, and the sticky choice meanwhile.

Owns: the open batches of the topic that the call knows, the loan of the sticky partitioner's
account while rows are filled in. Must not know: rows, outcomes, memory.

Invariant: what is known of a topic goes when its metadata change, as keys may go elsewhere then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.records.bulk import OpenBatches, Share

if TYPE_CHECKING:
    from aioproducer.core.batching.partitioners import BuiltInPartitioner
    from aioproducer.runtime.engine import ProducerEngine
    from aioproducer.types import TopicMetadata


class BulkTarget:
    """The batches of one topic that rows may be written to.

    Attributes:
        batches: None while nothing is known of the topic.
    """

    __slots__ = (
        "_engine",
        "_hashes_keys",
        "_meta",
        "_partition",
        "_sticks",
        "_sticky",
        "batches",
        "topic",
    )

    def __init__(self, engine: ProducerEngine, topic: str | None, hashes_keys: bool) -> None:
        self.topic: str | None = topic
        self.batches: OpenBatches | None = None
        self._engine = engine
        self._hashes_keys = hashes_keys
        self._meta: TopicMetadata | None = None
        self._sticks = False
        self._sticky: BuiltInPartitioner | None = None  # while its account is lent
        self._partition = -1

    def adopt(self, partition: int, share: Share, sticks: bool) -> None:
        """A row went to this batch of the topic; it was left to the sticky partitioner or not."""
        self._refresh()
        if self.batches is None or self._meta is None or partition >= len(self._meta.partitions):
            return
        self.batches.adopt(partition, share)
        self._sticks = self._sticks or sticks

    def lend(self) -> None:
        """Before rows are filled in: says where those go that nothing decides."""
        self._refresh()
        if self._sticks and self.batches is not None and self._meta is not None:
            self._sticky = self._engine.appender.placing.sticky_of(self._meta.name)
            self._partition = self._sticky.peek(self._meta)
            self.batches.stick(self._partition, self._sticky.room)

    def settle(self) -> None:
        """After rows were filled in: accounts for them."""
        if self._sticky is not None and self.batches is not None and self._meta is not None:
            used = self.batches.settle()
            if used:
                self._sticky.update(self._partition, used, self._meta, enable_switch=False)
            self._sticky = None

    def _refresh(self) -> None:
        """Forgets everything when the topic is not what it was: keys may go elsewhere now."""
        meta = None if self.topic is None else self._engine.metadata.topic(self.topic)
        if meta is not self._meta:
            self._meta = meta
            self._sticks = False
            self.batches = None
            if meta is not None and meta.partitions:
                self.batches = OpenBatches(len(meta.partitions), self._hashes_keys)
