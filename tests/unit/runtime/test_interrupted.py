"""An exception such as KeyboardInterrupt in the middle of an answer ends the producer cleanly."""

from __future__ import annotations

import asyncio
import random

import pytest
from support.stage import Stage

from aioproducer.errors import KafkaError
from aioproducer.testing.world.loop import VirtualLoop
from aioproducer.types import Persistence


class Interrupt(Exception):  # noqa: N818 - what a signal handler raises
    """Raised in the middle of something."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, MemoryError, Interrupt])
@pytest.mark.parametrize("where", ["on_response", "_move_leaders", "_let_go"])
def test_interrupted_answer_ends_every_delivery_and_frees_the_memory(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseException], where: str
) -> None:
    loop = VirtualLoop(random.Random(1))
    asyncio.set_event_loop(loop)
    stage = Stage(loop)
    stage.create_topic("p", (1, 1))
    producer = stage.producer
    deliveries = []

    def interrupt(*_: object) -> None:
        monkeypatch.undo()
        raise kind

    async def send() -> None:
        await producer.start()
        for number in range(4):
            delivery = await producer.send("p", b"%d" % number, partition=number % 2)
            deliveries.append(delivery)
        monkeypatch.setattr(producer.engine.sender, where, interrupt)
        await asyncio.sleep(10)

    async def close() -> None:
        await asyncio.wait([asyncio.ensure_future(outcome(each)) for each in deliveries], timeout=1)
        await producer.close()

    async def outcome(delivery: object) -> None:
        try:
            await delivery
        except KafkaError:
            pass

    try:
        task = loop.create_task(send())
        for _ in range(2):
            try:
                loop.run_until_complete(task)
            except kind:
                continue
        loop.run_until_complete(close())
        written = {*stage.values("p", 0), *stage.values("p", 1)}
        for number, delivery in enumerate(deliveries):
            assert delivery.done()
            error = delivery.exception()
            if error is not None and b"%d" % number in written:
                assert error.persistence is Persistence.POSSIBLY_PERSISTED
            assert delivery.batch_and_index()[0].buffer is None
        assert producer.engine.pool.available == producer.engine.pool.total
    finally:
        asyncio.set_event_loop(None)
        loop.close()
