"""The part of a blocking producer that runs in its loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.blocking.handle import DeliveryHandle
from aioproducer.blocking.loop_side import LoopSideProducer
from aioproducer.blocking.loop_thread import LoopThread
from aioproducer.blocking.submission_queue import SubmissionQueue
from aioproducer.config import ProducerConfig
from aioproducer.errors import ProducerClosedError, RecordsFailedError
from aioproducer.testing.world.loop import VirtualLoop


def _loop_side(
    has_memory: asyncio.Event, flush: Callable[..., object], thread: LoopThread | None = None
) -> LoopSideProducer:
    """Return one whose records all wait for memory."""

    async def append(parts: object) -> object:
        await has_memory.wait()
        return SimpleNamespace(done=lambda: False)

    engine = SimpleNamespace(
        config=ProducerConfig(bootstrap_servers="broker:9092"),
        loop=asyncio.get_running_loop(),
        check_usable=lambda: None,
        appender=SimpleNamespace(
            append=append, fast_path=SimpleNamespace(append=lambda *record: None)
        ),
    )
    producer: Any = SimpleNamespace(_usable=lambda: engine, flush=flush, close=flush)
    return LoopSideProducer(producer, thread or LoopThread("test"))


def _hand_over(loop_side: LoopSideProducer) -> DeliveryHandle:
    handle = DeliveryHandle(LoopThread("test"))
    loop_side.submissions.topics["t"] = 1
    loop_side.submissions.put((handle, "t", b"v", None, (), None, None), 1)
    return handle


async def test_a_flush_that_times_out_counts_a_record_that_is_appended_meanwhile() -> None:
    has_memory = asyncio.Event()

    async def flush(timeout: float | None, *, raise_failures: bool) -> int:
        has_memory.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert handle.is_handed_over
        return 0

    loop_side = _loop_side(has_memory, flush)
    handle = _hand_over(loop_side)
    assert await loop_side.flush(0.0) == 1
    loop_side.submissions.refuse_new()
    await loop_side.submissions.ended(None)


async def test_a_flush_that_times_out_before_the_hand_over_raises_failures() -> None:
    has_memory = asyncio.Event()

    async def flush(timeout: float | None, *, raise_failures: bool) -> int:
        if raise_failures:
            raise RecordsFailedError(count=1)
        return 0

    loop_side = _loop_side(has_memory, flush)
    _hand_over(loop_side)
    with pytest.raises(RecordsFailedError):
        await loop_side.flush(0.0, raise_failures=True)
    assert await loop_side.flush(0.0) == 1
    has_memory.set()
    loop_side.submissions.refuse_new()
    await loop_side.submissions.ended(None)


class _Interrupted(LoopThread):
    """The thread of a producer that a signal handler closes in the middle of `put`."""

    submissions: SubmissionQueue

    def post(self, callback: Callable[[], object]) -> bool:
        """Close, as the loop does when the handler's `close()` has come to it."""
        self.submissions.refuse_new()
        return False


async def test_a_record_is_refused_if_a_signal_handler_closes_the_producer_meanwhile() -> None:
    thread = _Interrupted("test")
    loop_side = _loop_side(asyncio.Event(), lambda: None, thread)
    thread.submissions = loop_side.submissions
    with pytest.raises(ProducerClosedError):
        _hand_over(loop_side)
    await loop_side.submissions.ended(None)
    assert loop_side.submissions.undrained() == 0


@pytest.mark.parametrize("call", ["flush", "close"])
def test_a_call_counts_its_timeout_by_the_clock_of_its_loop(call: str) -> None:
    async def act() -> list[float | None]:
        has_memory, timeouts = asyncio.Event(), list[float | None]()

        async def flush(timeout: float | None, *, raise_failures: bool = False) -> int:
            timeouts.append(timeout)
            return 0

        loop_side = _loop_side(has_memory, flush)
        _hand_over(loop_side)
        asyncio.get_running_loop().call_later(0.75, has_memory.set)
        await getattr(loop_side, call)(1.0)
        loop_side.submissions.refuse_new()
        await loop_side.submissions.ended(None)
        return timeouts

    loop = VirtualLoop(random.Random(1))
    try:
        assert loop.run_until_complete(act()) == [0.25]
    finally:
        loop.close()
