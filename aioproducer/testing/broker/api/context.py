"""The context of every API handler, and its results besides a response."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from aioproducer import errors
from aioproducer.testing.broker.faults import ErrorAnswer
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.testing.broker.shared_state import SharedState
from aioproducer.testing.broker.topics import Partition, Topic
from aioproducer.types import TopicPartition
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.schema import Message

_Value = TypeVar("_Value")

ERRORS_WITH_LEADER = frozenset(
    {errors.NotLeaderOrFollowerError.code, errors.FencedLeaderEpochError.code}
)
"""The errors with which a broker names the present leader (KIP-951)."""

PARTITION_ERRORS = frozenset(
    error.code
    for error in (
        errors.UnknownTopicOrPartitionError,
        errors.OffsetMetadataTooLargeError,
        errors.TopicAuthorizationFailedError,
        errors.UnknownTopicIdError,
    )
)
"""What coordinators find wrong with single partitions; any other error is the whole request's."""


class DisconnectError(Exception):
    """The broker closes the connection without an answer; the text says why."""


class LongPoll(NamedTuple):
    """Nothing to answer yet: ask again when a watched partition changes, or at the deadline.

    Attributes:
        deadline_ms: When an answer has to be given.
        watching: The partitions of which a change may allow one.
        resume: What then goes on with the request; None to carry it out from the start.
    """

    deadline_ms: int
    watching: frozenset[TopicPartition]
    resume: Callable[[RequestContext], Message | LongPoll | None] | None = None


class Outcome(NamedTuple, Generic[_Value]):
    """The result of a piece of work: an error code with its text, or a value."""

    code: int
    message: str | None
    value: _Value | None


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The context of one request.

    Attributes:
        cluster: The cluster.
        node_id: The broker that was asked.
        api: The API.
        version: The request's version.
        now_ms: The brokers' clock.
        deadline_ms: When a long poll that already waited has to end; None on first sight.
    """

    cluster: SharedState
    node_id: int
    api: ApiKey
    version: int
    now_ms: int
    deadline_ms: int | None = None

    def scripted_error(self, topic: str | None, partition: int | None = None) -> ErrorAnswer | None:
        """Return the fault that strikes this topic or partition now, if any."""
        return self.cluster.faults.take_error(self.api, self.node_id, topic, partition)

    def attempt(self, work: Callable[[], _Value], scripted: ErrorAnswer | None) -> Outcome[_Value]:
        """Do the work unless a fault strikes first; one that strikes after it hides its outcome."""
        try:
            if scripted is None:
                return Outcome(0, None, work())
            if scripted.apply:
                work()
        except RefusedError as refusal:
            if scripted is None:
                return Outcome(refusal.code, refusal.message, None)
        return Outcome(scripted.code, scripted.message, None)

    def find_topic(self, name: str | None, topic_id: UUID, *, by_id: bool) -> Topic:
        """Return the topic of a request, by id if versions have ids (KIP-516); else refuse."""
        if by_id:
            found = self.cluster.topic_by_id(topic_id)
            missing: type[errors.BrokerError] = errors.UnknownTopicIdError
        else:
            found = self.cluster.topics.get(name or "")
            missing = errors.UnknownTopicOrPartitionError
        if found is None:
            raise RefusedError(missing)
        return found

    def led_partition(self, topic: Topic, index: int) -> Partition:
        """Return a partition that this broker leads; refuse any other."""
        partition = topic.partition(index)
        if partition is None:
            raise RefusedError(errors.UnknownTopicOrPartitionError)
        if partition.leader != self.node_id:
            raise RefusedError(
                errors.NotLeaderOrFollowerError,
                f"broker {self.node_id} is not the leader of {topic.name}-{index}",
            )
        return partition


def check_leader_epoch(partition: Partition, epoch: int) -> None:
    """Refuse a leader epoch that is older (FENCED) or newer (UNKNOWN) than ours (KIP-320)."""
    if epoch < 0 or epoch == partition.leader_epoch:
        return
    if epoch < partition.leader_epoch:
        raise RefusedError(errors.FencedLeaderEpochError)
    raise RefusedError(errors.UnknownLeaderEpochError)
