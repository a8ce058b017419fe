"""Writing commit and abort markers: the steps of one transaction from Prepare to Complete.

A step writes to one partition. It has to be repeated where the leader is away, or loses the marker
before it is replicated; and all of them where the transaction's coordinator changes in between,
since the new one only has the decision (Java: TransactionMarkerChannelManager). A marker may so be
in a log twice, which changes nothing for a reader.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from aioproducer.testing.broker.markers import Marker
from aioproducer.testing.broker.topics import NO_LEADER, Partition
from aioproducer.testing.broker.transactions.shards import OFFSETS_TOPIC
from aioproducer.testing.broker.transactions.states import ProducerIdentity, Transaction
from aioproducer.types import TopicPartition

RETRY_MS = 10


class PendingOffsets(Protocol):
    """The offsets that groups have in open transactions."""

    def end_transaction(
        self, shard: Partition, producer: ProducerIdentity, *, commit: bool
    ) -> None:
        """Apply a marker to a partition of the offsets topic."""


class MarkedLogs(Protocol):
    """The parts of a cluster that get markers."""

    @property
    def groups(self) -> PendingOffsets:
        """The offsets of its groups."""

    def partition(self, topic: str, index: int) -> Partition | None:
        """Return a partition, also of an internal topic, or None."""

    def is_reachable(self, node_id: int) -> bool:
        """Return whether other brokers get a response from that one."""

    def notify(self, topic: str, partition: int) -> None:
        """Notify the subscribers that a partition changed."""


class _Written(NamedTuple):
    """A marker in a leader's log that is not replicated yet."""

    partition: Partition
    leader_epoch: int
    end_offset: int


@dataclass(slots=True, eq=False)
class Ending:
    """One decided end whose markers are being written.

    Attributes:
        transaction: The transaction.
        shard: The coordinator's partition.
        coordinator_epoch: The leader epoch under which it was decided, or taken over.
        due_ms: When the next step is to be done.
    """

    transaction: Transaction
    shard: Partition
    coordinator_epoch: int
    due_ms: int
    _written: dict[TopicPartition, _Written] = field(default_factory=dict)

    def take_over(self) -> None:
        """Begin anew under another coordinator."""
        self.coordinator_epoch = self.shard.leader_epoch
        self.transaction.unmarked = set(self.transaction.partitions)
        self._written.clear()

    def step(self, cluster: MarkedLogs, now_ms: int) -> bool:
        """Write one marker, or finish one; return whether there was progress."""
        return any(
            self._advance(cluster, where, now_ms) for where in sorted(self.transaction.unmarked)
        )

    def _advance(self, cluster: MarkedLogs, where: TopicPartition, now_ms: int) -> bool:
        partition = cluster.partition(*where)
        if partition is None:  # Deleted meanwhile: there is nothing left to be marked.
            self.transaction.unmarked.discard(where)
            return True
        if partition.leader == NO_LEADER or not cluster.is_reachable(partition.leader):
            return False
        if where.topic == OFFSETS_TOPIC:
            transaction = self.transaction
            cluster.groups.end_transaction(
                partition, transaction.identity, commit=transaction.is_commit
            )
            transaction.unmarked.discard(where)
            return True
        written = self._written.get(where)
        # A topic that was created anew has another log.
        is_new = written is None or written[:2] != (partition, partition.leader_epoch)
        if written is None or is_new:
            written = self._written[where] = self._write(partition, now_ms)
            cluster.notify(*where)
        if partition.high_watermark >= written.end_offset:
            self.transaction.unmarked.discard(where)
            return True
        return is_new

    def _write(self, partition: Partition, now_ms: int) -> _Written:
        transaction = self.transaction
        end_offset = partition.append_marker(
            Marker(
                transaction.producer_id,
                transaction.epoch,
                is_commit=transaction.is_commit,
                coordinator_epoch=self.coordinator_epoch,
            ),
            now_ms,
        )
        return _Written(partition, partition.leader_epoch, end_offset)
