"""aiokafka's partitioner: a callable of the key and the partitions.

`DefaultPartitioner` is aiokafka's default; `adapted` converts such a callable to a partitioner of
`Producer`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aioproducer.records import murmur2 as _signed_murmur2

if TYPE_CHECKING:
    from aioproducer.partitioners import PartitionFunction
    from aioproducer.types import TopicMetadata

__all__ = ["DefaultPartitioner", "KeyPartitioner", "murmur2"]

KeyPartitioner = Callable[[bytes | None, list[int], list[int]], int]
"""`(key, all partitions, those with a leader) -> partition`, called once per record."""


def murmur2(data: bytes) -> int:
    """Return the hash of Java's client, as an unsigned number of 32 bits."""
    return _signed_murmur2(data) & 0xFFFF_FFFF


class DefaultPartitioner:
    """Equal keys to equal partitions, as in Java; a record without a key to a random one."""

    def __call__(
        self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]
    ) -> int:
        """Choose one of `all_partitions`; without a key, one of `available` if there are any."""
        if key is None:
            return random.choice(available or all_partitions)
        return all_partitions[(murmur2(key) & 0x7FFF_FFFF) % len(all_partitions)]


def is_default(partitioner: KeyPartitioner) -> bool:
    """Return whether it is a `DefaultPartitioner`, ours or aiokafka's, and no subclass of one."""
    theirs = getattr(sys.modules.get("aiokafka.partitioner"), "DefaultPartitioner", None)
    return type(partitioner) is DefaultPartitioner or type(partitioner) is theirs


def adapted(partitioner: KeyPartitioner) -> PartitionFunction:
    """Convert a partitioner of aiokafka to one of `Producer`."""

    known: dict[str, tuple[TopicMetadata, list[int], list[int]]] = {}

    def choose(topic: str, key: bytes | None, value: bytes | None, cluster: TopicMetadata) -> int:
        del value
        lists = known.get(topic)
        if lists is None or lists[0] is not cluster:  # made once per version of the metadata
            every = list(range(len(cluster.partitions)))
            lists = known[topic] = (cluster, every, list(cluster.available))
        return partitioner(key, lists[1], lists[2])

    return choose
