"""The programs of a host: brokers, or a producer that sends numbered records.

    python -m support.namespaces.agents brokers|kafka|producer

Owns: one process's part of a scenario. Orders come as lines of JSON on standard input, each is
answered by one line; the process ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import sys
import time
from collections.abc import Mapping
from typing import Any

from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic
from support.faults.clients import ClientSettings, OurClient
from support.faults.ledger import Ledger
from support.waiting import until

PARTITIONS = 3
_TICK_S = 0.01
_VALUE_BYTES = 1000
"""Enough for batches to fill whole packets."""
_DIGITS = 12


class Brokers:
    """An embedded cluster; its host name is looked up anew whenever it listens."""

    def __init__(self) -> None:
        self._cluster: EmbeddedCluster | None = None

    async def listen(self, host: str) -> None:
        """Start the cluster, or restart it with its old state."""
        if self._cluster is None:
            self._cluster = EmbeddedCluster(3, host)
        await self._cluster.start()

    async def servers(self) -> str:
        """Return the addresses they listen at."""
        return self._running.bootstrap_servers

    async def create(self, topic: str) -> None:
        self._running.create_topic(topic, PARTITIONS)

    async def log(self, topic: str) -> list[tuple[int, int, int]]:
        """Partition, offset and number of every record."""
        read = await read_topic(self._running.bootstrap_servers, topic, timeout_s=60)
        return [
            (partition, record.offset, number_of(record.value))
            for partition, records in read.items()
            for record in records
        ]

    async def close(self) -> None:
        """Stops listening; what was written stays."""
        if self._cluster is not None:
            await self._cluster.stop()

    @property
    def _running(self) -> EmbeddedCluster:
        if self._cluster is None:
            raise RuntimeError("the cluster does not listen yet")
        return self._cluster


class Kafka:
    """Real brokers, read by a foreign consumer."""

    def __init__(self) -> None:
        self._cluster: Any = None

    async def listen(self, host: str) -> None:
        from aioproducer.testing.kafka import KafkaCluster

        self._cluster = KafkaCluster(brokers=3, host=host)
        await asyncio.to_thread(self._cluster.open)

    async def servers(self) -> str:
        return str(self._cluster.bootstrap_servers)

    async def create(self, topic: str) -> None:
        from support.confluent import create_topic_confluent

        await create_topic_confluent(
            self._cluster.bootstrap_servers,
            topic,
            partitions=PARTITIONS,
            replication_factor=3,
            configs={"min.insync.replicas": "2"},
        )

    async def log(self, topic: str) -> list[tuple[int, int, int]]:
        from support.confluent import read_all_confluent

        read = await read_all_confluent(self._cluster.bootstrap_servers, topic, "read_uncommitted")
        return [(record.partition, record.offset, number_of(record.value)) for record in read]

    async def close(self) -> None:
        if self._cluster is not None:
            await asyncio.to_thread(self._cluster.close)


class Load:
    """One producer at a time, whose records are numbered."""

    def __init__(self) -> None:
        self._ledger = Ledger()
        self._client: OurClient | None = None
        self._sending: asyncio.Task[None] | None = None

    async def send(self, per_second: int, options: Mapping[str, Any], **settings: Any) -> None:
        """Starts a producer that sends until `finish`; returns at its first acknowledgement."""
        self._ledger = Ledger()
        client = type("Client", (OurClient,), {"options": options})
        self._client = client(ClientSettings(**settings), self._ledger)
        await self._client.start()
        self._sending = asyncio.create_task(self._send(self._client, per_second))
        await until(lambda: self._ledger.acknowledged > 0)

    async def acknowledged(self) -> int:
        """Return how many records there are so far."""
        return self._ledger.acknowledged

    async def finish(self, timeout_s: float) -> tuple[str, int]:
        """Waits for all outcomes; gives the pickled ledger, in hex, and the number of retries."""
        client, sending = self._client, self._sending
        if client is None or sending is None:
            raise RuntimeError("nothing is being sent")
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        try:
            await until(lambda: not self._ledger.pending, timeout_s=timeout_s)
        except TimeoutError:
            pass  # the verdict will show it
        self._ledger.seal()
        retries = client.retries()
        await self.close()
        return pickle.dumps(self._ledger).hex(), retries or 0

    async def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    async def _send(self, client: OurClient, per_second: int) -> None:
        started, number = time.monotonic(), 0
        while True:
            while number < (time.monotonic() - started) * per_second:
                value = (b"%0*d" % (_DIGITS, number)).ljust(_VALUE_BYTES, b".")
                # Not cut short: an offered record needs an outcome.
                await asyncio.shield(client.send(number, value, number % PARTITIONS))
                number += 1
            await asyncio.sleep(_TICK_S)


def number_of(value: bytes | None) -> int:
    """The number of a record that was read."""
    if value is None or len(value) != _VALUE_BYTES:
        raise ValueError(f"not one of our records: {value!r}")
    return int(value[:_DIGITS])


async def serve(kind: str) -> None:
    """Takes orders until the input ends."""
    agent: Any = {"brokers": Brokers, "kafka": Kafka, "producer": Load}[kind]()
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    try:
        while line := await orders.readline():
            what, details = json.loads(line)
            try:
                answer = {"result": await getattr(agent, what)(**details)}
            except Exception as error:
                answer = {"error": repr(error)}
            print(json.dumps(answer), flush=True)
    finally:
        await agent.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
