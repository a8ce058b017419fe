"""Delivery: one record's share in the outcome of its batch.

Owns: awaiting, callbacks, the translation of a batch's outcome into `RecordMetadata` or an error.
Must not know: how batches are sent. The native form in `_delivery.pyx` has an await and a memory
layout of its own and takes everything else from here; `delivery.py` offers the one in use.

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

from aioproducer._callables import makes_coroutines
from aioproducer.errors import KafkaError, WrongLoopError
from aioproducer.types import RecordMetadata, TimestampType

if TYPE_CHECKING:
    from aioproducer.core.producer_batch import ProducerBatch

DoneCallback = Callable[["Delivery"], object]

_new_tuple = tuple.__new__


class Receipt:
    """The answer that the deliveries of one acknowledged batch share."""

    __slots__ = ("_base_offset", "_partition", "_stamped", "_timestamp_type", "_topic")

    def __init__(
        self,
        topic: str,
        partition: int,
        base_offset: int | None,
        log_append_time_ms: int | None,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._base_offset = base_offset
        self._stamped = log_append_time_ms
        self._timestamp_type = (
            TimestampType.CREATE_TIME
            if log_append_time_ms is None
            else TimestampType.LOG_APPEND_TIME
        )

    def metadata(self, delivery: Delivery, place: int) -> RecordMetadata:
        """The `RecordMetadata` of the record that stands at `place` in the batch."""
        base, stamped = self._base_offset, self._stamped
        # What a NamedTuple's own `__new__` does, without that call.
        return _new_tuple(
            RecordMetadata,
            (
                self._topic,
                self._partition,
                None if base is None else base + place,
                delivery._timestamp_ms if stamped is None else stamped,
                self._timestamp_type,
                delivery._key_size,
                delivery._value_size,
            ),
        )


class WakeUps:
    """What resumes the awaiters of a producer's deliveries; each batch has it as its `owner`.

    Here each awaiter has a future of the loop, which does it.

    Attributes:
        loop: the loop that the awaiters run in.
    """

    __slots__ = ("loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop

    def hold(self) -> None:
        """`run_now` will be called for what becomes due."""

    def run_now(self) -> None:
        """Resumes who is due, where that takes no turn of the loop: never here."""


class Delivery:
    """The fate of one accepted record; await it for its `RecordMetadata`.

    Works with `await`, `asyncio.gather`, `wait`, `wait_for` and `as_completed`. Any number of tasks
    of the producer's loop may await it, again and again.
    """

    __slots__ = ("_batch", "_index", "_key_size", "_retrieved", "_timestamp_ms", "_value_size")

    _receipt_type = Receipt

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
        """The partition the record goes to; -1 before its topic is known."""
        return self._batch.topic_partition_of(self._index).partition

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
        outcome, place = found
        receipt = self._receipt_type(
            *batch.topic_partition_of(self._index), outcome.base_offset, outcome.log_append_time_ms
        )
        if not batch.parts:
            batch.receipt = receipt
        return receipt.metadata(self, place)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self._batch
        if batch.outcome is None:
            future = self._running_loop().create_future()
            batch.add_listener(future, wake)
            try:
                yield from future
            finally:
                batch.remove_listener(future)
        receipt = batch.receipt
        if isinstance(receipt, Receipt):
            return receipt.metadata(self, self._index)
        return self.result()

    def add_done_callback(self, callback: DoneCallback, *, context: Context | None = None) -> None:
        """Calls `callback(delivery)` from the loop, soon after the delivery is done.

        It runs as a plain function: it may call `send_nowait()` or start a task, not wait.

        Raises:
            TypeError: `callback` is a coroutine function, whose coroutine nobody would await.
        """
        if makes_coroutines(callback):
            raise TypeError(
                f"a done callback is a plain function, not the coroutine function {callback!r}; "
                "await the delivery in a task instead"
            )
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
        if loop is not _loop_of(self._batch):
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


def wake(future: object) -> None:
    """Listener of a batch: resumes one awaiter."""
    if isinstance(future, asyncio.Future) and not future.done():
        future.set_result(None)


def _loop_of(batch: ProducerBatch) -> asyncio.AbstractEventLoop:
    owner: Any = batch.owner
    loop: asyncio.AbstractEventLoop = owner.loop
    return loop


class _Listener:
    """A done-callback in its context."""

    __slots__ = ("callback", "context", "delivery")

    def __init__(self, delivery: Delivery, callback: DoneCallback, context: Context) -> None:
        self.delivery = delivery
        self.callback = callback
        self.context = context


def _notify(listener: object) -> None:
    if isinstance(listener, _Listener):
        loop = _loop_of(listener.delivery._batch)
        if not loop.is_closed():
            loop.call_soon(listener.callback, listener.delivery, context=listener.context)
