"""Closing a producer that cannot deliver."""

from __future__ import annotations

import asyncio
import gc

from support.stage import Stage, play


def test_what_a_close_gives_up_is_reported_although_the_producer_object_is_kept() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.send("t", b"delivered")
        await stage.producer.flush()
        stage.lose()
        for _ in range(3):
            await stage.producer.send("t", b"given up")
        await stage.producer.close(1.0)
        gc.collect()
        await asyncio.sleep(0)
        assert stage.producer.metrics()["unretrieved_failure_total"] == 3

    play(act)


def test_what_was_on_its_way_at_a_close_is_reported_too() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.send("t", b"delivered")
        await stage.producer.flush()
        stage.broker.freeze()
        await stage.producer.send("t", b"on its way")  # the last that the sender did
        await asyncio.sleep(0.1)
        await stage.producer.close(0)
        gc.collect()
        await asyncio.sleep(0)
        assert stage.producer.metrics()["unretrieved_failure_total"] == 1

    play(act, linger_ms=0)
