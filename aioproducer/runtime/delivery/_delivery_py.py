"""Delivery: one record's share in the outcome of its batch.

Owns: awaiting, callbacks, the translation of a batch's outcome into `RecordMetadata` or an error.
Must not know: how batches are sent. The native form in `_delivery.pyx` has an await and a memory
layout of its own and takes everything else from here; `delivery.py` offers the one in use.

Invariants
- Making one costs one small object: no future, no callback, until somebody awaits.
- Cancelling an await detaches that awaiter and nobody else; the record is not un-sent.
- It has all that asyncio asks of a future, so that `gather` and others make no task of it. Its
  callbacks are one listener of the batch, with the delivery as the key.
- `cancel()` ends waits for the record, not the record. Without it a `gather` that is cancelled, or
  `wait_for` of Python 3.11 at its timeout, would wait for the broker. Its effect ends when the
  callbacks were called: the delivery is not done then, and can be waited for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from aioproducer._checks.callables import makes_coroutines
from aioproducer.errors import KafkaError, WrongLoopError
from aioproducer.types import RecordMetadata, TimestampType

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch

DoneCallback = Callable[["Delivery"], object]

CANCELLING, CANCELLED = 1, 2
"""Of `Delivery._cancelled`, until callbacks were called and from then on; 0 before `cancel()`."""

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


class Callbacks:
    """The done-callbacks of one delivery, called by its batch when the outcome is known."""

    __slots__ = ("added", "message")

    def __init__(self) -> None:
        self.added: list[tuple[DoneCallback, Context]] = []
        self.message: object = None
        """What `cancel()` was given."""

    def take(self) -> list[tuple[DoneCallback, Context]]:
        """Return the callbacks, which are not to be called again."""
        taken, self.added = self.added, []
        return taken

    def __call__(self, delivery: object) -> None:
        if isinstance(delivery, Delivery):
            loop = _loop_of(delivery._batch)
            if not loop.is_closed():
                for callback, context in self.take():
                    loop.call_soon(callback, delivery, context=context)


class Delivery:
    """The outcome of one accepted record; await it for its `RecordMetadata`.

    It is a future to asyncio: `gather`, `wait`, `wait_for`, `as_completed` and `shield` take it
    as it is and make no task of it. Any number of tasks of the producer's loop may await it, again
    and again; cancelling one of them does not affect the others.

    A delivery whose error is never looked at is logged and reported to `on_delivery_error`.
    """

    __slots__ = (
        "_batch",
        "_cancelled",
        "_index",
        "_key_size",
        "_retrieved",
        "_timestamp_ms",
        "_value_size",
    )

    _asyncio_future_blocking = False  # what has this attribute is a future to asyncio
    _receipt_type = Receipt
    _callbacks_type = Callbacks

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
        self._cancelled = 0

    @property
    def topic(self) -> str:
        """The topic the record goes to."""
        return self._batch.topic_partition.topic

    @property
    def partition(self) -> int:
        """The partition the record goes to; -1 before its topic is known."""
        return self._batch.topic_partition_of(self._index).partition

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the producer."""
        return _loop_of(self._batch)

    def done(self) -> bool:
        """Whether the record is acknowledged or has failed.

        It is true, too, from `cancel()` until the callbacks were called; after that the delivery
        can be waited for again.
        """
        return self._batch.outcome is not None or self._cancelled == CANCELLING

    def cancelled(self) -> bool:
        """Whether `cancel()` was called and the outcome of the record is not known yet."""
        return self._cancelled != 0 and self._batch.outcome is None

    def cancel(self, msg: object = None) -> bool:
        """End waits for the record: it is sent as if this had not been called.

        The callbacks that were added are called, and see `cancelled()`; so `gather`, `wait` and
        others end. Tasks that `await` the delivery go on waiting, and who adds a callback
        afterwards waits for the outcome, which ends the cancellation.

        Args:
            msg: for the `CancelledError` of those that are waiting.

        Returns:
            False when it is done.
        """
        if self.done():
            return False
        self._cancelled = CANCELLING
        loop, listeners = _loop_of(self._batch), self._batch.listeners
        waiting: Any = listeners.get(self)
        if waiting is None:
            waiting = listeners[self] = self._callbacks_type()
        waiting.message = msg
        for callback, context in waiting.take():
            loop.call_soon(callback, self, context=context)
        loop.call_soon(self._on_cancelled)
        return True

    def _on_cancelled(self) -> None:
        """Who was waiting has seen the cancellation."""
        self._cancelled = CANCELLED
        self._batch.remove_listener(self)

    @property
    def _cancel_message(self) -> object:
        waiting: Any = self._batch.listeners.get(self)
        return None if waiting is None else waiting.message

    def _make_cancelled_error(self) -> asyncio.CancelledError:
        message = self._cancel_message
        return asyncio.CancelledError() if message is None else asyncio.CancelledError(message)

    def exception(self) -> KafkaError | None:
        """The error, or None when the record is acknowledged.

        Raises:
            asyncio.InvalidStateError: neither has happened yet.
            asyncio.CancelledError: neither has happened yet, and `cancel()` was called.
        """
        if self._batch.outcome is None:
            if self._cancelled:
                raise self._make_cancelled_error()
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
            asyncio.CancelledError: it is not done yet, and `cancel()` was called.
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

        Args:
            callback: called once, in the order in which callbacks were added.
            context: what it runs in; a copy of the present one if left out.

        Raises:
            TypeError: `callback` is a coroutine function, whose coroutine nobody would await.
        """
        refuse_coroutine_function(callback)
        if context is None:
            context = copy_context()
        batch = self._batch
        if batch.outcome is not None or self._cancelled == CANCELLING:
            loop = _loop_of(batch)
            if not loop.is_closed():
                loop.call_soon(callback, self, context=context)
            return
        waiting = batch.listeners.get(self)
        if not isinstance(waiting, Callbacks):
            waiting = batch.listeners[self] = Callbacks()
        waiting.added.append((callback, context))

    def remove_done_callback(self, callback: DoneCallback) -> int:
        """Removes a callback; returns how often it had been added."""
        batch = self._batch
        waiting = batch.listeners.get(self)
        if not isinstance(waiting, Callbacks):
            return 0
        left = [each for each in waiting.added if each[0] != callback]
        removed = len(waiting.added) - len(left)
        waiting.added = left
        if not left and self._cancelled != CANCELLING:
            batch.remove_listener(self)
        return removed

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
            state = "cancelled" if self._cancelled else "pending"
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


def refuse_coroutine_function(callback: object) -> None:
    """Raises TypeError for a callback that only makes a coroutine."""
    if makes_coroutines(callback):
        raise TypeError(
            f"a done callback is a plain function, not the coroutine function {callback!r}; "
            "await the delivery in a task instead"
        )
