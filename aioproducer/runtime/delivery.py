"""Delivery: one record's share in the outcome of its batch.

Owns: awaiting, callbacks, the translation of a batch's outcome into `RecordMetadata` or an error.
Must not know: how batches are sent.

Invariants
- Making one costs one small object: no future, no callback, until somebody awaits.
- Cancelling an await detaches that awaiter and nobody else; the record is not un-sent.
- It is not a future on purpose: `asyncio.wait_for` and `gather` wrap it in a task of their own, so
  that their cancellation ends that task at once instead of waiting for the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from aioproducer.errors import KafkaError, WrongLoopError
from aioproducer.types import RecordMetadata

if TYPE_CHECKING:
    from aioproducer.core.producer_batch import ProducerBatch

DoneCallback = Callable[["Delivery"], object]


class Delivery:
    """The fate of one accepted record; await it for its `RecordMetadata`.

    Works with `await`, `asyncio.gather`, `wait`, `wait_for` and `as_completed`. Any number of tasks
    of the producer's loop may await it, again and again.
    """

    __slots__ = ("_batch", "_index", "_key_size", "_retrieved", "_timestamp_ms", "_value_size")

    def __init__(
        self,
        batch: ProducerBatch,
        index: int,
        timestamp_ms: int,
        key_size: int,
        value_size: int,
    ) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms
        self._key_size = key_size
        self._value_size = value_size
        self._retrieved = False

    @property
    def topic(self) -> str:
        """The topic the record goes to."""
        return self._batch.topic_partition.topic

    @property
    def partition(self) -> int:
        """The partition the record goes to."""
        return self._batch.topic_partition.partition

    def done(self) -> bool:
        """Whether the record is acknowledged or has failed."""
        return self._batch.outcome is not None

    def cancelled(self) -> bool:
        """Always False: an accepted record cannot be taken back through its delivery."""
        return False

    def exception(self) -> KafkaError | None:
        """The error, or None when the record is acknowledged.

        Raises:
            asyncio.InvalidStateError: neither has happened yet.
        """
        if self._batch.outcome is None:
            raise asyncio.InvalidStateError("the delivery is not done yet")
        error = self._batch.record_error(self._index)
        if error is None:
            return None
        if not self._retrieved:
            self._retrieved = True
            self._batch.mark_retrieved(self._index)
        # A copy: tracebacks of many awaiters must not pile up on one exception.
        return error.with_context()

    def result(self) -> RecordMetadata:
        """Where the record stands.

        Raises:
            KafkaError: the delivery failed; the error tells whether it may have been written.
            asyncio.InvalidStateError: the delivery is not done yet.
        """
        error = self.exception()
        if error is not None:
            raise error
        batch = self._batch
        found = batch.outcome_of(self._index)
        if found is None:  # pragma: no cover - exception() has raised
            raise asyncio.InvalidStateError("the delivery is not done yet")
        outcome, index = found
        base = outcome.base_offset
        stamped = outcome.log_append_time_ms
        return RecordMetadata(
            batch.topic_partition.topic,
            batch.topic_partition.partition,
            None if base is None else base + index,
            self._timestamp_ms if stamped is None else stamped,
            outcome.timestamp_type,
            self._key_size,
            self._value_size,
        )

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self._batch
        if batch.outcome is None:
            loop = self._running_loop()
            future = loop.create_future()
            batch.add_listener(future, _wake)
            try:
                yield from future
            finally:
                batch.remove_listener(future)
        return self.result()

    def add_done_callback(self, callback: DoneCallback, *, context: Context | None = None) -> None:
        """Calls `callback(delivery)` from the loop, soon after the delivery is done."""
        listener = _Listener(self, callback, context or copy_context())
        if self._batch.outcome is None:
            self._batch.add_listener(listener, _notify)
        else:
            _notify(listener)

    def remove_done_callback(self, callback: DoneCallback) -> int:
        """Forgets a callback; returns how many were removed."""
        return self._batch.remove_listeners(
            lambda key: (
                isinstance(key, _Listener) and key.delivery is self and key.callback == callback
            )
        )

    def batch_and_index(self) -> tuple[ProducerBatch, int]:
        """The record's batch and its place in it; for aggregates over many deliveries."""
        return self._batch, self._index

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if loop is not self._batch.owner:
            raise WrongLoopError(
                "this delivery belongs to another event loop than the one that awaits it",
                advice="await it in the loop its producer was started in",
            )
        return loop

    def __repr__(self) -> str:
        topic, partition = self._batch.topic_partition
        if self._batch.outcome is None:
            state = "pending"
        elif self._batch.record_error(self._index) is None:
            state = "acknowledged"
        else:
            state = "failed"
        return f"<Delivery {topic}-{partition} {state}>"


class _Listener:
    """A done-callback in its context."""

    __slots__ = ("callback", "context", "delivery")

    def __init__(self, delivery: Delivery, callback: DoneCallback, context: Context) -> None:
        self.delivery = delivery
        self.callback = callback
        self.context = context


def _wake(future: object) -> None:
    if isinstance(future, asyncio.Future) and not future.done():
        future.set_result(None)


def _notify(listener: object) -> None:
    if isinstance(listener, _Listener):
        loop = listener.delivery._batch.owner
        if isinstance(loop, asyncio.AbstractEventLoop) and not loop.is_closed():
            loop.call_soon(listener.callback, listener.delivery, context=listener.context)
