"""Records with an asynchronous serializer that has not finished."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from aioproducer.core.batching.batch import RecordParts
from aioproducer.serializers.calling import PendingRecord
from aioproducer.types import HeaderPairs


@dataclass(slots=True, eq=False, repr=False)
class PendingParts:
    """The parts of a record, once awaited; await it once, or `close` it."""

    topic: Any
    record: PendingRecord
    partition: int | None
    timestamp_ms: int | None
    headers: HeaderPairs = ()

    @property
    def part(self) -> str:
        """The part whose serializer has not finished: key or value."""
        return self.record.part

    @property
    def known(self) -> RecordParts:
        """The parts that need no serializer."""
        return self.topic, None, None, self.headers, self.partition, self.timestamp_ms

    def close(self) -> None:
        """Give it up before it was awaited."""
        self.record.close()

    def __await__(self) -> Generator[Any, None, RecordParts]:
        prepared = yield from self.record.__await__()
        return (self.topic, *prepared, self.partition, self.timestamp_ms)
