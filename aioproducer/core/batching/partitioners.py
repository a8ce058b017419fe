"""Built-in partitioners: key hash, and uniform sticky for records without a key.

`key_partition` is Java's murmur2; `BuiltInPartitioner` is sticky by bytes and adaptive by queue
length (KIP-480, KIP-794) and can prefer partitions in the client's rack (KIP-1123); `NodeLatencies`
excludes the partitions of slow brokers. `StickyPartitioners` has those of all topics.

Invariants: the partition changes after `sticky_batch_size` to twice as many bytes, so every
partition gets the same number of bytes over time; every choice ends (no retry loop: KAFKA-14303,
KAFKA-14553); a choice is always a partition that the topic currently has.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from aioproducer.records import murmur2_partition

if TYPE_CHECKING:
    from random import Random

    from aioproducer.core.batching.accumulator import RecordAccumulator
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.types import Node, TopicMetadata


_UPDATE_S, _LEAST_S = 1e-4, 2e-3


def key_partition(key: bytes, topic: TopicMetadata) -> int:
    """Return the partition of a key as the Java client chooses it; it depends on their number."""
    return murmur2_partition(key, len(topic.partitions))


def uniform_partition(topic: TopicMetadata, rng: Random, preferred: Sequence[int] = ()) -> int:
    """Return a random partition: a preferred one, else one with a leader, else any."""
    choice = preferred or topic.available or range(len(topic.partitions))
    return choice[rng.randrange(len(choice))]


class RackPreference:
    """The partitions of one topic that are led in the client's rack (KIP-1123), if it has one."""

    def __init__(self, rack: str = "", nodes: Callable[[], Mapping[int, Node]] = dict) -> None:
        self._rack = rack
        self._nodes = nodes
        self._seen: tuple[TopicMetadata, Mapping[int, Node]] | None = None
        self._partitions: tuple[int, ...] = ()

    def partitions_of(self, topic: TopicMetadata) -> tuple[int, ...]:
        """Return the available partitions in the client's rack; empty for no preference."""
        if not self._rack:
            return ()
        nodes, seen = self._nodes(), self._seen
        if seen is None or seen[0] is not topic or seen[1] is not nodes:
            # Cached until the metadata changes: topics can have thousands of partitions.
            self._seen = (topic, nodes)
            near = {node.id for node in nodes.values() if node.rack == self._rack}
            self._partitions = tuple(
                index for index in topic.available if topic.partitions[index].leader in near
            )
        return self._partitions


class PartitionLoad(NamedTuple):
    """Queue lengths of a topic's partitions, the arguments of `BuiltInPartitioner.update_load`.

    Only the first `length` entries count; the others are excluded for their node's latency.
    """

    queue_sizes: list[int]
    partition_ids: list[int]
    length: int


class BuiltInPartitioner:
    """Sticky partitioner of one topic; at least 1 byte (`sticky_batch_size`) for each partition."""

    def __init__(
        self,
        sticky_batch_size: int,
        adaptive: bool,
        rng: Random,
        rack_preference: RackPreference | None = None,
    ) -> None:
        if sticky_batch_size < 1:
            raise ValueError(f"sticky_batch_size must be at least 1, not {sticky_batch_size}")
        self.rack_preference: RackPreference = rack_preference or RackPreference()
        self._sticky_batch_size = sticky_batch_size
        self._adaptive = adaptive
        self._rng = rng
        self.current: int | None = None
        """The last chosen partition; None before the first choice."""
        self._produced_bytes: int = 0
        self.cumulative_weights: tuple[int, ...] = ()
        """The cumulative frequency table; empty while the choice is uniform."""
        self._weighted_ids: list[int] = []
        self.weights_due_at: float = -inf
        """Loop time from which the weights may be updated again."""

    @property
    def room(self) -> int:
        """Bytes the current partition may still get before `update` must change it."""
        return 2 * self._sticky_batch_size - self._produced_bytes

    @property
    def is_over_limit(self) -> bool:
        """Whether the next `update` with `enable_switch` changes the partition."""
        return self._produced_bytes >= self._sticky_batch_size

    def peek(self, topic: TopicMetadata) -> int:
        """Return the current partition, which only `update` and `move_on` change."""
        current = self.current
        if current is None or current >= len(topic.partitions):
            current = self.move_on(topic)
        return current

    def update(
        self, partition: int, appended_bytes: int, topic: TopicMetadata, enable_switch: bool
    ) -> None:
        """Count appended bytes, and choose another partition when there are enough.

        `partition` is the one from `peek`; it is ignored if no longer current. Without
        `enable_switch`, if the partition's batch is not ready to be sent, the change waits up to
        twice the size, to avoid partly filled batches.
        """
        if partition != self.current:
            return
        self._produced_bytes += appended_bytes
        threshold = self._sticky_batch_size if enable_switch else 2 * self._sticky_batch_size
        if self._produced_bytes >= threshold:
            self.move_on(topic)

    def move_on(self, topic: TopicMetadata) -> int:
        """Choose another partition, whatever the current one has got; return it."""
        self._produced_bytes = 0
        self.current = chosen = self._next_partition(topic)
        return chosen

    def update_load(
        self, queue_sizes: Sequence[int] | None, partition_ids: Sequence[int], length: int
    ) -> None:
        """Set the weights: partitions with shorter queues are chosen more often.

        Queue sizes (0, 3, 1) become the weights (4, 1, 3), cumulated (4, 5, 8). None, equal queues
        and too few partitions make the choice uniform again. Leaderless partitions are not among
        them; those after the first `length` are excluded for their node's latency.
        """
        self.cumulative_weights, self._weighted_ids = (), []
        if not self._adaptive or queue_sizes is None or length < 1 or len(queue_sizes) < 2:
            return
        sizes = queue_sizes[:length]
        longest = max(sizes)
        if min(sizes) == longest and length == len(queue_sizes):
            return
        self.cumulative_weights = tuple(accumulate(longest + 1 - size for size in sizes))
        self._weighted_ids = list(partition_ids[:length])

    def _next_partition(self, topic: TopicMetadata) -> int:
        weights = self.cumulative_weights
        if weights:
            drawn = self._rng.randrange(weights[-1])
            chosen = self._weighted_ids[bisect_right(weights, drawn)]
            # The weights may be from before the last metadata.
            at = bisect_left(topic.available, chosen)
            if topic.available[at : at + 1] == (chosen,):
                return chosen
        return uniform_partition(topic, self._rng, self.rack_preference.partitions_of(topic))


