"""A refused row as a record for the topic of refused rows.

Its headers are those of Kafka Connect (`DeadLetterQueueReporter`, KIP-298).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.errors import InvalidTimestampError
from aioproducer.types import HeaderPairs

if TYPE_CHECKING:
    from aioproducer.spark.rows import RefusedRow

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
    number: int, refused: RefusedRow, topic: str | None, spark_partition: int
) -> DeadLetter:
    """Make the record of row `number` of a task; `topic` is that of rows that name none."""
    error, row, stage, _ = refused
    facts = {
        "topic": topic if row.topic is None else row.topic,
        "partition": row.partition,
        "connector.name": "aioproducer-spark",
        "task.id": spark_partition,
        "stage": stage,
        "exception.class.name": f"{type(error).__module__}.{type(error).__qualname__}",
        "exception.message": str(error),
    }
    headers: HeaderPairs = (
        *row.headers,
        *((_PREFIX + name, str(fact).encode()) for name, fact in facts.items() if fact is not None),
        ("__aioproducer.spark.row", str(number).encode()),
    )
    rest = {"key": row.key, "timestamp_ms": _usable_time(refused)}
    size = str(len(row.value or b"")).encode()
    return DeadLetter(
        {"value": row.value, "headers": headers, **rest},
        {"value": None, "headers": (*headers, (_OMITTED, size)), **rest},
    )


def _usable_time(refused: RefusedRow) -> int | None:
    given = refused.row.timestamp_ms
    # The topic of dead letters has the same limits, most often.
    is_refused = isinstance(refused.error, InvalidTimestampError)
    return None if given is None or given < 0 or is_refused else given
