"""Outcomes on their way to the thread that polls for them.

The loop's thread adds them in the order of acknowledgement, those of a batch together; `serve()`
calls the callbacks in the thread that called it, and in no other.

Invariant: what is counted and what is kept here agree, also after a KeyboardInterrupt and while a
signal handler polls. Python raises the one and runs the other after a call, but not between other
instructions. Otherwise a later `flush()` would not end.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer._util import log
from aioproducer._util.clock import Deadline, SystemClock
from aioproducer._util.threads import Reentrant, released
from aioproducer.compat.confluent import _errors as errors
from aioproducer.compat.confluent._translation import reported, translated
from aioproducer.compat.confluent.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Headers,
    Message,
)
from aioproducer.errors import KafkaError as OwnError
from aioproducer.types import TimestampType

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.runtime.delivery import Delivery

_log = log.get("producer")
_POLL_S: Final = 1.0


class Record(NamedTuple):
    """A record that was produced, and the callback for its outcome."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: Headers | None
    partition: int | None
    timestamp_ms: int | None
    size: int
    since: float
    on_delivery: Any


class Group:
    """The records of one batch whose outcome is to be reported.

    Attributes:
        pairs: Those with a callback, in order, with their deliveries.
        silent: How many have no callback.
        silent_bytes: Their sizes.
        at: When the outcome came, by the system's monotonic clock.
    """

    __slots__ = ("at", "batch", "pairs", "silent", "silent_bytes")

    def __init__(self, batch: ProducerBatch) -> None:
        self.batch = batch
        self.pairs: deque[tuple[Record, Delivery]] = deque()
        self.silent = 0
        self.silent_bytes = 0
        self.at = 0.0

    def add(self, record: Record, delivery: Delivery) -> None:
        """Add a record of the batch."""
        if record.on_delivery is None:
            self.silent += 1
            self.silent_bytes += record.size
        else:
            self.pairs.append((record, delivery))

    @property
    def is_delivered(self) -> bool:
        """Whether every record of the batch is written."""
        outcome = self.batch.outcome
        return outcome is not None and outcome.error is None and not self.batch.parts


class Failure(NamedTuple):
    """A record that no producer has."""

    record: Record
    error: OwnError
    at: float


Report = Callable[[], object] | Group | Failure


