"""`FutureRecordMetadata`: what `KafkaProducer.send` returns, with kafka-python's methods.

Callbacks run in the order in which they were added, in the producer's thread; those that are added
when the outcome is known run at once.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, Self, cast

from aioproducer._util import log
from aioproducer._util.clock import Deadline
from aioproducer._util.tasks import HOOK_ERRORS
from aioproducer._util.threads import OneTimeEvent, Reentrant, released
from aioproducer.compat._forwarding import forwarded
from aioproducer.compat.kafka import _errors as errors
from aioproducer.compat.kafka._structs import RecordMetadata, metadata_of
from aioproducer.compat.kafka._translation import translated, translating
from aioproducer.errors import KafkaError
from aioproducer.records import murmur2_partition
from aioproducer.types import RecordMetadata as OwnMetadata
from aioproducer.types import TopicMetadata

__all__ = ["FutureRecordMetadata"]

_log = log.get("producer")
_POLL_S = 1.0

Outcome = tuple[RecordMetadata | None, Exception | None]
Step = Callable[[Outcome], object]


class Handle(Protocol):
    """The part of a delivery that a future needs; `DeliveryHandle` is one."""

    @property
    def _lock(self) -> Reentrant:
        """The lock of its producer, held for some instructions at a time."""

    def done(self) -> bool:
        """Return whether the outcome is known."""

    def result(self, timeout: float | None = None) -> OwnMetadata:
        """Wait for the outcome, and return or raise it."""

    def exception(self, timeout: float | None = None) -> KafkaError | None:
        """Wait for the outcome, and return the error."""

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call `callback(handle)` once the outcome is known."""


class PartitionChoice(NamedTuple):
    """The choice of a partition for a record that is sent."""

    topics: Mapping[str, TopicMetadata]
    topic: str
    partition: int | None
    key: bytes | None

    @property
    def topic_partition(self) -> tuple[str, int | None]:
        """Topic and partition; None for the partition that a batch of records without key gets."""
        known = self.topics.get(self.topic)
        count = 0 if known is None else len(known.partitions)
        if self.partition is not None or not count:
            return self.topic, self.partition
        if count > 1 and self.key is None:
            return self.topic, None
        return self.topic, murmur2_partition(self.key or b"", count)


ChoiceParts = tuple[Mapping[str, TopicMetadata], str, int | None, bytes | None]
"""The fields of a `PartitionChoice`, which few programs ask for."""


