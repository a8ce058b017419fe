"""Calls of a producer one of whose tasks is cancelled: what the check notices."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.errors import KafkaError, ProducerFailedError
from aioproducer.testing.world.loop import VirtualLoop
from simulation.ledger import Ledger
from simulation.transactions.ended_tasks import close_when_prepared, end_a_task


def _run(work: Coroutine[Any, Any, bool]) -> bool:
    loop = VirtualLoop(random.Random(0))
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


class _Producer:
    """One whose calls end with `error` when a task of it is cancelled; None for never."""

    def __init__(self, error: Exception | None) -> None:
        self.engine: Any = None
        self.is_closed = False
        self._error = error
        self._ended = asyncio.Event()

    async def start(self) -> None:
        tasks = [SimpleNamespace(_task=asyncio.ensure_future(self._work())) for _ in range(3)]
        self.engine = SimpleNamespace(
            sender_task=tasks[0], metadata_task=tasks[1], transactions=tasks[2]
        )

    async def _work(self) -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            if self._error is not None:
                self._ended.set()
            raise

    async def begin_transaction(self) -> None:
        pass

    async def send(self, topic: str, value: bytes, *, partition: int) -> None:
        await self._wait()

    async def send_offsets_to_transaction(self, offsets: object, group: object) -> None:
        await self._wait()

    async def commit_transaction(self) -> None:
        await self._wait()

    async def _wait(self) -> None:
        await self._ended.wait()
        if self._error is not None:
            raise self._error

    async def close(self, timeout: float) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    ("error", "waits", "undocumented"),
    [(ProducerFailedError("ended"), 0, 0), (KeyError("ended"), 0, 3), (None, 3, 0)],
)
def test_a_call_that_waits_for_a_task_that_has_ended_is_found_out(
    error: Exception | None, waits: int, undocumented: int
) -> None:
    ledger = Ledger()

    async def run() -> bool:
        producer: Any = _Producer(error)
        await end_a_task(producer, "t", random.Random(1), ledger)
        return bool(producer.is_closed)

    assert _run(run())
    assert (len(ledger.false_reports), len(ledger.undocumented)) == (waits, undocumented)


def test_a_producer_that_does_not_begin_is_found_out() -> None:
    class Broken(_Producer):
        async def begin_transaction(self) -> None:
            raise KafkaError("no coordinator")

    async def run() -> bool:
        producer: Any = Broken(None)
        await end_a_task(producer, "t", random.Random(1), ledger)
        return bool(producer.is_closed)

    ledger = Ledger()
    assert _run(run())
    assert len(ledger.unrecovered) == 1


@pytest.mark.parametrize(
    ("error", "is_prepared", "reports"),
    [(None, True, 0), (None, False, 1), (KafkaError("the producer is closed"), True, 1)],
)
def test_a_close_that_ends_what_is_prepared_is_found_out(
    error: KafkaError | None, is_prepared: bool, reports: int
) -> None:
    class Block:
        async def __aenter__(self) -> None:
            pass

        async def __aexit__(self, *_: object) -> None:
            if error is not None:
                raise error

        async def send_offsets(self, offsets: object, group: str) -> None:
            pass

        async def prepare(self) -> str:
            return "prepared"

    class Admin:
        async def __aenter__(self) -> None:
            pass

        async def __aexit__(self, *_: object) -> None:
            pass

        async def still_prepared(self, prepared: str) -> bool:
            return is_prepared

        async def finish(self, prepared: str, *, commit: bool) -> None:
            pass

    class Prepared(_Producer):
        client_id = "sim"

        def transaction(self) -> Block:
            return Block()

        async def close(self, timeout: float | None = None) -> None:
            self.is_closed = True

    async def run() -> bool:
        producer, admin = Prepared(None), Admin()
        arguments: list[Any] = [producer, "t", admin, ledger]
        await close_when_prepared(*arguments)
        for each in (producer.engine.sender_task, producer.engine.metadata_task):
            each._task.cancel()
        producer.engine.transactions._task.cancel()
        return producer.is_closed

    ledger = Ledger()
    assert _run(run())
    assert len(ledger.false_reports) == reports
