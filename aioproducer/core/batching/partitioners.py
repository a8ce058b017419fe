"""The producer's own choice of a partition: key hash, and uniform sticky for records without a key.

Owns: `key_partition` (Java's murmur2), `BuiltInPartitioner` (KIP-480, KIP-794: sticky by bytes,
adaptive by queue length), the preference for partitions near by (KIP-1123), and the latency figures
that take a slow broker's partitions out of the choice. Must not know: batches and queues as
objects, user-written partitioners.
Invariants: a partition is left after at least `sticky_batch_size` bytes and after twice that at the
latest, so every partition gets the same number of bytes over time; every choice ends (no retry
loop: KAFKA-14303, KAFKA-14553); a choice is always a partition the topic has now.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from aioproducer.records import murmur2_partition

if TYPE_CHECKING:
    from random import Random

    from aioproducer.types import Node, TopicMetadata


def key_partition(key: bytes, topic: TopicMetadata) -> int:
    """The partition of a key, as the Java client chooses it: stable while the count stays."""
    return murmur2_partition(key, len(topic.partitions))


def uniform_partition(topic: TopicMetadata, rng: Random, preferred: Sequence[int] = ()) -> int:
    """Any of those preferred; any that has a leader when there are none; else any at all."""
    choice = preferred or topic.available or range(len(topic.partitions))
    return choice[rng.randrange(len(choice))]


class Neighbourhood:
    """The partitions of one topic that are led in the client's rack (KIP-1123).

    Args:
        rack: the client's; every partition is as near as any other when it is empty.
        nodes: the brokers as they are known now.
    """

    def __init__(self, rack: str = "", nodes: Callable[[], Mapping[int, Node]] = dict) -> None:
        self._rack = rack
        self._nodes = nodes
        self._seen: tuple[TopicMetadata, Mapping[int, Node]] | None = None
        self._partitions: tuple[int, ...] = ()

    def partitions_of(self, topic: TopicMetadata) -> tuple[int, ...]:
        """The available ones among them; empty when distance is to decide nothing."""
        if not self._rack:
            return ()
        nodes, seen = self._nodes(), self._seen
        if seen is None or seen[0] is not topic or seen[1] is not nodes:
            # Kept until the metadata change: a choice shall not look at ten thousand partitions.
            self._seen = (topic, nodes)
            near = {node.id for node in nodes.values() if node.rack == self._rack}
            self._partitions = tuple(
                index for index in topic.available if topic.partitions[index].leader in near
            )
        return self._partitions


class PartitionLoad(NamedTuple):
    """Queue lengths of a topic's partitions, as `BuiltInPartitioner.update_load` takes them.

    Only the first `length` entries count; the others are taken out for their node's latency.
    """

    queue_sizes: list[int]
    partition_ids: list[int]
    length: int


class BuiltInPartitioner:
    """The sticky choice for one topic.

    Args:
        topic: the topic's name.
        sticky_batch_size: bytes for one partition before the next one; at least 1, hence
            `max(1, batch_size)`.
        adaptive: whether queue lengths weigh (`partitioner_adaptive_partitioning_enable`).
        rng: decides the next partition.
        neighbourhood: which partitions are chosen before others.
    """

    def __init__(
        self,
        topic: str,
        sticky_batch_size: int,
        adaptive: bool,
        rng: Random,
        neighbourhood: Neighbourhood | None = None,
    ) -> None:
        if sticky_batch_size < 1:
            raise ValueError(f"sticky_batch_size must be at least 1, not {sticky_batch_size}")
        self.topic = topic
        self.neighbourhood: Neighbourhood = neighbourhood or Neighbourhood()
        self._sticky_batch_size = sticky_batch_size
        self._adaptive = adaptive
        self._rng = rng
        self._current: int | None = None
        self._produced_bytes = 0
        self._cumulative: list[int] = []
        self._weighted_ids: list[int] = []

    @property
    def cumulative_weights(self) -> tuple[int, ...]:
        """The cumulative frequency table; empty while the choice is uniform."""
        return tuple(self._cumulative)

    @property
    def current(self) -> int | None:
        """The partition that was chosen last; None before the first choice."""
        return self._current

    @property
    def room(self) -> int:
        """Bytes the current partition may still get before `update` must move on."""
        return 2 * self._sticky_batch_size - self._produced_bytes

    @property
    def overstays(self) -> bool:
        """Whether the next `update` that may move on will."""
        return self._produced_bytes >= self._sticky_batch_size

    def peek(self, topic: TopicMetadata) -> int:
        """The current partition; the same until `update` moves on."""
        current = self._current
        if current is None or current >= len(topic.partitions):
            current = self._move_on(topic)
        return current

    def update(
        self, partition: int, appended_bytes: int, topic: TopicMetadata, enable_switch: bool
    ) -> None:
        """Counts what was appended, and moves on to another partition when it is enough.

        Args:
            partition: where the record went, as `peek` said; ignored if no longer current.
            appended_bytes: size of the record.
            topic: where to choose the next partition from.
            enable_switch: whether the partition's batch is ready to be sent; leaving an unfinished
                one behind would make fractional batches, so that waits up to twice the size.
        """
        if partition != self._current:
            return
        self._produced_bytes += appended_bytes
        threshold = self._sticky_batch_size if enable_switch else 2 * self._sticky_batch_size
        if self._produced_bytes >= threshold:
            self._move_on(topic)

    def update_load(
        self, queue_sizes: Sequence[int] | None, partition_ids: Sequence[int], length: int
    ) -> None:
        """Sets the weights: a partition is chosen the more often, the shorter its queue.

        Queue sizes (0, 3, 1) become the weights (4, 1, 3), cumulated (4, 5, 8). None, equal queues
        and too few partitions make the choice uniform again.

        Args:
            queue_sizes: batches queued per partition, leaderless partitions left out.
            partition_ids: the partitions in the same order.
            length: how many of them count; fewer than given when nodes are taken out for latency.
        """
        self._cumulative, self._weighted_ids = [], []
        if not self._adaptive or queue_sizes is None or length < 1 or len(queue_sizes) < 2:
            return
        sizes = queue_sizes[:length]
        longest = max(sizes)
        if min(sizes) == longest and length == len(queue_sizes):
            return
        self._cumulative = list(accumulate(longest + 1 - size for size in sizes))
        self._weighted_ids = list(partition_ids[:length])

    def _move_on(self, topic: TopicMetadata) -> int:
        self._produced_bytes = 0
        self._current = self._next_partition(topic)
        return self._current

    def _next_partition(self, topic: TopicMetadata) -> int:
        if self._cumulative:
            drawn = self._rng.randrange(self._cumulative[-1])
            chosen = self._weighted_ids[bisect_right(self._cumulative, drawn)]
            if chosen < len(topic.partitions):
                return chosen
        return uniform_partition(topic, self._rng, self.neighbourhood.partitions_of(topic))


@dataclass(slots=True)
class NodeLatencyStats:
    """When a node last had data ready for it, and when it last could take data."""

    ready_at: float
    drained_at: float

    @property
    def waiting_s(self) -> float:
        """How long data has been waiting for the node, as of the last look."""
        return self.ready_at - self.drained_at


class NodeLatencies:
    """Which nodes take no data for longer than `partitioner_availability_timeout_ms`.

    Args:
        timeout_s: 0 turns the whole thing off.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout = timeout_s
        self._stats: dict[int, NodeLatencyStats] = {}

    def update(self, node_id: int, now: float, *, can_drain: bool) -> None:
        """Notes that a node has data ready, and whether it can take them now."""
        if self._timeout <= 0:
            return
        stats = self._stats.setdefault(node_id, NodeLatencyStats(now, now))
        stats.ready_at = now
        if can_drain:
            stats.drained_at = now

    def is_available(self, node_id: int) -> bool:
        """Whether the node's partitions shall be chosen."""
        stats = self._stats.get(node_id)
        return self._timeout <= 0 or stats is None or stats.waiting_s <= self._timeout

    def retain(self, node_ids: Mapping[int, object]) -> None:
        """Forgets nodes that left the cluster."""
        self._stats = {node: stats for node, stats in self._stats.items() if node in node_ids}


def partition_load(
    queue_sizes: Mapping[int, int],
    topic: TopicMetadata,
    latencies: NodeLatencies,
    preferred: Sequence[int] = (),
) -> PartitionLoad | None:
    """Puts queue sizes in the form `update_load` takes; None for a uniform choice.

    Until every partition has had a batch (`queue_sizes` names them all), the choice stays uniform:
    a partition without an entry would never be chosen. One with an empty queue is never taken out
    for latency: without data its node's figures would never change again. If any of those that are
    `preferred` counts, the others do not.
    """
    if len(queue_sizes) < len(topic.partitions):
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
        return partition_load(queue_sizes, topic, latencies)
    sizes, ids = zip(*counted, *left_out, strict=True)
    return PartitionLoad(list(sizes), list(ids), len(counted))
