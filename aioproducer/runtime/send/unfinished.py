"""A record on its way into a batch, one of whose serializers waits.

Owns: what is known of it meanwhile, and what it becomes. Must not know: who waits, how long.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from aioproducer.serializers.calling import UnfinishedRecord
from aioproducer.types import HeaderPairs

Parts = tuple[Any, bytes | None, bytes | None, HeaderPairs, int | None, int | None]
"""Topic, key, value, headers, partition and timestamp in ms of one record."""


class UnfinishedParts:
    """The parts of a record, once awaited; await it once, or `close` it."""

    __slots__ = ("_partition", "_record", "_timestamp_ms", "_topic")

    def __init__(
        self,
        topic: Any,
        record: UnfinishedRecord,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> None:
        self._topic = topic
        self._record = record
        self._partition = partition
        self._timestamp_ms = timestamp_ms

    @property
    def part(self) -> str:
        """Whose serializer waits."""
        return self._record.part

    @property
    def known(self) -> Parts:
        """What can be told of it before."""
        return self._topic, None, None, (), self._partition, self._timestamp_ms

    def close(self) -> None:
        """Gives it up before it was awaited."""
        self._record.close()

    def __await__(self) -> Generator[Any, None, Parts]:
        prepared = yield from self._record.__await__()
        return (self._topic, *prepared, self._partition, self._timestamp_ms)
