"""`Producer` with the few questions aiokafka's interface asks beyond its public ones.

Owns: nothing; it looks. Must not know: aiokafka's names and errors.
"""

from __future__ import annotations

from aioproducer.core.transaction_states import TransactionState
from aioproducer.producer import Producer


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

    def _warn_of_being_unclosed(self) -> None:
        """Says nothing: its owner has warned."""
