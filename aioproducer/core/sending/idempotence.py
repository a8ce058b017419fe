"""Sequence numbers, so that a retried batch is written exactly once (KIP-98, KIP-360).

`Sequencer` keeps the producer id and epoch, and for each partition the assigned
sequences, the batches that have them, and when they restart under a newer epoch.
ARCHITECTURE.md (Exactly once, in order) compares it with the Java client.

A partition's batches with sequences and without an outcome are its `in_flight`, oldest first,
whether they are on the wire or queued for a retry. "maybe written" is `possibly_persisted`.

    whole ----a batch fails, not written-----------> broken(unwritten_from)
    whole ----only some of its records fail--------> broken      (the others are sent again)
    whole ----a batch fails, maybe written---------> unresolved(unknown_gap)
    whole ----a maybe written batch is split-------> unresolved  (if written, its parts are refused)
    unresolved --its head is acknowledged----------> whole       (the earlier outcome is resolved)
    unresolved --its head is out of order----------> broken      (the failed batch is not written)
    unresolved --the same, the head maybe written--> unresolved  (the head fails as well)
    broken, unresolved with nothing in flight --restart: newer epoch, sequences from 0--> whole
    any ----its topic was recreated----------------> broken      (the new log has no batch)

- A sequence that may have reached a broker is never reused for other records: the broker would
  acknowledge them as duplicates. So a failed batch leaves a gap, and no new batch is sent after it.
- A broker accepts a batch only directly after its predecessor. So once a batch is known to be
  unwritten, all later ones of its epoch are too, and may be renumbered. Earlier batches may not,
  nor may a batch that is on the wire, or one before a batch that was acknowledged.
- A retry is sent only as the first in flight, so any number of retries keeps the order.
- Sequences outlive metadata: a topic that disappears from it keeps its state.

`AcknowledgedOffsets` keeps the last offset per partition. A loss is proven when an acknowledged
offset is assigned again. A refused sequence proves nothing: a broker that has expired the state of
an idle producer, or deleted its records by retention, returns the same error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.core.sending.reasons import Obstacle
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.errors import KafkaError

MAX_EPOCH = 2**15 - 1
REMEMBERED_S = 1.0
"""Seconds after an acknowledgement in which the broker is assumed to keep the producer's state.

