"""Sticky partitioners by topic, weighted by queue lengths: start with `StickyPartitioners`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aioproducer.core.batching.accumulator import RecordAccumulator
from aioproducer.core.batching.partitioners import BuiltInPartitioner, NodeLatencies, partition_load

if TYPE_CHECKING:
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.types import TopicMetadata

_UPDATE_S, _LEAST_S = 1e-4, 2e-3


class StickyPartitioners:
    """The built-in partitioners of a producer."""

    def __init__(
        self,
        make: Callable[[], BuiltInPartitioner],
        accumulator: RecordAccumulator,
        latencies: NodeLatencies,
    ) -> None:
        self._make = make
        self._accumulator = accumulator
        self._latencies = latencies
        self._partitioners: dict[str, BuiltInPartitioner] = {}
        self._weights_due_at: dict[str, float] = {}

    def of(self, topic: str) -> BuiltInPartitioner:
        """Return the topic's built-in partitioner."""
        found = self._partitioners.get(topic)
        if found is None:
            found = self._partitioners[topic] = self._make()
        return found

    def update_queue_weights(
        self, sticky: BuiltInPartitioner, meta: TopicMetadata, now: float
    ) -> None:
        """Weight the next choice of a partition by queue lengths (KIP-794).

        Weights are updated at most once per 0.1 ms times the number of partitions, and at most once
        per 2 ms: topics with many partitions cost no more than topics with few.
        """
        if len(meta.partitions) > 1 and now >= self._weights_due_at.get(meta.name, now):
            self._weights_due_at[meta.name] = now + max(len(meta.partitions) * _UPDATE_S, _LEAST_S)
            sizes = self._accumulator.queue_sizes(meta.name)
            near = sticky.rack_preference.partitions_of(meta)
            load = partition_load(sizes, meta, self._latencies, near)
            sticky.update_load(*(load or (None, (), 0)))

    def drop_expired_topics(self, metadata: Metadata) -> None:
        """Drop the partitioners of topics that have expired from the metadata."""
        for topic in [name for name in self._partitioners if metadata.topic(name) is None]:
            del self._partitioners[topic]
            self._weights_due_at.pop(topic, None)
