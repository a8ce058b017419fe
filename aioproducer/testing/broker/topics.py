"""Topics and partitions of the simulated cluster: replicas, leader, epoch, log.

Replication is instantaneous here: every replica in `isr` has every batch, so a new leader never
loses one and the high watermark is the log's end. `ReplicatedPartition` is the slower kind.

Invariants:
- `leader` is -1 or a member of `isr`; `isr` is a subset of `replicas`.
- `leader_epoch` grows by one at every change of leader, also to none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from aioproducer import errors
from aioproducer.records.batch import RecordBatch
from aioproducer.testing.broker.log import PartitionLog
from aioproducer.testing.broker.markers import Marker, PartitionTransactions
from aioproducer.testing.broker.producers import ProducerBatchKey, ProducerStates, sequence_after
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.testing.broker.settings import ClusterSettings, TopicConfig

NO_LEADER = -1

_MAX_NAME_LENGTH = 249
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class Appended(NamedTuple):
    """The result of an append, for the producer."""

    base_offset: int
    end_offset: int
    log_append_time_ms: int
    is_new: bool


class Leadership(NamedTuple):
    """The leader of a partition, its epoch, and the in-sync followers."""

    leader: int
    epoch: int
    isr: tuple[int, ...]


class Partition:
    """One partition of one topic."""

    __slots__ = (
        "index",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "producers",
        "replicas",
        "topic",
        "transactions",
    )

    def __init__(self, topic: str, index: int, replicas: Sequence[int], live: set[int]) -> None:
        self.topic: str = topic
        self.index: int = index
        self.replicas: tuple[int, ...] = tuple(replicas)
        in_sync = tuple(node for node in self.replicas if node in live)
        self.leader: int = in_sync[0] if in_sync else NO_LEADER
        self.isr: tuple[int, ...] = in_sync or self.replicas
        self.leader_epoch: int = 0
        self.log: PartitionLog = PartitionLog()
        self.producers: ProducerStates = ProducerStates()
        self.transactions: PartitionTransactions = PartitionTransactions()

    @property
    def leadership(self) -> Leadership:
        """The present leader and in-sync followers."""
        return Leadership(self.leader, self.leader_epoch, self.isr)

    @property
    def high_watermark(self) -> int:
        """The offset up to which all of `isr` has the log."""
        return self.log.end_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which every transaction is decided."""
        return self.transactions.last_stable_offset(self.high_watermark)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return whether a producer has written to its transaction here, in its present epoch."""
        is_open = self.transactions.is_open(producer_id)
        return is_open and self.producers.epoch_of(producer_id) == epoch

    def lead_by(self, node_id: int) -> None:
        """Change the leader, which begins a new leader epoch."""
        if node_id != self.leader:
            self.leader = node_id
            self.leader_epoch += 1

    def lose_replica(self, node_id: int) -> bool:
        """Remove a broker from the ISR, and its leadership; return whether the leader changed."""
        # The last one in sync stays in the ISR: its log is known to be complete.
        if len(self.isr) > 1:
            self.isr = tuple(node for node in self.isr if node != node_id)
        if self.leader != node_id:
            return False
        heirs = [node for node in self.replicas if node in self.isr and node != node_id]
        self.lead_by(heirs[0] if heirs else NO_LEADER)
        return True

    def regain_replica(self, node_id: int, live: set[int]) -> bool:
        """Add a broker that is back, as leader if there is none; return whether that changed."""
        if node_id not in self.replicas:
            return False
        if self.leader == NO_LEADER:
            if node_id not in self.isr:
                return False
            self.lead_by(node_id)
            self.isr = tuple(node for node in self.replicas if node in live)
            return True
        members = {*self.isr, node_id}
        self.isr = tuple(node for node in self.replicas if node in members)
        return False

    def expire_producers(self, settings: ClusterSettings, now_ms: int) -> list[int]:
        """Remove producers that were idle for too long; return their ids. Called before appends."""
        return self.producers.expire(
            now_ms,
            after_ms=settings.producer_id_expiration_ms,
            every_ms=settings.producer_id_expiration_check_interval_ms,
            has_transaction=self.transactions.is_open,
        )

    def append(
        self, data: bytes | memoryview, batch: RecordBatch, config: TopicConfig, now_ms: int
    ) -> Appended:
        """Write a validated batch, or recognise a repeat; refuse a wrong epoch or sequence."""
        key = producer_key(batch)
        if key is not None and (written := self.producers.find_duplicate(key)) is not None:
            base_offset = written.base_offset
            end_offset = base_offset + batch.count
            return Appended(base_offset, end_offset, written.timestamp_ms, is_new=False)
        if not batch.is_transactional and self.transactions.is_open(batch.producer_id):
            raise RefusedError(
                errors.InvalidTxnStateError,
                f"Expected transactional write from producer {batch.producer_id}",
            )
        append_time_ms = now_ms if config.is_log_append_time else None
        stored = self.log.append(
            data,
            count=batch.count,
            max_timestamp=batch.max_timestamp,
            leader_epoch=self.leader_epoch,
            append_time_ms=append_time_ms,
        )
        if key is not None:
            # A repeated batch is answered with a time even where the first answer had none (Java:
            # UnifiedLog.append takes it from the remembered batch).
            self.producers.remember(key, stored.base_offset, stored.max_timestamp)
        if batch.is_transactional:
            self.transactions.note_data(batch.producer_id, stored.base_offset)
        if (limit := config.retention_bytes) is not None:
            self.log.trim_to_size(limit)
        answered_ms = -1 if append_time_ms is None else append_time_ms
        return Appended(stored.base_offset, stored.last_offset + 1, answered_ms, is_new=True)

    def append_marker(self, marker: Marker, now_ms: int) -> int:
        """Write a transaction's end; return the log's end after it."""
        stored = self.log.append(
            marker.encode(now_ms), count=1, max_timestamp=now_ms, leader_epoch=self.leader_epoch
        )
        self.producers.see_epoch(marker.producer_id, marker.epoch, now_ms)
        self.transactions.note_marker(marker, stored.base_offset)
        return stored.last_offset + 1


def producer_key(batch: RecordBatch) -> ProducerBatchKey | None:
    """Return the identity of the batch if its producer is idempotent, else None."""
    if batch.producer_id < 0:
        return None
    last_sequence = sequence_after(batch.base_sequence, batch.last_offset_delta)
    return ProducerBatchKey(
        batch.producer_id, batch.producer_epoch, batch.base_sequence, last_sequence
    )


class Topic:
    """A named set of partitions with one configuration."""

    __slots__ = ("config", "name", "partitions", "topic_id")

    def __init__(
        self, name: str, topic_id: UUID, config: TopicConfig, partitions: list[Partition]
    ) -> None:
        self.name: str = name
        self.topic_id: UUID = topic_id
        self.config: TopicConfig = config
        self.partitions: list[Partition] = partitions

    def partition(self, index: int) -> Partition | None:
        """Return the partition of that number, or None."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


def check_topic_name(name: str) -> None:
    """Refuse a name Kafka does not allow (Java: org.apache.kafka.common.internals.Topic)."""
    if name in {"", ".", ".."}:
        reason = f"Topic name is invalid: '{name}'"
    elif len(name) > _MAX_NAME_LENGTH:
        reason = f"Topic name is invalid: its length is more than {_MAX_NAME_LENGTH} characters"
    elif not _NAME_CHARACTERS.issuperset(name):
        reason = f"Topic name is invalid: '{name}' contains other than ASCII alphanumerics, . _ -"
    else:
        return
    raise RefusedError(errors.InvalidTopicError, reason)
