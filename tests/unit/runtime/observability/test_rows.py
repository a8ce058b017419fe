"""Single metrics of a producer: their values, on virtual time."""

from __future__ import annotations

import asyncio

import pytest
from support.stage import Stage, play

from aioproducer.wire.api_keys import ApiKey


def test_the_age_of_the_metadata_counts_from_the_last_full_response() -> None:
    async def act(stage: Stage) -> None:
        await asyncio.sleep(100)
        async with stage.producer as producer:
            await producer.warm_up(["t"])
            before = producer.metrics()["metadata_age"]
            assert 0 <= before < 1
            await asyncio.sleep(7)
            assert producer.metrics()["metadata_age"] == pytest.approx(before + 7)

    play(act)


def test_metadata_have_an_age_although_each_request_makes_them_outdated() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"v")
            assert 0 <= producer.metrics()["metadata_age"] < 1

    play(act, metadata_max_age_ms=0)


def test_rates_are_what_was_added_per_second() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start(wait=False)
        began = stage.loop.time()
        producer.metrics()  # the first sample begins
        for _ in range(5):
            await producer.send_and_wait("t", b"v")
            await asyncio.sleep(1)
        found, seconds = producer.metrics(), stage.loop.time() - began
        for rate, total in (
            ("connection_creation_rate", "connection_creation_total"),
            ("record_send_rate", "record_send_total"),
        ):
            assert found[rate] == pytest.approx(found[total] / seconds, rel=0.01)
        assert 0 < found["response_rate"] < found["network_io_rate"]
        assert found["network_io_rate"] == found["request_rate"] + found["response_rate"]
        assert found["connection_close_rate"] == 0
        await producer.close()

    play(act)


def test_latencies_of_a_broker_are_in_milliseconds() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.warm_up(["t"])
            stage.faults.delay(700, ApiKey.PRODUCE)
            await producer.send_and_wait("t", b"v")
            found = {
                metric.name: metric.value
                for metric in producer.all_metrics()
                if ("node-id", "node-1") in tuple(metric.tags)
            }
            assert 700 <= found["request-latency-max"] < 750
            assert 1 < found["request-latency-avg"] < 700

    play(act)
