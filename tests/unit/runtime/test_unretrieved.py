"""Failures nobody looked at: one report per batch, and few lines in a storm."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest
from support.stage import Stage, play

from aioproducer import TopicPartition
from aioproducer.errors import KafkaError
from aioproducer.runtime.delivery import Delivery
from aioproducer.wire.api_keys import ApiKey

TOPIC_AUTHORIZATION_FAILED = 29


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "nobody looked" in r.getMessage()]


async def failed_batch(stage: Stage, records: int, topic: str = "t") -> list[Delivery]:
    """The deliveries of one batch that the broker refused."""
    fault = stage.faults.error(ApiKey.PRODUCE, TOPIC_AUTHORIZATION_FAILED, topic=topic, times=1)
    deliveries = [await stage.producer.send(topic, b"v") for _ in range(records)]
    await stage.producer.flush()
    assert fault.struck == 1
    return deliveries


async def collected() -> None:
    gc.collect()
    await asyncio.sleep(0)


def test_a_batch_is_reported_once_with_partition_count_cause_and_persistence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[tuple[TopicPartition, int, KafkaError]] = []

    async def act(stage: Stage) -> None:
        async with stage.producer:
            deliveries = await failed_batch(stage, 5)
            for looked_at in deliveries[:2]:
                assert looked_at.exception() is not None
                assert looked_at.exception() is not None
            del looked_at
            deliveries = deliveries[4:]
            await collected()
            assert lines(caplog) == []  # one of the batch's may still be looked at
            deliveries.clear()
            await collected()
            assert stage.producer.metrics()["unretrieved_failure_total"] == 3

    with caplog.at_level(logging.WARNING, logger="aioproducer"):
        play(act, on_delivery_error=lambda *report: told.append(report))
    (line,) = lines(caplog)
    assert line.startswith("t-0: 3 of 5 record(s)")
    assert "TOPIC_AUTHORIZATION_FAILED" in line
    assert "not persisted" in line
    ((where, count, error),) = told
    assert (where, count) == (TopicPartition("t", 0), 3)
    assert str(error) in line


def test_a_batch_of_which_every_failure_was_seen_is_not_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer:
            for delivery in await failed_batch(stage, 3):
                with pytest.raises(KafkaError):
                    await delivery
            del delivery
            await collected()
            assert stage.producer.metrics()["unretrieved_failure_total"] == 0

    with caplog.at_level(logging.WARNING, logger="aioproducer"):
        play(act)
    assert lines(caplog) == []


def test_batches_that_fail_apart_have_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer:
            for topic in ("t", "u", "t"):
                await failed_batch(stage, 2, topic)
                await collected()
                await asyncio.sleep(1.5)

    with caplog.at_level(logging.WARNING, logger="aioproducer"):
        play(act)
    assert [line.split(":")[0] for line in lines(caplog)] == ["t-0", "u-0", "t-0"]


def test_a_storm_is_one_line_a_second_and_the_next_one_counts_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[int] = []

    async def act(stage: Stage) -> None:
        async with stage.producer:
            for _ in range(40):
                await failed_batch(stage, 2)
                await collected()
            await asyncio.sleep(1.5)
            await failed_batch(stage, 1)
            await collected()
            assert stage.producer.metrics()["unretrieved_failure_total"] == 81

    with caplog.at_level(logging.WARNING, logger="aioproducer"):
        play(act, on_delivery_error=lambda where, count, error: told.append(count))
    storm, after = lines(caplog)
    assert "2 of 2" in storm
    assert "1 of 1" in after
    assert after.endswith("(39 more like this were not logged)")
    assert told == [2] * 40 + [1]
