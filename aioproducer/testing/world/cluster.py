"""The simulated cluster in time: followers fetch, leaders shrink the ISR, the controller elects.

    crash ---session timeout---> fenced: out of every ISR, its partitions get another leader
    append ---a follower's lag---> fetched: high watermark moves, acks=all is answered
    lagging for too long ---> out of the ISR       caught up again ---> back in

Invariants:
- A broker is in one of three states for the controller: registered and up, registered and gone
  (not noticed yet), fenced.
- Nothing committed is lost while elections are clean.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from uuid import UUID

from aioproducer.records.batch import RecordBatch
from aioproducer.testing.broker import BrokerSpec, ClusterSettings, ClusterState
from aioproducer.testing.broker.markers import Marker
from aioproducer.testing.broker.producers import ProducerStates
from aioproducer.testing.broker.replication import ReplicatedPartition
from aioproducer.testing.broker.settings import TopicConfig, TopicSpec
from aioproducer.testing.broker.topics import NO_LEADER, Appended, Leadership, Partition, Topic
from aioproducer.testing.world.trace import Trace
from aioproducer.types import TopicPartition

_POLICY = "cleanup.policy"
_IDS_OF_A_CLUSTER = 1000


@dataclass(frozen=True, slots=True)
class ReplicationTiming:
    """The speed of replication and of failure detection; seconds."""

    fetch_lag: float = 0.005
    longest_lag: float = 2.0
    session_timeout: float = 1.0


class SimCluster(ClusterState):
    """`ClusterState` with replication and elections that take time.

    Attributes:
        loop: Where its timers run.
        trace: Where its events go.
        unclean_elections: Whether a replica that lacks committed batches may lead.
        extra_lag: Seconds by which a broker fetches later than usual.
        stale_answers: Metadata answers that differed from the truth, per broker.
        late_fetches: Fetches begun with extra lag, per broker.
        markers_written: How many transaction markers were written.
        keyless_refused: How many batches were refused because a record had no key.
        untimely_refused: When batches were refused for the timestamp of a record.
        producers_expired: How many idle producers have expired in partitions.
        deleted: Topics that were deleted, with their logs.
        unlisted: Brokers that metadata leave out although they may lead partitions.
        unlisted_answers: Lists of brokers that left one out, per broker.
        unaware: Brokers that have no metadata yet, as after a start: they list no broker.
        unaware_answers: Lists without any broker.
        producers_lost: How many leaders came without state of producers, so that what they had
            written and not acknowledged may be written again.
        producers_lost_at: When a leader has lost that state while it led, by partition.
        number: How many clusters there have been before at these addresses.
        ids_given: The number of the cluster that has given each producer id.
    """

    def __init__(
        self,
        brokers: Sequence[BrokerSpec],
        *,
        settings: ClusterSettings,
        rng: random.Random,
        loop: asyncio.AbstractEventLoop,
        trace: Trace,
        timing: ReplicationTiming,
    ) -> None:
        super().__init__(brokers, settings=settings, rng=rng)
        self.loop = loop
        self.trace = trace
        self.unclean_elections = False
        self.controller_away_until: float = 0.0
        self.extra_lag: dict[int, float] = {}
        self.stale_answers: dict[int, int] = dict.fromkeys(self.brokers, 0)
        self.late_fetches: dict[int, int] = dict.fromkeys(self.brokers, 0)
        self.markers_written: int = 0
        self.keyless_refused: int = 0
        self.untimely_refused: list[float] = []
        self.producers_expired: int = 0
        self.deleted: list[Topic] = []
        self.unlisted: set[int] = set()
        self.unlisted_answers: dict[int, int] = dict.fromkeys(self.brokers, 0)
        self.unaware: set[int] = set()
        self.unaware_answers: int = 0
        self.producers_lost: int = 0
        self.producers_lost_at: dict[TopicPartition, float] = {}
        self.number: int = 0
        self.ids_given: dict[int, int] = {}
        self._created_at: dict[UUID, float] = {}
        self._sizes: dict[str, int] = {}
        self._deleted_at: dict[UUID, float] = {}
        self._timing = timing
        self._registered = set(self.brokers)
        self._paused: set[int] = set()
        self._sessions = dict.fromkeys(self.brokers, 0)
        self._fetching: set[tuple[TopicPartition, int]] = set()
        self._lagging_since: dict[tuple[TopicPartition, int], float] = {}
        self._beliefs: dict[int, dict[TopicPartition, Leadership]] = {}

    # -- brokers come and go ----------------------------------------------------------------------

    def crash(self, node_id: int) -> None:
        """End a broker's process; the controller notices when its session ends."""
        self._live.discard(node_id)
        self._paused.discard(node_id)
        self._beliefs.pop(node_id, None)
        self._plan_fencing(node_id)

    def pause(self, node_id: int) -> None:
        """Freeze a broker: it neither fetches nor keeps its session."""
        self._paused.add(node_id)
        self._plan_fencing(node_id)

    def resume(self, node_id: int) -> None:
        """Resume a paused broker."""
        if node_id in self._paused:
            self._paused.discard(node_id)
            self._register(node_id)

    def restart(self, node_id: int) -> None:
        """Restart a crashed broker with its log; the controller first fences its past."""
        if node_id in self._live:
            return
        self._fence(node_id)
        self._live.add(node_id)
        self._register(node_id)

    def is_working(self, node_id: int) -> bool:
        """Return whether a broker is up and not paused."""
        return node_id in self._live and node_id not in self._paused

    def is_reachable(self, node_id: int) -> bool:
        """Return whether other brokers get a response from that one."""
        return self.is_working(node_id)

    def _register(self, node_id: int) -> None:
        self._sessions[node_id] += 1
        self._registered.add(node_id)
        for partition in self._replicated():
            if node_id not in partition.replicas:
                continue
            if partition.regain_replica(node_id, self._live):
                self._notify_leader(partition)
            self.notify(partition.topic, partition.index)

    def _plan_fencing(self, node_id: int) -> None:
        self._sessions[node_id] += 1
        self.loop.call_later(
            self._timing.session_timeout, self._end_session, node_id, self._sessions[node_id]
        )

    def _end_session(self, node_id: int, session: int) -> None:
        if session != self._sessions[node_id]:
            return
        wait = self.controller_away_until - self.loop.time()
        if wait > 0:
            self.loop.call_later(wait, self._end_session, node_id, session)
        else:
            self._fence(node_id)

    def _fence(self, node_id: int) -> None:
        if node_id not in self._registered:
            return
        self.trace(f"controller fences b{node_id}")
        self._registered.discard(node_id)
        self._sessions[node_id] += 1
        for partition in self._replicated():
            if node_id not in partition.replicas:
                continue
            if partition.lose_replica(node_id):
                if partition.leader == NO_LEADER and self.unclean_elections:
                    self._elect_unclean(partition)
                self._notify_leader(partition)
            self.notify(partition.topic, partition.index)

    def _elect_unclean(self, partition: ReplicatedPartition) -> None:
        for node_id in partition.replicas:
            if self.is_working(node_id):
                partition.elect_unclean(node_id)
                return

    def _notify_leader(self, partition: ReplicatedPartition) -> None:
        self.trace(
            f"{partition.topic}-{partition.index} led by b{partition.leader} "
            f"epoch {partition.leader_epoch} from {partition.log.end_offset}"
        )

    def lose_end(self, topic: str, partition: int, batches: int) -> int:
        """Elect a follower that lacks the last batches; return 0 if there is none."""
        found = self.partition(topic, partition)
        if not isinstance(found, ReplicatedPartition) or found.leader == NO_LEADER:
            return 0
        others = [n for n in found.replicas if n != found.leader and self.is_working(n)]
        if not others:
            return 0
        found.cut_back(others[0], batches)
        found.elect_unclean(others[0])
        self._notify_leader(found)
        self.notify(topic, partition)
        return 1

    # -- topics come and go -----------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        spec: TopicSpec | None = None,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """See `ClusterState.create_topic`."""
        topic = super().create_topic(
            name, spec, assignments=assignments, validate_only=validate_only
        )
        self._created_at[topic.topic_id] = self.loop.time()
        self._sizes[name] = len(topic.partitions)
        return topic

    def delete_topic(self, name: str) -> None:
        """See `ClusterState.delete_topic`."""
        topic = self.topics.get(name)
        super().delete_topic(name)
        if topic is not None:
            self.deleted.append(topic)
            self._deleted_at[topic.topic_id] = self.loop.time()
            for beliefs in self._beliefs.values():
                for each in topic.partitions:  # the next topic of this name has other leaders
                    beliefs.pop(TopicPartition(name, each.index), None)
            self.trace(f"{name} is deleted")

    def recreate_topic(self, name: str, *, same_leaders: bool = False) -> None:
        """Delete a topic, and create one of this name, as large as at first.

        It is on other brokers, unless it is to have the same leaders.
        """
        gone = self.topics[name]
        factor, count = len(gone.partitions[0].replicas), self._sizes[name]
        leaders_first = {
            each.index: sorted(each.replicas, key=lambda node_id: node_id != each.leader)
            for each in gone.partitions[:count]
        }
        self.delete_topic(name)
        spec = TopicSpec(count, factor, dict(gone.config.own))
        self.create_topic(name, spec, assignments=leaders_first if same_leaders else None)

    def replace(self) -> None:
        """Replace the cluster by another one of the same addresses, with empty topics.

        It has another id, other topic ids, no transactions, and gives other producer ids.
        """
        self.number += 1
        self.trace(f"cluster #{self.number + 1} takes over")
        cluster_id = f"aioproducer-{self.number + 1}"
        self.settings: ClusterSettings = replace(self.settings, cluster_id=cluster_id)
        self._next_producer_id += _IDS_OF_A_CLUSTER
        self.transactions.discard_all()
        for name in list(self.topics):
            self.recreate_topic(name)

    def new_producer_id(self) -> int:
        """See `ClusterState.new_producer_id`."""
        producer_id = super().new_producer_id()
        self.ids_given[producer_id] = self.number
        return producer_id

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the leader of a partition, -1 without one."""
        found = self.partition(topic, partition)
        return NO_LEADER if found is None else found.leader

    def lose_producers(self, topic: str, partition: int) -> None:
        """Let the leader of a partition have no state of producers, as one that has expired it.

        Each replica does that by itself, and counts from the records' timestamps.
        """
        found = self.partition(topic, partition)
        if found is not None:
            found.producers = ProducerStates()
            self.producers_lost += 1
            self.trace(f"b{found.leader} has no producers in {topic}-{partition}")

    def has_had(self, name: str, since: float, until: float, partition: int | None = None) -> bool:
        """Return whether one topic of this name existed all the time between two moments.

        With a `partition`, whether that one did.
        """
        known = [each for each in self.deleted if each.name == name]
        if name in self.topics:
            known.append(self.topics[name])
        return any(
            self._created_at[each.topic_id] <= since
            and until <= self._deleted_at.get(each.topic_id, inf)
            and (partition is None or _has_since(each, partition, since))
            for each in known
        )

    # -- replication ------------------------------------------------------------------------------

    def new_partition(self, topic: str, index: int, replicas: Sequence[int]) -> Partition:
        """Return a partition whose followers take their time."""
        return TracedPartition(topic, index, replicas, self)

    def notify(self, topic: str, partition: int) -> None:
        """Wake all waiters and let followers fetch, after every change."""
        super().notify(topic, partition)
        found = self.partition(topic, partition)
        if isinstance(found, ReplicatedPartition):
            self._send_followers(found)

    def move_leader(self, topic: str, partition: int, node_id: int | None = None) -> int:
        """See `ClusterState.move_leader`."""
        chosen = super().move_leader(topic, partition, node_id)
        for each in self._replicated():
            if (each.topic, each.index) == (topic, partition):
                self._notify_leader(each)
        return chosen

    def _send_followers(self, partition: ReplicatedPartition) -> None:
        where = TopicPartition(partition.topic, partition.index)
        for node_id in partition.replicas:
            key = (where, node_id)
            follows = partition.leader not in {node_id, NO_LEADER}
            if not follows or (not partition.is_lagging(node_id) and node_id in partition.isr):
                self._lagging_since.pop(key, None)
                continue
            if node_id in partition.isr and key not in self._lagging_since:
                now = self._lagging_since[key] = self.loop.time()
                self.loop.call_later(self._timing.longest_lag, self._check_lag, key, now)
            if key not in self._fetching and self.is_working(node_id):
                self._fetching.add(key)
                extra = self.extra_lag.get(node_id, 0.0)
                self.late_fetches[node_id] += extra > 0
                self.loop.call_later(self._timing.fetch_lag + extra, self._fetch, key)

    def _fetch(self, key: tuple[TopicPartition, int]) -> None:
        self._fetching.discard(key)
        partition = self._find(key)
        if partition is None:
            return
        can_fetch = self.is_working(key[1]) and self.is_working(partition.leader)
        if can_fetch and partition.fetch(key[1]):
            self._lagging_since.pop(key, None)
            self.notify(*key[0])

    def _check_lag(self, key: tuple[TopicPartition, int], since: float) -> None:
        partition = self._find(key)
        if partition is None or self._lagging_since.get(key) != since:
            return
        if not self.is_working(partition.leader):
            return
        del self._lagging_since[key]
        if partition.is_lagging(key[1]) and partition.shrink_isr(key[1]):
            self.trace(f"{key[0].topic}-{key[0].partition} isr {partition.isr}")
            self.notify(*key[0])

    # -- what brokers believe ---------------------------------------------------------------------

    def known_brokers(self, node_id: int) -> list[BrokerSpec]:
        """Return the brokers the controller has not fenced; none if the broker is unaware."""
        if node_id in self.unaware:
            self.unaware_answers += 1
            return []
        left_out = self.unlisted & self._registered
        for each in left_out:
            self.unlisted_answers[each] += 1
        return [self.brokers[each] for each in sorted(self._registered - left_out)]

    def known_leadership(self, node_id: int, partition: Partition) -> Leadership:
        """Return the metadata as it is, or as a lagging broker has it."""
        where = TopicPartition(partition.topic, partition.index)
        belief = self._beliefs.get(node_id, {}).get(where, partition.leadership)
        if belief != partition.leadership:
            self.stale_answers[node_id] += 1
        return belief

    def known_partitions(self, node_id: int, topic: Topic) -> Sequence[Partition]:
        """Return the partitions; of a lagging broker those that it had when it stopped to learn."""
        beliefs = self._beliefs.get(node_id, {})
        known = [p for p in topic.partitions if TopicPartition(topic.name, p.index) in beliefs]
        return known or topic.partitions

    def stop_learning(self, node_id: int) -> None:
        """Freeze a broker's metadata."""
        self._beliefs[node_id] = {
            TopicPartition(each.topic, each.index): each.leadership for each in self._replicated()
        }

    def learn(self, node_id: int) -> None:
        """Update a broker's metadata."""
        self._beliefs.pop(node_id, None)

    def heal(self) -> None:
        """End all disturbances at once; logs and leaders stay as they are."""
        self.faults.clear()
        self.extra_lag.clear()
        self.unlisted.clear()
        self.unaware.clear()
        self._beliefs.clear()
        self.controller_away_until = 0.0
        for topic in self.topics:
            self.require_keys(topic, False)

    def require_keys(self, topic: str, are_required: bool) -> None:
        """Set whether brokers refuse records of a topic without a key; a deleted one stays so."""
        found = self.topics.get(topic)
        if found is None:
            return
        own = {name: value for name, value in found.config.own.items() if name != _POLICY}
        if are_required:
            own[_POLICY] = "compact"
        found.config = TopicConfig(own, self.settings.topic_defaults)

    def _replicated(self) -> list[ReplicatedPartition]:
        return [each for each in self._partitions() if isinstance(each, ReplicatedPartition)]

    def _find(self, key: tuple[TopicPartition, int]) -> ReplicatedPartition | None:
        """Return a partition with this replica, unless its topic was deleted meanwhile.

        A topic that was created anew may have other replicas.
        """
        where, node_id = key
        found = self.partition(*where)
        if isinstance(found, ReplicatedPartition) and node_id in found.replicas:
            return found
        return None