class NodeLatencies:
    """Nodes that have taken no data for `partitioner_availability_timeout_ms`; 0 for no limit."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout = timeout_s
        self._waits: dict[int, tuple[float, float]] = {}
        """Loop times at which a node last could take data, and last had data ready."""

    def update(self, node_id: int, now: float, *, can_drain: bool) -> None:
        """Record that data is ready for a node, and whether it can take data now."""
        if self._timeout <= 0:
            return
        drained_at, _ = self._waits.get(node_id, (now, now))
        self._waits[node_id] = (now if can_drain else drained_at, now)

    def is_available(self, node_id: int) -> bool:
        """Return whether the node's partitions may be chosen."""
        drained_at, ready_at = self._waits.get(node_id, (0.0, 0.0))
        return ready_at - drained_at <= self._timeout

    def retain(self, node_ids: Mapping[int, object]) -> None:
        """Drop nodes that left the cluster."""
        self._waits = {node: times for node, times in self._waits.items() if node in node_ids}


class StickyPartitioners:
    """The built-in partitioners of a producer, one per topic, weighted by queue lengths."""

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
        if len(meta.partitions) > 1 and now >= sticky.weights_due_at:
            sticky.weights_due_at = now + max(len(meta.partitions) * _UPDATE_S, _LEAST_S)
            sizes = self._accumulator.queue_sizes(meta.name)
            near = sticky.rack_preference.partitions_of(meta)
            load = partition_load(sizes, meta, self._latencies, near)
            sticky.update_load(*(load or (None, (), 0)))

    def drop_expired_topics(self, metadata: Metadata) -> None:
        """Drop the partitioners of topics that have expired from the metadata."""
        for topic in [name for name in self._partitioners if metadata.topic(name) is None]:
            del self._partitioners[topic]


def partition_load(
    queue_sizes: Mapping[int, int],
    topic: TopicMetadata,
    latencies: NodeLatencies,
    preferred: Sequence[int] = (),
) -> PartitionLoad | None:
    """Return queue sizes in the form that `update_load` takes; None for a uniform choice.

    The choice stays uniform until `queue_sizes` has as many partitions as have a leader, or every
    one of the `preferred`. A partition with an empty queue is never excluded for latency: without
    data the latency of its node would never be updated. If any `preferred` partition counts, the
    others do not.
    """
    if preferred:
        is_complete = all(partition in queue_sizes for partition in preferred)
    else:
        is_complete = len(queue_sizes) >= len(topic.available)
    if not is_complete:
        return None
    available = frozenset(preferred or topic.available)
    counted: list[tuple[int, int]] = []
    left_out: list[tuple[int, int]] = []
    for described in topic.partitions:
        partition, leader = described.partition, described.leader
        size = queue_sizes.get(partition, 0)
        slow = size > 0 and not latencies.is_available(leader)
        usable = partition in available and not slow
        (counted if usable else left_out).append((size, partition))
    if preferred and not counted:
        empty = dict.fromkeys(range(len(topic.partitions)), 0)
        return partition_load({**empty, **queue_sizes}, topic, latencies)
    sizes, ids = zip(*counted, *left_out, strict=True)
    return PartitionLoad(list(sizes), list(ids), len(counted))
