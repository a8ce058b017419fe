"""`Producer` with the private members that the drop-in for aiokafka needs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aioproducer.client.producer import Producer
from aioproducer.compat.aiokafka._batch import BatchBuilder
from aioproducer.compat.aiokafka._outcomes import Outcome, RecordFutures, batch_future
from aioproducer.core.transactions.states import TransactionState
from aioproducer.errors import IllegalStateError

if TYPE_CHECKING:
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.runtime.engine import ProducerEngine


class Connection(Producer):
    """One start of an `AIOKafkaProducer`, which warns itself if it is left unclosed.

    Attributes:
        futures: Makes the futures of its records.
    """

    futures: RecordFutures
    _owner_warns = True

    def _opened(self, engine: ProducerEngine) -> None:
        super()._opened(engine)
        self.futures = RecordFutures(engine.loop, acknowledged=self.config.acks_value != 0)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, failed or not."""
        return self._transactions().manager.state in {
            TransactionState.IN_TRANSACTION,
            TransactionState.ABORTABLE_ERROR,
            TransactionState.FATAL_ERROR,
        }

    @property
    def transaction_state(self) -> TransactionState | None:
        """The state of a transactional producer; None without an id, and before the start."""
        transactions = None if self._engine is None else self._engine.transactions
        return None if transactions is None else transactions.manager.state

    @property
    def sender_task(self) -> asyncio.Task[None] | None:
        """The task that sends; None before the start."""
        return None if self._engine is None else self._engine.sender_task._task

    async def partition_ids(self, topic: str) -> range:
        """Return the topic's partitions; wait for its metadata if necessary."""
        known = self._usable().metadata.cluster.topics.get(topic)
        if known is None:
            return range(len(await self.partitions_for(topic)))
        return range(len(known.partitions))

    @staticmethod
    async def send_gathered(
        producer: Producer, batch: BatchBuilder, topic: str, partition: int | None
    ) -> Outcome:
        """Accept one record batch of exactly these records; see `AIOKafkaProducer.send_batch`."""
        batch.close()
        records = batch.parts()
        whole = None
        if records:
            whole = await producer._usable().appender.append_whole(topic, records, partition)
        return batch_future(whole, acknowledged=producer.config.acks_value != 0)

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
        return await engine.metadata_task.waits.refresh(self._block_deadline(engine))
