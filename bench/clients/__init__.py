"""The programs that are compared: one adapter per client, all with the same verbs.

Owns: what an adapter is, the records it sends. Not here: how a run is started or measured.

An adapter sends in the way its client's documentation shows for speed, and nothing else: no
logging, no checks, no other options than the cell's. Every verb returns when all records have
their outcome, and raises if one failed and the client reports it.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from bench.cells import BATCH_BYTES, LINGER_MS, TASKS

Pair = tuple[bytes, bytes | None]
"""A record: value and key."""

Headers = list[tuple[str, bytes]]

HEADERS: Headers = [("trace", b"0123456789abcdef0123456789abcdef"), ("source", b"bench")]

_VALUES = 256
_KEYS = 10_007
_WORDS = 2_000
_TASKS_LIMIT_S = 8.0


@dataclass(frozen=True, slots=True)
class Job:
    """The job of an adapter: the fields of a cell, and where to send."""

    bootstrap: str
    topics: list[str]
    size: int
    codec: str
    keyed: bool
    tuning: str
    linger_ms: int = LINGER_MS
    extra: str = ""

    @property
    def topic(self) -> str:
        return self.topics[0]

    def options(self, names: Mapping[str, str]) -> dict[str, Any]:
        """Return the options of this tuning; `names` are those of linger, batch and codec."""
        wanted: dict[str, Any] = {}
        if self.tuning == "common":
            wanted |= {names["linger"]: self.linger_ms, names["batch"]: BATCH_BYTES}
        if self.codec != "none":
            wanted[names["codec"]] = self.codec
        return wanted


def values(size: int) -> list[bytes]:
    """Texts of so many bytes, the same ones in every process, that compress like log lines."""
    source = random.Random(1)
    words = [f"{source.randrange(1 << 24):06x}" for _ in range(_WORDS)]
    return [
        " ".join(source.choices(words, k=size // 7 + 1)).encode()[:size] for _ in range(_VALUES)
    ]


def pairs(job: Job) -> Iterator[Pair]:
    """Endless records, prepared before the clock starts."""
    keys = [b"key-%d" % number for number in range(_KEYS)] if job.keyed else [None] * _VALUES
    return itertools.cycle(list(zip(itertools.cycle(values(job.size)), keys, strict=False)))


class RoundRobin:
    """A partitioner that any client can be given: the next partition of so many."""

    def __init__(self) -> None:
        self._next = 0

    def pick(self, partitions: int) -> int:
        """Return the next one."""
        self._next += 1
        return self._next % partitions


class Watch:
    """An interceptor: it counts records, and outcomes."""

    def __init__(self) -> None:
        self.sent = 0
        self.ended = 0

    def on_send(self, record: object) -> None:
        """Count a record."""
        self.sent += 1

    def on_end(self, *_: object) -> None:
        """Count an outcome."""
        self.ended += 1


class Adapter(ABC):
    """A client that is open for the length of its `async with` block."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.topic = job.topic

    @abstractmethod
    async def __aenter__(self) -> Self: ...

    @abstractmethod
    async def __aexit__(self, *error: object) -> None: ...

    def prepare(self, mode: str, records: Iterable[Pair]) -> Any:
        """These records in the form that a mode takes, made before the clock starts."""
        if self.job.extra == "serializer":
            return [(value.decode(), key) for value, key in records]
        return records

    async def each(self, records: Iterable[Pair]) -> None:
        """Send all, then read every outcome, one by one."""
        raise NotImplementedError

    async def dropped(self, records: Iterable[Pair]) -> None:
        """Send all and flush."""
        raise NotImplementedError

    async def gather(self, records: Iterable[Pair]) -> None:
        """Send all, then gather the outcomes."""
        raise NotImplementedError

    def ask(self, record: Pair) -> Awaitable[object]:
        """Send one record; return the client's own awaitable for its outcome."""
        raise NotImplementedError

    async def single(self, records: Iterable[Pair]) -> None:
        """Ask for one after the other."""
        for record in records:
            await self.ask(record)

    async def tasks(self, records: Iterable[Pair]) -> int:
        """Send from many tasks, each one record after the other; return how many were sent."""
        shared = iter(records)
        sent, is_late = 0, False

        async def one() -> None:
            nonlocal sent
            for record in shared:
                await self.ask(record)
                sent += 1
                if is_late:
                    return

        def end() -> None:
            nonlocal is_late
            is_late = True

        limit = asyncio.get_running_loop().call_later(_TASKS_LIMIT_S, end)
        async with asyncio.TaskGroup() as group:
            for _ in range(TASKS):
                group.create_task(one())
        limit.cancel()
        return sent

    def fire(self, record: Pair, done: Callable[[], None]) -> Coroutine[Any, Any, None] | None:
        """Send one record, with `done` on its acknowledgement; return a coroutine to run for it."""

        async def wait() -> None:
            await self.ask(record)
            done()

        return wait()


class AwaitedClient(Adapter):
    """A producer whose awaited `send` gives something to await: ours and aiokafka's."""

    def __init__(self, job: Job, producer: Any) -> None:
        super().__init__(job)
        self._producer = producer
        self._send = producer.send

    async def each(self, records: Iterable[Pair]) -> None:
        producer, topic = self._producer, self.topic
        if self.job.extra:
            deliveries = await self._send_with(records)
        else:
            deliveries = [await producer.send(topic, value, key) for value, key in records]
        for delivery in deliveries:
            await delivery

    async def _send_with(self, records: Iterable[Pair]) -> list[Any]:
        """Send with what each record has or goes through."""
        producer, topic, send = self._producer, self.topic, self._send
        if self.job.extra == "topics":
            over = zip(records, itertools.cycle(self.job.topics), strict=False)
            return [await producer.send(topic, value, key) for (value, key), topic in over]
        if self.job.extra == "headers":
            return [
                await producer.send(topic, value, key, headers=HEADERS) for value, key in records
            ]
        return [await send(topic, value, key) for value, key in records]

    async def dropped(self, records: Iterable[Pair]) -> None:
        producer, topic = self._producer, self.topic
        for value, key in records:
            await producer.send(topic, value, key)
        await producer.flush()

    async def gather(self, records: Iterable[Pair]) -> None:
        producer, topic = self._producer, self.topic
        await asyncio.gather(*[await producer.send(topic, value, key) for value, key in records])

    def ask(self, record: Pair) -> Awaitable[object]:
        value, key = record
        return self._producer.send_and_wait(self.topic, value, key)
