"""Outcomes on their way to the thread that polls for them.

The loop's thread adds them in the order of acknowledgement; `serve()` calls the callbacks in the
thread that called it, and in no other.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from aioproducer import log
from aioproducer.compat.confluent import errors
from aioproducer.compat.confluent._translation import translated
from aioproducer.compat.confluent.errors import KafkaError
from aioproducer.compat.confluent.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Headers,
    Message,
)
from aioproducer.errors import KafkaError as OwnError
from aioproducer.types import RecordMetadata, TimestampType

_log = log.get("producer")
_LOOK_S: Final = 1.0


class Record(NamedTuple):
    """A record that was produced, and whom to tell what became of it."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: Headers | None
    partition: int | None
    timestamp_ms: int | None
    size: int
    since: float
    on_delivery: Any


class Reports:
    """The outcomes, and how much is produced and not reported."""

    def __init__(self, error_cb: Any, max_records: int, max_bytes: int) -> None:
        self.count: int = 0
        self.bytes: int = 0
        self._error_cb = error_cb
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._ready: deque[Callable[[], object]] = deque()
        self._silent = 0
        self._pollers = 0
        self._lock = threading.RLock()  # a signal handler may produce as well
        self._wake = threading.Condition()

    # -- in the threads that produce and poll ----------------------------------------------------

    def admit(self, size: int) -> None:
        """Count a record.

        Raises:
            BufferError: There are too many.
        """
        with self._lock:
            if not self.has_room(size):
                raise BufferError("Local: Queue full")
            self.count += 1
            self.bytes += size

    def has_room(self, size: int) -> bool:
        """Return whether a record would be admitted."""
        return not self.count or (
            self.count < self._max_records and self.bytes + size <= self._max_bytes
        )

    def forget(self, record: Record) -> None:
        """Count a record no more."""
        with self._lock:
            self.count -= 1
            self.bytes -= record.size

    def serve(self, timeout: float | None, enough: Callable[[], bool] | None = None) -> int:
        """Call the callbacks that are due, waiting for the first of them.

        Args:
            timeout: Seconds; None waits without a limit.
            enough: Ends the waiting.

        Returns:
            How many outcomes there were.

        Raises:
            Exception: What a callback raised; the others are called next time.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._ready and not self._silent:
            self._wait(deadline, enough)
        with self._lock:
            served, self._silent = self._silent, 0
        for _ in range(len(self._ready)):
            try:
                report = self._ready.popleft()
            except IndexError:  # another thread polls as well
                break
            served += 1
            report()
        return served

    def _wait(self, deadline: float | None, enough: Callable[[], bool] | None) -> None:
        with self._wake:
            self._pollers += 1
            try:
                while not self._ready and not self._silent and not (enough and enough()):
                    left = _LOOK_S if deadline is None else deadline - time.monotonic()
                    if left <= 0:
                        return
                    self._wake.wait(min(left, _LOOK_S))
            finally:
                self._pollers -= 1

    # -- in any thread ---------------------------------------------------------------------------

    def wake(self) -> None:
        """Let those who wait look again."""
        if self._pollers:
            with self._wake:
                self._wake.notify_all()

    def add(self, report: Callable[[], object]) -> None:
        """Have something called by the next `serve()`."""
        self._ready.append(report)
        self.wake()

    def error(self, error: OwnError) -> None:
        """Report an error that concerns no single record."""
        if self._error_cb is not None:
            callback, told = self._error_cb, translated(error)
            self.add(lambda: callback(told))

    # -- in the loop's thread --------------------------------------------------------------------

    def watch(self, record: Record, delivery: Any) -> None:
        """Report a delivery when it is done."""
        if record.on_delivery is None:
            delivery.add_done_callback(lambda _: self._over(record))
        else:
            delivery.add_done_callback(lambda done: self._on_done(record, done))

    def failed(self, record: Record, error: OwnError) -> None:
        """Report a record that no producer has."""
        if record.on_delivery is None:
            _log.error("a record of topic %s was not sent: %s", record.topic, error)
            self._over(record)
        else:
            now = time.monotonic()
            self.add(lambda: self._call(record, None, error, now))

    # -- private ---------------------------------------------------------------------------------

    def _over(self, record: Record) -> None:
        """Nobody wants to be told; a failure is logged by the producer."""
        self.forget(record)
        with self._lock:
            self._silent += 1
        self.wake()

    def _on_done(self, record: Record, delivery: Any) -> None:
        now = time.monotonic()
        self.add(lambda: self._tell(record, delivery, now))

    def _tell(self, record: Record, delivery: Any, at: float) -> None:
        error = delivery.exception()
        self._call(record, None if error is not None else delivery.result(), error, at)

    def _call(
        self, record: Record, where: RecordMetadata | None, error: OwnError | None, at: float
    ) -> None:
        self.forget(record)
        told = None if error is None else translated(error)
        record.on_delivery(told, _message(record, where, told, at - record.since))


def _message(
    record: Record, where: RecordMetadata | None, error: KafkaError | None, latency: float
) -> Message:
    partition, offset = record.partition, None
    timestamp = (TIMESTAMP_NOT_AVAILABLE, -1)
    if record.timestamp_ms is not None:
        timestamp = (TIMESTAMP_CREATE_TIME, record.timestamp_ms)
    if where is not None:
        partition, offset = where.partition, where.offset
        of_log = where.timestamp_type is TimestampType.LOG_APPEND_TIME
        kind = TIMESTAMP_LOG_APPEND_TIME if of_log else TIMESTAMP_CREATE_TIME
        timestamp = (kind, where.timestamp_ms)
    made: Message = errors.kin(Message)(
        record.topic,
        partition,
        offset,
        record.key,
        record.value,
        record.headers,
        error,
        timestamp,
        latency,
    )
    return made
