"""A program that copies one topic to another, exactly once, from its group's position.

    python -m support.transactions.copier BOOTSTRAP SOURCE TARGET

It reads with confluent-kafka's consumer, as a static member of a group whose positions are part of
the transactions (KIP-447). It handles no error: it ends, and can be started again, as after a kill.
It prints a line per committed transaction, and ends well at the source's present end.
"""

from __future__ import annotations

import asyncio
import sys

from confluent_kafka import Consumer, KafkaError, TopicPartition

from aioproducer import Producer

CHUNK = 20
_POLL_S = 0.2


async def _main(bootstrap: str, source: str, target: str) -> None:
    """Copy the source to its present end, from the group's position."""
    async with Producer(bootstrap_servers=bootstrap, transactional_id=target) as producer:
        # After the producer, whose start ends the transaction that a dead one left behind.
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": target,
                "group.instance.id": "pipeline",
                "session.timeout.ms": 6_000,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        consumer.subscribe([source])
        try:
            await _copy(producer, consumer, target)
        finally:
            await asyncio.to_thread(consumer.close)


async def _copy(producer: Producer, consumer: Consumer, target: str) -> None:
    ended: set[int | None] = set()
    while not ended or len(ended) < len(consumer.assignment()):
        messages = []
        for message in await asyncio.to_thread(consumer.consume, CHUNK, _POLL_S):
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        if not messages:
            continue
        async with producer.transaction() as tx:
            for message in messages:
                await producer.send(target, message.value(), partition=message.partition())
            places = (TopicPartition(m.topic(), m.partition(), m.offset() + 1) for m in messages)
            await tx.send_offsets(places, consumer)
        sys.stdout.buffer.write(b"committed\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
