"""What a batch that fails says about itself.

Owns: the words of an expiry, the facts added to an error. Must not know: when a batch fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aioproducer.core.producer_batch import BatchOutcome, ProducerBatch
from aioproducer.errors import DeliveryTimeoutError, KafkaError

if TYPE_CHECKING:
    from aioproducer.core.metadata import Metadata


def expiry_of(
    batch: ProducerBatch, metadata: Metadata, *, timeout: float, now: float
) -> DeliveryTimeoutError:
    """Why a batch was not acknowledged within its delivery timeout, in seconds."""
    if batch.on_wire:
        where = "waiting for the broker's answer"
    elif batch.attempts:
        where = "waiting to be sent again"
    else:
        where = "waiting to be sent"
    topic, partition = batch.topic_partition
    cause = batch.last_error or metadata.explain(topic, partition)
    error = DeliveryTimeoutError(
        f"{batch.count} record(s) not acknowledged within delivery_timeout_ms="
        f"{round(timeout * 1000)} after {batch.attempts} attempt(s), {where}"
        + (f"; last cause: {cause}" if cause else ""),
        elapsed_ms=round((now - batch.created_at) * 1000),
    )
    error.__cause__ = batch.last_error or metadata.topic_error(topic)
    return error


def failure_outcome(
    batch: ProducerBatch,
    error: KafkaError,
    record_errors: Mapping[int, KafkaError] | None,
    now: float | None,
) -> BatchOutcome:
    """The outcome of a batch that failed; `record_errors` are those of blamed records (KIP-467)."""

    def about_this_batch(what: KafkaError) -> KafkaError:
        return what.with_context(
            topic=batch.topic_partition.topic,
            partition=batch.topic_partition.partition,
            persistence=batch.persistence(),
            elapsed_ms=None if now is None else round((now - batch.created_at) * 1000),
        )

    return BatchOutcome(
        error=about_this_batch(error),
        record_errors={i: about_this_batch(e) for i, e in (record_errors or {}).items()},
    )
