"""Errors of failed batches and requests: their messages and the context added to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aioproducer.core.batching.batch import NO_PARTITION, BatchOutcome, ProducerBatch
from aioproducer.core.sending.reasons import Obstacle, Reason, all_of
from aioproducer.errors import (
    BatchRefusedError,
    DeliveryTimeoutError,
    KafkaError,
    NodeDisconnectedError,
    OutOfOrderSequenceNumberError,
    ProtocolError,
)
from aioproducer.errors.advice import joined

if TYPE_CHECKING:
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.core.sending.reasons import Wait


def as_lost_connection(error: KafkaError) -> KafkaError:
    """Return invalid bytes from a peer as a lost connection, another error as it is.

    A request did not cause them, and may succeed on another connection.
    """
    if not isinstance(error, ProtocolError):
        return error
    lost = NodeDisconnectedError(
        f"connection dropped: {error.message}", node_id=error.node_id, advice=error.advice
    )
    lost.__cause__ = error
    return lost


def expiry_of(
    batch: ProducerBatch, wait: Wait, metadata: Metadata, *, timeout: float, now: float
) -> DeliveryTimeoutError:
    """Return the error of a batch that was not acknowledged within its delivery timeout."""
    topic, partition = batch.topic_partition
    reason = metadata.explain(topic, partition)
    if wait.error is not None:
        last = Reason(wait.error.without_advice(), wait.error.advice)
        # Since then the leader may have become unreachable, or throttle the client, or be gone.
        is_about_leader = wait.obstacle in {Obstacle.CONNECTION, Obstacle.LEADER}
        reason = all_of(last, reason) if is_about_leader else last
    error = DeliveryTimeoutError(
        f"{batch.count} record(s) not acknowledged within delivery_timeout_ms="
        f"{round(timeout * 1000)} after {batch.attempts} attempt(s), {wait.obstacle.value}"
        + (f"; last cause: {reason.text}" if reason.text else ""),
        elapsed_ms=round((now - batch.created_at) * 1000),
        advice=reason.advice,
    )
    error.__cause__ = wait.error or metadata.topic_error(topic)
    return error


def no_longer_retried(batch: ProducerBatch, error: KafkaError, limit: str) -> KafkaError:
    """Return the retriable error of a batch that is not sent again: `limit` ended its retries."""
    longer = f"to retry for longer, raise {limit}, which ended after {batch.attempts} attempt(s)"
    return error.with_context(advice=joined(error.advice, longer))


def overtaken(batch: ProducerBatch) -> KafkaError:
    """Return the error of a batch that is not retried since a later one was acknowledged."""
    refusal = batch.last_error or OutOfOrderSequenceNumberError()
    return refusal.with_context(
        advice="not sent again: a later batch of the partition is written already, so this one "
        "would be out of order; its records are not written and can be sent anew"
    )


def failure_outcome(
    batch: ProducerBatch,
    error: KafkaError,
    record_errors: Mapping[int, KafkaError] | None,
    now: float | None,
) -> BatchOutcome:
    """Return the outcome of a failed batch; `record_errors` is None if it failed as a whole."""
    node_id = error.node_id
    topic, partition = batch.topic_partition

    def about_this_batch(what: KafkaError) -> KafkaError:
        return what.with_context(
            topic=topic,
            partition=None if partition == NO_PARTITION else partition,
            node_id=node_id,
            persistence=batch.persistence(),
            elapsed_ms=None if now is None else round((now - batch.created_at) * 1000),
        )

    if record_errors is not None and len(record_errors) < batch.count:
        error = refused_because_of_others(error, are_named=bool(record_errors))
    return BatchOutcome(
        error=about_this_batch(error),
        record_errors={i: about_this_batch(e) for i, e in (record_errors or {}).items()},
    )


def refused_because_of_others(cause: KafkaError, *, are_named: bool) -> BatchRefusedError:
    """Return the error of records that are not named as the cause of the broker's refusal."""
    which = "because of other records in it" if are_named else "without naming the bad records"
    error = BatchRefusedError(f"the broker refused the batch {which}: {cause.without_advice()}")
    error.__cause__ = cause
    return error
