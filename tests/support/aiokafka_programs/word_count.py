"""Counts words: reads lines of text, writes each word with its count so far, exactly once.

The counts are in memory and in the topic they are written to; the group's positions are committed
in the transaction of the counts that follow from them. So a counter that was stopped at any moment
begins where the last committed transaction ended.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

Hook = Callable[[int], None]


async def count_words(
    servers: str,
    source: str,
    sink: str,
    group: str,
    *,
    until: int,
    at_most: int = 10,
    before_commit: Hook = lambda number: None,
) -> int:
    """Count until the group has committed `until` lines; return the number of transactions.

    `before_commit` is called with the number of each transaction; what it raises aborts that.
    """
    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        transactional_id=f"{group}-counter",
        key_serializer=str.encode,
        value_serializer=lambda count: b"%d" % count,
        compression_type="gzip",
    )
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=servers,
        group_id=group,
        group_instance_id=f"{group}-counter",  # a restart costs no rebalance
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await producer.start()
    try:
        await consumer.start()
        try:
            partitions = await producer.partitions_for(sink)
            counts = await counts_so_far(servers, sink, partitions)
            transactions = 0
            while await committed_lines(consumer) < until:
                batch = await consumer.getmany(timeout_ms=200, max_records=at_most)
                if not batch:
                    continue
                async with producer.transaction():
                    transactions += 1
                    positions = {}
                    for place, messages in batch.items():
                        for message in messages:
                            await count_line(producer, sink, message.value.decode(), counts)
                        positions[place] = messages[-1].offset + 1
                    await producer.send_offsets_to_transaction(positions, group)
                    before_commit(transactions)
            return transactions
        finally:
            await consumer.stop()
    finally:
        await producer.stop()


async def count_line(
    producer: AIOKafkaProducer, sink: str, line: str, counts: Counter[str]
) -> None:
    """Write each word of a line with its new count."""
    for word in line.lower().split():
        counts[word] += 1
        await producer.send(sink, counts[word], word)


async def counts_so_far(servers: str, sink: str, partitions: set[int]) -> Counter[str]:
    """The last committed count of each word."""
    counts: Counter[str] = Counter()
    reader = AIOKafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed")
    await reader.start()
    try:
        places = [TopicPartition(sink, number) for number in partitions]
        reader.assign(places)
        await reader.seek_to_beginning(*places)
        ends = await reader.end_offsets(places)
        while [place for place in places if await reader.position(place) < ends[place]]:
            for messages in (await reader.getmany(timeout_ms=200)).values():
                for message in messages:
                    counts[message.key.decode()] = int(message.value)
    finally:
        await reader.stop()
    return counts


async def committed_lines(consumer: AIOKafkaConsumer) -> int:
    """Return how many lines the group has committed."""
    committed = 0
    for place in consumer.assignment():
        committed += await consumer.committed(place) or 0
    return committed


if __name__ == "__main__":
    try:
        asyncio.run(count_words(*sys.argv[1:5], until=sys.maxsize))
    except KafkaError as error:
        sys.exit(f"the counter stopped: {error!r}")
