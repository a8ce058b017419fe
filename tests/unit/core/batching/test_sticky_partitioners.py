"""Sticky partitioners by topic: how often they are weighted, and when they are dropped."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.core.batching.partitioners import (
    BuiltInPartitioner,
    NodeLatencies,
    StickyPartitioners,
)
from aioproducer.types import PartitionMetadata, TopicMetadata


class Queues:
    """Queue lengths, the longest that of partition 0; counts how often it is asked for them."""

    def __init__(self, partitions: int) -> None:
        self.asked = 0
        self._sizes = {index: 3 if index == 0 else 1 for index in range(partitions)}

    def queue_sizes(self, topic: str) -> dict[int, int]:
        self.asked += 1
        return self._sizes


def topic_of(partitions: int, name: str = "t") -> TopicMetadata:
    return TopicMetadata(
        name,
        SimpleNamespace(int=1),  # type: ignore[arg-type]
        tuple(PartitionMetadata(index, 1, 0) for index in range(partitions)),
    )


def partitioners(queues: Queues) -> StickyPartitioners:
    accumulator: Any = queues
    return StickyPartitioners(
        lambda: BuiltInPartitioner(100, True, Random(1)), accumulator, NodeLatencies(0)
    )


@pytest.mark.parametrize(
    ("partitions", "asked"),
    [(1, 0), (2, 50), (20, 50), (100, 10), (1_000, 1)],
)
def test_a_topic_is_weighted_more_rarely_the_more_partitions_it_has(
    partitions: int, asked: int
) -> None:
    queues = Queues(partitions)
    sticky = partitioners(queues)
    for step in range(1_000):
        now = 50.0 + step / 10_000
        sticky.update_queue_weights(sticky.of("t"), topic_of(partitions), now)
    assert asked - 1 <= queues.asked <= asked + 1
    if asked:
        assert sticky.of("t").cumulative_weights[:2] == (1, 4)


def test_a_topic_keeps_its_partitioner_until_it_expires() -> None:
    queues = Queues(2)
    sticky = partitioners(queues)
    kept, dropped = sticky.of("kept"), sticky.of("dropped")
    for name in ("kept", "dropped"):
        sticky.update_queue_weights(sticky.of(name), topic_of(2, name), 50.0)
    assert queues.asked == 2
    known: Any = SimpleNamespace(topic=lambda name: name if name == "kept" else None)
    sticky.drop_expired_topics(known)
    assert sticky.of("kept") is kept
    assert sticky.of("dropped") is not dropped
    for name in ("kept", "dropped"):
        sticky.update_queue_weights(sticky.of(name), topic_of(2, name), 50.0)
    assert queues.asked == 3  # the new one is weighted at once
