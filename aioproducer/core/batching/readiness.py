"""When a partition's turn comes, and on which broker's queue it stands then.

Owns: the heap of partitions by the time they become ready, who lingers, the queues of those that
are ready per node, those without a leader. Must not know: memory, sequences, how batches are made
or end.

Where a partition with batches is, exactly one of:

    waiting (heap, by ready_at) --collect--> placed on its leader's queue --take--> nowhere
                                   |                       ^
                                   +--> leaderless --------+ on_leaders_changed
    muted: has batches, waits for its accumulator (order must hold and a batch is on its way)

Invariants
- The cost of `collect` and of taking grows with the partitions that are ready or linger, never with
  the partitions known: each `PartitionQueue` enters the heap when its time changes; stale entries
  are recognised by `ready_at` and dropped.
- A batch that backs off after a failure is never ready early, except when its leader changed
  (KIP-580) or the producer is closing by force.
- A partition that was taken stands behind the others when it is ready again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from aioproducer.core.batching.adaptive_linger import Crowd
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch

_NOWHERE = None
_LEADERLESS = -(1 << 40)  # no node id: bootstrap servers count down from -1
_SMALLEST_HEAP = 64


class PartitionQueue:
    """The batches of one partition, oldest first."""

    __slots__ = ("batches", "muted", "placed", "ready_at", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition: TopicPartition = topic_partition
        self.batches: deque[ProducerBatch] = deque()
        self.muted: bool = False
        self.ready_at: float = inf
        self.placed: int | None = _NOWHERE

    @property
    def is_leaderless(self) -> bool:
        """Whether the partition's time has come and it has no leader."""
        return self.placed == _LEADERLESS

    @property
    def node_id(self) -> int | None:
        """The node on whose queue the partition is."""
        return None if self.is_leaderless else self.placed

    def is_full_up(self) -> bool:
        """Whether the next record needs a new batch (Java: `allBatchesFull`)."""
        return not self.batches or self.batches[-1].full


class Readiness:
    """Which partitions may be sent when, and to whom.

    Args:
        linger: seconds that a batch with room waits for records.
        leader_of: the node that leads a partition, None while nobody does.
        is_expedited: whether lingering is pointless now.
        incomplete: the batches without an outcome.

    Attributes:
        leaderless: those whose time has come, and who have nobody to go to.
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
        self._crowd = Crowd()
        self._heap: list[tuple[float, int, PartitionQueue]] = []
        self._compact_at = _SMALLEST_HEAP
        self._ticket = 0
        self._lingering: dict[PartitionQueue, None] = {}
        self._ready: dict[int, deque[PartitionQueue]] = {}

    # -- questions -------------------------------------------------------------------------------

    @property
    def next_at(self) -> float:
        """Loop time at which the next partition becomes ready, inf for never."""
        heap = self._heap
        while heap and heap[0][0] != heap[0][2].ready_at:
            heappop(heap)  # it went earlier; who sleeps until then would sleep too lightly
        return heap[0][0] if heap else inf

    @property
    def has_ready(self) -> bool:
        """Whether some partition is on its leader's queue."""
        return any(self._ready.values())

    def nodes(self) -> list[int]:
        """Nodes that lead at least one ready partition."""
        return [node_id for node_id, queues in self._ready.items() if queues]

    def ready_at(self, queue: PartitionQueue) -> float:
        """When a partition's oldest batch may go; it has one."""
        return self._plan(queue)[0]

    # -- changes ---------------------------------------------------------------------------------

    def replan(self, queue: PartitionQueue) -> None:
        """Decides anew when a partition is ready; one already placed stays where it is."""
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
        self._ticket += 1
        heappush(self._heap, (ready_at, self._ticket, queue))
        if len(self._heap) >= self._compact_at:
            # Entries that no longer hold would pile up behind a long linger.
            self._heap = [entry for entry in self._heap if entry[0] == entry[2].ready_at]
            heapify(self._heap)
            self._compact_at = max(_SMALLEST_HEAP, 2 * len(self._heap))

    def expedite(self) -> None:
        """Lingering has become pointless."""
        for queue in list(self._lingering):
            self.replan(queue)

    def take_back(self, queue: PartitionQueue) -> None:
        """The head may be gone: a partition without batches must not be waited or dialed for."""
        if queue.placed == _LEADERLESS:
            del self.leaderless[queue]
        elif queue.placed is not _NOWHERE:
            self._ready[queue.placed].remove(queue)
        queue.placed = _NOWHERE
        queue.ready_at = inf
        self.replan(queue)

    def forget(self, queue: PartitionQueue) -> None:
        """A partition without batches is not needed any more."""
        self._lingering.pop(queue, None)

    def on_leaders_changed(self, queues: Iterable[PartitionQueue]) -> None:
        """Replans those of these partitions that are ready for another node, or leaderless."""
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

    # -- whose turn it is ------------------------------------------------------------------------

    def collect(self, now: float) -> None:
        """Places every partition whose time has come on its leader's queue."""
        if self._lingering:
            self._hurry_for_crowd(now)
        while self._heap and self._heap[0][0] <= now:
            ready_at, _, queue = heappop(self._heap)
            if ready_at == queue.ready_at:
                queue.ready_at = inf
                self._place(queue)

    def begin_request(self, node_id: int) -> int:
        """How many partitions there are to `take` for a request to the node.

        If there is one, those of the node that linger still come along, as in Java: another
        request would cost more than what they wait for.
        """
        ready = self._ready.get(node_id)
        if not ready:
            return 0
        for queue in list(self._lingering):
            head = queue.batches[0]
            if (
                self.leader_of(queue.topic_partition) == node_id
                and not head.attempts  # else it waits for its backoff
                and not head.gathering
            ):
                head.urgent = True
                queue.ready_at = inf
                self._place(queue)
        return len(ready)

    def take(self, node_id: int) -> PartitionQueue:
        """The next partition of the node."""
        queue = self._ready[node_id].popleft()
        queue.placed = _NOWHERE
        return queue

    def put_back(self, node_id: int, queue: PartitionQueue) -> None:
        """What was taken last is to be the next one again."""
        self._ready[node_id].appendleft(queue)
        queue.placed = node_id

    # -- private ---------------------------------------------------------------------------------

    def _plan(self, queue: PartitionQueue) -> tuple[float, bool]:
        """When a partition with batches is ready, and whether it lingers until then."""
        head = queue.batches[0]
        lingers = not (
            head.full
            or not (self._linger or head.gathering)
            or len(queue.batches) > 1
            or head.urgent
            or self._is_expedited()
        )
        if head.attempts:
            return head.retry_at, lingers
        if lingers and head.gathering:
            return inf, True
        return (head.created_at + self._linger if lingers else head.created_at), lingers

    def _hurry_for_crowd(self, now: float) -> None:
        """Ends all lingers when nobody is left to add a record."""
        oldest = next(iter(self._lingering))
        head = oldest.batches[0]
        if head.gathering or head.watchers < head.count:
            return  # what most turns find; the rest is for `Crowd`
        lingered = oldest.ready_at <= now
        if self._crowd.has_waited(self._incomplete, len(self._lingering), lingered=lingered):
            for queue in list(self._lingering):
                queue.batches[0].urgent = True
                self.replan(queue)

    def _place(self, queue: PartitionQueue) -> None:
        self._lingering.pop(queue, None)
        if queue.muted or not queue.batches:
            return
        leader = self.leader_of(queue.topic_partition)
        if leader is None:
            queue.placed = _LEADERLESS
            self.leaderless[queue] = None
        else:
            queue.placed = leader
            self._ready.setdefault(leader, deque()).append(queue)
