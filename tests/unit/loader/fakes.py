"""A producer whose deliveries the test decides, and small helpers for sources."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from aioproducer.loader.formats.format import Format
from aioproducer.loader.rows import RowBatch, Source


class Sent(NamedTuple):
    topic: str
    value: bytes | None
    key: bytes | None
    headers: Any
    partition: int | None
    timestamp_ms: int | None


class FakeDelivery:
    def __init__(self) -> None:
        self._done = asyncio.Event()
        self._error: Exception | None = None

    def finish(self, error: Exception | None = None) -> None:
        self._error = error
        self._done.set()

    def done(self) -> bool:
        return self._done.is_set()

    def exception(self) -> Exception | None:
        return self._error

    def __await__(self) -> Generator[Any, Any, None]:
        yield from self._done.wait().__await__()
        if self._error is not None:
            raise self._error


class FakeProducer:
    """Acknowledges at once, unless `hold` is set: then at `release()` or `flush()`.

    `refuse` maps a value to what `send()` raises; `fail` to what its delivery ends with.
    """

    def __init__(self, *, hold: bool = False, partitions: int = 6) -> None:
        self.hold = hold
        self.partitions = partitions
        self.sent: list[Sent] = []
        self.open: list[tuple[FakeDelivery, bytes | None]] = []
        self.refuse: dict[bytes | None, Exception] = {}
        self.fail: dict[bytes | None, Exception] = {}
        self.on_send: Callable[[int], Any] = lambda count: None
        self.flushes = 0
        self.most_open = 0
        self.block_after: int | None = None

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FakeDelivery:
        if self.block_after is not None and len(self.sent) >= self.block_after:
            await asyncio.Event().wait()
        if value in self.refuse:
            raise self.refuse[value]
        self.sent.append(Sent(topic, value, key, headers, partition, timestamp_ms))
        delivery = FakeDelivery()
        self.open.append((delivery, value))
        self.most_open = max(self.most_open, len(self.open))
        self.on_send(len(self.sent))
        if not self.hold:
            self.release()
        return delivery

    def release(self, count: int | None = None) -> None:
        some, self.open = self.open[:count], self.open[len(self.open[:count]) :]
        for delivery, value in some:
            delivery.finish(self.fail.get(value))

    async def flush(self, timeout: float | None = None) -> int:
        self.flushes += 1
        await asyncio.sleep(0)
        self.release()
        return 0

    async def partitions_for(self, topic: str) -> list[int]:
        return list(range(self.partitions))

    @property
    def values(self) -> list[bytes | None]:
        return [sent.value for sent in self.sent]


class Chunks(io.BufferedIOBase):
    """A stream that gives exactly these chunks, one per read."""

    def __init__(self, chunks: Sequence[bytes]) -> None:
        self._chunks = [chunk for chunk in chunks if chunk]

    def read1(self, size: int = -1, /) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""


def read_format(format_: Format, content: bytes | Sequence[bytes], skip: int = 0) -> list[RowBatch]:
    chunks = [content] if isinstance(content, bytes) else content
    with ExitStack() as stack:
        return list(format_.read(Chunks(chunks), skip, stack))


def rows_of(source: Source, after: Any = None) -> list[tuple[Any, Any]]:
    """Every row's position and fields."""
    return [
        (batch.position(index), fields)
        for batch in source.batches(after)
        for index, fields in enumerate(batch.fields)
    ]


def batch_of(*rows: Any, columns: tuple[str, ...] | None = ("a", "b"), **more: Any) -> RowBatch:
    return RowBatch("f.csv", None, 1, list(rows), columns, **more)