def _has_since(topic: Topic, partition: int, since: float) -> bool:
    return any(
        isinstance(each, TracedPartition) and each.index == partition and each.created_at <= since
        for each in topic.partitions
    )


class TracedPartition(ReplicatedPartition):
    """A partition that reports its appends.

    Attributes:
        created_at: When there was such a partition.
        append_times: When something was appended.
        cluster_number: See `SimCluster.number`.
        offered: Every batch that came to be appended, refused ones too, and how often it came.
    """

    __slots__ = ("_cluster", "append_times", "cluster_number", "created_at", "offered")

    def __init__(
        self, topic: str, index: int, replicas: Sequence[int], cluster: SimCluster
    ) -> None:
        super().__init__(topic, index, replicas, cluster._live)
        self._cluster = cluster
        self.created_at: float = cluster.loop.time()
        self.append_times: list[float] = []
        self.cluster_number: int = cluster.number
        self.offered: dict[bytes, int] = {}

    def append(
        self, data: bytes | memoryview, batch: RecordBatch, config: TopicConfig, now_ms: int
    ) -> Appended:
        """Append and report."""
        offered = bytes(data)
        self.offered[offered] = self.offered.get(offered, 0) + 1
        appended = super().append(data, batch, config, now_ms)
        self.append_times.append(self._cluster.loop.time())
        what = "appends" if appended.is_new else "knows"
        sequence = f" seq {batch.producer_id}/{batch.producer_epoch}/{batch.base_sequence}"
        self._cluster.trace(
            f"b{self.leader} {what} {self.topic}-{self.index} "
            f"@{appended.base_offset}..{appended.end_offset - 1}"
            + (sequence if batch.producer_id >= 0 else "")
        )
        return appended

    def expire_producers(self, settings: ClusterSettings, now_ms: int) -> list[int]:
        """Expire and report."""
        expired = super().expire_producers(settings, now_ms)
        self._cluster.producers_expired += len(expired)
        for producer_id in expired:
            where = f"{self.topic}-{self.index}"
            self._cluster.trace(f"b{self.leader} expires producer {producer_id} in {where}")
        return expired

    def append_marker(self, marker: Marker, now_ms: int) -> int:
        """Append and report."""
        end_offset = super().append_marker(marker, now_ms)
        self._cluster.markers_written += 1
        what = "commits" if marker.is_commit else "aborts"
        self._cluster.trace(
            f"b{self.leader} {what} {self.topic}-{self.index} @{end_offset - 1}"
            f" {marker.producer_id}/{marker.epoch}"
        )
        return end_offset