class Reports:
    """The outcomes, and how much is produced and not reported.

    Attributes:
        only_errors: Whether callbacks get failed records alone.
        count: How many records.
        bytes: Their sizes.
        groups: Those that a batch has, by batch; used in the loop's thread.
        ready: What the next `serve()` calls.
        silent: How many records without a callback the next `serve()` returns.
    """

    def __init__(
        self, error_cb: Any, max_records: int, max_bytes: int, lock: Reentrant | None = None
    ) -> None:
        self.only_errors: bool = False
        self.count: int = 0
        self.bytes: int = 0
        self._error_cb = error_cb
        self._max_records = max_records
        self._max_bytes = max_bytes
        self.ready: deque[Report] = deque()
        self.groups: dict[ProducerBatch, Group] = {}
        self._log = log.RateLimitedLog(_log)
        self.silent: int = 0
        self._has_ended = False
        self._lock = lock or threading.RLock()  # a signal handler may produce as well
        self._waiting: list[threading.Lock] = []

    # -- in the threads that produce and poll ----------------------------------------------------

    def admit(self, record: Record, inbox: deque[Record]) -> None:
        """Count a record and put it into the inbox; raise BufferError if there are too many."""
        with self._lock:
            count, total = self.count, self.bytes + record[6]
            if count and (count >= self._max_records or total > self._max_bytes):
                raise BufferError("Local: Queue full")
            self.count, self.bytes = count + 1, total
            inbox.append(record)

    def has_room(self, size: int) -> bool:
        """Return whether a record would be admitted."""
        return not self.count or (
            self.count < self._max_records and self.bytes + size <= self._max_bytes
        )

    def release(self, record: Record) -> None:
        """Count a record no more."""
        with self._lock:
            self.count -= 1
            self.bytes -= record.size

    def serve(self, timeout: float | None, enough: Callable[[], bool] | None = None) -> int:
        """Call the callbacks that are due, and wait for the first; return the number of outcomes.

        `timeout` is in seconds, None for no limit; `enough` ends the wait. An exception of a
        callback is raised, and the others are called next time.
        """
        if not self.ready and not self.silent:
            self._wait(Deadline(timeout), enough)
        with self._lock:
            served, self.silent = self.silent, 0
        for _ in range(len(self.ready)):
            with self._lock:
                if not self.ready:  # another thread polls as well
                    break
                report: Any = self.ready[0]
                kind = report.__class__
                if kind is not Group:  # no calls up to the end, see the module
                    del self.ready[0]
                    if kind is Failure:
                        self.count -= 1
                        self.bytes -= report.record.size
            if isinstance(report, Group):
                served += self._serve_group(report)
            else:
                served += 1
                call(report)
        return served

    def _serve_group(self, group: Group) -> int:
        """Call the callbacks of a batch; those after one that raises are left for the next time."""
        is_delivered = group.is_delivered
        pairs, lock, at, served = group.pairs, self._lock, group.at, 0
        only_errors = self.only_errors
        try:
            while True:
                with lock:
                    if not pairs:
                        break
                    record, delivery = pairs[0]
                    del pairs[0]  # not `popleft()`, see the module
                    self.count -= 1
                    self.bytes -= record[6]
                served += 1
                error = None if is_delivered else delivery.exception()
                if error is not None:
                    _call_back(record, error, delivery.partition, at)
                elif not only_errors:
                    record.on_delivery(None, _delivered(record, delivery, at))
        finally:
            with lock:
                if not pairs and self.ready and self.ready[0] is group:
                    self.ready.popleft()
        return served

    def _wait(self, deadline: Deadline, enough: Callable[[], bool] | None) -> None:
        # No `Condition`: a KeyboardInterrupt in its `wait()` may become a RuntimeError.
        wakened = threading.Lock()
        wakened.acquire()
        try:
            self._waiting.append(wakened)
            while not self.ready and not self.silent and not (enough and enough()):
                if deadline.is_over:
                    return
                with released(self._lock):
                    wakened.acquire(timeout=deadline.within(_POLL_S))
        finally:
            with suppress(ValueError):
                self._waiting.remove(wakened)

    # -- in any thread ---------------------------------------------------------------------------

    def after_fork_in_child(self) -> None:
        """Replace the locks, which a thread that does not exist here may have held."""
        self._lock = threading.RLock()
        self._waiting = []

    def wake(self) -> None:
        """Let waiting threads check again."""
        for wakened in tuple(self._waiting):
            with suppress(RuntimeError):  # it is awake already
                wakened.release()

    def add(self, report: Report) -> None:
        """Have something called by the next `serve()`."""
        self.ready.append(report)
        self.wake()

    def error(self, error: OwnError) -> None:
        """Report an error that concerns no single record."""
        if self._error_cb is not None:
            callback, given = self._error_cb, reported(error)
            self.add(lambda: callback(given))

    # -- in the loop's thread --------------------------------------------------------------------

    def group(self, delivery: Delivery) -> Group:
        """Return the group that a delivery's record belongs to, whose outcome is not known yet."""
        batch = delivery._batch
        group = self.groups.get(batch)
        if group is None:
            group = self.groups[batch] = Group(batch)
            batch.add_observer(group, self._on_batch)
        return group

    def report_when_done(self, record: Record, delivery: Delivery) -> None:
        """Report a delivery when it is done."""
        if delivery.done():
            group = Group(delivery._batch)
            group.add(record, delivery)
            self._report(group)
        else:
            self.group(delivery).add(record, delivery)

    def failed(self, record: Record, error: OwnError) -> None:
        """Report a record that no producer has."""
        self._on_failure(error)
        if record.on_delivery is None:
            self._log.warning(
                SystemClock.monotonic(),
                record.topic,
                type(error).__name__,
                "a record of topic %s was not sent: %s",
                record.topic,
                error,
            )
            self._silently(1, record.size)
        else:
            self.add(Failure(record, error, SystemClock.monotonic()))

    # -- private ---------------------------------------------------------------------------------

    def _on_batch(self, key: object) -> None:
        """Report a batch; it may be called again when an exception has interrupted the first."""
        assert isinstance(key, Group)
        if self.groups.pop(key.batch, None) is not None:
            self._report(key)

    def _on_failure(self, error: OwnError) -> None:
        """Have the next `serve()` raise a fatal error, once, as librdkafka does."""
        given = translated(error)
        if given.fatal() and not self._has_ended:
            self._has_ended = True
            self.add(partial(_raise, given))

    def _report(self, group: Group) -> None:
        group.at = SystemClock.monotonic()
        outcome = group.batch.outcome
        if outcome is not None and outcome.error is not None:
            self._on_failure(outcome.error)
        if group.pairs:
            self.add(group)
        if group.silent:
            self._silently(group.silent, group.silent_bytes)

    def _silently(self, count: int, size: int) -> None:
        """Count records without a callback no more; the producer logs failures."""
        with self._lock:
            self.count -= count
            self.bytes -= size
            self.silent += count
        self.wake()


def _raise(error: errors.KafkaError) -> None:
    raise errors.shared_class(errors.KafkaException)(error)


def call(report: Callable[[], object] | Failure) -> None:
    if isinstance(report, Failure):
        record, error, at = report
        _call_back(record, error, record.partition, at)
    else:
        report()


def _call_back(record: Record, error: OwnError, partition: int | None, at: float) -> None:
    given = reported(error)
    timestamp = (TIMESTAMP_NOT_AVAILABLE, -1)
    if record.timestamp_ms is not None:
        timestamp = (TIMESTAMP_CREATE_TIME, record.timestamp_ms)
    message = Message(
        record.topic,
        partition,
        None,
        record.key,
        record.value,
        record.headers,
        given,
        timestamp,
        at - record.since,
    )
    record.on_delivery(given, message)


def _delivered(record: Record, delivery: Delivery, at: float) -> Message:
    topic, value, key, headers, _, _, _, since, _ = record
    _, partition, offset, timestamp_ms, kind, _, _ = delivery.result()
    of_log = kind is TimestampType.LOG_APPEND_TIME
    timestamp = (TIMESTAMP_LOG_APPEND_TIME if of_log else TIMESTAMP_CREATE_TIME, timestamp_ms)
    return Message(topic, partition, offset, key, value, headers, None, timestamp, at - since)
