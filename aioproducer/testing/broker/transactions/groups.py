"""Consumer groups as far as producers touch them: offsets, also those of open transactions.

A commit's member and generation are checked (KIP-447).

Invariants:
- A pending offset becomes a committed one by its transaction's commit marker alone, and not if a
  later commit for the same partition overtook it.
- This state is replicated: it outlives every coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from aioproducer import errors
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.testing.broker.topics import Partition
from aioproducer.testing.broker.transactions.coordinator import (
    PartitionCheck,
    TransactionCoordinators,
)
from aioproducer.testing.broker.transactions.shards import CoordinatorKind, CoordinatorShards
from aioproducer.testing.broker.transactions.states import ProducerIdentity
from aioproducer.types import TopicPartition

_NO_GENERATION = -1


class GroupMember(NamedTuple):
    """The identity of a commit: the defaults are a consumer that manages its partitions itself."""

    member_id: str = ""
    generation: int = _NO_GENERATION
    instance_id: str | None = None


class GroupOffset(NamedTuple):
    """A committed position of a group."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class _Written(NamedTuple):
    """An offset and its place in the order of all commits."""

    position: int
    offset: GroupOffset


@dataclass(slots=True, eq=False)
class Group:
    """One group.

    Attributes:
        generation: Of its members.
        members: Their ids, each with its `group.instance.id` or None.
    """

    generation: int = _NO_GENERATION
    members: dict[str, str | None] = field(default_factory=dict)
    _committed: dict[TopicPartition, _Written] = field(default_factory=dict)
    _pending: dict[int, dict[TopicPartition, _Written]] = field(default_factory=dict)

    @property
    def offsets(self) -> dict[TopicPartition, GroupOffset]:
        """The committed offsets."""
        return {where: written.offset for where, written in sorted(self._committed.items())}

    def pending(self, producer_id: int) -> Set[TopicPartition]:
        """Return the partitions whose offsets an open transaction of a producer has written."""
        return self._pending.get(producer_id, {}).keys()

    def is_unstable(self, where: TopicPartition) -> bool:
        """Return whether an open transaction may still change a partition's offset."""
        return any(where in pending for pending in self._pending.values())

    def check_member(self, member: GroupMember, *, in_transaction: bool) -> None:
        """Refuse a member that may not commit (Java: ClassicGroup.validateOffsetCommit)."""
        if member.generation < 0 and not self.members:
            return
        if member == GroupMember():
            # Before KIP-447 transactional commits did not name the member.
            if in_transaction:
                return
            raise RefusedError(errors.UnknownMemberIdError)
        owners = {instance: each for each, instance in self.members.items() if instance}
        if member.instance_id is not None and member.instance_id in owners:
            if owners[member.instance_id] != member.member_id:
                raise RefusedError(errors.FencedInstanceIdError)
        elif member.instance_id is not None or member.member_id not in self.members:
            raise RefusedError(errors.UnknownMemberIdError)
        if member.generation != self.generation:
            raise RefusedError(errors.IllegalGenerationError)

    def write(
        self, offsets: Mapping[TopicPartition, GroupOffset], position: int, producer_id: int | None
    ) -> None:
        """Commit offsets, or note those of a transaction."""
        target = self._committed
        if producer_id is not None:
            target = self._pending.setdefault(producer_id, {})
        for where, offset in offsets.items():
            target[where] = _Written(position, offset)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply a written marker to the pending offsets."""
        for where, written in self._pending.pop(producer_id, {}).items():
            before = self._committed.get(where)
            if commit and (before is None or before.position < written.position):
                self._committed[where] = written

    def drop_topic(self, topic: str) -> None:
        """Delete the offsets of a deleted topic, also those of open transactions."""
        for offsets in (self._committed, *self._pending.values()):
            for where in [where for where in offsets if where.topic == topic]:
                del offsets[where]


class GroupCoordinators:
    """All groups of one cluster.

    Attributes:
        groups: By group id.
    """

    def __init__(
        self,
        shards: CoordinatorShards,
        transactions: TransactionCoordinators,
    ) -> None:
        self.groups: dict[str, Group] = {}
        self._shards = shards
        self._transactions = transactions
        self._position = 0

    def set_members(
        self, group_id: str, generation: int, members: Mapping[str, str | None]
    ) -> None:
        """Set the members of a group, as a rebalance would (id to instance id or None)."""
        group = self.groups.setdefault(group_id, Group())
        group.generation, group.members = generation, dict(members)

    def check_coordinator(self, group_id: str, *, node_id: int, now_ms: int) -> Partition:
        """Return the group's partition; refuse if `node_id` does not coordinate the group."""
        if not group_id:
            raise RefusedError(errors.InvalidGroupIdError)
        return self._shards.coordinate(CoordinatorKind.GROUP, group_id, node_id, now_ms)

    def commit(
        self,
        group_id: str,
        member: GroupMember,
        offsets: Mapping[TopicPartition, GroupOffset],
        *,
        node_id: int,
        now_ms: int,
    ) -> None:
        """Commit offsets outside of any transaction."""
        self.check_coordinator(group_id, node_id=node_id, now_ms=now_ms)
        group = self._group_for(group_id, member)
        group.check_member(member, in_transaction=False)
        self._position += 1
        group.write(offsets, self._position, None)

    def commit_in_transaction(
        self,
        group_id: str,
        member: GroupMember,
        offsets: Mapping[TopicPartition, GroupOffset],
        transactional_id: str,
        producer: ProducerIdentity,
        check: PartitionCheck,
        *,
        node_id: int,
        now_ms: int,
    ) -> None:
        """Commit offsets when, and if, the transaction commits."""
        shard = self.check_coordinator(group_id, node_id=node_id, now_ms=now_ms)
        if not shard.has_open_transaction(*producer):
            where = TopicPartition(shard.topic, shard.index)
            self._transactions.admit(transactional_id, producer, where, check, now_ms)
        group = self._group_for(group_id, member)
        group.check_member(member, in_transaction=True)
        known_epoch = shard.producers.epoch_of(producer.producer_id)
        if known_epoch is not None and producer.epoch < known_epoch:
            raise RefusedError(errors.InvalidProducerEpochError)
        self._position += 1
        shard.producers.see_epoch(*producer)
        shard.transactions.note_data(producer.producer_id, self._position)
        group.write(offsets, self._position, producer.producer_id)

    def end_transaction(
        self, shard: Partition, producer: ProducerIdentity, *, commit: bool
    ) -> None:
        """Write a marker to the groups of one partition."""
        shard.producers.see_epoch(*producer)
        shard.transactions.drop(producer.producer_id)
        for group_id, group in self.groups.items():
            if self._shards.shard(CoordinatorKind.GROUP, group_id) is shard:
                group.end_transaction(producer.producer_id, commit=commit)

    def drop_topic(self, topic: str) -> None:
        """Delete the offsets of a deleted topic (Java: OffsetMetadataManager.onPartitionsDeleted).

        A topic that is created anew has none.
        """
        for group in self.groups.values():
            group.drop_topic(topic)

    def _group_for(self, group_id: str, member: GroupMember) -> Group:
        group = self.groups.get(group_id)
        if group is not None:
            return group
        if member.generation >= 0:
            raise RefusedError(errors.IllegalGenerationError)
        return self.groups.setdefault(group_id, Group())
