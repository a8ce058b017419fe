"""`Producer.statistics()`: its numbers, on virtual time."""

from __future__ import annotations

import asyncio

import pytest
from support.stage import Stage, play

from aioproducer.types import TopicPartition
from aioproducer.wire.api_keys import ApiKey


def test_ages_count_from_the_first_record_of_the_oldest_batch() -> None:
    async def act(stage: Stage) -> None:
        await asyncio.sleep(100)
        async with stage.producer as producer:
            await producer.warm_up(["t"])
            stage.faults.delay(5000, ApiKey.PRODUCE)
            deliveries = []
            began = stage.loop.time()
            for _ in range(3):
                deliveries.append(await producer.send("t", b"v"))
                await asyncio.sleep(1)
            found = producer.statistics().partitions[TopicPartition("t", 0)]
            assert (found.in_flight_batches, found.queued_batches) == (1, 1)
            assert found.oldest_s == pytest.approx(stage.loop.time() - began)
            for delivery in deliveries:
                await delivery

    play(act, max_in_flight_requests_per_connection=1)
