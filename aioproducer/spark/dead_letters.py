"""A refused row as a record for the topic of refused rows.

Its headers are those of Kafka Connect (`DeadLetterQueueReporter`, KIP-298).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.errors import InvalidTimestampError, KafkaError
from aioproducer.types import HeaderPairs

if TYPE_CHECKING:
    from aioproducer.runtime.bulk.result import FailedRecord
    from aioproducer.spark.rows import Row

_PREFIX: Final = "__connect.errors."
_OVERHEAD: Final = 200
"""More than the headers of a batch and a record take."""
_OMITTED: Final = "__aioproducer.value.omitted.bytes"


class DeadLetter(NamedTuple):
    """The arguments of `send()`."""

    whole: dict[str, Any]
    without_value: dict[str, Any]
    """A record for a value that is too large for this topic as well: a header has its size."""

    @property
    def size(self) -> int:
        """The bytes of `whole` as a batch, rounded up."""
        parts = [self.whole["key"], self.whole["value"]]
        for name, content in self.whole["headers"]:
            parts += [name.encode(), content, b" " * 10]
        return _OVERHEAD + sum(len(each or b"") for each in parts)


def dead_letter(
    row: Row | None,
    failed: FailedRecord,
    topic: str | None,
    spark_partition: int,
    stage: str = "TASK_PUT",
) -> DeadLetter:
    """Make the record; `row` is None where it cannot be read, `stage` is Kafka Connect's."""
    error = failed.error
    named = topic if row is None or row.topic is None else row.topic
    facts = {
        "topic": named,
        "partition": None if row is None else row.partition,
        "connector.name": "aioproducer-spark",
        "task.id": spark_partition,
        "stage": stage,
        "exception.class.name": f"{type(error).__module__}.{type(error).__qualname__}",
        "exception.message": str(error),
    }
    headers: HeaderPairs = (
        *(() if row is None else row.headers),
        *((_PREFIX + name, str(fact).encode()) for name, fact in facts.items() if fact is not None),
        ("__aioproducer.spark.row", str(failed.index).encode()),
    )
    value = None if row is None else row.value
    rest = {"key": None if row is None else row.key, "timestamp_ms": _usable_time(row, error)}
    size = str(len(value or b"")).encode()
    return DeadLetter(
        {"value": value, "headers": headers, **rest},
        {"value": None, "headers": (*headers, (_OMITTED, size)), **rest},
    )


def _usable_time(row: Row | None, error: KafkaError) -> int | None:
    if row is None or row.timestamp_ms is None or row.timestamp_ms < 0:
        return None
    if isinstance(error, InvalidTimestampError):  # this topic has the same limits, most often
        return None
    return row.timestamp_ms