After a longer pause, several batches cost one more round trip. If `producer.id.expiration.ms` is
below this plus the latency of a request, a batch may fail to keep the order."""
_FIRST_OF_ALL = (-1,)
"""An ordinal before that of any batch."""


class ProducerIdentity(NamedTuple):
    """The producer id and epoch that identify a producer to brokers."""

    producer_id: int
    epoch: int


@dataclass(slots=True, eq=False)
class _Partition:
    identity: ProducerIdentity | None = None
    next_sequence: int = 0
    acknowledged_at: float = -inf
    """Loop time of the last acknowledgement under this identity."""
    acknowledged_epoch: int = -1
    """The leader epoch it came from."""
    newest: tuple[int, ...] = ()
    """The ordinal of the youngest batch acknowledged under this identity."""
    in_flight: list[ProducerBatch] = field(default_factory=list)
    unwritten_from: tuple[int, ...] | None = None
    """Batches from this ordinal on are not written."""
    unknown_gap: tuple[int, ...] | None = None
    """The youngest batch that failed, or was split, and may have been written."""
    log_is_new: bool = False
    """Assigned sequences belong to the log of a deleted topic."""
    log_may_be_new: bool = False
    """Those in flight belong to that log, to the new one, or to both."""
    refreshed_for: tuple[int, ...] = ()
    """The ordinal of the out-of-order batch for which newer metadata were requested."""

    def begin_new_log(self) -> None:
        self.unwritten_from, self.unknown_gap = _FIRST_OF_ALL, None
        self.log_is_new, self.newest = True, ()

    def doubt(self, batch: ProducerBatch) -> None:
        if batch.ordinal >= self.newest:
            self.unknown_gap = max(self.unknown_gap or batch.ordinal, batch.ordinal)

    @property
    def is_whole(self) -> bool:
        return self.unwritten_from is None and self.unknown_gap is None

    @property
    def was_acknowledged(self) -> bool:
        return self.acknowledged_at > -inf

    def is_remembered(self, now: float) -> bool:
        return now - self.acknowledged_at <= REMEMBERED_S

    def must_fail(self, batch: ProducerBatch) -> bool:
        return batch.ordinal < self.newest and not batch.possibly_persisted

    def may_have_later(self, batch: ProducerBatch) -> bool:
        """Return whether a later batch may be written although this one is not."""
        return self.log_may_be_new and self.has_later_by_name(batch)

    def has_later_by_name(self, batch: ProducerBatch) -> bool:
        return any(
            each.ordinal > batch.ordinal and _may_be_in_any_log(each) for each in self.in_flight
        )


class Sequencer:
    """Numbers batches so that brokers write each once and in order.

    Brokers keep the last five batches of a partition: at most `max_in_flight` may be without a
    response. `on_given_up` is called when brokers give no producer ids and batches are sent without
    idempotence; None if that is not allowed. Batches of a producer that is not `idempotent` get no
    numbers.
    """

    def __init__(
        self,
        max_in_flight: int,
        on_given_up: Callable[[], None] | None = None,
        *,
        idempotent: bool = True,
    ) -> None:
        self.identity: ProducerIdentity | None = None
        self.is_idempotent: bool = idempotent
        self.on_opened: Callable[[TopicPartition], None] | None = None
        """Called with the partition of each new batch."""
        self._max_in_flight = max_in_flight
        self._on_given_up = on_given_up
        self._partitions: dict[TopicPartition, _Partition] = {}

    @property
    def wants_identity(self) -> bool:
        """Whether a producer id has to be requested: at first, and after the last epoch."""
        return self.identity is None and self.is_idempotent

    def on_identity(self, identity: ProducerIdentity) -> None:
        """Store a producer id from a broker."""
        self.identity = identity

    @property
    def coordinator_error(self) -> KafkaError | None:
        """The last error of adding a partition at the transaction coordinator, if any."""
        return None

    def may_drain(self, batch: ProducerBatch, now: float, leader_epoch: int) -> bool:
        """Return whether the batch may be sent now; see the rules above."""
        if not self.is_idempotent:
            return True
        partition = self._partition(batch.topic_partition)
        if batch.has_sequence:
            self._maybe_restart(partition)
            is_lost = (
                partition.unwritten_from is not None and batch.ordinal >= partition.unwritten_from
            )
            return partition.in_flight[0] is batch and not is_lost
        if not partition.in_flight:
            return self._ensure_fresh(partition)
        return (
            partition.is_whole
            and partition.is_remembered(now)
            and partition.acknowledged_epoch == leader_epoch
            and partition.identity == self.identity
            and len(partition.in_flight) < self._max_in_flight
            # A later batch that is acknowledged takes a place in the broker's memory, too.
            and partition.in_flight[0].ordinal > partition.newest
        )

    def obstacle(self, batch: ProducerBatch) -> Obstacle:
        """Return why the first batch of a queue is not sent; changes nothing."""
        if not self.is_idempotent:
            return Obstacle.TURN
        partition = self._partitions.get(batch.topic_partition)
        in_flight = () if partition is None else partition.in_flight
        # Those without a pin are queued after this one.
        if any(other is not batch and other.pins for other in in_flight):
            return Obstacle.EARLIER_BATCH
        return Obstacle.PRODUCER_ID if self.identity is None else Obstacle.EARLIER_BATCH

    def on_drained(self, batch: ProducerBatch) -> None:
        """Assign a sequence to a batch that is sent for the first time."""
        if not batch.has_sequence and self.is_idempotent:
            partition = self._partition(batch.topic_partition)
            partition.log_may_be_new &= bool(partition.in_flight)
            self._stamp(partition, batch)
            partition.in_flight.append(batch)

    def on_acknowledged(self, batch: ProducerBatch, now: float) -> Sequence[ProducerBatch]:
        """Handle an acknowledged batch that is off the wire, or about to be.

        Return earlier batches that wait for a retry and must fail: see `is_overtaken`.
        """
        partition = self._partitions.get(batch.topic_partition)
        if partition is None or not self._remove(partition, batch):
            return ()
        if partition.log_is_new:  # it is in the old log
            self._maybe_restart(partition)
            return ()
        partition.acknowledged_at, partition.acknowledged_epoch = now, batch.leader_epoch
        partition.newest = max(partition.newest, batch.ordinal)
        if partition.unknown_gap is not None and batch.ordinal > partition.unknown_gap:
            partition.unknown_gap = None
        if partition.unwritten_from is not None and batch.ordinal >= partition.unwritten_from:
            # A broker without state of this producer accepted it without its predecessor.
            partition.unwritten_from = None
        overtaken: Sequence[ProducerBatch] = ()
        if partition.in_flight and partition.in_flight[0].ordinal < batch.ordinal:
            waiting = [each for each in partition.in_flight if not each.pins]
            overtaken = [each for each in waiting if partition.must_fail(each)]
            for each in overtaken:
                partition.in_flight.remove(each)
        self._maybe_restart(partition)
        return overtaken

    def is_overtaken(self, batch: ProducerBatch) -> bool:
        """Return whether a later batch is acknowledged and this one is certainly not written."""
        partition = self._partitions.get(batch.topic_partition)
        return partition is not None and partition.must_fail(batch)

    def on_failed(self, batch: ProducerBatch) -> None:
        """Record the gap of a failed batch, which may be written if `possibly_persisted`."""
        partition = self._partitions.get(batch.topic_partition)
        if partition is None or not self._remove(partition, batch):
            return
        if batch.ordinal < partition.newest:
            return  # the next batch follows a later one
        is_in_doubt = partition.log_may_be_new or partition.refreshed_for == batch.ordinal
        if batch.possibly_persisted or (is_in_doubt and partition.has_later_by_name(batch)):
            partition.doubt(batch)
        else:
            partition.unwritten_from = min(partition.unwritten_from or batch.ordinal, batch.ordinal)

    def may_renumber(self, batch: ProducerBatch) -> bool:
        """Return whether a batch whose predecessor the broker does not have can be renumbered.

        False if neither outcome is known: the broker may still process both requests of a closed
        connection, and with another sequence the batch would be written twice. False also after a
        later batch was acknowledged, or if one may be the first one in a recreated topic.
        """
        partition = self._partition(batch.topic_partition)
        if batch.ordinal < partition.newest or partition.may_have_later(batch):
            return False
        is_first = partition.in_flight[:1] == [batch]
        return not (is_first and batch.possibly_persisted and partition.unknown_gap is not None)

    def request_metadata_first(self, batch: ProducerBatch, metadata: Metadata) -> bool:
        """Request newer metadata if an out-of-order batch needs them; return whether it waits.

        Before Produce v13 the broker may have refused it since the topic was recreated, and the new
        log has a later batch. Newer metadata have the new topic id then: see `on_recreated`.
        """
        partition = self._partition(batch.topic_partition)
        if not partition.has_later_by_name(batch):
            return False
        if partition.refreshed_for != batch.ordinal:
            partition.refreshed_for = batch.ordinal
            metadata.request_update()
        return metadata.is_awaited

    def on_out_of_order(self, batch: ProducerBatch) -> bool:
        """Handle an out-of-order error: the broker does not have the batch's predecessor.

        The first batch in flight and all later ones are then not written. For any other batch it
        only means that the first has to be sent again. Return whether the predecessor had been
        acknowledged: the broker has lost it, or has expired the producer's state.
        """
        partition = self._partition(batch.topic_partition)
        if not partition.in_flight or partition.in_flight[0] is not batch:
            return False
        is_surprising = partition.is_whole and partition.was_acknowledged
        partition.unwritten_from = batch.ordinal
        partition.unknown_gap = None
        return is_surprising

    def discard_identity(self, batch: ProducerBatch) -> bool:
        """Drop a batch's producer id, which a broker refuses; return whether that is allowed."""
        if self.identity is not None and self.identity.producer_id == batch.producer_id:
            self.identity = None
        return True

    def on_split(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Assign the batch's sequences to its parts, in order.

        If the whole may be written, it counts as a gap before them: the broker accepts the parts
        only if it does not have the whole, and none of them may be renumbered.

        If they leave out records, the whole and all later batches are not written: parts and later
        batches are renumbered before they are sent.
        """
        if not batch.has_sequence:
            return
        partition = self._partition(batch.topic_partition)
        if batch.possibly_persisted:
            partition.doubt(batch)
        sequence = batch.base_sequence
        for part in parts:
            part.set_producer(batch.producer_id, batch.producer_epoch, sequence)
            sequence = part.next_sequence
        if sequence != batch.next_sequence:
            partition.unwritten_from = min(partition.unwritten_from or batch.ordinal, batch.ordinal)
        place = partition.in_flight.index(batch)
        partition.in_flight[place : place + 1] = parts

    def on_off_the_wire(self, topic_partition: TopicPartition) -> None:
        """Restart the partition if the end of a request allows it."""
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            self._maybe_restart(partition)

    def on_recreated(self, topic: str) -> None:
        """Restart the topic's partitions as soon as none of their batches is on the wire.

        Not those with a batch that went to the topic's name and may be in the new log: only under
        its sequence is it no duplicate there.
        """
        for topic_partition, partition in self._partitions.items():
            if topic_partition.topic != topic:
                continue
            if any(map(_may_be_in_any_log, partition.in_flight)):
                partition.acknowledged_at, partition.log_may_be_new = -inf, True
            else:
                partition.begin_new_log()

    def is_outdated(self, batch: ProducerBatch) -> bool:
        """Return whether the batch's sequence belongs to the log of a deleted topic."""
        partition = self._partitions.get(batch.topic_partition)
        return partition is not None and partition.log_is_new and batch.has_sequence

    def on_other_cluster(self) -> None:
        """Restart every partition, with a producer id of the other cluster."""
        self.identity = None
        for partition in self._partitions.values():
            partition.identity = None
            partition.begin_new_log()

    def disable_idempotence(self) -> bool:
        """Turn idempotence off if it is allowed and no batch without an outcome has a sequence."""
        if self._on_given_up is None or any(p.in_flight for p in self._partitions.values()):
            return False
        self.is_idempotent = False
        self._on_given_up()
        return True

    def _partition(self, topic_partition: TopicPartition) -> _Partition:
        partition = self._partitions.get(topic_partition)
        if partition is None:
            partition = self._partitions[topic_partition] = _Partition()
        return partition

    @staticmethod
    def _remove(partition: _Partition, batch: ProducerBatch) -> bool:
        if batch in partition.in_flight:
            partition.in_flight.remove(batch)
            return True
        return False

    def _ensure_fresh(self, partition: _Partition) -> bool:
        """Prepare a partition with nothing in flight for a new batch, if possible."""
        if partition.identity != self.identity or not partition.is_whole:
            self._restart(partition)
        return partition.is_whole and partition.identity is not None

    def _maybe_restart(self, partition: _Partition) -> None:
        first = partition.unwritten_from
        if first is None or not partition.in_flight:
            return
        if all(batch.ordinal >= first and not batch.pins for batch in partition.in_flight):
            self._restart(partition)

    def _restart(self, partition: _Partition) -> None:
        """Renumber the partition's batches from 0 under an epoch it has not used."""
        if self.identity is not None and partition.identity == self.identity:
            self._bump()
        if self.identity is None or partition.identity == self.identity:
            return
        if not self._is_known(partition, self.identity):
            partition.acknowledged_at = -inf
        partition.identity = self.identity
        partition.next_sequence, partition.newest, partition.refreshed_for = 0, (), ()
        partition.unwritten_from = partition.unknown_gap = None
        partition.log_is_new = partition.log_may_be_new = False
        for batch in partition.in_flight:
            self._stamp(partition, batch)

    def _is_known(self, partition: _Partition, identity: ProducerIdentity) -> bool:
        """Return whether the broker is sure to refuse a batch of this identity out of order."""
        return False

    def _bump(self) -> None:
        """Bump the epoch, or drop the identity after the last epoch."""
        if self.identity is None or self.identity.epoch >= MAX_EPOCH:
            self.identity = None
        else:
            self.identity = self.identity._replace(epoch=self.identity.epoch + 1)

    @staticmethod
    def _stamp(partition: _Partition, batch: ProducerBatch) -> None:
        identity = partition.identity
        if identity is None:  # pragma: no cover - `may_drain` has refused
            raise RuntimeError(f"{batch.topic_partition} has no producer id yet")
        batch.set_producer(identity.producer_id, identity.epoch, partition.next_sequence)
        partition.next_sequence = batch.next_sequence


def _may_be_in_any_log(batch: ProducerBatch) -> bool:
    """Return whether a batch may be written, before Produce v13 to whatever topic has the name."""
    return not batch.topic_id.int and (batch.on_wire or batch.possibly_persisted)


class LostRecords(NamedTuple):
    """An acknowledged offset was assigned again; with the last acknowledged one."""

    topic_partition: TopicPartition
    acknowledged: int
    assigned: int

    def __str__(self) -> str:
        topic, partition = self.topic_partition
        return (
            f"{topic}-{partition}: acknowledged records are lost: offset {self.assigned} was "
            f"assigned although offset {self.acknowledged} had been acknowledged; the brokers have "
            "lost the end of the log, or the topic was deleted and created anew"
        )


class ExpiredProducer(NamedTuple):
    """A broker refused the next sequence although it had acknowledged the previous one.

    `acknowledged` is the last acknowledged offset, `log_start` the broker's; None if unknown.
    """

    topic_partition: TopicPartition
    acknowledged: int | None
    log_start: int | None

    @property
    def is_retention(self) -> bool:
        """Whether the log starts after the last acknowledged offset."""
        if self.acknowledged is None or self.log_start is None:
            return False
        return self.acknowledged < self.log_start

    def __str__(self) -> str:
        topic, partition = self.topic_partition
        end = "an unknown offset" if self.acknowledged is None else f"offset {self.acknowledged}"
        start = "an unknown offset" if self.log_start is None else f"offset {self.log_start}"
        cause = (
            "it has deleted the producer's records"
            if self.is_retention
            else "it has expired the producer's state, as after an idle time, or has lost records"
        )
        return (
            f"{topic}-{partition}: the broker does not have the last batch that it acknowledged, "
            f"up to {end}; its log begins at {start}: {cause}; the next batch is sent under a new "
            "epoch, and a loss is reported once an acknowledged offset is assigned again"
        )


class _Last(NamedTuple):
    topic_id: UUID
    offset: int
    ordinal: tuple[int, ...]


class AcknowledgedOffsets:
    """The last acknowledged offset of each partition of an idempotent producer."""

    def __init__(
        self,
        on_data_loss: Callable[[LostRecords], None],
        on_producer_expired: Callable[[ExpiredProducer], None],
    ) -> None:
        self._on_data_loss = on_data_loss
        self._on_producer_expired = on_producer_expired
        self._last: dict[TopicPartition, _Last] = {}

    def on_acknowledged(self, batch: ProducerBatch, base_offset: int, records: int) -> None:
        """Record the offset of an acknowledged batch with this number of records."""
        place, last = batch.topic_partition, self._last.get(batch.topic_partition)
        if last is not None:
            if batch.ordinal < last.ordinal:
                return  # a late response: the batch is written before the last one
            if base_offset <= last.offset and batch.topic_id == last.topic_id:
                self._on_data_loss(LostRecords(place, last.offset, base_offset))
        self._last[place] = _Last(batch.topic_id, base_offset + records - 1, batch.ordinal)

    def on_unknown_predecessor(self, place: TopicPartition, log_start: int) -> None:
        """Report that a broker does not have the last batch that it acknowledged.

        Its log start offset is negative if it reported none.
        """
        last = self._last.get(place)
        acknowledged = None if last is None else last.offset
        known_start = log_start if log_start >= 0 else None
        self._on_producer_expired(ExpiredProducer(place, acknowledged, known_start))

    def on_recreated(self, topic: str) -> None:
        """Drop the offsets of a recreated topic."""
        for place in [each for each in self._last if each.topic == topic]:
            del self._last[place]

    def on_other_cluster(self) -> None:
        """Drop all offsets."""
        self._last.clear()
