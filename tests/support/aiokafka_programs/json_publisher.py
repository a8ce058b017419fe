"""Publishes events as JSON: singly with callbacks and retries, and as an archive in batches.

An event that fails is tried again alone; one that fails again goes, by its id and the reason, to a
topic for such events.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, KafkaError, MessageSizeTooLargeError

Event = dict[str, Any]

CONNECTION_TRIES = 5


@dataclass
class Report:
    """The outcome of the events."""

    stored: Counter[int] = field(default_factory=Counter)
    failed: list[tuple[Event, str]] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    batches: int = 0
    tries: int = 0


async def connected(servers: str, **options: Any) -> AIOKafkaProducer:
    """A producer that has started, although its brokers may be late."""
    for number in range(1, CONNECTION_TRIES + 1):
        producer = AIOKafkaProducer(
            bootstrap_servers=servers,
            client_id="publisher",
            acks="all",
            compression_type="gzip",
            linger_ms=5,
            key_serializer=str.encode,
            value_serializer=lambda value: json.dumps(value, sort_keys=True).encode(),
            **options,
        )
        try:
            await producer.start()
        except KafkaConnectionError:
            await producer.stop()
            if number == CONNECTION_TRIES:
                raise
            await asyncio.sleep(0.1 * 2**number)
        else:
            return producer
    raise AssertionError("the loop returns or raises")


async def publish(
    producer: AIOKafkaProducer, topic: str, rejects: str, events: Iterable[Event]
) -> Report:
    """Send the events, those that fail a second time alone, what is left to `rejects`."""
    report = Report()
    await send_all(producer, topic, events, report)
    again, report.failed = report.failed, []
    for event, _ in again:
        await send_all(producer, topic, [event], report)
    for event, why in report.failed:
        reason = {"id": event["id"], "why": why}
        await producer.send_and_wait(rejects, reason, key=event["customer"])
    return report


async def send_all(
    producer: AIOKafkaProducer, topic: str, events: Iterable[Event], report: Report
) -> None:
    """Send without waiting for each; the callbacks see the outcomes."""
    for event in events:
        report.tries += 1
        future = await producer.send(
            topic,
            event,
            key=event["customer"],
            timestamp_ms=event["at"],
            headers=[("schema", b"event-1"), ("trace", b"%d" % event["id"])],
        )
        future.add_done_callback(partial(note, event, report))
    await producer.flush()
    await asyncio.sleep(0)  # callbacks run in the loop's next turn


def note(event: Event, report: Report, future: asyncio.Future[Any]) -> None:
    """Remember how it went."""
    error = future.exception()
    if error is None:
        report.stored[future.result().partition] += 1
        return
    if not isinstance(error, KafkaError):
        raise error
    report.reasons[type(error).__name__] += 1
    report.failed.append((event, type(error).__name__))


async def archive(producer: AIOKafkaProducer, topic: str, events: Sequence[Event]) -> Report:
    """Write the events in batches, each customer's to a partition that the program chooses."""
    report = Report()
    partitions = sorted(await producer.partitions_for(topic))
    for number in partitions:
        chosen = [event for event in events if event["id"] % len(partitions) == number]
        await archive_partition(producer, topic, number, chosen, report)
    return report


async def archive_partition(
    producer: AIOKafkaProducer, topic: str, partition: int, events: Sequence[Event], report: Report
) -> None:
    """Fill batches and send each when it is full."""
    batch = producer.create_batch()
    futures = []

    async def send() -> None:
        batch.close()
        futures.append(await producer.send_batch(batch, topic, partition=partition))
        report.batches += 1
        report.stored[partition] += batch.record_count()

    for event in events:
        part = {"key": event["customer"], "value": event, "timestamp": event["at"]}
        if batch.append(**part) is None:
            await send()
            batch = producer.create_batch()
            if batch.append(**part) is None:
                raise MessageSizeTooLargeError(f"event {event['id']} fits into no batch")
    if batch.record_count():
        await send()
    await asyncio.gather(*futures)
