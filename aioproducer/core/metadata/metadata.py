"""Metadata: topics in use, the `Cluster`, and the schedule of metadata requests.

It expires idle topics (KIP-526), schedules requests (age, demand, new topic, backoff), applies
leader hints (KIP-951) and explains why a topic or partition is missing.

Invariants: at most one request is in flight, and `next_update_at` is infinite meanwhile; a response
without brokers, or with a top-level error, does not change the cluster and counts as a failure; a
leader epoch never goes back while the topic keeps its id (KIP-320, KIP-516).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from aioproducer.core.metadata.cluster import (
    MAX_BROKERS,
    ZERO_ID,
    Cluster,
    check_topic_name,
    too_many_brokers,
    unusable_places,
    usable_nodes,
)
from aioproducer.core.metadata.live_topic import LiveTopic
from aioproducer.core.sending.reasons import NO_REASON, Reason, all_of
from aioproducer.errors import (
    AuthenticationError,
    InvalidPartitionError,
    KafkaError,
    UnsupportedVersionError,
    error_from_code,
)
from aioproducer.errors.advice import ADVICE
from aioproducer.errors.authorization import this_principal, with_access
from aioproducer.types import NO_EPOCH, Node, PartitionMetadata, TopicMetadata, TopicPartition

if TYPE_CHECKING:
    from random import Random
    from uuid import UUID

    from aioproducer._util.backoff import ExponentialBackoff
    from aioproducer.wire.messages.common import NodeEndpoint
    from aioproducer.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

_NOT_ASKED_FOR = "the topic is not among those asked for"
_FATAL = (AuthenticationError, UnsupportedVersionError)


@dataclass(frozen=True, slots=True)
class MetadataFetch:
    """Content of a metadata request.

    `partial`: only some of the topics in use. `early`: new topics, which do not wait for the
    backoff of the others.
    """

    topics: list[str]
    allow_auto_create: bool
    partial: bool
    early: bool


NEVER_S = 1e12
"""An age that is never reached."""


class Metadata:
    """The metadata state machine.

    All topics are refreshed when the last full response is older than `max_age_s`; a topic that was
    not used for `max_idle_s` expires.
    """

    __slots__ = ("__dict__", "version")  # native code reads the slot of the version

    def __init__(
        self,
        *,
        max_age_s: float,
        max_idle_s: float,
        backoff: ExponentialBackoff,
        allow_auto_create: bool,
        rng: Random,
        principal: Callable[[], str] = this_principal,
    ) -> None:
        self.cluster: Cluster = Cluster()
        self.version: int = 0
        """Version of `cluster`; the fast path compares the identity of this object."""
        self.last_answer_is_full: bool = False
        """True if the last good response had every topic in use, not only some of them."""
        self.fatal_error: KafkaError | None = None
        """A permanent error (authentication, versions), until the next good response."""
        self.on_event: Callable[[], None] | None = None
        """Called when a request became due, or a leader hint changed the cluster."""
        self.on_recreated: Callable[[str], None] | None = None
        """Called with a topic whose id changed: it was recreated, with a new log (KIP-516)."""
        self.on_other_cluster: Callable[[], None] | None = None
        """Called when the cluster id changes (KIP-78)."""
        self.explain_connections: Callable[[], Reason] | None = None
        """Returns which brokers cannot be reached and why, for `explain`."""
        self._max_age = max_age_s
        self._max_idle = max_idle_s
        self._backoff = backoff
        self._allow_auto_create = allow_auto_create
        self._rng = rng
        self._principal = principal
        self._topics: dict[str, LiveTopic] = {}
        self._topic_ids: dict[str, UUID] = {}  # outlive the topics, as sequences do
        self._pending: dict[str, None] = {}
        self._new: dict[str, None] = {}  # pending topics that were in no request yet
        self._fetch: MetadataFetch | None = None
        self._wanted = True
        self.answered_at: float = -inf
        """Loop time of the last full response."""
        self.refreshed_at: float = -inf
        """The same, but -inf after `invalidate`."""
        self._allowed_at = -inf
        self._failures = 0
        self._last_failure: KafkaError | None = None
        self._unchanged_answers: int = 0
        self._unusable: Mapping[int, str] = {}

    # -- reading ---------------------------------------------------------------------------------

    @property
    def is_awaited(self) -> bool:
        """Whether a full refresh is wanted, or a request is in flight."""
        return self._wanted or self._fetch is not None

    @property
    def topics_in_use(self) -> Set[str]:
        """The names of the topics of every full request."""
        return self._topics.keys()

    def topic(self, name: str) -> TopicMetadata | None:
        """Return a topic of the cluster, or None if it is unknown."""
        return self.cluster.topics.get(name)

    def leader_of(self, topic_partition: TopicPartition) -> int | None:
        """Return the leader's node id; None when unknown or when there is none."""
        return self.cluster.leader(*topic_partition)

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the leader epoch, -1 when unknown."""
        known = self.cluster.partition(topic, partition)
        return NO_EPOCH if known is None else known.leader_epoch

    def topic_error(self, name: str) -> KafkaError | None:
        """Return the topic's error in the last response, None after a good one."""
        live = self._topics.get(name)
        return None if live is None else live.error

    def topic_failure(self, name: str) -> KafkaError | None:
        """Return the topic's permanent error in the last response, if any."""
        live = self._topics.get(name)
        return None if live is None else live.failure

    def absence(self, topic: str, partition: int | None) -> KafkaError | None:
        """Return the error of a missing topic or partition, None before a response."""
        known = self.topic(topic)
        if known is None:
            return self.topic_error(topic)
        if partition is None or partition < len(known.partitions):
            return None
        return InvalidPartitionError(
            f"the topic has {len(known.partitions)} partition(s)", topic=topic
        )

    def explain(self, topic: str, partition: int | None) -> Reason:
        """Return why a topic or partition is missing or cannot be written to, else empty."""
        return all_of(self._explain_topic(topic, partition), self.explain_failures())

    def explain_failures(self) -> Reason:
        """Return why metadata requests fail; empty if they do not."""
        request, failure = NO_REASON, self._last_failure
        if failure is not None:
            times = "" if self._failures == 1 else f" ({self._failures} in a row)"
            text = f"the last metadata request failed{times}: {failure.without_advice()}"
            request = Reason(text, failure.advice)
        explain = self.explain_connections
        return all_of(request, NO_REASON if explain is None else explain())

    # -- what is wanted --------------------------------------------------------------------------

    def add_topic(self, name: str, now: float) -> None:
        """Mark a topic as used; request a new one at once (after a request in flight)."""
        live = self._topics.get(name)
        if live is not None:
            live.used_at = now
            return
        check_topic_name(name)
        name = str.__str__(name)  # of an enumeration, whose members are formatted otherwise, too
        self._topics[name] = LiveTopic(
            name, used_at=now, last_seen=self.topic(name), principal=self._principal
        )
        self._pending[name] = self._new[name] = None
        self._unchanged_answers = 0
        self._notify()

    def request_topic(self, name: str, now: float) -> None:
        """Request one topic again, as soon as the backoff allows.

        This clears a permanent error: permissions may have been granted since.
        """
        self.add_topic(name, now)
        live = self._topics[name]
        if live.failure is not None:
            live.error = None
        if name not in self._pending:
            self._pending[live.name] = None
            self._notify()

    def request_update(self) -> None:
        """Request a full refresh as soon as the backoff allows."""
        if not self._wanted:
            self._wanted = True
            self._notify()

    def invalidate(self) -> None:
        """Request a full refresh, as if the last response were too old."""
        self.refreshed_at = -inf
        self._notify()

    def rebootstrap(self) -> None:
        """Rebootstrap (KIP-899); the metadata is kept until the next response."""
        self._fetch = None
        self._wanted = True
        self._notify()

    def next_update_at(self, now: float) -> float:
        """Return the loop time at which to call `start_request`; inf while one is in flight."""
        if self._fetch is not None:
            return inf
        if self._new and not self._failures:
            return now
        wanted = self._wanted or self._pending
        due_at = now if wanted else self.refreshed_at + self._max_age
        return max(due_at, self._allowed_at, now)

    def start_request(self, now: float) -> MetadataFetch:
        """Return the request to send; the caller reports `on_response` or `on_failure`."""
        aged = self.refreshed_at + self._max_age <= now
        early = now < self._allowed_at and bool(self._new)
        partial = early or (not self._wanted and not aged)
        if aged:
            self._unchanged_answers = 0
        wanted = self._new if early else self._pending if partial else self._topics
        names = self._still_in_use(wanted, now)
        self._new.clear()
        # What is requested from now on is not in the response.
        for name in names:
            self._pending.pop(name, None)
        if not partial:
            self._wanted = False
        self._fetch = MetadataFetch(names, self._allow_auto_create, partial, early)
        return self._fetch

    # -- answers ---------------------------------------------------------------------------------

    def on_response(
        self, response: MetadataResponse, now: float, *, reliable_epochs: bool = True
    ) -> bool:
        """Apply a response; return False if it counts as a failure.

        Leader epochs of responses below v9 may be stale (KAFKA-9212): `reliable_epochs` is False.
        """
        nodes = usable_nodes(response.brokers[:MAX_BROKERS])
        self._unusable = unusable_places(response.brokers[:MAX_BROKERS], nodes)
        refusal = _refusal(response, nodes, self._unusable)
        if refusal is not None:
            self.on_failure(with_access(refusal, "Metadata", self._principal), now)
            return False
        cluster, fetch, self._fetch = self.cluster, self._fetch, None
        cluster_id = response.cluster_id or cluster.cluster_id
        elsewhere = cluster.cluster_id not in {None, cluster_id}
        if elsewhere:
            self._enter_other_cluster()
        self.last_answer_is_full = fetch is None or not fetch.partial
        if self.last_answer_is_full:
            self.refreshed_at = now
            self.answered_at = now
        changes = self._update_topics(response.topics, nodes, reliable_epochs=reliable_epochs)
        asked = self._topics if elsewhere or fetch is None else fetch.topics
        self._pending.update({name: None for name in asked if name not in changes})
        if self.last_answer_is_full:
            changes |= {name: None for name in cluster.topics if name not in self._topics}
        elif any(self._has_moved(topic) for topic in changes.values()):
            self._wanted = True  # other leaders may have moved as well, as when a broker stops
        if elsewhere:
            changes = dict.fromkeys(cluster.topics) | changes
        self._failures, self._last_failure, self.fatal_error = 0, None, None
        moved = self._update(changes, nodes, cluster_id, response.controller_id)
        if fetch is None or not fetch.early:
            self._allow_next_after_answer(now, changed=moved)
        return True

    def on_failure(self, error: KafkaError, now: float) -> None:
        """Handle a request that failed or could not be sent; back off before the next one."""
        if self._fetch is not None:
            self._wanted |= not self._fetch.partial
            self._pending.update(dict.fromkeys(self._fetch.topics))
            self._fetch = None
        self._last_failure = error
        self._unchanged_answers = 0
        self._allowed_at = now + self._backoff.delay(self._failures, self._rng)
        self._failures += 1
        if isinstance(error, _FATAL):
            self.fatal_error = error

    def on_leader_hints(
        self,
        hints: Mapping[TopicPartition, tuple[int, int]],
        nodes: Iterable[NodeEndpoint],
        *,
        by_name: bool = False,
    ) -> bool:
        """Apply the leader hints of a Produce response (KIP-951); return whether a leader moved.

        Hints `by_name` have no topic id, so they may be about a deleted topic. A hint is applied
        only if its epoch is newer than the known one and its node is known or included: a hint
        with the current leader would cause a retry loop without a backoff.
        """
        leaders = {leader for leader, _ in hints.values()}
        described = usable_nodes(each for each in nodes if each.node_id in leaders)
        all_nodes = dict(self.cluster.nodes)
        moved: dict[str, dict[int, PartitionMetadata]] = {}
        for topic_partition, (leader, epoch) in hints.items():
            known = self.cluster.partition(*topic_partition)
            if known is None or epoch <= known.leader_epoch:
                continue
            if leader in described and (leader in all_nodes or len(all_nodes) < MAX_BROKERS):
                all_nodes[leader] = described[leader]
            if leader not in all_nodes:
                continue
            changed = known._replace(leader=leader, leader_epoch=epoch)
            moved.setdefault(topic_partition.topic, {})[known.partition] = changed
        if not moved:
            return False
        topics = {
            name: self.cluster.topics[name].replacing(partitions, all_nodes)
            for name, partitions in moved.items()
        }
        for name, topic in topics.items():
            live = self._topics.get(name)
            if live is not None:
                if by_name:
                    live.before_hint = live.before_hint or live.last_seen
                live.last_seen, live.older_answers = topic, 0  # those came before the hint
        self._update(topics, all_nodes, self.cluster.cluster_id, self.cluster.controller_id)
        self._notify()
        return True

    def _notify(self) -> None:
        if self.on_event is not None:
            self.on_event()

    def _update(
        self,
        topics: Mapping[str, TopicMetadata | None],
        nodes: Mapping[int, Node],
        cluster_id: str | None,
        controller_id: int,
    ) -> bool:
        """Change the cluster; return whether topics or nodes changed."""
        self.version += 1  # first, so that readers of an interrupted change read again
        return self.cluster.update(
            topics, nodes=nodes, cluster_id=cluster_id, controller_id=controller_id
        )

    def _still_in_use(self, names: Iterable[str], now: float) -> list[str]:
        """Return which of these topics to request, and expire the idle ones (KIP-526)."""
        used = []
        for name in list(names):
            live = self._topics[name]
            if now - live.used_at > self._max_idle:
                del self._topics[name]
                self._pending.pop(name, None)
            else:
                live.asked = True
                used.append(name)
        return used

    def _enter_other_cluster(self) -> None:
        """Drop topic ids, leader epochs and sequences, which belong to the previous cluster."""
        self._topic_ids.clear()
        for live in self._topics.values():
            live.last_seen = None
        if self.on_other_cluster is not None:
            self.on_other_cluster()

    def _update_topics(
        self,
        described: Iterable[MetadataResponseTopic],
        nodes: Mapping[int, Node],
        *,
        reliable_epochs: bool,
    ) -> dict[str, TopicMetadata | None]:
        """Return the topics of a response for the cluster; None for those to remove.

        Topics that are not in use are ignored: Metadata v0 responses can have all topics. Of a
        topic that comes again, the first entry counts: each takes time for all known partitions.
        """
        updated: dict[str, TopicMetadata | None] = {}
        for entry in described:
            live = self._topics.get(entry.name) if entry.name is not None else None
            if live is None or live.name in updated:
                continue
            updated[live.name] = live.update(
                entry, self.topic(live.name), nodes, reliable_epochs=reliable_epochs
            )
            if live.unsettled:
                self._pending[live.name] = None
            self._note_topic_id(updated[live.name])
        return updated

    def _has_moved(self, topic: TopicMetadata | None) -> bool:
        """Return whether a partition has another leader than in the cluster."""
        before = None if topic is None else self.topic(topic.name)
        return topic is not None and before is not None and topic.has_moved_since(before)

    def _note_topic_id(self, topic: TopicMetadata | None) -> None:
        if topic is None or topic.topic_id == ZERO_ID:
            return
        before = self._topic_ids.get(topic.name, topic.topic_id)
        self._topic_ids[topic.name] = topic.topic_id
        if before != topic.topic_id and self.on_recreated is not None:
            self.on_recreated(topic.name)

    def _allow_next_after_answer(self, now: float, *, changed: bool) -> None:
        """Set the backoff, which grows while responses change nothing (KIP-580)."""
        self._unchanged_answers = 0 if changed else self._unchanged_answers + 1
        self._allowed_at = now + self._backoff.delay(self._unchanged_answers - 1, self._rng)

    def _explain_topic(self, name: str, partition: int | None) -> Reason:
        live = self._topics.get(name)
        topic = self.topic(name)
        if live is None:
            return NO_REASON if topic is not None else Reason(_NOT_ASKED_FOR)
        if topic is None and live.error is None and self._fetch is not None and live.asked:
            return Reason("the request for it is not answered yet")
        if topic is None:
            return live.explain_absence(allow_auto_create=self._allow_auto_create)
        if partition is None:
            return NO_REASON
        return live.explain_partition(topic, partition, self.cluster.nodes, self._unusable)


def _refusal(
    response: MetadataResponse, nodes: Mapping[int, Node], unusable: Mapping[int, str]
) -> KafkaError | None:
    """Return why a response as a whole is invalid; None for a valid one."""
    if response.error_code:
        return error_from_code(response.error_code)
    described = len(response.brokers)
    if described > MAX_BROKERS:
        return too_many_brokers(described)
    if not nodes and unusable:
        node_id, place = next(iter(unusable.items()))
        return KafkaError(
            f"none of the {described} brokers in an answer has a valid address: node {node_id} "
            f"advertises {place}",
            advice=ADVICE["advertised-unreachable"],
        )
    return None if nodes else KafkaError("a broker answered with an empty broker list")
