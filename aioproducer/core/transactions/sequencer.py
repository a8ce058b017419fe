"""Sequence numbers of a transactional producer: never mended, only started over by a new epoch.

Owns: when a batch of a transaction may be numbered. Must not know: how a transaction ends.

What differs from `IdempotentSequencer`: producer id and epoch are the coordinator's to give, so a
partition whose order is broken stays so until the next epoch, which comes with the next
transaction. A batch that is out of order although it is the next one cannot be saved: it fails, and
its transaction with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.core.sending.idempotence import IdempotentSequencer, ProducerIdentity
from aioproducer.core.sending.obstacles import Obstacle
from aioproducer.errors import FatalTransactionError
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.core.sending.idempotence import _Partition
    from aioproducer.core.transactions.manager import TransactionManager
    from aioproducer.errors import KafkaError


class TransactionalSequencer(IdempotentSequencer):
    """Numbers the batches of transactions.

    Args:
        max_in_flight: see `IdempotentSequencer`.
        transactions: says whether a batch may go out, and under which identity.
    """

    identity: ProducerIdentity | None

    def __init__(self, max_in_flight: int, transactions: TransactionManager) -> None:
        super().__init__(max_in_flight)
        self._transactions = transactions

    @property
    def wants_identity(self) -> bool:
        """Never: the coordinator gives it."""
        return False

    def on_opened(self, topic_partition: TopicPartition) -> None:
        """The transaction writes to this partition."""
        self._transactions.on_partition_used(topic_partition)

    def may_drain(self, batch: ProducerBatch, now: float, leader_epoch: int) -> bool:
        """Whether the transaction lets the batch out, and the order of its partition."""
        self.identity = self._transactions.identity
        return self._transactions.may_drain(batch) and super().may_drain(batch, now, leader_epoch)

    def obstacle(self, batch: ProducerBatch) -> Obstacle:
        """What keeps a batch, the first of its queue, from going out."""
        if not self._transactions.may_drain(batch):
            return Obstacle.COORDINATOR
        return super().obstacle(batch)

    @property
    def coordinator_error(self) -> KafkaError | None:
        """Why the coordinator has not added a partition yet, as far as it is known."""
        return self._transactions.coordinator_error

    def on_drained(self, batch: ProducerBatch) -> None:
        """The batch goes out."""
        super().on_drained(batch)
        self._transactions.on_drained()

    def may_renumber(self, batch: ProducerBatch) -> bool:
        """Whether a batch that is out of order only has to wait for an earlier one."""
        partition = self._partition(batch.topic_partition)
        return partition.in_flight[:1] != [batch] and batch.ordinal >= partition.newest

    def on_recreated(self, topic: str) -> None:
        """What the transaction wrote to the topic is gone with its log."""
        super().on_recreated(topic)
        self._transactions.on_sequences_lost(f"the topic {topic} was created anew")

    def on_other_cluster(self) -> None:
        """The other cluster knows nothing of the transactional id's state."""
        self._transactions.fail(FatalTransactionError("the cluster was replaced by another one"))

    def _is_known(self, partition: _Partition, identity: ProducerIdentity) -> bool:
        """Whether the broker has a batch of an earlier epoch: then it waits for sequence 0.

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
        """The coordinator gives the next epoch, after the transaction."""
