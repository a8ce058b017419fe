"""Flush: bounded, and it says what is left and why."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest
from support.stage import Stage, play

from aioproducer.wire.api_keys import ApiKey


def reported(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.getMessage().startswith("flush(")]


def test_a_flush_that_runs_out_of_time_says_how_much_is_left_where_and_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t", "u"])
        refusing = stage.faults.error(ApiKey.PRODUCE, 19, topic="t", times=None)
        for _ in range(3):
            await producer.send("t", b"v")
        assert await producer.flush(0.05) == 3
        stage.broker.freeze()
        await producer.send("u", b"v")
        assert await producer.flush(2.0) == 4
        assert stage.loop.time() < 3.0
        stage.faults.remove(refusing)
        stage.broker.thaw()
        assert await producer.flush() == 0
        await producer.close()

    with caplog.at_level(logging.WARNING, logger="aioproducer"):
        play(act)
    first, second = reported(caplog)
    assert first.startswith("flush(0.05) ended with 3 record(s) undelivered (t-0: 3, NOT_ENOUGH")
    assert second.startswith("flush(2.0) ended with 4 record(s) undelivered (t-0: 3, NOT_ENOUGH")
    assert second.endswith("u-0: 1, no answer yet)")


def test_a_flush_names_some_partitions_and_counts_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("wide", leaders=(1,) * 8)
        await stage.producer.start()
        await stage.producer.warm_up(["wide"])
        stage.broker.freeze()
        for partition in range(8):
            for _ in range(1 + partition % 2):
                await stage.producer.send("wide", b"v", partition=partition)
        assert await stage.producer.flush(0.1) == 12
        stage.broker.thaw()
        await stage.producer.close()

    with caplog.at_level(logging.WARNING, logger="aioproducer"):
        play(act, buffer_memory=10_000)
    (line,) = reported(caplog)
    assert "wide-1: 2, " in line
    assert line.endswith("5 more partition(s))")


def test_a_flush_in_time_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.send("t", b"v")
        assert await stage.producer.flush(5.0) == 0
        assert await stage.producer.flush(0) == 0
        await stage.producer.close()

    with caplog.at_level(logging.WARNING, logger="aioproducer"):
        play(act)
    assert reported(caplog) == []


def test_after_a_flush_that_ran_out_of_time_records_linger_as_before() -> None:
    """A record whose outcome no task awaits keeps the others lingering."""

    async def act(stage: Stage) -> None:
        stage.create_topic("two", leaders=(1, 2))
        producer = stage.producer
        await producer.start()
        for partition in range(2):
            await producer.send_and_wait("two", b"v", partition=partition)
        stage.world.brokers[2].freeze()
        await producer.send("two", b"v", partition=1)
        assert await producer.flush(1.0) == 1
        for _ in range(2):
            began = stage.loop.time()
            await producer.send_and_wait("two", b"v", partition=0)
            assert 20 <= stage.loop.time() - began < 21
        stage.world.brokers[2].thaw()
        await producer.close()

    play(act, brokers=2, linger_ms=20_000, request_timeout_ms=100_000)


def test_the_exception_of_a_cancelled_flush_keeps_no_failure_from_being_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        stage.broker.freeze()
        await producer.send("t", b"v")
        flush = asyncio.create_task(producer.flush())
        await asyncio.sleep(0.1)
        flush.cancel()
        with pytest.raises(asyncio.CancelledError) as kept:
            await flush
        stage.faults.error(ApiKey.PRODUCE, 29)  # TOPIC_AUTHORIZATION_FAILED
        stage.broker.thaw()
        await asyncio.sleep(1)
        gc.collect()
        await asyncio.sleep(0)
        assert kept.value is not None
        assert "were not awaited" in caplog.text
        await producer.close()

    with caplog.at_level(logging.WARNING, logger="aioproducer"):
        play(act)
