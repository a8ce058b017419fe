"""`Producer` with the few questions aiokafka's interface asks beyond its public ones.

Owns: nothing; it looks. Must not know: aiokafka's names and errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from aioproducer.core.transaction_states import TransactionState
from aioproducer.errors import IllegalStateError
from aioproducer.producer import Producer

if TYPE_CHECKING:
    from aioproducer.core.metadata import Metadata
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

    @property
    def metadata(self) -> Metadata:
        """The producer's view of the cluster; it stays readable after `close()`."""
        if self._engine is None:
            raise IllegalStateError("the producer is not started")
        return self._engine.metadata

    @property
    def takes_headers(self) -> bool:
        """Whether the brokers store headers: Kafka 0.11 or later."""
        return self._engine is None or self._engine.appender.takes_headers

    def check_running(self) -> None:
        """Raise unless the producer can be used now."""
        self._usable()

    def use_topics(self, names: Iterable[str]) -> None:
        """Ask for topics with every refresh, until they are idle for `metadata_max_idle_ms`."""
        engine = self._usable()
        for name in names:
            engine.metadata.add_topic(name, engine.loop.time())

    async def refresh_metadata(self) -> bool:
        """Ask for all topics in use again; return whether a broker answered in time."""
        engine = self._usable()
        return await engine.metadata_task.refresh(self._block_deadline(engine))

    def _warn_of_being_unclosed(self) -> None:
        """Says nothing: its owner has warned."""
