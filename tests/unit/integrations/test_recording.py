"""The history of the live page, recorded from the application's start to its end."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Mount

from aioproducer.starlette import LivePage, ProducerLifespan
from aioproducer.starlette.live_stats import POINTS_KEPT
from aioproducer.starlette.recording import EVERY_S, Recording
from aioproducer.testing import run_virtual
from aioproducer.testing.virtual import VirtualKafka


def points(page: LivePage) -> dict[str, list[Any]]:
    return page._recording.history.since(0)


def test_history_is_recorded_without_a_viewer_until_the_application_ends() -> None:
    async def scenario(kafka: VirtualKafka) -> None:
        page = LivePage()
        lifespan = ProducerLifespan(kafka.producer)
        app = Starlette(routes=[Mount("/ops", routes=[Mount("/live", page)])], lifespan=lifespan)
        async with lifespan(app) as state:
            producer = state["aioproducer"]
            await asyncio.sleep(10.5)
            for _ in range(50):
                await producer.send("orders", b"x")
            await producer.flush()
            await asyncio.sleep(10.0)
            recorded = points(page)
        assert recorded["span_s"] == 20 * EVERY_S
        assert sum(filter(None, recorded["per_second"])) == 50
        assert recorded["p99_ms"][10] is None
        assert recorded["p99_ms"][12] > 0
        assert len(points(page)["per_second"]) == 21  # kept, and nothing is added any more
        await asyncio.sleep(10.0)
        assert len(points(page)["per_second"]) == 21

    run_virtual(scenario, topics={"orders": 1})


def test_history_of_an_hour_is_that_of_its_last_minutes() -> None:
    async def scenario(kafka: VirtualKafka) -> None:
        page = LivePage()
        lifespan = ProducerLifespan(kafka.producer)
        async with lifespan(Starlette(routes=[Mount("/live", page)], lifespan=lifespan)):
            await asyncio.sleep(3600)
            assert len(points(page)["buffer"]) == POINTS_KEPT

    run_virtual(scenario, topics={"orders": 1})


def test_recording_ends_with_its_producer_and_starts_anew_with_another() -> None:
    async def scenario(kafka: VirtualKafka) -> None:
        recording = Recording()
        async with kafka.producer() as producer:
            recording.start(producer)
            await asyncio.sleep(5.5)
            recording.start(producer)  # no effect
            assert recording.history.added == 6
        await asyncio.sleep(10.0)
        ended = recording.history.added
        await asyncio.sleep(10.0)
        assert recording.history.added == ended <= 7
        async with kafka.producer() as producer:
            recording.start(producer)
            assert recording.history.added == 1
            recording.stop()

    run_virtual(scenario, topics={"orders": 1})
