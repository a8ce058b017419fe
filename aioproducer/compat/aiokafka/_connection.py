"""`Producer` with the few questions aiokafka's interface asks beyond its public ones.

Owns: nothing; it looks. Must not know: aiokafka's names and errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aioproducer.core.transaction_states import TransactionState
from aioproducer.producer import Producer

if TYPE_CHECKING:
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.runtime.whole_batch import WholeRecord


class Connection(Producer):
    """One start of an `AIOKafkaProducer`, which warns itself if it is left unclosed."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, failed or not."""
        return self._transactions().manager.state in {
            TransactionState.IN_TRANSACTION,
            TransactionState.ABORTABLE_ERROR,
            TransactionState.FATAL_ERROR,
        }

    async def partition_ids(self, topic: str) -> range:
        """The topic's partitions; waits for its metadata where that is not at hand."""
        known = self._usable().metadata.cluster.topics.get(topic)
        if known is None:
            return range(len(await self.partitions_for(topic)))
        return range(len(known.partitions))

    async def send_whole(
        self, topic: str, records: Sequence[WholeRecord], partition: int | None
    ) -> ProducerBatch:
        """Accepts one record batch of exactly these records, which are serialized."""
        return await self._usable().appender.append_whole(topic, records, partition)

    def _warn_of_being_unclosed(self) -> None:
        """Says nothing: its owner has warned."""
