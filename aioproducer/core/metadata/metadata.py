"""What the producer knows of the cluster, and when it must ask again.

Owns: the live topics and their idle clocks (KIP-526), the `Cluster`, the schedule
of fetches (age, request, new topic, backoff), leader hints (KIP-951), and the reasons a topic or
partition is missing. Must not know: connections, futures, who waits.
Invariants: `version` grows with every change of the cluster; an answer about some topics costs what
it describes, however many there are; at most one fetch is out, and while
it is out `next_update_at` is infinite; an answer with no broker in it, or one that is an error as a
whole, leaves the cluster as it was and counts as a failure; a leader epoch never goes back while
the topic stays the same one (KIP-320, KIP-516).
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
from aioproducer.errors.authorization import this_principal, with_access
from aioproducer.types import NO_EPOCH, Node, PartitionMetadata, TopicMetadata, TopicPartition

if TYPE_CHECKING:
    from random import Random
    from uuid import UUID

    from aioproducer._util.backoff import ExponentialBackoff
    from aioproducer.wire.messages import (
        MetadataResponse,
        MetadataResponseTopic,
        NodeEndpoint,
    )

_NOT_ASKED_FOR = "the topic is not among those asked for"
_FATAL = (AuthenticationError, UnsupportedVersionError)


@dataclass(frozen=True, slots=True)
class MetadataFetch:
    """What to ask a broker for.

    Attributes:
        topics: the topics to ask for.
        allow_auto_create: whether that may create them.
        partial: whether these are some of the topics in use only.
        early: whether these are new topics, which do not wait for the backoff of the others.
    """

    topics: list[str]
    allow_auto_create: bool
    partial: bool = False
    early: bool = False


NEVER_S = 1e12
"""An age nothing reaches."""


class Metadata:
    """The metadata state machine.

    Args:
        max_age_s: refresh everything when the last full answer is older.
        max_idle_s: forget a topic nobody used for longer.
        backoff: the pause between fetches that fail or bring nothing new.
        allow_auto_create: whether asking for a topic may create it (KIP-487).
        rng: for the jitter of the backoff.
        principal: says whom brokers take this client for.
    """

    __slots__ = (
        "_allow_auto_create",
        "_allowed_at",
        "_backoff",
        "_failures",
        "_fetch",
        "_full_answer_at",
        "_last_failure",
        "_max_age",
        "_max_idle",
        "_new",
        "_pending",
        "_principal",
        "_rng",
        "_topic_ids",
        "_topics",
        "_unchanged_answers",
        "_wanted",
        "cluster",
        "explain_connections",
        "fatal_error",
        "last_answer_is_full",
        "on_event",
        "on_other_cluster",
        "on_recreated",
        "version",
    )

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
        """Of `cluster`; the fast lane recognizes a version by the object in this slot."""
        self.last_answer_is_full: bool = False
        """Whether the last good answer was about every topic in use, not only some of them."""
        self.fatal_error: KafkaError | None = None
        """Why no answer can be had (authentication, versions), until the next good answer."""
        self.on_event: Callable[[], None] | None = None
        """Called when a fetch became wanted, or a leader hint changed the cluster."""
        self.on_recreated: Callable[[str], None] | None = None
        """Called with a topic that has another id than before: its log began anew (KIP-516)."""
        self.on_other_cluster: Callable[[], None] | None = None
        """Called when the answers come from another cluster than before (KIP-78)."""
        self.explain_connections: Callable[[], Reason] | None = None
        """Says which brokers cannot be reached and why; it goes into `explain`."""
        self._max_age = max_age_s
        self._max_idle = max_idle_s
        self._backoff = backoff
        self._allow_auto_create = allow_auto_create
        self._rng = rng
        self._principal = principal
        self._topics: dict[str, LiveTopic] = {}
        self._topic_ids: dict[str, UUID] = {}  # outlive the topics, as sequences do
        self._pending: dict[str, None] = {}
        self._new: dict[str, None] = {}  # those of the pending that no request has asked for
        self._fetch: MetadataFetch | None = None
        self._wanted = True
        self._full_answer_at = -inf
        self._allowed_at = -inf
        self._failures = 0
        self._last_failure: KafkaError | None = None
        self._unchanged_answers = 0

    # -- reading ---------------------------------------------------------------------------------

    @property
    def refreshed_at(self) -> float:
        """Loop time of the last answer about everything; -inf before the first."""
        return self._full_answer_at

    @property
    def topics_in_use(self) -> Set[str]:
        """The names of the topics that every full request asks for."""
        return self._topics.keys()

    def topic(self, name: str) -> TopicMetadata | None:
        """A topic of the cluster, if it is known."""
        return self.cluster.topics.get(name)

    def leader_of(self, topic_partition: TopicPartition) -> int | None:
        """The leader's node id; None when unknown or when there is none."""
        return self.cluster.leader(*topic_partition)

    def leader_epoch(self, topic: str, partition: int) -> int:
        """The leader epoch, -1 when unknown."""
        known = self.cluster.partition(topic, partition)
        return NO_EPOCH if known is None else known.leader_epoch

    def topic_error(self, name: str) -> KafkaError | None:
        """What the last answer had against the topic, None after a good one."""
        live = self._topics.get(name)
        return None if live is None else live.error

    def topic_failure(self, name: str) -> KafkaError | None:
        """The permanent reason a topic cannot be written to, as last answered."""
        live = self._topics.get(name)
        return None if live is None else live.failure

    def absence(self, topic: str, partition: int | None) -> KafkaError | None:
        """What the last answer had against a missing topic or partition, None before an answer."""
        known = self.topic(topic)
        if known is None:
            return self.topic_error(topic)
        if partition is None or partition < len(known.partitions):
            return None
        return InvalidPartitionError(
            f"the topic has {len(known.partitions)} partition(s)", topic=topic
        )

    def explain(self, topic: str, partition: int | None) -> Reason:
        """Why a topic or partition is missing or cannot be written to; empty when nothing is."""
        return all_of(self._explain_topic(topic, partition), self.explain_failures())

    def explain_failures(self) -> Reason:
        """What goes wrong with asking at all; empty when nothing does."""
        request, failure = NO_REASON, self._last_failure
        if failure is not None:
            times = "" if self._failures == 1 else f" ({self._failures} in a row)"
            text = f"the last metadata request failed{times}: {failure.without_advice()}"
            request = Reason(text, failure.advice)
        explain = self.explain_connections
        return all_of(request, NO_REASON if explain is None else explain())

    # -- what is wanted --------------------------------------------------------------------------

    def add_topic(self, name: str, now: float) -> None:
        """Keeps a topic alive; a new one is asked for at once (after a request that is out)."""
        live = self._topics.get(name)
        if live is not None:
            live.used_at = now
            return
        check_topic_name(name)
        self._topics[name] = LiveTopic(
            name, used_at=now, last_seen=self.topic(name), principal=self._principal
        )
        self._pending[name] = self._new[name] = None
        self._unchanged_answers = 0
        self._notify()

    def request_topic(self, name: str, now: float) -> None:
        """Asks for one topic again, as soon as the backoff allows.

        A permanent failure is forgotten with it: permissions may have been granted since.
        """
        self.add_topic(name, now)
        live = self._topics[name]
        if live.failure is not None:
            live.error = None
        if name not in self._pending:
            self._pending[name] = None
            self._notify()

    def request_update(self, now: float) -> int:
        """Asks for a refresh of everything as soon as the backoff allows; returns `version`."""
        if not self._wanted:
            self._wanted = True
            self._notify()
        return self.version

    def outdate(self) -> None:
        """Asks for a refresh as if the last answer were too old."""
        self._full_answer_at = -inf
        self._notify()

    def rebootstrap(self) -> None:
        """Starts over from the bootstrap servers (KIP-899); what is known stays till then."""
        self._fetch = None
        self._wanted = True
        self._notify()

    def next_update_at(self, now: float) -> float:
        """The loop time at which to call `start_request`; inf while one is out."""
        if self._fetch is not None:
            return inf
        if self._new and not self._failures:
            return now
        wanted = self._wanted or self._pending
        due_at = now if wanted else self._full_answer_at + self._max_age
        return max(due_at, self._allowed_at, now)

    def start_request(self, now: float) -> MetadataFetch:
        """Says what to ask for; the caller answers with `on_response` or `on_failure`."""
        aged = self._full_answer_at + self._max_age <= now
        early = now < self._allowed_at and bool(self._new)
        partial = early or (not self._wanted and not aged)
        if aged:
            self._unchanged_answers = 0
        wanted = self._new if early else self._pending if partial else self._topics
        names = self._still_in_use(wanted, now)
        self._new.clear()
        self._fetch = MetadataFetch(names, self._allow_auto_create, partial, early)
        return self._fetch

    # -- answers ---------------------------------------------------------------------------------

    def on_response(
        self, response: MetadataResponse, now: float, *, reliable_epochs: bool = True
    ) -> bool:
        """Takes an answer in; False when it counts as a failure.

        Args:
            response: what the broker answered.
            now: loop time.
            reliable_epochs: False for answers below v9, whose leader epochs may be stale
                (KAFKA-9212).
        """
        nodes = usable_nodes(response.brokers[:MAX_BROKERS])
        refusal = _refusal(response, nodes)
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
            self._wanted = False
            self._full_answer_at = now
        changes = self._take_topics(response.topics, nodes, reliable_epochs=reliable_epochs)
        if self.last_answer_is_full:
            changes |= {name: None for name in cluster.topics if name not in self._topics}
        elif any(self._has_moved(topic) for topic in changes.values()):
            self._wanted = True  # with others, as when a broker stops
        if elsewhere:
            changes = dict.fromkeys(cluster.topics) | changes
        self._failures, self._last_failure, self.fatal_error = 0, None, None
        moved = self._update(changes, nodes, cluster_id, response.controller_id)
        if fetch is None or not fetch.early:
            self._allow_next_after_answer(now, changed=moved)
        return True

    def on_failure(self, error: KafkaError, now: float) -> None:
        """The request failed, or none could be made: another may follow after the backoff."""
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
        now: float,
    ) -> set[TopicPartition]:
        """Leaders and epochs named by a produce response (KIP-951); returns what moved.

        A hint counts only with a newer epoch than the known one and with a node that is known or
        described beside it: one that names the current leader again would make a hot loop.
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
            return set()
        topics = {
            name: self.cluster.topics[name].replacing(partitions, all_nodes)
            for name, partitions in moved.items()
        }
        for name, topic in topics.items():
            if name in self._topics:
                self._topics[name].last_seen = topic
        self._update(topics, all_nodes, self.cluster.cluster_id, self.cluster.controller_id)
        self._notify()
        return {TopicPartition(name, p) for name, partitions in moved.items() for p in partitions}

    # -- private ---------------------------------------------------------------------------------

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
        """Changes the cluster; whether that brought anything new."""
        self.version += 1  # first: what is read during an interrupted change is read again
        return self.cluster.update(
            topics, nodes=nodes, cluster_id=cluster_id, controller_id=controller_id
        )

    def _still_in_use(self, names: Iterable[str], now: float) -> list[str]:
        """Which of these topics to ask for; the idle ones are forgotten (KIP-526)."""
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
        """Nothing known holds there: ids, leader epochs, sequences, who leads what."""
        self._pending.update(dict.fromkeys(self._topics))
        self._topic_ids.clear()
        for live in self._topics.values():
            live.last_seen = None
        if self.on_other_cluster is not None:
            self.on_other_cluster()

    def _take_topics(
        self,
        described: Iterable[MetadataResponseTopic],
        nodes: Mapping[int, Node],
        *,
        reliable_epochs: bool,
    ) -> dict[str, TopicMetadata | None]:
        """The answered topics as the cluster shall have them; None for those taken out.

        Topics we did not ask for are passed over: Metadata v0 answers with all of them.
        """
        taken: dict[str, TopicMetadata | None] = {}
        for entry in described:
            live = self._topics.get(entry.name) if entry.name is not None else None
            if live is None:
                continue
            self._pending.pop(live.name, None)
            taken[live.name] = live.take(
                entry, self.topic(live.name), nodes, reliable_epochs=reliable_epochs
            )
            if live.unsettled:
                self._pending[live.name] = None
            self._note_topic_id(taken[live.name])
        return taken

    def _has_moved(self, topic: TopicMetadata | None) -> bool:
        """Whether a partition has another leader than the cluster says."""
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
        """Sets the pause: longer and longer while answers bring nothing new (KIP-580)."""
        self._unchanged_answers = 0 if changed else self._unchanged_answers + 1
        attempt = max(self._unchanged_answers - 1, 0)
        self._allowed_at = now + self._backoff.delay(attempt, self._rng)

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
        return live.explain_partition(topic, partition, self.cluster.nodes)


def _refusal(response: MetadataResponse, nodes: Mapping[int, Node]) -> KafkaError | None:
    """Why an answer as a whole says nothing; None for one that does."""
    if response.error_code:
        return error_from_code(response.error_code)
    described = len(response.brokers)
    if described > MAX_BROKERS:
        return too_many_brokers(described)
    if not nodes and described:
        return KafkaError(f"none of the {described} brokers in an answer has a valid address")
    return None if nodes else KafkaError("a broker answered with an empty broker list")
