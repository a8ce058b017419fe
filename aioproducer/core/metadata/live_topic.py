"""State of one topic in use: last use, last response, and why it cannot be written to.

`LiveTopic.update` applies one topic of a metadata response (errors, topic ids of KIP-516, leader
epochs of KIP-320).

Invariant: `last_seen` is kept while the topic is missing from the cluster, so that leader epochs do
not go back when a lagging broker reports the topic as unknown for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioproducer.core.metadata.cluster import ZERO_ID, merge_partitions
from aioproducer.core.sending.reasons import NO_REASON, Reason
from aioproducer.errors import (
    BrokerError,
    InvalidTopicError,
    KafkaError,
    ProtocolError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    error_for_code,
    error_from_code,
)
from aioproducer.errors.advice import ADVICE
from aioproducer.errors.authorization import this_principal, with_access
from aioproducer.types import NO_LEADER, TopicMetadata

if TYPE_CHECKING:
    from aioproducer.wire.messages.metadata import MetadataResponseTopic

_NOT_ASKED = "no broker could be asked yet"
_PERMANENT = (InvalidTopicError, TopicAuthorizationFailedError)
_OLDER_ANSWERS_TO_BE_SURE = 5


@dataclass(slots=True)
class LiveTopic:
    """A topic in use.

    `asked`: a request has included it. `unsettled`: another request is needed soon.
    `older_answers`: number of responses with lower leader epochs than known that may be true.
    `before_hint`: the topic before a leader hint by name, whose leader epoch may be that of a
    deleted topic of this name; None once a response confirmed it. `last_seen` is from the last
    response without an error.
    """

    name: str
    used_at: float
    asked: bool = False
    error: KafkaError | None = None
    unsettled: bool = False
    partition_errors: Mapping[int, int] = field(default_factory=dict)
    last_seen: TopicMetadata | None = None
    older_answers: int = 0
    before_hint: TopicMetadata | None = None
    principal: Callable[[], str] = this_principal

    @property
    def failure(self) -> KafkaError | None:
        """The error, if it is permanent."""
        return self.error if isinstance(self.error, _PERMANENT) else None

    def update(
        self,
        described: MetadataResponseTopic,
        current: TopicMetadata | None,
        nodes: Container[int],
        *,
        reliable_epochs: bool,
    ) -> TopicMetadata | None:
        """Apply a response; return the topic for the cluster, or None to remove it.

        If the response changes nothing, return `current` itself.
        """
        if described.error_code:
            self._fail(described.error_code)
            return None
        previous = self.last_seen
        if previous is not None and self._is_superseded(described, previous):
            self.older_answers, self.before_hint = 0, None
            previous = None
        try:
            partitions = merge_partitions(
                self.name, described.partitions, previous, reliable_epochs=reliable_epochs
            )
        except ProtocolError as error:
            self.error, self.unsettled = error, True
            return current
        codes = {p.partition_index: p.error_code for p in described.partitions if p.error_code}
        self.partition_errors = codes
        self.unsettled = any(error_for_code(code).refreshes_metadata for code in codes.values())
        if not partitions:
            self.error = KafkaError("the topic has no partitions yet", topic=self.name)
            self.unsettled = True
            return None
        self.error = None
        topic = TopicMetadata(
            self.name, described.topic_id, partitions, described.is_internal, nodes
        )
        self.last_seen = current if current == topic else topic
        return self.last_seen

    def _is_superseded(self, described: MetadataResponseTopic, previous: TopicMetadata) -> bool:
        """Return whether a response is believed although its leader epochs are lower than known.

        It is if the topic was created anew, which only the epochs show without topic ids (Kafka
        before 2.8). Or the known one is that of a deleted topic, from a late response by name: then
        epochs before that hint count. One response may come from a lagging broker, so several in a
        row are needed; a newer one corrects what they have changed.
        """
        if described.topic_id not in {ZERO_ID, previous.topic_id}:
            return True
        if not _has_older_epochs(described, previous):
            self.older_answers, self.before_hint = 0, None
            return False
        before = self.before_hint
        may_be_wrong = before is not None and not _has_older_epochs(described, before)
        if may_be_wrong or described.topic_id == previous.topic_id == ZERO_ID:
            self.older_answers += 1
        return self.older_answers >= _OLDER_ANSWERS_TO_BE_SURE

    def explain_absence(self, *, allow_auto_create: bool) -> Reason:
        """Return why the cluster does not have the topic."""
        error = self.error
        if error is None:
            return Reason("no answer has described it" if self.asked else _NOT_ASKED)
        if isinstance(error, UnknownTopicOrPartitionError):
            key = "topic-missing" if allow_auto_create else "topic-not-created-here"
            answer = f"the topic does not exist, a broker answered {error.error_name}"
            return Reason(answer, ADVICE[key])
        code = f"{error.error_name}: " if isinstance(error, BrokerError) else ""
        return Reason(f"a broker answered: {code}{error.message}", error.advice)

    def explain_partition(
        self,
        topic: TopicMetadata,
        partition: int,
        nodes: Container[int],
        unusable: Mapping[int, str],
    ) -> Reason:
        """Return why a partition of a known topic cannot be written to; empty if it can."""
        if not 0 <= partition < len(topic.partitions):
            return Reason(
                f"the topic has {len(topic.partitions)} partition(s)", ADVICE["partition-unknown"]
            )
        leader = topic.partitions[partition].leader
        code = self.partition_errors.get(partition)
        because = f" ({error_for_code(code).error_name})" if code else ""
        if leader == NO_LEADER:
            return Reason(
                f"partition {partition} has no leader{because}", ADVICE["partition-without-leader"]
            )
        if leader in nodes:
            return NO_REASON
        if leader in unusable:
            return Reason(
                f"its leader, node {leader}, advertises {unusable[leader]}: no valid address",
                ADVICE["advertised-unreachable"],
            )
        return Reason(f"its leader, node {leader}, is not a known broker{because}")

    def _fail(self, code: int) -> None:
        error = with_access(error_from_code(code, topic=self.name), "Metadata", self.principal)
        self.error = error
        self.unsettled = error.refreshes_metadata
        without_id = self.last_seen is None or self.last_seen.topic_id == ZERO_ID
        if isinstance(error, UnknownTopicOrPartitionError) and without_id:
            # Without topic ids this is the only sign of a topic that may be recreated.
            self.last_seen = None


def _has_older_epochs(described: MetadataResponseTopic, known: TopicMetadata) -> bool:
    """Return whether a partition of a response has a lower leader epoch than known."""
    return any(
        0 <= each.partition_index < len(known.partitions)
        and 0 <= each.leader_epoch < known.partitions[each.partition_index].leader_epoch
        for each in described.partitions
    )
