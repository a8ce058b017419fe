"""One attempt to use a producer, whose outcome and traces are checked."""

from __future__ import annotations

from typing import Any

from aioproducer import KafkaError, Producer, ProducerConfig, RecordMetadata
from support.security.leaks import Evidence


async def attempt(evidence: Evidence, **options: Any) -> RecordMetadata | KafkaError:
    """Starts a producer and sends one record; gives what came of it."""
    outcome: RecordMetadata | KafkaError
    try:
        config = ProducerConfig(**{"max_block_ms": 5000} | options)
        evidence.add(config)
        producer = Producer(config)
    except KafkaError as error:
        evidence.add(error)
        return error
    evidence.add(producer)
    try:
        async with producer:
            outcome = await producer.send_and_wait("t", b"x")
            evidence.add(producer.health())
            evidence.add(producer.metrics())
    except KafkaError as error:
        outcome = error
    evidence.add(outcome)
    evidence.add(producer.health())
    return outcome
