"""Partitioners: how a record without an explicit partition gets one.

Invariants: the same key goes to the same partition as in the Java client (`murmur2`) or in
librdkafka (`consistent`) as long as the number of partitions stays the same; a partitioner without
keys prefers partitions that have a leader.

    default            key: murmur2; no key, or `partitioner_ignore_keys`: uniform sticky (KIP-794)
    murmur2            murmur2, a null key hashed as an empty one (librdkafka)
    murmur2_random     murmur2, a null key at random (librdkafka)
    consistent         CRC-32, a null or empty key hashed like any other (librdkafka)
    consistent_random  CRC-32, a null or empty key at random (librdkafka's default)
    random, round_robin
    java_string_hash   Java's `hashCode` of the key as text, a null key sticky (0.8's default)
    java_bytes_hash    the same of the key's bytes (0.8's `ByteArrayPartitioner`)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from aioproducer.core.batching.partitioners import key_partition, uniform_partition
from aioproducer.records import crc32_partition
from aioproducer.records.hashing import java_bytes_partition, java_string_partition
from aioproducer.types import Partitioner, PartitionFunction, TopicMetadata

__all__ = [
    "NAMED_PARTITIONERS",
    "Crc32Partitioner",
    "JavaHashPartitioner",
    "Murmur2Partitioner",
    "PartitionFunction",
    "Partitioner",
    "RandomPartitioner",
    "RoundRobinPartitioner",
    "partition_chooser",
]


class Murmur2Partitioner:
    """Java's key hash for every key.

    Args:
        rng: chooses for a null key; without it, null is hashed as an empty key.
    """

    def __init__(self, rng: Random | None = None) -> None:
        self._rng = rng

    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, cluster: TopicMetadata
    ) -> int:
        """Hash the key."""
        if key is None and self._rng is not None:
            return uniform_partition(cluster, self._rng)
        return key_partition(key or b"", cluster)


class Crc32Partitioner:
    """librdkafka's key hash: CRC-32 modulo the number of partitions.

    Args:
        rng: chooses for a null or empty key; without it, such a key is hashed like any other.
    """

    def __init__(self, rng: Random | None = None) -> None:
        self._rng = rng

    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, cluster: TopicMetadata
    ) -> int:
        """Hash the key."""
        if not key and self._rng is not None:
            return uniform_partition(cluster, self._rng)
        return crc32_partition(key or b"", len(cluster.partitions))


class RandomPartitioner:
    """Any partition that has a leader, whatever the key."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, cluster: TopicMetadata
    ) -> int:
        """Draw a partition."""
        return uniform_partition(cluster, self._rng)


class RoundRobinPartitioner:
    """One partition after the other, per topic, whatever the key (KIP-369)."""

    def __init__(self) -> None:
        self._counters: dict[str, int] = {}

    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, cluster: TopicMetadata
    ) -> int:
        """Take the next partition that has a leader, the next of all when none has."""
        counter = self._counters.get(topic, 0)
        self._counters[topic] = counter + 1
        choice = cluster.available or range(len(cluster.partitions))
        return choice[counter % len(choice)]


class JavaHashPartitioner:
    """0.8's key hashes; without a key it kept to one partition for a while, as a sticky one does.

    Args:
        hash_partition: the partition of a key among so many.
    """

    def __init__(self, hash_partition: Callable[[bytes, int], int]) -> None:
        self._hash_partition = hash_partition

    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, cluster: TopicMetadata
    ) -> int | None:
        """Hash the key."""
        return None if key is None else self._hash_partition(key, len(cluster.partitions))


NAMED_PARTITIONERS: Mapping[str, Callable[[Random], Partitioner]] = {
    "murmur2": lambda rng: Murmur2Partitioner(),
    "murmur2_random": Murmur2Partitioner,
    "consistent": lambda rng: Crc32Partitioner(),
    "consistent_random": Crc32Partitioner,
    "random": RandomPartitioner,
    "round_robin": lambda rng: RoundRobinPartitioner(),
    "java_string_hash": lambda rng: JavaHashPartitioner(java_string_partition),
    "java_bytes_hash": lambda rng: JavaHashPartitioner(java_bytes_partition),
}
"""What the `partitioner` option may name besides `default`."""


def partition_chooser(
    chosen: str | PartitionFunction | Partitioner, rng: Random, *, ignore_keys: bool = False
) -> PartitionFunction:
    """Return the function that chooses partitions, by the value of the option `partitioner`."""
    if chosen == "default":  # keys by Java's hash, everything else sticky
        return lambda topic, key, value, cluster: (
            None if key is None or ignore_keys else key_partition(key, cluster)
        )
    if isinstance(chosen, str):
        return NAMED_PARTITIONERS[chosen](rng).partition
    return chosen.partition if isinstance(chosen, Partitioner) else chosen
