"""Readiness: when partitions are ready to be sent, and to which broker.

It keeps a heap of partitions by the time at which they become ready, the lingering ones, a queue of
ready ones per node, and those without a leader. `AdaptiveLinger` ends lingers early.

A partition with batches is in exactly one of these states:

    waiting (heap, by ready_at) --collect--> placed on its leader's queue --take--> nowhere
                                   |                       ^
                                   +--> leaderless --------+ on_leaders_changed
    muted: has batches, until the accumulator unmutes it (a batch is in flight, to keep the order)

Invariants: the cost of `collect` and `take` grows with the partitions that are ready or linger. A
batch that backs off is ready early only when its leader changed (KIP-580) or on a forced close.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch

_NOWHERE = None
_LEADERLESS = -(1 << 40)  # no node id: bootstrap servers count down from -1
_SMALLEST_HEAP = 64
EARLY_FLUSH_RECORDS = 500
_MOST_BATCHES = 64


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The batches of one partition, oldest first."""

    topic_partition: TopicPartition
    batches: deque[ProducerBatch] = field(default_factory=deque)
    muted: bool = False
    ready_at: float = inf
    placed: int | None = _NOWHERE

    @property
    def is_leaderless(self) -> bool:
        """Whether the partition is ready but has no leader."""
        return self.placed == _LEADERLESS

    @property
    def node_id(self) -> int | None:
        """The node on whose queue the partition is, if any."""
        return None if self.is_leaderless else self.placed

    def is_full_up(self) -> bool:
        """Return whether the next record needs a new batch (Java: `allBatchesFull`)."""
        return not self.batches or self.batches[-1].full


class AdaptiveLinger:
    """Batches are sent early when every task that sends is waiting for a response.

    When every buffered record is awaited, as by tasks that call `send_and_wait` in a loop, no task
    can add more. The number of such tasks is learned when a linger ends by the clock. From then on
    linger ends as soon as that many records are awaited, queued or in flight. When more records
    come, the number is learned again. The record of a single task does not linger at all: if it is
    sent by `send_and_wait`, it is sent in that call (`has_one_sender`, `BatchAppender`).

    With many tasks, half of them should be served while the other half sends:
    `EARLY_FLUSH_RECORDS` records are sent at once while no request is in flight.

    `linger_ms` is the upper bound, and is kept if any record is not awaited. The cost of a check is
    bounded: with more than `_MOST_BATCHES` batches it returns False.
    """

    def __init__(self) -> None:
        self._size: float = inf

    @property
    def has_one_sender(self) -> bool:
        """Whether one task sends, which waits for the outcome of each record: no other follows."""
        return self._size == 1

    def should_flush(
        self, incomplete: Collection[ProducerBatch], lingering: int, *, lingered: bool
    ) -> bool:
        """Return whether the lingering batches should be sent now.

        `lingered`: a linger ends by the clock now.
        """
        if len(incomplete) > _MOST_BATCHES:
            return False
        records = 0
        for batch in incomplete:
            if batch.watchers < batch.count:
                return False
            records += batch.count
        if lingered:
            self._size = records
        elif records > self._size:
            self._size = records
            return False
        if records == self._size:
            return True
        return self._size < inf and records >= EARLY_FLUSH_RECORDS and lingering == len(incomplete)


