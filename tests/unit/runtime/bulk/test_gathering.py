"""Batches of a bulk call without linger are open while it runs, and due when it waits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.stage import Stage, play

from aioproducer.testing.world.loop import VirtualLoop


@pytest.mark.parametrize("options", [{"linger_ms": 0}, {"producer_type": "sync"}])
def test_items_are_sent_each_time_their_source_waits(options: dict[str, Any]) -> None:
    async def act(stage: Stage) -> None:
        seen: list[int] = []

        async def items() -> AsyncIterator[bytes]:
            for number in range(12):
                if number and number % 3 == 0:
                    await asyncio.sleep(5)
                    seen.append(len(stage.values("t")))
                yield b"%d" % number

        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        assert (await stage.producer.send_many("t", items())).delivered == 12
        assert seen == [3, 6, 9]
        assert [batch.count for batch in stage.batches("t")] == [3] * 4
        await stage.producer.close()

    play(act, **options)


def test_items_whose_source_never_waits_share_a_batch_although_the_call_yields() -> None:
    async def act(stage: Stage) -> None:
        read: list[bytes] = []
        read_before_a_turn: list[int] = []

        async def items() -> AsyncIterator[bytes]:
            stage.loop.call_soon(lambda: read_before_a_turn.append(len(read)))
            for number in range(2_500):
                read.append(b"%d" % number)
                yield read[-1]

        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        assert (await stage.producer.send_many("t", items())).delivered == 2_500
        assert read_before_a_turn == [1_001]
        assert [batch.count for batch in stage.batches("t")] == [2_500]
        await stage.producer.close()

    play(act, linger_ms=0, batch_size=100_000, buffer_memory=200_000, value_serializer=bytes.upper)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # it was not closed
def test_a_call_that_is_given_up_after_its_loop_was_closed_raises_nothing() -> None:
    loop = VirtualLoop(random.Random(1))
    stage = Stage(loop, linger_ms=0, batch_size=100_000, buffer_memory=2_000_000)

    async def begin() -> None:
        await stage.producer.start()
        await stage.producer.warm_up(["t"])

    loop.run_until_complete(begin())
    call = stage.producer.send_many("t", [b"v" * 60_000] * 20)

    async def step() -> None:
        call.send(None)
        assert 0 < stage.engine.appender.fast_path.appended < 20

    loop.run_until_complete(step())
    loop.close()
    call.close()
    stage.engine.close_soon()
