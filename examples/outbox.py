"""An outbox: an event is published if, and only if, the database transaction that made it commits.

    python -m aioproducer cluster --topic orders:6      # in another terminal
    python examples/outbox.py shop.db                   # the publisher; one is enough

The service writes its rows and the event into the same database, in one transaction, and knows
nothing of Kafka (`place_order`). A publisher reads the events in order and sends each batch in one
Kafka transaction, together with the position behind it: read_committed consumers see every event
once, in order, whatever crashes and whenever. Of several publishers the last one started works; the
others are fenced and end.

The ids tell what is behind the position, so they have to become visible in their order. SQLite has
one writer at a time. Where several write at once, as in PostgreSQL, a sequence does not do that by
itself: take a lock for the insert into the outbox, or order by the transactions' commits.
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
    """What the service does: both rows, or neither."""
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
    """The events that are to be published; each call blocks, and has a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def rows(self, first: int) -> list[Row]:
        with closing(connect(self._path)) as database:
            found = database.execute(
                "SELECT id, topic, key, value FROM outbox WHERE id >= ? ORDER BY id LIMIT ?",
                (first, BATCH),
            )
            return [Row(*row) for row in found]

    def forget(self, before: int) -> None:
        with closing(connect(self._path)) as database, database:
            database.execute("DELETE FROM outbox WHERE id < ?", (before,))


class Publisher:
    def __init__(self, producer: Producer, outbox: Outbox) -> None:
        self._producer = producer
        self._outbox = outbox
        self._position = SourcePosition(NAME, TOPIC)
        self._next = 0

    async def run(self) -> None:
        """Publishes for ever; the position comes from Kafka, so it is right after any crash."""
        at = await self._position.read(self._producer)
        self._next = 0 if at is None else at.offset
        while True:
            if not await self.publish_batch():
                await asyncio.sleep(IDLE_S)

    async def publish_batch(self) -> int:
        rows = await asyncio.to_thread(self._outbox.rows, self._next)
        if rows:
            behind = rows[-1].id + 1
            async with self._producer.transaction() as transaction:
                for row in rows:
                    await self._producer.send(row.topic, row.value, row.key)
                await self._position.write(transaction, behind)
            self._next = behind
        # Also those that a crash left there between commit and deletion.
        await asyncio.to_thread(self._outbox.forget, self._next)
        return len(rows)


async def publish(bootstrap_servers: str, path: Path) -> None:
    """Begins anew, at the position in Kafka, whatever fails; ends when another takes over."""
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
            log.warning("publishing begins anew: %s", error)
            await asyncio.sleep(RETRY_S)


if __name__ == "__main__":
    servers = os.environ.get("AIOPRODUCER_BOOTSTRAP_SERVERS", "localhost:9092")
    asyncio.run(publish(servers, Path(sys.argv[1])))
