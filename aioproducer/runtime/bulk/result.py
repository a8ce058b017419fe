"""What `send_many` and `send_arrow` answer.

Owns: the shapes of the answer and of the error that carries one. Must not know: how it comes about.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Unpack

from aioproducer.errors import ErrorFacts, KafkaError
from aioproducer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """One item that was not delivered; `index` counts from 0 in the order given."""

    index: int
    error: KafkaError


@dataclass(slots=True)
class SendManyResult:
    """What became of the items of one `send_many`, or the rows of one `send_arrow`.

    `offsets` holds, per partition, the lowest and the highest offset given to an item, where the
    broker gives offsets; records of other senders may stand in between.
    """

    count: int = 0
    delivered: int = 0
    failed: list[FailedRecord] = field(default_factory=list)
    offsets: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)


class SendManyInterruptedError(KafkaError):
    """The call could not go on: the items raised, or the producer was closed or failed.

    `result` says what became of the items up to there; `__cause__` why it stopped.
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
