"""Reasons of a delay: what a batch waits for, and causes with advice for the user."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from aioproducer.errors import advice as _advice

if TYPE_CHECKING:
    from aioproducer.errors import KafkaError


class Obstacle(Enum):
    """The event that a batch without an outcome waits for; the value completes "the batch was"."""

    RESPONSE = "waiting for the broker's response"
    PREPARATION = "being made ready to be sent"
    PRODUCER_ID = "waiting for a producer id (InitProducerId)"
    COORDINATOR = "waiting for the transaction coordinator to add the partition"
    EARLIER_BATCH = "waiting for the outcome of an earlier batch of the partition"
    METADATA = "waiting for its topic to become known"
    LEADER = "waiting for the partition to have a leader"
    CONNECTION = "waiting for the leader to take a request"
    RETRY = "waiting to be sent again"
    TURN = "waiting to be sent"


class Wait(NamedTuple):
    """The obstacle of a batch, and the last error that prolonged it."""

    obstacle: Obstacle
    error: KafkaError | None = None

    def __str__(self) -> str:
        return self.obstacle.value if self.error is None else f"{self.obstacle.value}: {self.error}"


class Reason(NamedTuple):
    """A cause as text (empty if there is none) and the advice for it."""

    text: str = ""
    advice: str | None = None


NO_REASON = Reason()


def all_of(*reasons: Reason) -> Reason:
    """Join several reasons into one."""
    texts = (reason.text for reason in reasons)
    advices = (reason.advice for reason in reasons)
    return Reason("; ".join(filter(None, texts)), _advice.joined(*advices))
