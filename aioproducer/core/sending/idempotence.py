"""Sequence numbers: what makes a retried batch stand in the log once (KIP-98, KIP-360).

Owns: the producer id and epoch, per partition the sequences given out and the batches that hold
them, and when a partition may start over under a newer epoch. Must not know: asyncio, requests,
error codes; the sender tells it what became of a batch.

A partition's batches with sequences and without an outcome are its `in_flight`, oldest first,
whether they are on the wire or queued for a retry.

    whole ----a batch fails, surely unwritten----> broken(unwritten_from)
    whole ----the same, only records of it-------> broken     (the others go out again in its place)
    whole ----a batch fails, maybe written-------> doubtful(unknown_gap)
    whole ----the same, split--------------------> doubtful   (parts of what stands are refused)
    doubtful --its head is acknowledged----------> whole      (so the fate before it is settled)
    doubtful --its head is out of order----------> broken     (so the failed one was not)
    doubtful --the same, the head maybe written--> doubtful   (it fails as well)
    broken, doubtful with nothing in flight --restart: newer epoch, sequences from 0--> whole
    any ----its topic was created anew-----------> broken     (nothing stands in the new log)

Rules and their reasons
- A sequence that may have reached a broker is never given to other records: the broker would take
  them for a duplicate and acknowledge what it never wrote. A batch that fails leaves a gap, and
  nothing new is sent behind a gap.
- A broker accepts a batch only right behind its predecessor. So once a batch is known to be
  unwritten, all later ones of its epoch are, and may be numbered anew; but not the earlier ones,
  whose fate may still be open, and none that is on the wire.
- Requests of a connection that is gone may be carried out long after, in their order: what was out
  of order then becomes the next one. So out of order proves nothing of a batch that may be among
  them, behind one that may be as well.
- A retry goes out only as the first in flight: the order survives any number of retries.
- A broker that knows nothing of the producer accepts whatever comes first, the second batch too
  although the first was refused. So one batch is in flight until the present leader has
  acknowledged something under the present epoch, and again when that is more than `REMEMBERED_S`
  ago: brokers forget an idle producer after `producer.id.expiration.ms`, which they do not tell.
- Brokers can forget sooner (they count from the records' timestamps). So when a later batch of its
  epoch was acknowledged, a batch is never numbered anew: it would be written out of order. If it
  may be written it is sent again as it is, to learn that; if not, it fails.
- A bump concerns the partition that needs it. The others go on under the epoch they have and follow
  when nothing of theirs is in flight.
- Sequences outlive metadata: a topic that vanishes from it keeps its state.
- A topic created anew has a log that knows nothing of the producer and would accept whatever comes
  first, out of order too: its partitions start over. In another cluster the producer id may be
  somebody else's, whose batches ours could be taken for: a new one is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.core.sending.obstacles import Obstacle
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from aioproducer.errors import KafkaError

MAX_EPOCH = 2**15 - 1
REMEMBERED_S = 1.0
"""For so many seconds after an acknowledgement its broker is taken to know the producer still.

Several batches after a longer pause cost one round trip more. A `producer.id.expiration.ms` as
short as this and a request's latency may fail a batch to keep the order."""
_SEQUENCES = 2**31
_FIRST_OF_ALL = (-1,)
"""An ordinal before every batch's."""


class ProducerIdentity(NamedTuple):
    """What a broker knows a producer by."""

    producer_id: int
    epoch: int


