"""`Delivery`, the outcome of one record as a future, in pure Python.

The native implementation, `_delivery.pyx`, has another await and memory layout and takes everything
else from here; `delivery/__init__.py` exports the one in use.

Invariants
- A new delivery is one small object: it has no future and no callback until it is awaited.
- Cancelling an await affects no other awaiter; the record is still sent.
- It has all methods that asyncio expects of a future, so that `gather` and others make no task of
  it. Its callbacks are one listener of the batch, with the delivery as the key.
- `cancel()` ends waits for the record, not the record. Without it, a cancelled `gather`, or
  `wait_for` of Python 3.11 at its timeout, would wait for the broker. Its effect ends when the
  callbacks were called: the delivery is not done then, and can be awaited again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any

from aioproducer._checks.callables import makes_coroutines
from aioproducer.core.batching.batch import ProducerBatch, name_of
from aioproducer.errors import KafkaError, WrongLoopError
from aioproducer.types import RecordMetadata, TimestampType

DoneCallback = Callable[["Delivery"], object]

CANCELLING, CANCELLED = 1, 2
"""Values of `Delivery._cancelled`, before and after callbacks were called; 0 before `cancel()`."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Result that the deliveries of one acknowledged batch share."""

    topic: str
    partition: int
    base_offset: int | None
    log_append_time_ms: int | None

    def metadata(self, delivery: Delivery, place: int) -> RecordMetadata:
        """Return the `RecordMetadata` of the record with index `place` in the batch."""
        base, stamped = self.base_offset, self.log_append_time_ms
        return RecordMetadata(
            self.topic,
            self.partition,
            None if base is None else base + place,
            delivery._timestamp_ms if stamped is None else stamped,
            TimestampType.CREATE_TIME if stamped is None else TimestampType.LOG_APPEND_TIME,
            delivery._key_size,
            delivery._value_size,
        )


class WakeUps:
    """Resumption of the awaiters of a producer's deliveries; the `owner` of each batch.

    In pure Python each awaiter has a future of the loop, which resumes it.
    """

    __slots__ = ("held", "loop")

    run_now: Callable[[], None] | None = None
    """Resumes the awaiters that are due; None here, where the loop does it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self.held: bool = False
        """Set before a call of `run_now`, so that no other call is scheduled; no effect here."""


@dataclass(slots=True, eq=False)
class Callbacks:
    """The done-callbacks of one delivery, called by its batch when the outcome is known."""

    added: list[tuple[DoneCallback, Context]] = field(default_factory=list)
    message: object = None
    """The argument of `cancel()`."""

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

    An error that is never retrieved is logged and reported to `on_delivery_error`.
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

    _asyncio_future_blocking = False  # an object with this attribute is a future to asyncio
    _receipt_type = Receipt
    _callbacks_type = Callbacks

    def __init__(
        self, batch: ProducerBatch, index: int, timestamp_ms: int, key_size: int, value_size: int
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
        """The partition the record goes to; -1 before its topic has metadata."""
        return self._batch.topic_partition_of(self._index).partition

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the producer."""
        return _loop_of(self._batch)

    def done(self) -> bool:
        """Return whether the record is acknowledged or has failed.

        It is true, too, from `cancel()` until the callbacks were called; after that the delivery
        can be awaited again.
        """
        return self._batch.outcome is not None or self._cancelled == CANCELLING

    def cancelled(self) -> bool:
        """Return whether `cancel()` was called and the record has no outcome yet."""
        return self._cancelled != 0 and self._batch.outcome is None

    def cancel(self, msg: object = None) -> bool:
        """End waits for the record: it is sent as if this had not been called.

        The callbacks that were added are called, and see `cancelled()`; so `gather`, `wait` and
        others end. Tasks that `await` the delivery go on waiting. Callbacks that are added
        afterwards are called with the outcome, which ends the cancellation.

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
        """End the effect of `cancel()`: the callbacks were called."""
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
        """Return the error, or None when the record is acknowledged.

        Raises:
            asyncio.InvalidStateError: the delivery is not done yet.
            asyncio.CancelledError: it is not done yet, and `cancel()` was called.
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
        """Return the record's topic, partition, offset and timestamp.

        Raises:
            KafkaError: the delivery failed; its `persistence` says whether the record was stored.
            asyncio.InvalidStateError: the delivery is not done yet.
            asyncio.CancelledError: it is not done yet, and `cancel()` was called.
        """
        error = self.exception()
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback, which keeps the callers' frames, would keep it
        batch = self._batch
        found = batch.outcome_of(self._index)
        if found is None:  # pragma: no cover - exception() has raised
            raise RuntimeError("the delivery has neither an error nor an outcome")
        outcome, place = found
        receipt = self._receipt_type(
            *batch.topic_partition_of(self._index), outcome.base_offset, outcome.log_append_time_ms
        )
        return receipt.metadata(self, place)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self._batch
        if batch.outcome is None:
            future = self._running_loop().create_future()
            batch.listeners[future] = wake
            try:
                yield from future
            finally:
                batch.listeners.pop(future, None)
        receipt = self._receipt()
        return self.result() if receipt is None else receipt.metadata(self, self._index)

    def _receipt(self) -> Receipt | None:
        """Return the receipt of a batch that is acknowledged as a whole."""
        batch = self._batch
        if isinstance(batch.receipt, Receipt):
            return batch.receipt
        outcome = batch.outcome
        if outcome is None or outcome.error is not None or batch.parts:
            return None
        receipt = Receipt(*batch.topic_partition, outcome.base_offset, outcome.log_append_time_ms)
        batch.receipt = receipt
        return receipt

    def add_done_callback(self, callback: DoneCallback, *, context: Context | None = None) -> None:
        """Call `callback(delivery)` from the loop, soon after the delivery is done.

        It runs as a plain function: it may call `send_nowait()` or start a task, not wait.

        Args:
            callback: called once, in the order in which callbacks were added.
            context: the context it runs in; a copy of the current one if left out.

        Raises:
            TypeError: `callback` is not a function, or is a coroutine function, whose coroutine
                would not be awaited.
        """
        check_done_callback(callback)
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
        """Remove a callback; return how often it had been added."""
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
        """Return the record's batch and its index there, for aggregates over many deliveries."""
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
        if self._batch.outcome is None:
            state = "cancelled" if self._cancelled else "pending"
        elif self._batch.record_error(self._index) is None:
            state = "acknowledged"
        else:
            state = "failed"
        return f"<Delivery {name_of(self._batch.topic_partition_of(self._index))} {state}>"


def wake(future: object) -> None:
    """Resume one awaiter; a listener of its batch."""
    if isinstance(future, asyncio.Future) and not future.done():
        future.set_result(None)


def _loop_of(batch: ProducerBatch) -> asyncio.AbstractEventLoop:
    owner: Any = batch.owner
    loop: asyncio.AbstractEventLoop = owner.loop
    return loop


def check_done_callback(callback: object) -> None:
    """Raise TypeError for a callback that cannot be called, or only makes a coroutine."""
    if not callable(callback):  # `loop.call_soon` in debug mode would raise it in the sender
        raise TypeError(f"a done callback is a plain function, not {callback!r}")
    if makes_coroutines(callback):
        raise TypeError(
            f"a done callback is a plain function, not the coroutine function {callback!r}; "
            "await the delivery in a task instead"
        )
