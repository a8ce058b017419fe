"""The part of a blocking producer that runs in its loop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from aioproducer.blocking.handle import DeliveryHandle
from aioproducer.blocking.loop_side import LoopSideProducer
from aioproducer.blocking.loop_thread import LoopThread
from aioproducer.config import ProducerConfig


async def test_a_flush_that_times_out_counts_a_record_that_is_appended_meanwhile() -> None:
    has_memory = asyncio.Event()

    async def append(parts: object) -> object:
        await has_memory.wait()
        return SimpleNamespace(done=lambda: False)

    async def flush(timeout: float | None) -> int:
        has_memory.set()
        while not handle.is_handed_over:
            await asyncio.sleep(0)
        return 0

    engine = SimpleNamespace(
        config=ProducerConfig(bootstrap_servers="broker:9092"),
        loop=asyncio.get_running_loop(),
        check_usable=lambda: None,
        appender=SimpleNamespace(
            append=append, fast_path=SimpleNamespace(append=lambda *record: None)
        ),
    )
    producer: Any = SimpleNamespace(_usable=lambda: engine, flush=flush)
    thread = LoopThread("test")
    loop_side, handle = LoopSideProducer(producer, thread), DeliveryHandle(thread)
    loop_side.submissions.topics["t"] = 1
    loop_side.submissions.put((handle, "t", b"v", None, (), None, None), 1)
    assert await loop_side.flush(0.0) == 1
    loop_side.submissions.refuse_new()
    await loop_side.submissions.ended(None)
