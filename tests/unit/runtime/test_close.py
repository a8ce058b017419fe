"""Closing a producer that cannot deliver."""

from __future__ import annotations

import asyncio
import gc

from support.stage import Stage, play


def test_what_a_close_gives_up_is_reported_although_the_producer_object_lives_on() -> None:
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
