"""Items and results of `send_many` and `send_arrow`, and the error that carries a result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Unpack

from aioproducer.errors import ErrorFacts, KafkaError
from aioproducer.types import TopicPartition

Item = Any
"""A value, a `(key, value[, headers[, timestamp_ms[, partition]]])` tuple, or a `Record`."""


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """One item that was not delivered; `index` counts from 0 in the order given."""

    index: int
    error: KafkaError


@dataclass
class SendManyResult:
    """Result of one `send_many` (items) or `send_arrow` (rows).

    `offsets` has, per partition, the lowest and the highest offset of an item, if the broker
    returns offsets. Records of other producers may be in between.
    """

    count: int = 0
    delivered: int = 0
    failed: list[FailedRecord] = field(default_factory=list)
    offsets: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)


class SendManyInterruptedError(KafkaError):
    """The call could not go on: the items raised, or the producer was closed or failed.

    `result` has the outcomes of the items up to there, `__cause__` the reason of the end. Outcomes
    are missing in it if a signal handler raised an exception inside the call.
    """

    def __init__(
        self,
        message: str = "",
        *,
        result: SendManyResult | None = None,
        **facts: Unpack[ErrorFacts],
    ) -> None:
        super().__init__(message, **facts)
        self.result: SendManyResult = result or SendManyResult()
