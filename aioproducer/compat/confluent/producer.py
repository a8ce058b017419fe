"""`Producer`: confluent-kafka's calls on this producer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from aioproducer._secrets import hides_arguments
from aioproducer.blocking.loop_thread import LoopThread
from aioproducer.blocking.started import Started
from aioproducer.compat.confluent import errors
from aioproducer.compat.confluent._inside import Inside
from aioproducer.compat.confluent._reports import Record, Reports
from aioproducer.compat.confluent._settings import settings_of
from aioproducer.compat.confluent._statistics import Clock
from aioproducer.compat.confluent._translation import translated, translating
from aioproducer.compat.confluent.errors import KafkaError
from aioproducer.compat.confluent.message import Headers
from aioproducer.errors import KafkaError as OwnError
from aioproducer.records import record_size_bound

Callback = Callable[[Any, Any], object]
T = TypeVar("T")

_EXIT_TIMEOUT_S: Final = 10.0
_SLICE_S: Final = 0.05


class Producer:
    """confluent-kafka's producer; connects in the background.

    `produce()` never waits. Callbacks are called by `poll()` and `flush()` (and the transactional
    calls that flush), in their caller's thread. Use it from any number of threads.

    Args:
        config: librdkafka's properties with confluent-kafka's callbacks, as a mapping.
        **kwargs: More of them, overriding the mapping's.

    Raises:
        KafkaException: A property is unknown or has a wrong value.
        TypeError: The configuration is no mapping, or a callback is not callable.
    """

    @hides_arguments
    def __init__(self, config: Mapping[str, Any] | None = None, /, **kwargs: Any) -> None:
        if config is not None and not isinstance(config, Mapping):
            raise TypeError("expected configuration dict")
        if config is None and not kwargs:
            raise TypeError("expected configuration dict")
        settings = settings_of({**(config or {}), **kwargs})
        self._settings = settings
        self._limit = settings.config.max_request_size
        self._transactional = settings.config.transactional_id is not None
        self._reports = Reports(settings.error_cb, settings.max_records, settings.max_bytes)
        self._clock = Clock(settings, self._reports)
        self._thread = LoopThread(f"aioproducer {settings.config.client_id}")
        self._thread.start()
        self._inside = Inside(settings, self._thread, self._reports)
        self._started = Started(self._thread, self._inside, _EXIT_TIMEOUT_S)
        self._thread.post(self._inside.begin)
        self._closing = threading.Lock()
        self._closed = False

    # -- producing -------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: Callback | None = None,
        on_delivery: Callback | None = None,
        timestamp: int = 0,
        headers: Mapping[str, Any] | list[tuple[str, Any]] | None = None,
    ) -> None:
        """Hand a record over and return at once.

        Args:
            topic: Topic name.
            value: Text (as UTF-8) or bytes; None is a tombstone.
            key: Text or bytes; equal keys go to the same partition.
            partition: A partition id; -1 leaves it to the partitioner.
            callback: Another name of `on_delivery`.
            on_delivery: `on_delivery(error, message)`, called by `poll()` or `flush()`.
            timestamp: Milliseconds since the epoch; 0 is now.
            headers: A mapping or pairs; values are text, bytes or None.

        Raises:
            BufferError: `queue.buffering.max.messages` or `.kbytes` is reached: call `poll()`.
            KafkaException: The record is too large, or no transaction is open.
            TypeError: A part has a type that cannot be sent.
            RuntimeError: The producer is closed.
        """
        self._check_open()
        told = on_delivery or callback or self._settings.on_delivery
        record = record_of(topic, value, key, partition, timestamp, headers, told, self._limit)
        if self._transactional:
            self._check_transaction()
        self._reports.admit(record.size)
        try:
            self._inside.put(record)
        except BaseException as error:
            self._reports.forget(record)
            if isinstance(error, OwnError):
                raise errors.kin(errors.KafkaException)(translated(error)) from error
            raise

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: Callback | None = None,
        on_delivery: Callback | None = None,
    ) -> int:
        """Hand many records over.

        Args:
            topic: Topic name.
            messages: Mappings with the arguments of `produce()`, all optional. One that is refused
                gets an `_error`, a `KafkaError`.
            partition: For messages without one.
            callback: Another name of `on_delivery`.
            on_delivery: For messages without one.

        Returns:
            How many were handed over.

        Raises:
            TypeError: `messages` is no list of mappings.
        """
        if not isinstance(messages, list):
            raise TypeError("messages must be a list")
        for index, message in enumerate(messages):
            _check_message(index, message)
        accepted = 0
        for message in messages:
            own = message.get("on_delivery") or message.get("callback")
            try:
                self.produce(
                    topic,
                    message.get("value"),
                    message.get("key"),
                    message.get("partition", partition),
                    on_delivery=own or on_delivery or callback,
                    timestamp=message.get("timestamp", 0),
                    headers=message.get("headers"),
                )
            except BufferError:
                message["_error"] = errors.error(KafkaError._QUEUE_FULL)
            except errors.KafkaException as error:
                message["_error"] = error.args[0]
            else:
                accepted += 1
        return accepted

    # -- outcomes --------------------------------------------------------------------------------

    def poll(self, timeout: float = -1) -> int:
        """Call the callbacks that are due, waiting for the first of them.

        Args:
            timeout: Seconds; negative waits without a limit.

        Returns:
            How many outcomes and other events there were.

        Raises:
            Exception: What a callback raised; the others are called next time.
            RuntimeError: The producer is closed.
        """
        self._check_open()
        return self._reports.serve(limit_of(timeout))

    def flush(self, timeout: float = -1) -> int:
        """Send without lingering, wait for the outcomes and call the callbacks.

        Args:
            timeout: Seconds; negative waits as long as the records' own time limits allow.

        Returns:
            How many records have no outcome yet that was told.

        Raises:
            Exception: What a callback raised.
            RuntimeError: The producer is closed.
        """
        self._check_open()
        return self._flush(limit_of(timeout))

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Give records up; their callbacks get `_PURGE_QUEUE` or `_PURGE_INFLIGHT`.

        Args:
            in_queue: Those not sent yet.
            in_flight: Those sent and not acknowledged; they may be written all the same.
            blocking: Return when it is done.
        """
        self._check_open()
        if not blocking:
            self._submit(self._inside.purge(in_queue, in_flight))
            return
        with translating():
            self._thread.call(self._inside.purge(in_queue, in_flight))

    def __len__(self) -> int:
        return self._reports.count

    def __bool__(self) -> bool:
        return True

    # -- transactions ----------------------------------------------------------------------------

    def init_transactions(self, timeout: float = -1) -> None:
        """End what an earlier producer of this `transactional.id` has left; call it once first.

        Args:
            timeout: Seconds, as for all calls here; negative waits as long as the producer's own
                time limits (`max_block_ms`) allow.

        Raises:
            KafkaException: Ask its `args[0]` for `retriable()`, `txn_requires_abort()`, `fatal()`,
                as for all calls here.
        """
        self._call(lambda: self._inside.run(lambda producer: producer.init_transactions()), timeout)

    def begin_transaction(self, timeout: float = -1) -> None:
        """Begin a transaction; what any thread produces until its end belongs to it."""
        self._call(self._inside.begin_transaction, timeout)

    def commit_transaction(self, timeout: float = -1) -> None:
        """Flush, and commit. On a timeout call it again."""
        deadline = _deadline_of(timeout)
        self._check_transactional()
        if self._flush(limit_of(timeout)):
            raise timed_out(timeout)
        if self._inside.lost is not None:
            told = translated(self._inside.lost)
            raise errors.exception(told.code(), told.str(), txn_requires_abort=True)
        self._call(
            lambda: self._inside.run(lambda producer: producer.commit_transaction()),
            _left(deadline),
        )

    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort; records that were not sent yet fail with `_PURGE_QUEUE`."""
        self._call(self._inside.abort, timeout)
        self._reports.serve(0)

    def send_offsets_to_transaction(
        self, positions: list[Any], group_metadata: Any, timeout: float = -1
    ) -> None:
        """Make a consumer group's positions part of the transaction.

        Args:
            positions: confluent-kafka's `TopicPartition` with their offsets; those without an
                offset are left out.
            group_metadata: `Consumer.consumer_group_metadata()`, or this package's own.
            timeout: Seconds.
        """
        offsets = [position for position in positions if position.offset >= 0]
        if offsets:
            self._call(
                lambda: self._inside.run(
                    lambda producer: producer.send_offsets_to_transaction(offsets, group_metadata)
                ),
                timeout,
            )

    # -- life ------------------------------------------------------------------------------------

    def close(self) -> bool:
        """Flush, abort an open transaction, and release everything; safe to call again."""
        with self._closing:
            if self._closed:
                return True
            self._closed = True
        try:
            if not self._thread.forked:
                if not self._transactional:
                    self._flush(None)
                with translating():
                    self._started.close()
                self._reports.serve(0)
        finally:
            self._started.close_soon()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and not self._thread.forked:
            self._started.close_soon()

    # -- private ---------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Producer has been closed")
        if self._clock.is_on:
            self._clock.look(self._inside)

    def _check_transactional(self) -> None:
        self._check_open()
        if not self._transactional:
            raise errors.exception(
                KafkaError._NOT_CONFIGURED,
                "The Transactional API requires transactional.id to be configured",
            )

    def _check_transaction(self) -> None:
        check = self._inside.check_send
        if check is None:
            raise errors.exception(
                KafkaError._STATE, "Unable to produce message: call init_transactions() first"
            )
        with translating():
            check()

    def _flush(self, timeout: float | None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._reports.count:
            flushed = self._submit(self._inside.flush())
            try:
                while self._reports.count and not flushed.done():
                    left = None if deadline is None else max(0.0, deadline - time.monotonic())
                    self._reports.serve(left, flushed.done)
                    if left == 0.0:
                        return self._reports.count
            finally:
                flushed.cancel()
            # Nothing is left to wait for but callbacks, perhaps those of another thread.
            if self._reports.count and not self._reports.serve(_SLICE_S):
                with translating():
                    self._thread.check_alive()
            if deadline is not None and time.monotonic() >= deadline:
                break
        return self._reports.count

    def _submit(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        """Run something in the loop, without waiting for it."""
        loop = self._thread._loop
        try:
            with translating():
                self._thread.check_alive()
            assert loop is not None
            future = asyncio.run_coroutine_threadsafe(work, loop)
        except BaseException:
            work.close()
            raise
        future.add_done_callback(lambda _: self._reports.wake())
        return future

    def _call(self, work: Callable[[], Coroutine[Any, Any, None]], timeout: float) -> None:
        self._check_transactional()
        with translating():
            in_time = self._thread.call(is_in_time(work(), limit_of(timeout)))
        if not in_time:
            raise timed_out(timeout)


def record_of(
    topic: Any,
    value: Any,
    key: Any,
    partition: Any,
    timestamp: Any,
    headers: Any,
    on_delivery: Any,
    limit: int,
) -> Record:
    """Return what was produced, checked.

    Raises:
        KafkaException: It is larger than `limit`.
        TypeError: A part has a type that cannot be sent.
    """
    if not isinstance(topic, str):
        raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
    value_bytes, key_bytes = _bytes_of(value), _bytes_of(key)
    pairs = None if headers is None else _pairs_of(headers)
    record = Record(
        topic,
        value_bytes,
        key_bytes,
        pairs,
        None if partition == -1 else _number(partition),
        _number(timestamp) or None,
        record_size_bound(key_bytes, value_bytes, tuple(pairs or ())),
        time.monotonic(),
        on_delivery,
    )
    if record.size > limit:
        raise errors.exception(
            KafkaError.MSG_SIZE_TOO_LARGE,
            "Unable to produce message: Broker: Message size too large",
        )
    return record


async def is_in_time(work: Coroutine[Any, Any, object], limit: float | None) -> bool:
    """Run something; return whether that took at most `limit` seconds."""
    try:
        async with asyncio.timeout(limit) as scope:
            await work
    except TimeoutError:
        if scope.expired():
            return False
        raise
    return True


def timed_out(timeout: float) -> errors.KafkaException:
    """Return what a call raises whose time is over."""
    return errors.exception(
        KafkaError._TIMED_OUT, f"not done within {timeout} s; call it again", retriable=True
    )


def limit_of(timeout: float) -> float | None:
    """Return a timeout of confluent-kafka, where a negative one is none."""
    return None if timeout < 0 else float(timeout)


def _deadline_of(timeout: float) -> float | None:
    return None if timeout < 0 else time.monotonic() + timeout


def _left(deadline: float | None) -> float:
    return -1 if deadline is None else max(0.0, deadline - time.monotonic())


def _bytes_of(part: Any) -> bytes | None:
    if part is None or type(part) is bytes:
        return part
    if isinstance(part, str):
        return part.encode()
    if not isinstance(part, bytes | bytearray | memoryview):
        raise TypeError(f"a bytes-like object is required, not {type(part).__name__!r}")
    return bytes(part)


def _check_message(index: int, message: Any) -> None:
    if not isinstance(message, dict):
        raise TypeError(f"Message at index {index} must be a dict")
    for part in ("value", "key"):
        if not isinstance(message.get(part), str | bytes | bytearray | memoryview | None):
            raise TypeError(f"Message {part} at index {index} must be bytes or str")
    if not isinstance(message.get("partition", 0), int):
        raise TypeError(f"Message partition at index {index} must be int")


def _number(given: Any) -> int:
    if not isinstance(given, int):
        raise TypeError(f"{type(given).__name__!r} object cannot be interpreted as an integer")
    return given


def _pairs_of(headers: Any) -> Headers:
    if isinstance(headers, Mapping):
        headers = headers.items()
    elif not isinstance(headers, list | tuple):
        raise TypeError(
            "expected headers to be dict or list of (key, value) tuples, "
            f"not {type(headers).__name__}"
        )
    pairs: Headers = []
    for name, value in headers:
        if value is not None and not isinstance(value, str | bytes | bytearray | memoryview):
            raise TypeError(
                "expected header value to be None, binary, or unicode string, "
                f"not {type(value).__name__}"
            )
        if not isinstance(name, str | bytes):
            raise TypeError(f"expected header name to be a string, not {type(name).__name__}")
        pairs.append((name if isinstance(name, str) else name.decode(), _bytes_of(value)))
    return pairs
