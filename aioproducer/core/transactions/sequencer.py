"""Sequence numbers of a transactional producer: only a new epoch restarts them.

In contrast to `Sequencer`, the coordinator assigns producer id and epoch. A partition
whose sequences are broken stays so until the next epoch, which comes with the next transaction. If
the first batch in flight is refused as out of order, it fails, and its transaction fails with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.core.sending.idempotence import ProducerIdentity, Sequencer
from aioproducer.core.sending.reasons import Obstacle
from aioproducer.errors import FatalTransactionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.core.sending.idempotence import _Partition
    from aioproducer.core.transactions.manager import TransactionManager
    from aioproducer.errors import KafkaError
    from aioproducer.types import TopicPartition


class TransactionalSequencer(Sequencer):
    """Numbers the batches of transactions."""

    identity: ProducerIdentity | None

    def __init__(self, max_in_flight: int, transactions: TransactionManager) -> None:
        super().__init__(max_in_flight)
        self._transactions = transactions
        self.on_opened: Callable[[TopicPartition], None] | None = transactions.on_partition_used

    @property
    def wants_identity(self) -> bool:
        """Always False: the coordinator assigns the identity."""
        return False

    def may_drain(self, batch: ProducerBatch, now: float, leader_epoch: int) -> bool:
        """Return whether the transaction and the order of the partition allow the batch."""
        self.identity = self._transactions.identity
        return self._transactions.may_drain(batch) and super().may_drain(batch, now, leader_epoch)

    def obstacle(self, batch: ProducerBatch) -> Obstacle:
        """Return why the first batch of a queue is not sent."""
        if not self._transactions.may_drain(batch):
            return Obstacle.COORDINATOR
        return super().obstacle(batch)

    @property
    def coordinator_error(self) -> KafkaError | None:
        """The last error of adding a partition at the coordinator, if any."""
        return self._transactions.coordinator_error

    def on_drained(self, batch: ProducerBatch) -> None:
        """Assign a sequence; a V2 transaction begins with its first batch."""
        super().on_drained(batch)
        self._transactions.on_drained()

    def may_renumber(self, batch: ProducerBatch) -> bool:
        """Return whether a batch that is out of order only has to wait for an earlier one."""
        partition = self._partition(batch.topic_partition)
        return partition.in_flight[:1] != [batch] and batch.ordinal >= partition.newest

    def discard_identity(self, batch: ProducerBatch) -> bool:
        """Return False: the coordinator assigns the identity."""
        return False

    def on_recreated(self, topic: str) -> None:
        """Fail the transaction if the deleted topic has records of its epoch.

        Those of the transaction are lost. In V1, its next ones have no valid sequence either.
        """
        super().on_recreated(topic)
        identity = self._transactions.identity
        partitions = self._partitions.items()
        if any(each.identity == identity for where, each in partitions if where.topic == topic):
            self._transactions.on_sequences_lost(f"the topic {topic} was created anew")

    def on_other_cluster(self) -> None:
        """Fail the producer: the other cluster has no state of the transactional id."""
        self._transactions.fail(FatalTransactionError("the cluster was replaced by another one"))

    def _is_known(self, partition: _Partition, identity: ProducerIdentity) -> bool:
        """Return whether the broker has a batch of an earlier epoch: then it expects sequence 0.

        Otherwise each transaction would begin with one batch per partition and round trip.
        """
        before = partition.identity
        return (
            partition.was_acknowledged
            and not partition.log_is_new
            and before is not None
            and before.producer_id == identity.producer_id
        )

    def _bump(self) -> None:
        """Do nothing: the coordinator assigns the next epoch, after the transaction."""
