"""Futures, which aiokafka gives where this producer gives deliveries.

Owns: the way from deliveries to a future. Must not know: how records are accepted.

Invariants: a future that fails unseen is reported by asyncio, as with aiokafka; cancelling one
takes no record back and disturbs no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from aioproducer.compat.aiokafka._translation import record_metadata, translated
from aioproducer.compat.aiokafka.structs import RecordMetadata
from aioproducer.errors import BatchRefusedError
from aioproducer.runtime.delivery import Delivery
from aioproducer.types import TimestampType

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


def batch_future(deliveries: Sequence[Delivery], *, acknowledged: bool) -> Outcome:
    """A future of the first of some records, done when the last one is; fails if any does."""
    future: Outcome = asyncio.get_running_loop().create_future()
    missing = len(deliveries)

    def done(_: Delivery) -> None:
        nonlocal missing
        missing -= 1
        if not missing and not future.done():
            _settle(future, deliveries, acknowledged)

    for delivery in deliveries:
        delivery.add_done_callback(done)
    if not deliveries:
        future.set_result(None)
    return future


def _settle(future: Outcome, deliveries: Sequence[Delivery], acknowledged: bool) -> None:
    errors = [error for delivery in deliveries if (error := delivery.exception()) is not None]
    if errors:
        causes = [error for error in errors if not isinstance(error, BatchRefusedError)]
        future.set_exception(translated((causes or errors)[0]))
        return
    if not acknowledged:
        future.set_result(None)
        return
    metadata = record_metadata(deliveries[0])
    if metadata.timestamp_type == TimestampType.CREATE_TIME.value:
        metadata = metadata._replace(timestamp=-1)  # the broker names no one timestamp for many
    future.set_result(metadata)
