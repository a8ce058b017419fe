"""Records with an asynchronous serializer that has not finished."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from aioproducer.core.batching.outgoing import RecordParts
from aioproducer.serializers.calling import PendingRecord
from aioproducer.types import HeaderPairs


class PendingParts:
    """The parts of a record, once awaited; await it once, or `close` it."""

    __slots__ = ("_headers", "_partition", "_record", "_timestamp_ms", "_topic")

    def __init__(
        self,
        topic: Any,
        record: PendingRecord,
        partition: int | None,
        timestamp_ms: int | None,
        headers: HeaderPairs = (),
    ) -> None:
        self._topic = topic
        self._record = record
        self._partition = partition
        self._timestamp_ms = timestamp_ms
        self._headers = headers

    @property
    def part(self) -> str:
        """The part whose serializer has not finished: key or value."""
        return self._record.part

    @property
    def known(self) -> RecordParts:
        """The parts that need no serializer."""
        return self._topic, None, None, self._headers, self._partition, self._timestamp_ms

    def close(self) -> None:
        """Give it up before it was awaited."""
        self._record.close()

    def __await__(self) -> Generator[Any, None, RecordParts]:
        prepared = yield from self._record.__await__()
        return (self._topic, *prepared, self._partition, self._timestamp_ms)
