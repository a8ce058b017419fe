"""The sticky partitioner of each topic, and the queue lengths that weigh in its choice.

Owns: which topic has which `BuiltInPartitioner`, how often its weights are looked up. Must not
know: records, batches as objects, the fast lane that borrows an account.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aioproducer.core.batching.accumulator import RecordAccumulator
from aioproducer.core.batching.partitioners import BuiltInPartitioner, NodeLatencies, partition_load

if TYPE_CHECKING:
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.types import TopicMetadata

_LOOK_S, _LEAST_S = 1e-4, 2e-3


class Stickiness:
    """The built-in partitioners of a producer.

    Args:
        make: a new one, for a topic.
        accumulator: knows the queues.
        latencies: knows the slow nodes.
    """

    def __init__(
        self,
        make: Callable[[str], BuiltInPartitioner],
        accumulator: RecordAccumulator,
        latencies: NodeLatencies,
    ) -> None:
        self._make = make
        self._accumulator = accumulator
        self._latencies = latencies
        self._partitioners: dict[str, BuiltInPartitioner] = {}
        self._weigh_at: dict[str, float] = {}

    def of(self, topic: str) -> BuiltInPartitioner:
        """The topic's built-in partitioner."""
        found = self._partitioners.get(topic)
        if found is None:
            found = self._partitioners[topic] = self._make(topic)
        return found

    def weigh(self, sticky: BuiltInPartitioner, meta: TopicMetadata, now: float) -> None:
        """Lets queue lengths weigh in the next choice (KIP-794).

        Looking at every partition is paid at most once per 0.1 ms and partition, so that a topic of
        10,000 costs no more than one of ten, and not with every batch where there are few.
        """
        if len(meta.partitions) > 1 and now >= self._weigh_at.get(meta.name, now):
            self._weigh_at[meta.name] = now + max(len(meta.partitions) * _LOOK_S, _LEAST_S)
            sizes = self._accumulator.queue_sizes(meta.name)
            near = sticky.neighbourhood.partitions_of(meta)
            load = partition_load(sizes, meta, self._latencies, near)
            sticky.update_load(*(load or (None, (), 0)))

    def forget_topics(self, metadata: Metadata) -> None:
        """Drops what is kept for topics that expired from the metadata."""
        for topic in [name for name in self._partitioners if metadata.topic(name) is None]:
            del self._partitioners[topic]
            self._weigh_at.pop(topic, None)