class Readiness:
    """Schedule of the partitions with batches.

    A batch with room waits `linger` seconds for records, unless `is_expedited`.
    """

    def __init__(
        self,
        linger: float,
        leader_of: Callable[[TopicPartition], int | None],
        is_expedited: Callable[[], bool],
        incomplete: Collection[ProducerBatch],
    ) -> None:
        self.leaderless: dict[PartitionQueue, None] = {}
        self._linger = linger
        self.leader_of: Callable[[TopicPartition], int | None] = leader_of
        self._is_expedited = is_expedited
        self._incomplete = incomplete
        self.adaptive_linger: AdaptiveLinger = AdaptiveLinger()
        self._heap: list[tuple[float, int, PartitionQueue]] = []
        self._compact_at = _SMALLEST_HEAP
        self._order = 0
        self._lingering: dict[PartitionQueue, None] = {}
        self._ready: dict[int, deque[PartitionQueue]] = {}

    # -- questions -------------------------------------------------------------------------------

    @property
    def next_at(self) -> float:
        """Loop time at which the next partition becomes ready, inf for never."""
        heap = self._heap
        while heap and heap[0][0] != heap[0][2].ready_at:
            heappop(heap)  # stale; it would wake the sender task too early
        return heap[0][0] if heap else inf

    @property
    def has_ready(self) -> bool:
        """Whether any partition is on its leader's queue."""
        return any(self._ready.values())

    def nodes(self) -> list[int]:
        """Return the nodes that lead at least one ready partition."""
        return [node_id for node_id, queues in self._ready.items() if queues]

    def ready_at(self, queue: PartitionQueue) -> float:
        """Return the loop time at which the first batch of a non-empty queue is ready."""
        return self._plan(queue)[0]

    # -- changes ---------------------------------------------------------------------------------

    def replan(self, queue: PartitionQueue) -> None:
        """Compute again when a partition is ready; one that is placed stays there."""
        if queue.placed is not _NOWHERE or queue.muted or not queue.batches:
            self._lingering.pop(queue, None)
            return
        ready_at, lingers = self._plan(queue)
        if lingers:
            self._lingering[queue] = None
        else:
            self._lingering.pop(queue, None)
        if queue.ready_at == ready_at:
            return
        queue.ready_at = ready_at
        self._order += 1
        heappush(self._heap, (ready_at, self._order, queue))
        if len(self._heap) >= self._compact_at:
            # Stale entries would accumulate during a long linger.
            self._heap = [entry for entry in self._heap if entry[0] == entry[2].ready_at]
            heapify(self._heap)
            self._compact_at = max(_SMALLEST_HEAP, 2 * len(self._heap))

    def expedite(self) -> None:
        """End all lingers, after `is_expedited` became true."""
        for queue in list(self._lingering):
            self.replan(queue)

    def place_again(self, queue: PartitionQueue) -> None:
        """Plan a partition again after a batch was removed: an empty one must not stay placed."""
        if queue.placed == _LEADERLESS:
            del self.leaderless[queue]
        elif queue.placed is not _NOWHERE:
            self._ready[queue.placed].remove(queue)
        queue.placed = _NOWHERE
        queue.ready_at = inf
        self.replan(queue)

    def discard(self, queue: PartitionQueue) -> None:
        """Drop a partition without batches."""
        self._lingering.pop(queue, None)

    def on_leaders_changed(self, queues: Iterable[PartitionQueue]) -> None:
        """Replan those of these partitions that are placed at another node, or leaderless."""
        moved = [
            queue
            for queue in queues
            if queue.placed is not _NOWHERE
            and queue.placed != self.leader_of(queue.topic_partition)
        ]
        left: set[int] = set()
        for queue in moved:
            if queue.placed in self._ready:
                left.add(queue.placed)
            queue.placed = _NOWHERE
            self.leaderless.pop(queue, None)
        for node_id in left:
            self._ready[node_id] = deque(q for q in self._ready[node_id] if q.placed == node_id)
        for queue in moved:
            self.replan(queue)

    # -- taking ready partitions -----------------------------------------------------------------

    def collect(self, now: float) -> None:
        """Place every ready partition on its leader's queue."""
        if self._lingering:
            self._flush_early(now)
        while self._heap and self._heap[0][0] <= now:
            ready_at, _, queue = heappop(self._heap)
            if ready_at == queue.ready_at:
                queue.ready_at = inf
                self._place(queue)

    def begin_request(self, node_id: int) -> int:
        """Return the number of partitions to `take` for a request to the node.

        If there is one, lingering partitions of the node are added, as in Java: another request
        would cost more than lingering gains.
        """
        ready = self._ready.get(node_id)
        if not ready:
            return 0
        for queue in list(self._lingering):
            head = queue.batches[0]
            if self.leader_of(queue.topic_partition) == node_id and not head.gathering:
                head.urgent = True
                queue.ready_at = inf
                self._place(queue)
        return len(ready)

    def take(self, node_id: int) -> PartitionQueue:
        """Take the next partition of the node."""
        queue = self._ready[node_id].popleft()
        queue.placed = _NOWHERE
        return queue

    def put_back(self, node_id: int, queue: PartitionQueue) -> None:
        """Put back the partition that was taken last; it is the next one again."""
        self._ready[node_id].appendleft(queue)
        queue.placed = node_id

    def _plan(self, queue: PartitionQueue) -> tuple[float, bool]:
        """Return when a partition with batches is ready, and whether it lingers until then."""
        head = queue.batches[0]
        lingers = not (
            head.full or not (self._linger or head.gathering) or head.urgent or self._is_expedited()
        )
        if head.attempts:
            return head.retry_at, lingers
        if lingers and head.gathering:
            return inf, True
        return (head.created_at + self._linger if lingers else head.created_at), lingers

    def _flush_early(self, now: float) -> None:
        """End all lingers when every sending task waits (adaptive linger)."""
        oldest = next(iter(self._lingering))
        head = oldest.batches[0]
        if head.gathering or head.watchers < head.count:
            return  # the common case; `AdaptiveLinger` decides the rest
        lingered = oldest.ready_at <= now
        if self.adaptive_linger.should_flush(
            self._incomplete, len(self._lingering), lingered=lingered
        ):
            for queue in list(self._lingering):
                queue.batches[0].urgent = True
                self.replan(queue)

    def _place(self, queue: PartitionQueue) -> None:
        self._lingering.pop(queue, None)
        leader = self.leader_of(queue.topic_partition)
        if leader is None:
            queue.placed = _LEADERLESS
            self.leaderless[queue] = None
        else:
            queue.placed = leader
            self._ready.setdefault(leader, deque()).append(queue)