class Sequencer:
    """Decides whether and under which sequence a batch may go out.

    This one is for a producer without idempotence: everything may, without a sequence.
    """

    def on_opened(self, topic_partition: TopicPartition) -> None:
        """A batch for this partition was opened."""

    def may_drain(self, batch: ProducerBatch, now: float, leader_epoch: int) -> bool:
        """Whether the batch, the first of its queue, may go out now to the leader of that epoch."""
        return True

    def obstacle(self, batch: ProducerBatch) -> Obstacle:
        """What keeps a batch, the first of its queue, from going out; it changes nothing."""
        return Obstacle.TURN

    @property
    def coordinator_error(self) -> KafkaError | None:
        """Why a transaction's coordinator has not added a partition yet, as far as it is known."""
        return None

    def on_drained(self, batch: ProducerBatch) -> None:
        """The batch goes out: a new one gets its sequence."""

    def on_acknowledged(self, batch: ProducerBatch, now: float) -> Sequence[ProducerBatch]:
        """The batch is written; it is off the wire, or about to be.

        Returns:
            Earlier batches that wait to be sent again and must fail: see `is_overtaken`.
        """
        return ()

    def is_overtaken(self, batch: ProducerBatch) -> bool:
        """Whether a later batch is acknowledged and this one is certainly not written."""
        return False

    def on_failed(self, batch: ProducerBatch) -> None:
        """The batch has failed for good; `possibly_persisted` says how surely."""

    def may_renumber(self, batch: ProducerBatch) -> bool:
        """Whether a batch whose predecessor the broker does not hold can still be written."""
        return True

    def on_out_of_order(self, batch: ProducerBatch) -> bool:
        """The broker does not hold the batch's predecessor; True if it had acknowledged that."""
        return False

    def on_split(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """The batch goes out in parts from now on, which may leave out some of its records."""

    def on_off_the_wire(self, topic_partition: TopicPartition) -> None:
        """A request with a batch of this partition is over."""

    def on_recreated(self, topic: str) -> None:
        """The topic was created anew: none of its batches without an outcome stands in it."""

    def on_other_cluster(self) -> None:
        """What is sent from now on goes to another cluster, which knows nothing of us."""

    @property
    def wants_identity(self) -> bool:
        """Whether a producer id has to be asked for."""
        return False

    def on_identity(self, identity: ProducerIdentity) -> None:
        """The broker gave a producer id."""

    def do_without_identity(self) -> bool:
        """Brokers give no producer ids; whether batches go out without from now on."""
        return False


class _Partition:
    __slots__ = (
        "acknowledged_at",
        "acknowledged_epoch",
        "identity",
        "in_flight",
        "log_is_new",
        "newest",
        "next_sequence",
        "unknown_gap",
        "unwritten_from",
    )

    def __init__(self) -> None:
        self.identity: ProducerIdentity | None = None
        self.next_sequence = 0
        self.acknowledged_at = -inf
        """Loop time of the last acknowledgement under this identity."""
        self.acknowledged_epoch = -1
        """The leader epoch it came from."""
        self.newest: tuple[int, ...] = ()
        """The ordinal of the youngest batch acknowledged under this identity."""
        self.in_flight: list[ProducerBatch] = []
        self.unwritten_from: tuple[int, ...] | None = None
        """Batches from this ordinal on are known to be unwritten."""
        self.unknown_gap: tuple[int, ...] | None = None
        """The youngest batch that failed, or was split, and may have been written."""
        self.log_is_new = False
        """Sequences given out so far belong to a log that is gone."""

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


class IdempotentSequencer(Sequencer):
    """Numbers batches so that brokers write each once and in order.

    Args:
        max_in_flight: batches of one partition that may be without an answer; brokers remember
            the last five.
        on_given_up: called when brokers give no producer ids and batches go out without, as if
            idempotence was off; None if that must not be.
    """

    def __init__(self, max_in_flight: int, on_given_up: Callable[[], None] | None = None) -> None:
        self.identity: ProducerIdentity | None = None
        self._max_in_flight = max_in_flight
        self._on_given_up = on_given_up
        self._given_up = False
        self._partitions: dict[TopicPartition, _Partition] = {}

    @property
    def wants_identity(self) -> bool:
        """Whether a producer id has to be asked for: at first, and when the epochs are used up."""
        return self.identity is None and not self._given_up

    def on_identity(self, identity: ProducerIdentity) -> None:
        """The broker gave a producer id."""
        self.identity = identity

    def may_drain(self, batch: ProducerBatch, now: float, leader_epoch: int) -> bool:
        """Whether the batch may go out now; see the rules above."""
        if self._given_up:
            return True
        partition = self._partition(batch.topic_partition)
        if batch.has_sequence:
            self._maybe_restart(partition)
            doomed = (
                partition.unwritten_from is not None and batch.ordinal >= partition.unwritten_from
            )
            return partition.in_flight[0] is batch and not doomed
        if not partition.in_flight:
            return self._ensure_fresh(partition)
        return (
            partition.is_whole
            and partition.is_remembered(now)
            and partition.acknowledged_epoch == leader_epoch
            and partition.identity == self.identity
            and len(partition.in_flight) < self._max_in_flight
        )

    def obstacle(self, batch: ProducerBatch) -> Obstacle:
        """What keeps a batch, the first of its queue, from going out."""
        if self._given_up:
            return Obstacle.TURN
        partition = self._partitions.get(batch.topic_partition)
        if partition is not None and any(other is not batch for other in partition.in_flight):
            return Obstacle.EARLIER_BATCH
        return Obstacle.PRODUCER_ID if self.identity is None else Obstacle.EARLIER_BATCH

    def on_drained(self, batch: ProducerBatch) -> None:
        """A batch that goes out for the first time gets its sequence."""
        if not batch.has_sequence and not self._given_up:
            partition = self._partition(batch.topic_partition)
            self._stamp(partition, batch)
            partition.in_flight.append(batch)

    def on_acknowledged(self, batch: ProducerBatch, now: float) -> Sequence[ProducerBatch]:
        """The batch is written, and what comes next in its epoch follows it."""
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
            # A broker that knew nothing of us took it without its predecessor.
            partition.unwritten_from = None
        overtaken: Sequence[ProducerBatch] = ()
        if partition.in_flight and partition.in_flight[0].ordinal < batch.ordinal:
            waiting = [each for each in partition.in_flight if not each.holds]
            overtaken = [each for each in waiting if partition.must_fail(each)]
            for each in overtaken:
                partition.in_flight.remove(each)
        self._maybe_restart(partition)
        return overtaken

    def is_overtaken(self, batch: ProducerBatch) -> bool:
        """Whether a later batch is acknowledged and this one is certainly not written."""
        partition = self._partitions.get(batch.topic_partition)
        return partition is not None and partition.must_fail(batch)

    def on_failed(self, batch: ProducerBatch) -> None:
        """The batch has failed for good and leaves a gap."""
        partition = self._partition(batch.topic_partition)
        if not self._remove(partition, batch) or batch.ordinal < partition.newest:
            return  # what comes next follows a later one
        if batch.possibly_persisted:
            partition.doubt(batch)
        else:
            partition.unwritten_from = min(partition.unwritten_from or batch.ordinal, batch.ordinal)

    def may_renumber(self, batch: ProducerBatch) -> bool:
        """Whether a batch whose predecessor the broker does not hold can still be written.

        Not if neither outcome is known: requests of a connection that is gone may be carried out
        yet, the predecessor's and then the batch's. Under another number it would be written twice.
        And not behind a later one that was acknowledged.
        """
        partition = self._partition(batch.topic_partition)
        if batch.ordinal < partition.newest:
            return False
        is_first = partition.in_flight[:1] == [batch]
        return not (is_first and batch.possibly_persisted and partition.unknown_gap is not None)

    def on_out_of_order(self, batch: ProducerBatch) -> bool:
        """The broker does not hold the batch's predecessor.

        For the first in flight that decides its outcome: it is not written, nor is anything behind
        it. For another one it only says that the first is still to be sent again.

        Returns:
            Whether the predecessor had been acknowledged: the broker has lost it, or has forgotten
            the producer.
        """
        partition = self._partition(batch.topic_partition)
        if not partition.in_flight or partition.in_flight[0] is not batch:
            return False
        is_surprising = partition.is_whole and partition.was_acknowledged
        partition.unwritten_from = batch.ordinal
        partition.unknown_gap = None
        return is_surprising

    def on_split(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """The parts share the batch's sequences, in order.

        If the whole may be written, it is like a gap before them: the broker takes the parts only
        if it does not hold the whole, and none of them may be numbered anew.

        If they leave out records, the whole is not written, nor is anything behind it: parts and
        later batches are numbered anew before they go out.
        """
        if not batch.has_sequence:
            return
        partition = self._partition(batch.topic_partition)
        if batch.possibly_persisted:
            partition.doubt(batch)
        sequence = batch.base_sequence
        for part in parts:
            part.set_producer(batch.producer_id, batch.producer_epoch, sequence)
            sequence = sequence_after(sequence, part.count)
        if sequence != sequence_after(batch.base_sequence, batch.count):
            partition.unwritten_from = min(partition.unwritten_from or batch.ordinal, batch.ordinal)
        place = partition.in_flight.index(batch)
        partition.in_flight[place : place + 1] = parts

    def on_off_the_wire(self, topic_partition: TopicPartition) -> None:
        """A request with a batch of this partition is over: a restart may be possible now."""
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            self._maybe_restart(partition)

    def on_recreated(self, topic: str) -> None:
        """The topic's partitions start over as soon as nothing of theirs is on the wire."""
        for topic_partition, partition in self._partitions.items():
            if topic_partition.topic == topic:
                partition.begin_new_log()

    def on_other_cluster(self) -> None:
        """Every partition starts over, under a producer id that the other cluster gives."""
        self.identity = None
        for partition in self._partitions.values():
            partition.identity = None
            partition.begin_new_log()

    def do_without_identity(self) -> bool:
        """Gives up, where that is allowed and no batch without an outcome has a sequence."""
        if self._on_given_up is None or any(p.in_flight for p in self._partitions.values()):
            return False
        self._given_up = True
        self._on_given_up()
        return True

    # -- private ---------------------------------------------------------------------------------

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
        """With nothing in flight: makes the partition ready for a new batch, if possible."""
        if partition.identity != self.identity or not partition.is_whole:
            self._restart(partition)
        return partition.is_whole and partition.identity is not None

    def _maybe_restart(self, partition: _Partition) -> None:
        first = partition.unwritten_from
        if first is None or not partition.in_flight:
            return
        if all(batch.ordinal >= first and not batch.holds for batch in partition.in_flight):
            self._restart(partition)

    def _restart(self, partition: _Partition) -> None:
        """Numbers the partition's batches from 0 under an epoch it has not used."""
        if self.identity is not None and partition.identity == self.identity:
            self._bump()
        if self.identity is None or partition.identity == self.identity:
            return
        if not self._is_known(partition, self.identity):
            partition.acknowledged_at = -inf
        partition.identity = self.identity
        partition.next_sequence, partition.newest = 0, ()
        partition.unwritten_from = partition.unknown_gap = None
        partition.log_is_new = False
        for batch in partition.in_flight:
            self._stamp(partition, batch)

    def _is_known(self, partition: _Partition, identity: ProducerIdentity) -> bool:
        """Whether the broker is sure to refuse a batch of this identity that comes too early."""
        return False

    def _bump(self) -> None:
        """Takes the next epoch, where the producer may do that by itself."""
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
        partition.next_sequence = sequence_after(partition.next_sequence, batch.count)


def sequence_after(sequence: int, count: int) -> int:
    """The sequence `count` records behind: 0 follows 2^31-1."""
    return (sequence + count) % _SEQUENCES