class FutureRecordMetadata:
    """The outcome of one record; use it from any thread.

    Attributes:
        error_on_callbacks: Whether callbacks may raise where they run at once; otherwise what they
            raise is logged.
    """

    __slots__ = (
        "__weakref__",
        "_choice",
        "_handle",
        "_header_size",
        "_ran",
        "_runner",
        "_steps",
    )

    error_on_callbacks: bool = False

    def __init__(self, handle: Handle, header_size: int, choice: ChoiceParts | None = None) -> None:
        self._handle = handle
        self._choice = choice
        self._header_size = header_size
        self._steps: list[Step] | None = None
        self._ran: OneTimeEvent | None = None
        self._runner: int | None = None

    @property
    def is_done(self) -> bool:
        """Whether the outcome is known."""
        return self._handle.done()

    @property
    def value(self) -> RecordMetadata | None:
        """The record's metadata; None before it is acknowledged, and when it failed."""
        return self._known()[0]

    @property
    def exception(self) -> Exception | None:
        """The error of the record; None if it did not fail, or not yet."""
        return self._known()[1]

    def succeeded(self) -> bool:
        """Return whether the record was acknowledged."""
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        """Return whether the record failed."""
        return self.is_done and self.exception is not None

    def retriable(self) -> bool:
        """Return whether the record failed and sending it again may succeed."""
        return bool(getattr(self.exception, "retriable", False))

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the outcome, and for the callbacks that were added before it was known.

        Args:
            timeout: Seconds; None waits as long as the record's own time limits allow.

        Raises:
            KafkaTimeoutError: The timeout ended first; the record goes on.
            KafkaError: The record failed.
        """
        deadline = Deadline(None if timeout is None else max(0.0, timeout))
        if not self._wait(deadline.left()):
            raise errors.shared_class(errors.KafkaTimeoutError)(
                f"Timeout after waiting for {timeout} secs."
            )
        if self._ran is not None and self._runner != threading.get_ident():
            with released(self._handle._lock):
                while not self._ran.wait(deadline.within(_POLL_S)) and not deadline.is_over:
                    pass
        value, exception = self._known()
        if exception is not None:
            try:
                raise exception
            finally:
                del exception  # as in `Delivery.result`
        return cast("RecordMetadata", value)

    def add_callback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call `f(*args, metadata, **kwargs)` when the record is acknowledged."""
        f = functools.partial(f, *args, **kwargs)
        return self._add(lambda outcome: None if outcome[1] is not None else f(outcome[0]))

    def add_errback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call `f(*args, exception, **kwargs)` when the record fails."""
        f = functools.partial(f, *args, **kwargs)
        return self._add(lambda outcome: None if outcome[1] is None else f(outcome[1]))

    def add_both(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call `f` in either case."""
        return self.add_callback(f, *args, **kwargs).add_errback(f, *args, **kwargs)

    def chain(self, future: Any) -> Self:
        """Give the outcome to another future of kafka-python, by its `success` or `failure`."""
        return self.add_callback(future.success).add_errback(future.failure)

    @property
    def _produce_future(self) -> PartitionChoice | None:
        """The choice, whose `topic_partition` OpenTelemetry reads; None for a refused record."""
        return None if self._choice is None else PartitionChoice(*self._choice)

    def __repr__(self) -> str:
        return f"<FutureRecordMetadata {self._handle!r}>"

    # -- private ---------------------------------------------------------------------------------

    def _wait(self, timeout: float | None) -> bool:
        if not self.is_done:
            with translating():
                try:
                    self._handle.exception(timeout)
                except TimeoutError:
                    return False
        return True

    def _known(self) -> Outcome:
        if not self._handle.done():
            return None, None
        error = self._handle.exception()
        if error is not None:
            return None, translated(error)
        return metadata_of(self._handle.result(), self._header_size), None

    def _add(self, step: Step) -> Self:
        with self._handle._lock:
            if self._steps is not None:
                self._steps.append(step)
                return self
            first = not self._handle.done()
            if first:
                self._steps = [step]
                self._ran = OneTimeEvent()
        if first:
            self._handle.add_done_callback(self._run)
        else:
            self._take(step, may_raise=self.error_on_callbacks)
        return self

    def _run(self, _: object) -> None:
        self._runner = threading.get_ident()
        try:
            while True:
                with self._handle._lock:
                    steps = self._steps
                    if not steps:
                        self._steps = None
                        break
                    self._steps = []
                for step in steps:
                    self._take(step, may_raise=False)
        finally:  # a callback may raise SystemExit
            if self._ran is not None:
                self._ran.set()

    def _take(self, step: Step, *, may_raise: bool) -> None:
        try:
            step(self._known())
        except HOOK_ERRORS:
            _log.exception("a callback of a record's future raised")
            if may_raise:
                raise


class Failed:
    """The substitute for the handle of a record that was refused when it was sent."""

    def __init__(self, error: KafkaError) -> None:
        self._lock: Reentrant = threading.RLock()
        self._error = error

    def done(self) -> bool:
        """Return True."""
        return True

    def result(self, timeout: float | None = None) -> OwnMetadata:
        """Raise the error."""
        raise self._error

    def exception(self, timeout: float | None = None) -> KafkaError:
        """Return the error."""
        return self._error

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call it at once."""
        callback(self)


def __getattr__(name: str) -> Any:
    return forwarded(name, __name__, "kafka.future", "kafka-python")
