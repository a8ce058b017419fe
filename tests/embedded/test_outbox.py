"""The outbox in examples/: what is committed in the database is published once, in order."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import ModuleType

import pytest
from support.programs import example

from aioproducer.testing import EmbeddedCluster, read_topic


@pytest.fixture
def outbox() -> ModuleType:
    return example("outbox.py")


@pytest.fixture
async def brokers() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(topics={"orders": 1}) as cluster:
        yield cluster


@asynccontextmanager
async def publishing(
    outbox: ModuleType, brokers: EmbeddedCluster, path: Path
) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(outbox.publish(brokers.bootstrap_servers, path))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def published(brokers: EmbeddedCluster) -> list[int]:
    found = await read_topic(brokers.bootstrap_servers, "orders", isolation_level="read_committed")
    return [json.loads(record.value or b"")["id"] for record in found[0]]


async def emptied(outbox: ModuleType, path: Path) -> None:
    async with asyncio.timeout(60):
        while await asyncio.to_thread(outbox.Outbox(path).rows, 0):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def place(outbox: ModuleType, path: Path, count: int) -> None:
    with closing(outbox.connect(path)) as database:
        for number in range(count):
            outbox.place_order(database, f"customer-{number % 5}", 100 * number)


async def test_orders_are_published_in_their_order_while_more_come(
    outbox: ModuleType, brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    path = tmp_path / "shop.db"
    place(outbox, path, 700)
    async with publishing(outbox, brokers, path):
        await asyncio.to_thread(place, outbox, path, 50)
        await emptied(outbox, path)
    assert await published(brokers) == list(range(1, 751))


async def test_what_the_database_rolls_back_is_not_published(
    outbox: ModuleType, brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    path = tmp_path / "shop.db"
    with closing(outbox.connect(path)) as database:
        outbox.place_order(database, "customer-1", 100)
        with pytest.raises(sqlite3.IntegrityError):
            outbox.place_order(database, "customer-1", None)
    async with publishing(outbox, brokers, path):
        await emptied(outbox, path)
    assert await published(brokers) == [1]


async def test_a_crash_between_commit_and_deletion_publishes_nothing_twice(
    outbox: ModuleType,
    brokers: EmbeddedCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "shop.db"
    place(outbox, path, 10)

    def crash(self: object, before: int) -> None:
        if before:
            raise SystemError("out of power")

    with monkeypatch.context() as patch:
        patch.setattr(outbox.Outbox, "delete_before", crash)
        async with publishing(outbox, brokers, path) as task:
            await asyncio.wait({task}, timeout=60)
            assert isinstance(task.exception(), SystemError)
    assert len(outbox.Outbox(path).rows(0)) == 10
    place(outbox, path, 1)
    async with publishing(outbox, brokers, path):
        await emptied(outbox, path)
    assert await published(brokers) == list(range(1, 12))


async def test_lost_answers_and_refused_batches_lose_and_double_nothing(
    outbox: ModuleType,
    brokers: EmbeddedCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox, "RETRY_S", 0.01)
    path = tmp_path / "shop.db"
    brokers.faults.next("produce").drops_the_connection(after_the_work=True)
    brokers.faults.next("produce", after=2).answers("INVALID_RECORD")
    brokers.faults.next("end_txn").drops_the_connection(after_the_work=True)
    async with publishing(outbox, brokers, path):
        for _ in range(5):
            await asyncio.to_thread(place, outbox, path, 20)
            await emptied(outbox, path)
    assert await published(brokers) == list(range(1, 101))


async def test_a_second_publisher_takes_over(
    outbox: ModuleType, brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    path = tmp_path / "shop.db"
    place(outbox, path, 1)
    async with publishing(outbox, brokers, path) as first:
        await emptied(outbox, path)
        async with publishing(outbox, brokers, path):
            async with asyncio.timeout(60):
                while not first.done():
                    await asyncio.to_thread(place, outbox, path, 1)
                    await asyncio.sleep(0.02)
            assert first.exception() is None
            await emptied(outbox, path)
    found = await published(brokers)
    assert found == list(range(1, len(found) + 1))
