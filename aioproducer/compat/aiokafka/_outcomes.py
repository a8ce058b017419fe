"""Futures, which aiokafka gives where this producer gives deliveries.

Owns: the way from deliveries to a future. Must not know: how records are accepted.

Invariants: a future that fails unseen is reported by asyncio, as with aiokafka; cancelling one
takes no record back and disturbs no other.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from aioproducer.compat.aiokafka._translation import record_metadata, translated
from aioproducer.compat.aiokafka.structs import RecordMetadata, TopicPartition, kin_struct
from aioproducer.runtime.delivery import Delivery

if TYPE_CHECKING:
    from aioproducer.core.producer_batch import ProducerBatch

Outcome = asyncio.Future[RecordMetadata | None]


def record_future(delivery: Delivery, *, acknowledged: bool) -> Outcome:
    """A future of one record; of None where brokers acknowledge nothing."""
    future: Outcome = asyncio.get_running_loop().create_future()
    batch, _ = delivery.batch_and_index()
    # A listener of the batch is far cheaper than a callback with a context, and setting a future's
    # result runs nobody else's code.
    listener = (future, delivery, acknowledged)
    if batch.outcome is None:
        batch.add_listener(listener, _settle_record)
    else:
        _settle_record(listener)
    return future


def _settle_record(listener: object) -> None:
    future, delivery, acknowledged = cast("tuple[Outcome, Delivery, bool]", listener)
    if future.done():
        return
    error = delivery.exception()
    if error is not None:
        future.set_exception(translated(error))
    else:
        future.set_result(record_metadata(delivery) if acknowledged else None)


def batch_future(batch: ProducerBatch | None, *, acknowledged: bool) -> Outcome:
    """A future of a batch's first record; of None without a batch and without acknowledgements."""
    future: Outcome = asyncio.get_running_loop().create_future()
    if batch is None:
        future.set_result(None)
        return future
    listener = (future, batch, acknowledged)
    if batch.outcome is None:
        batch.add_listener(listener, _settle_batch)
    else:
        _settle_batch(listener)
    return future


def _settle_batch(listener: object) -> None:
    future, batch, acknowledged = cast("tuple[Outcome, ProducerBatch, bool]", listener)
    outcome = batch.outcome
    batch.retrieved = batch.count  # a future that fails unseen is reported by asyncio
    if future.done() or outcome is None:
        return
    if outcome.error is not None:
        # The record to blame, if the broker names one, says more than the error of the others.
        blamed = next(iter(outcome.record_errors.values()), outcome.error)
        future.set_exception(translated(blamed.with_context()))
        return
    if not acknowledged:
        future.set_result(None)
        return
    place, stamped = batch.topic_partition, outcome.log_append_time_ms
    future.set_result(
        kin_struct(RecordMetadata)(
            place.topic,
            place.partition,
            kin_struct(TopicPartition)(*place),
            -1 if outcome.base_offset is None else outcome.base_offset,
            -1 if stamped is None else stamped,  # the broker names no one timestamp for many
            outcome.timestamp_type.value,
            outcome.log_start_offset,
        )
    )
