"""An embedded cluster for synchronous tests, such as those with Spark: on a separate loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager

from aioproducer.records.batch import DecodedRecord
from aioproducer.testing.admin import create_topic
from aioproducer.testing.broker.faults import Faults
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic
from support.clusters import unique_topic


class EmbeddedKafka:
    """One broker in a thread.

    Attributes:
        servers: where it is.
        faults: what it does wrong.
        create_partitions: lets a topic grow to so many.
    """

    def __init__(
        self, servers: str, faults: Faults, create_partitions: Callable[[str, int], None]
    ) -> None:
        self.servers: str = servers
        self.faults: Faults = faults
        self.create_partitions: Callable[[str, int], None] = create_partitions

    def topic(self, partitions: int = 2, **configs: str) -> str:
        """A new topic; its configs with underscores for dots."""
        name = unique_topic()
        named = {key.replace("_", "."): value for key, value in configs.items()}
        asyncio.run(create_topic(self.servers, name, partitions, configs=named))
        return name

    def read(self, topic: str, *, committed: bool = True) -> Mapping[int, list[DecodedRecord]]:
        """The records of a topic by partition."""
        level = "read_committed" if committed else "read_uncommitted"
        return asyncio.run(read_topic(self.servers, topic, isolation_level=level))

    def records(self, topic: str, *, committed: bool = True) -> list[DecodedRecord]:
        """The records of all partitions, in the order of their values."""
        found = self.read(topic, committed=committed)
        every = [record for some in found.values() for record in some]
        return sorted(every, key=lambda record: record.value or b"")

    def numbers(self, topic: str, *, committed: bool = True) -> list[int]:
        """The values as numbers, in order."""
        found = self.records(topic, committed=committed)
        return sorted(int(record.value or b"-1") for record in found)


@contextmanager
def embedded_kafka() -> Iterator[EmbeddedKafka]:
    """Runs it for the length of a block."""
    ready: Future[tuple[EmbeddedKafka, Callable[[], object]]] = Future()

    async def serve() -> None:
        end, loop = asyncio.Event(), asyncio.get_running_loop()
        async with EmbeddedCluster(brokers=1) as cluster:
            stop = lambda: loop.call_soon_threadsafe(end.set)  # noqa: E731
            state, servers = cluster.state, cluster.bootstrap_servers
            ready.set_result((EmbeddedKafka(servers, state.faults, state.create_partitions), stop))
            await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="embedded cluster")
    thread.start()
    kafka, stop = ready.result(timeout=30)
    try:
        yield kafka
    finally:
        stop()
        thread.join(timeout=30)
