"""`close()` that an exception such as KeyboardInterrupt cuts off, and `close()` after it."""

from __future__ import annotations

import asyncio
import random

import pytest
from support.stage import Stage

from aioproducer.testing.world.loop import VirtualLoop


class Serializer:
    """Its `close()` raises, once."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __call__(self, topic: str, value: bytes) -> bytes:
        return value

    def close(self) -> None:
        raise self._error


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_close_in_a_new_run_of_the_loop_ends_after_an_interrupted_one(
    kind: type[BaseException],
) -> None:
    loop = VirtualLoop(random.Random(1))
    asyncio.set_event_loop(loop)
    try:
        stage = Stage(loop, value_serializer=Serializer(kind()))
        producer = stage.producer
        loop.run_until_complete(producer.start())
        interrupted = loop.create_task(producer.close())
        for _ in range(2):  # it leaves the loop at once, then again through the caller
            with pytest.raises(kind):
                loop.run_until_complete(interrupted)
        try:
            loop.run_until_complete(producer.close())
        except kind:
            pytest.fail("close() raised the exception of the earlier call")

        async def left() -> list[str]:
            return stage.left()

        assert loop.run_until_complete(left()) == []
    finally:
        asyncio.set_event_loop(None)
        loop.close()
