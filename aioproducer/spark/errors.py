"""Errors of exactly-once writes, in addition to Kafka's.

Invariant: each text says what is in Kafka, what is not, and what to do: a driver prints little more
than the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Unpack

from aioproducer.errors import (
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    KafkaError,
    ProducerFencedError,
)
from aioproducer.errors.base import ErrorFacts

FENCED: Final = (InvalidProducerEpochError, InvalidProducerIdMappingError, ProducerFencedError)
"""The errors that brokers answer a driver after another one has taken over."""


class ExactlyOnceError(KafkaError):
    """Base of the errors of epochs that are written exactly once.

    Attributes:
        epoch: the epoch concerned: a micro-batch's id, or 0 for a batch job.
    """

    epoch: int | None = None

    def __init__(
        self, message: str | None = None, *, epoch: int | None = None, **facts: Unpack[ErrorFacts]
    ) -> None:
        super().__init__(message, **facts)
        self.epoch = epoch


class EpochNotPreparedError(ExactlyOnceError):
    """A transaction of the epoch was gone before the epoch was decided; nothing of it is visible.

    The epoch can simply be written again.
    """

    advice: str | None = (
        "Run it again. If it happens every time, tasks take longer than transaction_timeout_ms: "
        "raise that, or make epochs smaller."
    )


class EpochLostError(ExactlyOnceError):
    """Transactions of a decided epoch were aborted by the brokers: their rows are missing.

    Attributes:
        partitions: the Spark partitions with missing rows, sorted.
        rows: the number of missing rows.
    """

    partitions: tuple[int, ...] = ()
    rows: int = 0

    @classmethod
    def of(cls, epoch: int, partitions: Sequence[int], rows: int, parts: int) -> EpochLostError:
        """Return the error for some partitions of an epoch that has so many `parts`."""
        names = ", ".join(map(str, sorted(partitions)))
        error = cls(
            f"epoch {epoch} was decided, but {len(partitions)} of its {parts} transactions cannot "
            f"be committed any more: the {rows} rows of Spark partitions {names} are not in "
            "Kafka, all its other rows are; its recovery took longer than transaction_timeout_ms",
            advice="Write these rows again by other means, or decide to go without them; then "
            f"start once with accept.lost.epoch={epoch}, which continues after it.",
            epoch=epoch,
        )
        error.partitions, error.rows = tuple(sorted(partitions)), rows
        return error


class EpochOverError(ExactlyOnceError):
    """A task began when its epoch was over for its driver; the task has written nothing.

    The driver had given up or decided, and Spark hides the error of such a late task; or
    another query or job with the same prefix has taken over, which ends this one.
    """

    advice: str | None = (
        "If the query or job has failed by this, two of them share a checkpoint or "
        "transactional.id.prefix: stop one of the two, or give each its own."
    )


class SupersededError(ExactlyOnceError):
    """Another driver has taken over; everything this one has published is known to the other.

    Two queries or jobs with the same checkpoint or transactional.id.prefix end like this.
    """

    advice: str | None = (
        "Stop one of the two, or give each its own checkpoint and transactional.id.prefix."
    )


class DecisionUnknownError(ExactlyOnceError):
    """No broker has said in time whether the epoch was decided.

    The next start finds out, then publishes all of it or nothing.
    """

    advice: str | None = "Start again within transaction_timeout_ms, with the same checkpoint."


class CheckpointBehindError(ExactlyOnceError):
    """Kafka has a later epoch of this very query than the one its checkpoint asks for."""

    advice: str | None = (
        "The checkpoint was set back to an older copy, or is written asynchronously; neither can "
        "be exactly once. With a new transactional.id.prefix its epochs are written again."
    )


class DecisionRecordError(ExactlyOnceError):
    """The record of a decision does not fit into its place, or is not what was written there."""
