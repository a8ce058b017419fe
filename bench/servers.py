"""The servers of clients: one Kafka broker, the sink, the embedded cluster; and their counts.

Owns: starting them, topics, counting at the server. Not here: clients, figures.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from aioproducer.testing.admin import create_topic, delete_topic
from aioproducer.testing.kafka.backends import BOOTSTRAP_VARIABLE, ExternalCluster
from aioproducer.testing.kafka.cluster import KafkaCluster
from aioproducer.testing.reader import end_offsets
from bench.capacity import capacity
from bench.cells import KNOWN_FEW, KNOWN_MANY
from bench.workers import Report, Worker, worker

_READY_S = 120.0
_TOPIC_S = 180.0
_MEMORY_DIRECTORY = Path("/dev/shm")
_MEMORY_NEEDED = 4 << 30
_HEAP_MB = 1_024
_BROKER_SETTINGS = {
    # Topics come and go by the minute, and what they held with them.
    "log.segment.delete.delay.ms": "1000",
    "log.retention.check.interval.ms": "5000",
    "auto.create.topics.enable": "false",
    "num.network.threads": "3",
    "num.io.threads": "8",
}


class Server:
    """The address to send to, and the count of what came."""

    def __init__(self, bootstrap: str, description: str, pids: tuple[int, ...] = ()) -> None:
        self.bootstrap = bootstrap
        self.description = description
        self.pids = pids
        self._names = itertools.count(1)

    @asynccontextmanager
    async def topics(self, count: int, partitions: int) -> AsyncIterator[list[str]]:
        """Fresh topics for the length of a block."""
        names = self.fresh_names(count)
        for name in names:
            await create_topic(self.bootstrap, name, partitions, timeout_s=_TOPIC_S)
        try:
            yield names
        finally:
            for name in names:
                await delete_topic(self.bootstrap, name, timeout_s=_TOPIC_S)

    def fresh_names(self, count: int) -> list[str]:
        """Return names that were not used before."""
        number = next(self._names)
        return [f"bench-{os.getpid()}-{number}-{index}" for index in range(count)]

    async def arrived(self, topics: list[str]) -> int:
        """Records in these topics, by the end offsets of their partitions."""
        ends = [await end_offsets(self.bootstrap, name, timeout_s=_TOPIC_S) for name in topics]
        return sum(sum(each.values()) for each in ends)

    async def requests(self) -> int | None:
        """Produce requests so far, where the server counts them."""
        return None


class SinkServer(Server):
    def __init__(self, bootstrap: str, process: Worker) -> None:
        super().__init__(bootstrap, "acknowledges at once, validates nothing")
        self._process = process
        self._questions = itertools.count(1)

    @asynccontextmanager
    async def topics(self, count: int, partitions: int) -> AsyncIterator[list[str]]:
        # In one order: by requests, thousands of topics would take a minute.
        names = self.fresh_names(count)
        await self._ask(create=names, partitions=partitions)
        try:
            yield names
        finally:
            await self._ask(delete=names)

    async def arrived(self, topics: list[str]) -> int:
        return int((await self._ask(count=topics))["arrived"])

    async def requests(self) -> int | None:
        return int((await self._ask())["requests"])

    async def _ask(self, **order: object) -> Report:
        question = f"counts-{next(self._questions)}"
        self._process.say(question, **order)
        return await self._process.report(question, _READY_S)


class EmbeddedServer(Server):
    """Its topics are there from the start: making 10,000 partitions each time would take long."""

    def __init__(self, bootstrap: str, brokers: int, names: dict[str, int]) -> None:
        super().__init__(bootstrap, f"embedded cluster of {brokers} brokers")
        self._topics = {partitions: name for name, partitions in names.items()}

    @asynccontextmanager
    async def topics(self, count: int, partitions: int) -> AsyncIterator[list[str]]:
        yield [self._topics[partitions]] * count


@asynccontextmanager
async def kafka() -> AsyncIterator[Server]:
    """One real broker on this machine, its log in memory where there is room; or the user's."""
    if bootstrap := os.environ.get(BOOTSTRAP_VARIABLE):
        async with ExternalCluster(bootstrap) as external:
            yield Server(external.bootstrap_servers, external.description)
        return
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(_data_directory())
        cluster = KafkaCluster(
            brokers=1, config=_BROKER_SETTINGS, data_dir=directory, heap_mb=_HEAP_MB
        )
        with _grown_up_jvm():
            await stack.enter_async_context(cluster)
        where = f"{cluster.description}, logs in {directory.parent}"
        yield Server(cluster.bootstrap_servers, where, tuple(cluster.pids.values()))


@asynccontextmanager
async def sink() -> AsyncIterator[Server]:
    async with worker("sink", "bench.sink") as process:
        ready = await process.report("ready", _READY_S)
        server = SinkServer(ready["bootstrap_servers"], process)
        async with server.topics(1, 1) as (topic,):
            takes = await capacity(server.bootstrap, topic)
        server.description += f"; took {takes / 1e6:.1f} M records/s of a replayed request"
        yield server


@asynccontextmanager
async def embedded() -> AsyncIterator[Server]:
    brokers, names = 3, {"many": KNOWN_MANY, "few": KNOWN_FEW}
    async with worker("embedded", "bench.embedded", brokers=brokers, topics=names) as process:
        ready = await process.report("ready", _READY_S)
        yield EmbeddedServer(ready["bootstrap_servers"], brokers, names)


@contextmanager
def _data_directory() -> Iterator[Path]:
    """Memory where there is plenty: a disk that writes during the measurement disturbs it."""
    parent = _MEMORY_DIRECTORY
    if not parent.is_dir() or shutil.disk_usage(parent).free < _MEMORY_NEEDED:
        parent = Path(tempfile.gettempdir())
    with tempfile.TemporaryDirectory(
        prefix="aioproducer-bench-", dir=parent, ignore_cleanup_errors=True
    ) as directory:
        yield Path(directory)


@contextmanager
def _grown_up_jvm() -> Iterator[None]:
    """Test brokers stop at the first compiler, to start fast; one that is measured does not.

    This variable, unlike JAVA_TOOL_OPTIONS, wins over the command line. It is gone again before
    Java's client starts.
    """
    name = "_JAVA_OPTIONS"
    before = os.environ.get(name)
    os.environ[name] = f"{before or ''} -XX:TieredStopAtLevel=4".strip()
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


SERVERS = {"kafka": kafka, "sink": sink, "embedded": embedded}
