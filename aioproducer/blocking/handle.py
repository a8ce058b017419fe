"""DeliveryHandle: one record's outcome, for threads.

Invariants
- Making one costs one small object; a lock is made only if a thread waits.
- `_delivery` is set once, in the loop's thread; `_watchers` are attached there, after that.
- A wait ends with the outcome, its timeout, a fork, or the end of the loop's thread: never later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aioproducer._util.arguments import timeout_of
from aioproducer._util.clock import Deadline
from aioproducer._util.threads import OneTimeEvent, Reentrant
from aioproducer.blocking.loop_thread import LoopThread
from aioproducer.errors import KafkaError
from aioproducer.runtime.delivery import Delivery
from aioproducer.types import RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from aioproducer.runtime.delivery.unhandled import UnretrievedFailures


class DeliveryHandle:
    """The outcome of one `send()`; in the manner of `concurrent.futures.Future`.

    It cannot be cancelled: a record that was handed over is sent. Use it from any thread.
    """

    __slots__ = ("_delivery", "_event", "_thread", "_watchers")

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self._delivery: Delivery | Refused | None = None
        self._watchers: list[Callable[[object], object]] | None = None

    def done(self) -> bool:
        """Return whether the outcome is known."""
        delivery = self._delivery
        return delivery is not None and delivery.done()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Return the record's partition and offset.

        Args:
            timeout: seconds to wait; None or infinity waits as long as the record's own time
                limits allow.

        Raises:
            ValueError: the timeout is negative or NaN.
            KafkaError: the delivery failed; the error says whether it may have been written.
            TimeoutError: the timeout ended first; the record goes on.
            IllegalStateError: called in a callback, which would block the thread that sets the
                outcome.
            ForkedError: in a child process, of a record its parent has handed over.
        """
        return self._wait(timeout).result()

    def exception(self, timeout: float | None = None) -> KafkaError | None:
        """Return why the delivery failed, or None. Wait and raise as `result`."""
        return self._wait(timeout).exception()

    def add_done_callback(self, callback: Callable[[DeliveryHandle], object]) -> None:
        """Call `callback(handle)` once the outcome is known, in the thread of the loop.

        It must not wait: its `send()` raises `WouldBlockError` where another one would wait, the
        calls that always wait raise `IllegalStateError`. When the outcome is known already it is
        called at once, in this thread.
        """
        if self.done():
            callback(self)
        else:
            self._watch(lambda _: callback(self))

    @property
    def _lock(self) -> Reentrant:
        """The lock of its producer, held for some instructions at a time."""
        return self._thread.lock

    @property
    def is_handed_over(self) -> bool:
        """Whether the record was appended or refused; its outcome may come later."""
        return self._delivery is not None

    def hand_over(self, delivery: Delivery | Refused) -> None:
        """Set the delivery of an appended record, or its refusal; in the loop's thread."""
        self._delivery = delivery
        if self._watchers is not None:
            self._attach()

    def __repr__(self) -> str:
        delivery = self._delivery
        return f"<DeliveryHandle {'handed over' if delivery is None else delivery!r}>"

    def _wait(self, timeout: float | None) -> Delivery | Refused:
        timeout = timeout_of(timeout)
        delivery = self._delivery
        if delivery is not None and delivery.done():
            return delivery
        self._thread.check_alive()
        deadline = Deadline(timeout)
        event = self._done_event()
        while True:
            self._thread.wait(event.wait, deadline.left())
            delivery = self._delivery
            if delivery is not None and delivery.done():
                return delivery
            if deadline.is_over:
                raise TimeoutError(f"no outcome within {timeout} s; the record goes on")
            self._thread.check_alive()

    def _done_event(self) -> OneTimeEvent:
        """Return the event that all waiting threads share: repeated waits add no callbacks."""
        self._thread.check_may_wait()
        with self._thread.lock:
            event: OneTimeEvent | None = getattr(self, "_event", None)
            if event is not None:
                return event
            event = self._event = OneTimeEvent()
        self._watch(lambda _: event.set())
        return event

    def _watch(self, watcher: Callable[[object], object]) -> None:
        with self._thread.lock:
            if self._watchers is None:
                self._watchers = []
            self._watchers.append(watcher)
        # `hand_over` sets one and then reads the other, here it is the other way round: one of
        # the two sees both.
        if self._delivery is not None and not self._thread.post(self._attach):
            self._attach(has_loop=False)

    def _attach(self, *, has_loop: bool = True) -> None:
        with self._thread.lock:
            watchers, self._watchers = self._watchers or (), None
        delivery = self._delivery
        if delivery is None:
            return
        for watcher in watchers:
            if has_loop:
                delivery.add_done_callback(watcher)
            else:
                watcher(delivery)  # it is done; the loop that has ended would call nothing


Post = Callable[[Callable[[], object]], bool]
"""Runs a callback in the loop, soon; False when the loop is gone."""


class RefusedGroup:
    """The records of one partition that were refused together; reported once if not retrieved."""

    def __init__(self, where: TopicPartition, report: UnretrievedFailures, post: Post) -> None:
        self.count: int = 0
        self.retrieved: int = 0
        self.last_error: KafkaError | None = None
        self.post: Post = post
        self._where = where
        self._report = report

    def refuse(self, error: KafkaError) -> Refused:
        """Return one more record of the group."""
        self.count += 1
        self.last_error = error
        return Refused(error, self)

    def __del__(self) -> None:
        if self.last_error is not None and self.retrieved < self.count:
            unseen = self.count - self.retrieved
            self._report.report_soon(self._where, unseen, self.count, self.last_error)


class Refused:
    """The substitute for the `Delivery` of a record that was not accepted after all."""

    __slots__ = ("_error", "_group", "_seen")

    def __init__(self, error: KafkaError, group: RefusedGroup) -> None:
        self._error = error
        self._group = group
        self._seen = False

    def done(self) -> bool:
        """Return True: a refusal is its outcome."""
        return True

    def exception(self) -> KafkaError:
        """Return why it was refused."""
        if not self._seen:
            self._seen = True
            self._group.retrieved += 1
        return self._error.with_context()  # each one that is raised gets a traceback

    def result(self) -> RecordMetadata:
        """Raise why it was refused."""
        raise self.exception()

    def add_done_callback(self, callback: Callable[[Refused], object]) -> None:
        """Call it in the loop, soon."""
        if not self._group.post(lambda: callback(self)):
            callback(self)

    def __repr__(self) -> str:
        return "<refused>"
