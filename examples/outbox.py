"""An outbox: an event is published if, and only if, its database transaction commits.

    python -m aioproducer cluster --topic orders:6      # in another terminal
    python examples/outbox.py shop.db                   # the publisher; one is enough

The service writes its rows and the event into the same database in one transaction, without using
Kafka (`place_order`). A publisher reads the events in order. It sends each batch in one Kafka
transaction, together with the position after the batch. So read_committed consumers see every event
once and in order, after any crash. If several publishers run, the one that was started last works;
the others are fenced and end.

Events after the position are found by their ids, so ids have to become visible in their order.
SQLite has one writer at a time. With several writers, as in PostgreSQL, a sequence does not ensure
this: take a lock for the insert into the outbox, or order by the commits of the transactions.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from aioproducer import KafkaError, Producer, SourcePosition
from aioproducer.errors import ProducerFencedError

TOPIC = "orders"
NAME = "orders-outbox"
BATCH = 500
IDLE_S = 0.1
RETRY_S = 1.0

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (
    id INTEGER PRIMARY KEY AUTOINCREMENT, customer TEXT NOT NULL, cents INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, key BLOB, value BLOB NOT NULL);
"""

log = logging.getLogger("outbox")


class Row(NamedTuple):
    id: int
    topic: str
    key: bytes | None
    value: bytes


def connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = WAL")
    database.executescript(SCHEMA)
    return database


def place_order(database: sqlite3.Connection, customer: str, cents: int) -> int:
    """Insert the order and its event in one database transaction."""
    with database:
        added = database.execute(
            "INSERT INTO orders (customer, cents) VALUES (?, ?)", (customer, cents)
        )
        order = {"id": added.lastrowid, "customer": customer, "cents": cents}
        database.execute(
            "INSERT INTO outbox (topic, key, value) VALUES (?, ?, ?)",
            (TOPIC, customer.encode(), json.dumps(order).encode()),
        )
    return order["id"]


class Outbox:
    """The events to publish. Each call blocks, and opens a connection."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def rows(self, first: int) -> list[Row]:
        with closing(connect(self._path)) as database:
            found = database.execute(
                "SELECT id, topic, key, value FROM outbox WHERE id >= ? ORDER BY id LIMIT ?",
                (first, BATCH),
            )
            return [Row(*row) for row in found]

    def delete_before(self, position: int) -> None:
        with closing(connect(self._path)) as database, database:
            database.execute("DELETE FROM outbox WHERE id < ?", (position,))


class Publisher:
    def __init__(self, producer: Producer, outbox: Outbox) -> None:
        self._producer = producer
        self._outbox = outbox
        self._position = SourcePosition(NAME, TOPIC)
        self._next = 0

    async def run(self) -> None:
        """Publish forever, from the position that is stored in Kafka."""
        at = await self._position.read(self._producer)
        self._next = 0 if at is None else at.offset
        while True:
            if not await self.publish_batch():
                await asyncio.sleep(IDLE_S)

    async def publish_batch(self) -> int:
        rows = await asyncio.to_thread(self._outbox.rows, self._next)
        if rows:
            position = rows[-1].id + 1
            async with self._producer.transaction() as transaction:
                for row in rows:
                    await self._producer.send(row.topic, row.value, row.key)
                await self._position.write(transaction, position)
            self._next = position
        # This includes events that a crash left between the commit and the deletion.
        await asyncio.to_thread(self._outbox.delete_before, self._next)
        return len(rows)


async def publish(bootstrap_servers: str, path: Path) -> None:
    """Publish, and start again after an error; return when another publisher takes over."""
    while True:
        try:
            async with Producer(
                bootstrap_servers=bootstrap_servers, transactional_id=NAME
            ) as producer:
                await Publisher(producer, Outbox(path)).run()
        except ProducerFencedError:
            log.info("another publisher took over")
            return
        except KafkaError as error:
            log.warning("publishing starts again after: %s", error)
            await asyncio.sleep(RETRY_S)


if __name__ == "__main__":
    servers = os.environ.get("AIOPRODUCER_BOOTSTRAP_SERVERS", "localhost:9092")
    asyncio.run(publish(servers, Path(sys.argv[1])))
