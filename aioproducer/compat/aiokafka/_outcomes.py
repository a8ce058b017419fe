"""Futures for deliveries, as aiokafka's calls return futures.

Invariants: a failed future whose exception is not retrieved is reported by asyncio, as with
aiokafka, unless the producer itself has failed; cancelling a future neither takes the record back
nor affects other futures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, cast

from aioproducer.compat.aiokafka._structs import RecordMetadata, TopicPartition, shared_struct
from aioproducer.compat.aiokafka._translation import (
    acknowledged_metadata,
    acknowledgement,
    record_metadata,
    translated,
)
from aioproducer.errors import KafkaError, ProducerFailedError
from aioproducer.runtime.delivery import Delivery

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch

Outcome = asyncio.Future[RecordMetadata | None]


_await_future: Final = asyncio.Future.__await__


def _ignore(_: object) -> None:
    """Do nothing."""


class RecordFuture(Outcome):
    """A future of one record. Awaiting it costs no turn of the loop more than its delivery does."""

    __slots__ = ("_delivery", "_waits")

    def __init__(self, delivery: Delivery, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._delivery = delivery
        self._waits: list[Any] = []
        """Awaits under way, which end when the future is cancelled."""

    def __await__(self) -> Generator[Any, None, RecordMetadata | None]:
        if self.done():
            return _await_future(self)
        wait = self._delivery.__await__()
        if hasattr(wait, "cancel"):
            return self._resumed_directly(wait)
        return self._awaited()  # a delivery in pure Python makes a future itself

    __iter__ = __await__

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the future and those that await it; the record is sent all the same."""
        is_cancelled = super().cancel(msg)
        if is_cancelled:
            for wait in self._waits:
                wait.cancel(msg)
        return is_cancelled

    def _awaited(self) -> Generator[Any, None, RecordMetadata | None]:
        batch = self._delivery._batch
        batch.add_listener(self, _ignore)  # so that the batch need not linger
        try:
            return (yield from _await_future(self))
        finally:
            batch.remove_listener(self)

    def _resumed_directly(self, wait: Any) -> Generator[Any, None, RecordMetadata | None]:
        waits = self._waits
        waits.append(wait)
        try:
            yield from wait
        except asyncio.CancelledError:
            self.cancel()
            raise
        except KafkaError:
            if not self.done():  # not the record's error: another loop awaits it
                raise
        finally:
            waits.remove(wait)
        return self.result()


class RecordFutures:
    """Makes the futures of one producer's records, and resolves those of a batch together.

    The first one of a batch is a `RecordFuture`, as its record may go out alone; the others are
    asyncio's own, which cost less to make and to await. Without acknowledgements results are None.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, acknowledged: bool) -> None:
        self.acknowledged: bool = acknowledged
        self._loop = loop
        self._open: dict[ProducerBatch, tuple[list[Outcome], list[Delivery]]] = {}
        """The futures of batches without an outcome, and the deliveries they are for."""

    def of(self, delivery: Delivery) -> Outcome:
        """Return a future of a delivery; called in the producer's loop."""
        batch = delivery._batch
        open_ones = self._open.get(batch)
        if open_ones is not None:
            # Without `loop=`, asyncio of Python 3.11 makes a system call.
            future: Outcome = asyncio.Future(loop=self._loop)
            open_ones[0].append(future)
            open_ones[1].append(delivery)
            return future
        future = RecordFuture(delivery, self._loop)
        self._open[batch] = [future], [delivery]
        if batch.outcome is None:
            # A listener of the batch is far cheaper than a callback with a context, and setting a
            # future's result runs no other code.
            batch.add_observer(batch, self._complete)
        else:
            self._complete(batch)
        return future

    def _complete(self, batch: Any) -> None:
        """Give the futures of a batch their results; after an interrupt it is called again."""
        futures, deliveries = self._open.get(batch, ((), ()))
        outcome = acknowledgement(batch) if self.acknowledged else None
        if outcome is None:
            for future, delivery in zip(futures, deliveries, strict=True):
                self._resolve_one(future, delivery)
        else:
            found = acknowledged_metadata(batch, outcome, deliveries)
            for future, metadata in zip(futures, found, strict=True):
                if not future.done():
                    future.set_result(metadata)
        self._open.pop(batch, None)

    def _resolve_one(self, future: Outcome, delivery: Delivery) -> None:
        if future.done():
            return
        error = delivery.exception()
        if error is not None:
            future.set_exception(translated(error))
            if isinstance(error, ProducerFailedError):
                future.exception()  # the producer logs this once, asyncio would for each record
        else:
            future.set_result(record_metadata(delivery) if self.acknowledged else None)


def batch_future(batch: ProducerBatch | None, *, acknowledged: bool) -> Outcome:
    """Return a future of a batch's first record; of None without a batch or acknowledgements."""
    future: Outcome = asyncio.get_running_loop().create_future()
    if batch is None:
        future.set_result(None)
        return future
    listener = (future, batch, acknowledged)
    if batch.outcome is None:
        batch.add_observer(listener, _complete_batch)
    else:
        _complete_batch(listener)
    return future


def _complete_batch(listener: object) -> None:
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
        shared_struct(RecordMetadata)(
            place.topic,
            place.partition,
            shared_struct(TopicPartition)(*place),
            -1 if outcome.base_offset is None else outcome.base_offset,
            -1 if stamped is None else stamped,  # the broker names no one timestamp for many
            outcome.timestamp_type.value,
            outcome.log_start_offset,
        )
    )
