"""The position of a source, kept by Kafka in the same transaction as the records made from it.

    start the producer   fences a predecessor of the same transactional id, ends its transaction
    read                 the position; no other producer can change it any more
    in each transaction  send what was read, then write the position after it

Read before the producer was initialized, it could be moved by a predecessor that still commits.
"""

from __future__ import annotations

from dataclasses import dataclass

from aioproducer.client.producer import Producer
from aioproducer.client.transactions import Transaction
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Exactly once from a source that can be read again from a position.

    A reader that crashes resumes at its last committed position: what was sent after it was never
    visible to read_committed consumers. This holds while

    - one producer at a time has the transactional id that belongs to this position;
    - the source gives the same rows after a position again;
    - the group's offsets are not deleted: brokers do so with the topic, and
      `offsets.retention.minutes` (7 days) after the last commit.

    Attributes:
        group_id: the group whose offset this is; no consumer may use it.
        topic: an existing topic, such as the one that is written to; only its name is used.
        partition: one of its partitions; as many positions fit into a group as there are.

    Examples:
        >>> position = SourcePosition("orders-loader", "orders")
        >>> at = await position.read(producer)
        >>> async with producer.transaction() as tx:
        ...     await producer.send("orders", b"row 1")
        ...     await position.write(tx, 1, "file.csv")
    """

    group_id: str
    topic: str
    partition: int = 0

    async def read(self, producer: Producer) -> OffsetAndMetadata | None:
        """Return the position that the last committed transaction wrote; None if there is none.

        Args:
            producer: initialized for transactions, so that no predecessor moves the position;
                `start(wait=False)` is waited for.

        Raises:
            KafkaTimeoutError: no answer within `max_block_ms`.
            KafkaConnectionError: `start(wait=False)` has not come to its end within `max_block_ms`.
            UnsupportedVersionError: the brokers are older than Kafka 2.5.
        """
        place = TopicPartition(self.topic, self.partition)
        return await producer._committed_offset(self.group_id, place)

    async def write(
        self, transaction: Transaction, offset: int, metadata: str | None = None
    ) -> None:
        """Make a new position part of the transaction.

        Args:
            transaction: the open one.
            offset: what counts the source's rows, or 0; not negative.
            metadata: anything else, at most the broker's `offset.metadata.max.bytes` (4,096).
        """
        place = TopicPartition(self.topic, self.partition)
        await transaction.send_offsets(
            {place: OffsetAndMetadata(offset, metadata)}, ConsumerGroupMetadata(self.group_id)
        )
